"""What the network between ranks is like, measured once before training: clock offsets, round trips, link rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sylvie.launch import World

_PINGS = 12
_PROBE_BYTES = (1 << 16, 1 << 20, 1 << 23)
_ENOUGH_S = 0.05
_MAX_PAIRS = 16


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """This rank's run clock minus rank 0's, and how far the truth may be from it."""

    offset_ns: int
    bound_ns: int


def measure_clock_offset(world: World, clock: Callable[[], int]) -> ClockOffset:
    """Ping rank 0 a dozen times; the shortest round trip gives the offset, half of it the bound (Cristian 1989).

    Ranks on one host read one clock: offset and bound are exactly 0.
    """
    if world.local_world_size == world.world_size:
        return ClockOffset(offset_ns=0, bound_ns=0)
    stamp = torch.zeros(1, dtype=torch.int64)
    if world.rank == 0:
        for rank in range(1, world.world_size):
            for _ in range(_PINGS):
                dist.recv(stamp, rank)
                stamp[0] = clock()
                dist.send(stamp, rank)
        return ClockOffset(offset_ns=0, bound_ns=0)
    best: tuple[int, int] | None = None
    for _ in range(_PINGS):
        before = clock()
        dist.send(stamp, 0)
        dist.recv(stamp, 0)
        after = clock()
        trip = after - before
        if best is None or trip < best[0]:
            best = (trip, before + trip // 2 - int(stamp[0]))
    assert best is not None
    return ClockOffset(offset_ns=best[1], bound_ns=(best[0] + 1) // 2)


def gather_text(world: World, text: str, width: int = 128) -> list[str]:
    """Every rank's short text, in rank order; cut to ``width`` bytes."""
    if world.world_size == 1:
        return [text]
    raw = text.encode()[:width].ljust(width, b"\0")
    mine = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    everyone = [torch.empty_like(mine) for _ in range(world.world_size)]
    dist.all_gather(everyone, mine)
    return [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in everyone]


def measure_links(
    world: World, hosts: list[str], clock: Callable[[], int]
) -> tuple[list[dict[str, float | int]], int]:
    """Round trip (s) and rate (bytes/s) between the first ranks of every pair of hosts; on one host, between ranks 0 and 1.

    Known to the sending rank of each pair and shared with all; bounded to well below a second. Beside them, the bytes that
    this rank sent for it.
    """
    if world.world_size == 1:
        return [], 0
    leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
    pairs = [(a, b) for i, a in enumerate(leaders) for b in leaders[i + 1 :]][:_MAX_PAIRS] or [(0, 1)]
    found: list[dict[str, float | int]] = []
    sent = 0
    for src, dst in pairs:
        measured = torch.zeros(3, dtype=torch.float64)
        if world.rank in (src, dst):
            measured = _probe(src, dst, world.rank, clock)
            sent += int(measured[2])
        dist.broadcast(measured, src)
        found.append({"src": src, "dst": dst, "rtt_s": float(measured[0]), "bytes_per_s": float(measured[1])})
    return found, sent


def _probe(src: int, dst: int, rank: int, clock: Callable[[], int]) -> torch.Tensor:
    """Round trip (s), rate (bytes/s), bytes that either end sent."""
    token, trip_ns, rate, sent = torch.zeros(1, dtype=torch.int64), 0, 0.0, 0
    for _ in range(4):
        taken = _round_trip(token, src, dst, rank, clock)
        trip_ns = taken if not trip_ns else min(trip_ns, taken)
    for size in _PROBE_BYTES:
        payload = torch.zeros(size, dtype=torch.uint8)
        taken = _round_trip(payload, src, dst, rank, clock)
        rate, sent = 2 * size / (taken * 1e-9), sent + size
        token[0] = int(taken * 1e-9 >= _ENOUGH_S)  # both ends must agree on going on: the sender decides
        (dist.send if rank == src else dist.recv)(token, dst if rank == src else src)
        if int(token[0]):
            break
    return torch.tensor([trip_ns * 1e-9, rate, sent], dtype=torch.float64)


def _round_trip(payload: torch.Tensor, src: int, dst: int, rank: int, clock: Callable[[], int]) -> int:
    before = clock()
    if rank == src:
        dist.send(payload, dst)
        dist.recv(payload, dst)
    else:
        dist.recv(payload, src)
        dist.send(payload, src)
    return max(clock() - before, 1)
