"""A session whose halo rows are already there: the same program without messages, codec or gradient all-reduce.

What is left of an epoch is its computation, the floor under every system's time. Rows are zeros of the right shape; losses mean
nothing. Coordination is real (a few hundred bytes), so ranks still keep step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sylvie.exchange.exchange import HaloExchange, Setting
from sylvie.exchange.flight import Site
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.transport import Transport
from sylvie.session import Session


class StandingExchange(HaloExchange):
    """Posts nothing; takes rows that stand ready since the first epoch."""

    def begin_epoch(self, setting: Setting) -> None:
        """Enter an epoch."""
        self._setting = setting
        self._standing: dict[Site, Tensor] = getattr(self, "_standing", {})

    def post(self, site: Site, source: Tensor) -> None:
        """Remember the shape of what would arrive."""
        if site not in self._standing:
            wire = self._wire(site, source)
            self._standing[site] = torch.zeros(wire.rows_in, wire.dim, dtype=source.dtype)

    def take(self, site: Site) -> Tensor:
        """The standing rows."""
        rows = self._standing[site]
        return rows.view_as(rows)

    def drain(self) -> None:
        """Nothing is in flight."""


class IdleReducer:
    """Sums control values over ranks and leaves gradients, which are started behind backward, as they are."""

    def __init__(self, inner: Reducer) -> None:
        self._inner = inner
        self.world_size, self.control_bytes = inner.world_size, 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum."""
        return self._inner.sum_(tensor)

    def gather(self, values: Tensor) -> Tensor:
        """All ranks' values."""
        return self._inner.gather(values)

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Nothing."""
        return lambda: None

    def close(self) -> None:
        """Give back what the inner reducer holds."""
        self._inner.close()


class StandingSession(Session):
    """The run as configured, computation alone."""

    exchange_type = StandingExchange

    def _connect(self) -> tuple[Transport, Reducer]:
        transport, reducer = super()._connect()
        return transport, IdleReducer(reducer)
