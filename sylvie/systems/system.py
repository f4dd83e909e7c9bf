"""A system is a value: which rows are sent, when they are used, in how many rounds they come, and what decides.

The exchange, the layers and the trainer are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sylvie.exchange.arrivals import ArrivalFilter, Unfiltered
from sylvie.exchange.exchange import Round

Rounds = Callable[[int, int], tuple[Round, ...]]


def together(rank: int, world_size: int) -> tuple[Round, ...]:
    """All peers in one fused exchange."""
    peers = tuple(p for p in range(world_size) if p != rank)
    return (Round(send_peers=peers, recv_peers=peers),)


def peer_by_peer(rank: int, world_size: int) -> tuple[Round, ...]:
    """N − 1 rounds; in round k a rank sends to rank + k and receives from rank − k."""
    return tuple(
        Round(send_peers=((rank + k) % world_size,), recv_peers=((rank - k) % world_size,)) for k in range(1, world_size)
    ) or together(rank, world_size)


@dataclass(frozen=True, kw_only=True)
class System:
    """Where a system stands on the axes.

    ``bits``/``schedule``: what it is fixed to (None: free to be chosen). ``rounds``: how halo rows arrive.
    ``rematerialise``: drop halo rows after use and fetch them again for backward. ``arrivals``: what is done to arriving rows.
    ``sample``: the share of boundary rows sent each epoch (None: all).
    """

    name: str
    summary: str
    bits: str | None
    mask: str | None
    schedule: str | None
    rounds: Rounds = together
    rematerialise: bool = False
    arrivals: Callable[[], ArrivalFilter] = Unfiltered
    sample: float | None = None
