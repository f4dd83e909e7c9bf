"""The autograd seam: what a layer calls to see remote rows, forward and backward.

``Halo.start`` sends a tensor's boundary rows and returns at once; ``Arrival.finish`` gives the halo rows. Backward runs the
same two steps in reverse: when the gradient of the halo rows is known it is sent, and when the gradient of the inner rows is
complete the gradients that peers sent back are added to it. Whatever a layer computes between the two steps overlaps
with the wire, in both directions:

    arrival = halo.start(h, layer=2)
    local = local_edges.sum(arrival.inner)           # the wire is busy
    out = local + remote_edges.sum(arrival.finish())

Autograd runs later operations first, so the backward order is the mirror of the forward one, equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sylvie.exchange.arrivals import ArrivalFilter, Unfiltered
from sylvie.exchange.exchange import HaloExchange
from sylvie.exchange.flight import Site
from sylvie_trace.schema import BACKWARD, FORWARD

T = TypeVar("T")


class Halo:
    """The exchanges of one purpose as a layer sees them; ``exchange`` None is the world of one rank."""

    def __init__(
        self,
        exchange: HaloExchange | None,
        *,
        overlap: bool = True,
        rematerialise: bool = False,
        arrivals: ArrivalFilter | None = None,
    ) -> None:
        self._exchange, self._overlap, self._rematerialise = exchange, overlap, rematerialise
        self._arrivals = arrivals or Unfiltered()
        self._calls = 0

    @property
    def rounds(self) -> int:
        """In how many rounds halo rows arrive: 1, or one per peer group."""
        return len(self._exchange.rounds) if self._exchange is not None else 1

    def begin_forward(self) -> None:
        """Number the layers of a new forward pass from 1."""
        self._calls = 0

    def start(self, h: Tensor, *, layer: int | None = None, step: int = 0) -> Arrival:
        """Send the boundary rows of ``h`` [n, D]; ``layer`` counts the calls of a forward pass where it is not given."""
        self._calls += 1
        number = self._calls if layer is None else layer
        if self._exchange is None:
            return Arrival(h, [], rematerialise=False)
        crossings = [self._crossing(self._exchange, number, step, index) for index in range(self.rounds)]
        return Arrival(h, crossings, rematerialise=self._rematerialise)

    def _crossing(self, exchange: HaloExchange, layer: int, step: int, index: int) -> _Crossing:
        forward = Site(layer=layer, step=step, direction=FORWARD, round=index)
        backward = Site(layer=layer, step=step, direction=BACKWARD, round=index)
        send_peers, recv_peers = exchange.peers(forward)
        route = exchange.plan.forward
        pieces = [route.out_index[peer] for peer in send_peers]
        return _Crossing(
            exchange=exchange,
            sent=torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.int64),
            first_row=min((route.in_slice[peer].start for peer in recv_peers), default=0),
            forward=forward,
            backward=backward,
            overlap=self._overlap,
            arrivals=self._arrivals,
        )


class Arrival:
    """Rows on their way. ``inner`` is the tensor to compute with until they are there (not the one that was sent)."""

    def __init__(self, h: Tensor, crossings: list[_Crossing], *, rematerialise: bool) -> None:
        self._crossings, self._rematerialise = crossings, rematerialise
        self._sent = h
        self.inner = h
        self._token: Tensor | None = None
        if crossings and not rematerialise:
            self.inner, self._token = crossings[0].start(h)

    def weight(self, dtype: torch.dtype) -> Tensor | None:
        """What each halo row counts in a sum [h, 1]: None for 1, 0 for a row that was left out this epoch.

        Only where all rows arrive in one round.
        """
        return self._crossings[0].exchange.row_weight(dtype) if self._crossings else None

    def finish(self) -> Tensor:
        """All halo rows [h, D] in the part's order, whatever the order of the rounds; waits for them if need be."""
        if not self._crossings:
            return self.inner[:0]
        pieces = list(self.map(lambda index, rows: rows, keeps_rows=False))
        if len(pieces) == 1:
            return pieces[0]
        order = sorted(range(len(pieces)), key=lambda index: self._crossings[index].first_row)
        return torch.cat([pieces[index] for index in order])

    def map(self, use: Callable[[int, Tensor], T], *, keeps_rows: bool) -> Iterator[T]:
        """``use(round, rows)`` for every round, in order; the next round's rows travel meanwhile.

        ``keeps_rows``: ``use`` saves the rows for backward. Where the system rematerialises, they are then dropped and
        fetched again by the backward pass instead.
        """
        if not self._crossings:
            yield use(0, self.inner[:0])
            return
        if self._rematerialise and keeps_rows:
            yield from self._map_rematerialised(use)
            return
        crossings, h = self._crossings, self.inner
        token = self._token
        if token is None:
            h, token = crossings[0].start(h)
        for index, crossing in enumerate(crossings):
            following = None
            if index + 1 < len(crossings):
                h, following = crossings[index + 1].start(h)
            yield use(index, crossing.finish(token))
            if following is not None:
                token = following

    def _map_rematerialised(self, use: Callable[[int, Tensor], T]) -> Iterator[T]:
        for index, crossing in enumerate(self._crossings):

            def fetch_and_use(h: Tensor, index: int = index, crossing: _Crossing = crossing) -> T:
                _, token = crossing.start(h)
                return use(index, crossing.finish(token))

            yield checkpoint(fetch_and_use, self._sent, use_reentrant=False)


@dataclass(eq=False)
class _Crossing:
    """One forward site and its backward counterpart.

    ``sent`` are the inner rows [s] that leave in the round, ``first_row`` is the first halo row that arrives in it.
    """

    exchange: HaloExchange
    sent: Tensor
    first_row: int
    forward: Site
    backward: Site
    overlap: bool
    arrivals: ArrivalFilter
    early: Tensor | None = None

    def start(self, h: Tensor) -> tuple[Tensor, Tensor]:
        inner, token = _Send.apply(h, self)  # type: ignore[no-untyped-call]
        return inner, token

    def finish(self, token: Tensor) -> Tensor:
        rows: Tensor = _Receive.apply(token, self)  # type: ignore[no-untyped-call]
        return rows

    def post(self, site: Site, rows: Tensor) -> None:
        self.exchange.post(site, rows)
        if not self.overlap:
            self.early = self._take(site)

    def take(self, site: Site) -> Tensor:
        rows, self.early = self.early, None
        return self._take(site) if rows is None else rows

    def _take(self, site: Site) -> Tensor:
        return self.arrivals.apply(site, self.exchange.take(site))


class _Send(torch.autograd.Function):
    """h -> (h, token): forward posts the boundary rows, backward adds the gradients that came back."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, crossing: _Crossing) -> tuple[Tensor, Tensor]:
        ctx.crossing = crossing
        crossing.post(crossing.forward, h)
        return h.view_as(h), h.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        crossing: _Crossing = ctx.crossing
        returned = crossing.take(crossing.backward)
        return grads[0].index_add(0, crossing.sent, returned), None


class _Receive(torch.autograd.Function):
    """token -> halo rows: forward waits for them, backward posts their gradient."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, crossing: _Crossing) -> Tensor:
        ctx.crossing = crossing
        return crossing.take(crossing.forward)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        crossing: _Crossing = ctx.crossing
        crossing.post(crossing.backward, grads[0])
        return grads[0].new_zeros(()), None
