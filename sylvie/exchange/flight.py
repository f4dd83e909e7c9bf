"""Flight: one exchange under way, with the buffers, headers and times that belong to it alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, SupportsInt

from torch import Tensor

from sylvie.exchange.header import MessageHeader
from sylvie.exchange.wire import Wire
from sylvie.exchange.worker import Ticket
from sylvie_trace.schema import MAIN

if TYPE_CHECKING:  # carriers know sites and errors
    from sylvie.exchange.carrier import Labels


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place of the program at which rows are exchanged; layers count from 1, ``round`` tells the peers of a round apart."""

    layer: int
    step: int
    direction: str
    round: int = 0

    def __str__(self) -> str:
        return f"L{self.layer}.{self.step} {'fwd' if self.direction == 'forward' else 'bwd'}"


class ExchangeError(RuntimeError):
    """An exchange failed or delivered something other than what was due; knows where."""

    def __init__(self, message: str, *, rank: int, site: Site, epoch: int, peer: int | None = None) -> None:
        where = f"rank {rank}, {site}, epoch {epoch}" + ("" if peer is None else f", peer {peer}")
        super().__init__(f"{message} ({where})")
        self.site, self.epoch, self.peer = site, epoch, peer


@dataclass(kw_only=True, eq=False)
class Times:
    """Moments of an exchange's phases (``int()`` gives run-clock ns, see streams); None where a phase has not happened."""

    encode: tuple[SupportsInt, SupportsInt] | None = None
    encode_thread: str = MAIN
    queued: SupportsInt | None = None
    wire: tuple[SupportsInt, SupportsInt] | None = None
    decode: tuple[SupportsInt, SupportsInt] | None = None
    decode_thread: str = MAIN
    wait: tuple[SupportsInt, SupportsInt] | None = None
    wait_epoch: int | None = None


@dataclass(kw_only=True, eq=False)
class Flight:
    """Bound to (plan, epoch, site): ``rows`` receives the restored rows, ``headers`` what each peer's message said."""

    site: Site
    epoch: int
    mode: str
    base: int
    wire: Wire
    rows: Tensor
    scratch: Tensor | None
    ticket: Ticket | None = None
    send: Tensor | None = None
    recv: Tensor | None = None
    labels: Labels | None = None
    source: Tensor | None = None
    source_version: int = 0
    decoded: bool = False
    consumed: int | None = None
    recorded: bool = False
    headers: dict[int, MessageHeader] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
