"""ExchangePlan: which rows leave for, and arrive from, every peer, forward and backward.

Both ends derive every size from the plan, the row width D and the base bits; nothing is negotiated at run time. Forward,
inner rows leave and halo rows arrive; backward, the gradients of halo rows leave and those of sent rows arrive.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sylvie.exchange.transport import Transport
from sylvie.partition.partition import Partition


@dataclass(frozen=True, kw_only=True, eq=False)
class Route:
    """One direction. Peer p gets rows ``source[out_index[p]]``; rows from p land at ``in_slice[p]`` of the arrivals."""

    out_index: tuple[Tensor, ...]  # int64 per peer
    out_ids: tuple[Tensor, ...]  # int64 global ids per peer
    out_levels: tuple[Tensor, ...]  # uint8 mask levels per peer
    in_ids: tuple[Tensor, ...]
    in_levels: tuple[Tensor, ...]
    in_slice: tuple[slice, ...]

    @property
    def arrivals(self) -> int:
        """Rows that arrive from all peers together."""
        return self.in_slice[-1].stop if self.in_slice else 0

    def on(self, device: torch.device) -> Route:
        """The same route with the indices of rows to send on ``device``; ids and levels stay on the host."""
        return replace(self, out_index=tuple(index.to(device) for index in self.out_index))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangePlan:
    """The two routes of a rank; ``plan_id`` (64 bits) is equal on all ranks and stands in every header."""

    rank: int
    world_size: int
    plan_id: int
    forward: Route
    backward: Route

    def on(self, device: torch.device) -> ExchangePlan:
        """The same plan for rows on ``device``."""
        return replace(self, forward=self.forward.on(device), backward=self.backward.on(device))


def _slices(counts: Sequence[int]) -> tuple[slice, ...]:
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    return tuple(slice(a, b) for a, b in itertools.pairwise(ends))


def build_plan(partition: Partition, send_levels: Tensor, halo_levels: Tensor, salt: str = "") -> ExchangePlan:
    """The plan of a rank from its part and the mask levels (uint8) of its rows to send [s] and halo rows [h].

    ``salt`` enters the plan id: whatever else both ends must agree on (thresholds, seed, metadata form).
    """
    out = _slices(partition.send_splits)
    halo = _slices(partition.recv_splits)
    send_ids = partition.inner_ids[partition.send_index]
    every_halo = torch.arange(partition.num_halo)
    forward = Route(
        out_index=tuple(partition.send_index[s] for s in out),
        out_ids=tuple(send_ids[s] for s in out),
        out_levels=tuple(send_levels[s] for s in out),
        in_ids=tuple(partition.halo_ids[s] for s in halo),
        in_levels=tuple(halo_levels[s] for s in halo),
        in_slice=halo,
    )
    backward = Route(
        out_index=tuple(every_halo[s] for s in halo),
        out_ids=forward.in_ids,
        out_levels=forward.in_levels,
        in_ids=forward.out_ids,
        in_levels=forward.out_levels,
        in_slice=out,
    )
    seed = f"{partition.fingerprint}/{partition.world_size}/{salt}".encode()
    return ExchangePlan(
        rank=partition.rank,
        world_size=partition.world_size,
        plan_id=int.from_bytes(hashlib.sha256(seed).digest()[:8], "little"),
        forward=forward,
        backward=backward,
    )


def route_digest(ids: Tensor, levels: Tensor) -> int:
    """A 48-bit digest of the rows of one message, for the check that both ends mean the same rows."""
    raw = ids.contiguous().numpy().tobytes() + levels.contiguous().numpy().tobytes()
    return int.from_bytes(hashlib.sha256(raw).digest()[:6], "little")


def check_plans(plan: ExchangePlan, transport: Transport) -> None:
    """Before the first exchange: what every rank will send is what its peer expects, row for row.

    A split matrix that is no transpose would abort or hang inside the collective. Raises ValueError that names both ranks.
    """
    world, route = plan.world_size, plan.forward
    mine = torch.zeros(1 + 4 * world, dtype=torch.int64)
    mine[0] = plan.plan_id >> 1  # 63 bits fit
    for peer in range(world):
        out = (route.out_ids[peer].shape[0], route_digest(route.out_ids[peer], route.out_levels[peer]))
        due = (route.in_ids[peer].shape[0], route_digest(route.in_ids[peer], route.in_levels[peer]))
        mine[1 + 4 * peer : 5 + 4 * peer] = torch.tensor([*out, *due])
    everyone = transport.all_gather_int64(mine)
    if len(set(everyone[:, 0].tolist())) > 1:
        raise ValueError("ranks hold parts of different partitions or masks; remove the partition cache and start again")
    table = everyone[:, 1:].view(world, world, 4)
    for src in range(world):
        for dst in range(world):
            sent, wanted = table[src, dst, :2].tolist(), table[dst, src, 2:].tolist()
            if sent != wanted:
                raise ValueError(
                    f"rank {src} would send {sent[0]} rows to rank {dst}, which expects {wanted[0]} "
                    f"{'others' if sent[0] == wanted[0] else 'of them'}; partition again"
                )
