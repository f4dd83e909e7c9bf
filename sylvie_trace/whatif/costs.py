"""What a scenario makes of the traced costs: bytes at other widths, codec and work freed of what ran beside them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sylvie_trace.schema import ASYNC
from sylvie_trace.whatif.program import WORK, EpochProgram, Exchange, Op, Rows
from sylvie_trace.whatif.simulate import Cost, Machine, Step
from sylvie_trace.whatif.types import Scenario

#: Copying a row into a plain message takes this share of quantizing it (both are bound by memory).
PLAIN_SHARE = 0.5
#: Share of a link's goodput that gloo's pairwise messages reach, both directions at once (.94 to .96 at 100 to 500 Mbit/s).
PAIRWISE_SHARE = 0.95
_PLAIN = 32


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the trace does not determine, as factors that a prediction's interval is drawn from.

    ``turns``: the share of a pair's bytes that go in turns where a connection serves both directions.
    ``overlap_share``: how much of the codec's time in a background thread was computing, when it shared a core (the rest was
    waiting for it). ``work``: what the main thread's work is multiplied by, so that the model gives the run's own time.
    ``cpu_per_byte``: seconds of a core the network takes for a byte. ``rate``: the true goodput over the
    stated one.
    """

    turns: float = 1.0
    overlap_share: float = 0.6
    cpu_per_byte: float = 2.5e-9
    rate: float = 1.0
    work: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The traced machine: the link's goodput, the fixed seconds of collectives, whether threads shared a core."""

    bytes_per_s: float
    rtt_s: float
    exchange_s: float
    gradient_s: float
    coordinate_s: float
    shared_core: bool
    one_way: bool
    wire_share: float


def message_bytes(rows: Rows, bits: int | None, metadata: str) -> int:
    """Bytes of a message when every row has ``bits`` bits; None: as traced."""
    if bits is None or rows.rows == 0:
        return rows.main + rows.meta + rows.header
    if bits == _PLAIN:
        return rows.rows * 4 * rows.width + rows.header
    return rows.rows * (math.ceil(rows.width * bits / 8) + (4 if metadata == "bf16" else 8)) + rows.header


def busiest_bytes(exchange: Exchange, bits: int | None, metadata: str) -> int:
    """Bytes of the busier direction of a rank's exchange."""
    return max(
        sum(message_bytes(rows, bits, metadata) for rows in exchange.sent),
        sum(message_bytes(rows, bits, metadata) for rows in exchange.received),
    )


def wire_bytes(exchange: Exchange, bits: int | None, metadata: str, assumed: Assumptions, *, one_way: bool) -> float:
    """Bytes that pass a rank's link one after the other in an exchange.

    A backend that uses both directions at once (``one_way`` false) is done with the busier one. gloo has one connection a pair:
    the second direction is announced behind the bytes of the first, so both take their turn.
    """
    sent = [message_bytes(rows, bits, metadata) for rows in exchange.sent]
    received = [message_bytes(rows, bits, metadata) for rows in exchange.received]
    busier = max(sum(sent), sum(received))
    if not one_way:
        return float(busier)
    pair = max((a + b for a, b in zip(sent, received, strict=True)), default=0)
    return max(float(busier), assumed.turns * pair)


def calibrate(
    ranks: Sequence[Sequence[EpochProgram]],
    bytes_per_s: float,
    rtt_s: float,
    *,
    shared_core: bool,
    one_way: bool,
    wire_share: float,
) -> Traced:
    """Fixed seconds of each kind of collective: what the last rank to arrive spent in it, less the time of its bytes.

    ``bytes_per_s`` is the link's goodput, ``wire_share`` what of it an exchange reaches.

    Every rank waits in a collective for the last one, so the shortest of the ranks' times is that of the transfer.
    """
    exchange, gradient, coordinate = [], [], []
    wire = bytes_per_s * wire_share
    for programs in zip(*ranks, strict=True):
        gradient.append(min(p.gradient_s for p in programs) - max(p.gradient_bytes[-1] for p in programs) / wire)
        coordinate.append(min(p.coordinate_s for p in programs))
        for site in set.intersection(*(set(p.exchanges) for p in programs)):
            times = [t for p in programs if (t := p.exchanges[site].wire_s)]
            size = max(wire_bytes(p.exchanges[site], None, "", Assumptions(), one_way=one_way) for p in programs)
            if times:
                exchange.append(min(times) - size / wire)
    return Traced(
        bytes_per_s=bytes_per_s,
        rtt_s=rtt_s,
        exchange_s=_typical(exchange),
        gradient_s=_typical(gradient),
        coordinate_s=_typical(coordinate),
        shared_core=shared_core,
        one_way=one_way,
        wire_share=wire_share,
    )


def _typical(seconds: Sequence[float]) -> float:
    """The lower quartile: contention only ever adds."""
    if not seconds:
        return 0.0
    if len(seconds) < 4:
        return max(0.0, min(seconds))
    return max(0.0, statistics.quantiles(seconds, n=4)[0])


def machine_of(traced: Traced, scenario: Scenario, ranks: int, assumed: Assumptions) -> Machine:
    """The machine of a scenario: another rate, and another latency in the fixed part of every collective."""
    hops = 0.0 if scenario.latency_s is None else scenario.latency_s - traced.rtt_s / 2
    return Machine(
        goodput=scenario.goodput * assumed.rate * traced.wire_share,
        burst_bytes=float(scenario.burst_bytes) * (2 if traced.one_way else 1),  # each direction has its bucket
        exchange_s=max(0.0, traced.exchange_s + hops),
        gradient_s=max(0.0, traced.gradient_s + 2 * (ranks - 1) * hops),
        coordinate_s=max(0.0, traced.coordinate_s + 2 * (ranks - 1) * hops),
        shared_core=traced.shared_core,
        cpu_per_byte=assumed.cpu_per_byte if traced.shared_core else 0.0,
    )


def step_of(program: EpochProgram, traced: Traced, scenario: Scenario, assumed: Assumptions, metadata: str) -> Step:
    """A traced epoch under a scenario."""
    kept = assumed.overlap_share if program.codec_behind and traced.shared_core else 1.0
    was_plain = program.base == _PLAIN
    plain = was_plain if scenario.bits is None else scenario.bits == _PLAIN
    codec = kept * (1.0 if plain == was_plain else PLAIN_SHARE if plain else 1 / PLAIN_SHARE)
    costs = {
        site: Cost(
            exchange.encode_s * codec,
            exchange.decode_s * codec,
            wire_bytes(exchange, scenario.bits, metadata, assumed, one_way=traced.one_way),
        )
        for site, exchange in program.exchanges.items()
    }
    schedule = scenario.schedule if scenario.schedule in ("sync", ASYNC) else program.mode
    return Step(
        mode=schedule,
        ops=_own_work(program, traced, kept, assumed),
        costs=costs,
        gradient_bytes=tuple(map(float, program.gradient_bytes)),
    )


def _own_work(program: EpochProgram, traced: Traced, kept: float, assumed: Assumptions) -> tuple[Op, ...]:
    """The main thread's work without what the background took from its core while both ran."""
    total, taken = program.work_s, 0.0
    if traced.shared_core and total > 0:
        sizes = sum(wire_bytes(each, None, "", assumed, one_way=traced.one_way) for each in program.exchanges.values())
        if program.mode == ASYNC:
            codec = sum(exchange.encode_s + exchange.decode_s for exchange in program.exchanges.values())
            taken = (kept * codec if program.codec_behind else 0.0) + assumed.cpu_per_byte * sizes
        else:
            taken = assumed.cpu_per_byte * min(sizes, traced.bytes_per_s * _beside(program))
    factor = max(0.5, 1 - taken / total) * assumed.work if total > 0 else 1.0
    return tuple(replace(op, seconds=op.seconds * factor) if op.kind == WORK else op for op in program.ops)


def _beside(program: EpochProgram) -> float:
    """Seconds of work between posts and their takes: what can run while rows travel."""
    open_sites, seconds = set(), 0.0
    for op in program.ops:
        if op.kind == "post":
            open_sites.add(op.site)
        elif op.kind == "take":
            open_sites.discard(op.site)
        elif open_sites:
            seconds += op.seconds
    return seconds
