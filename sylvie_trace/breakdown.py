"""Where the time of an epoch went: measured stretches of each rank's main thread, and the work behind it.

On the main thread the spans of an epoch (forward, backward, loss, optimiser, gradient all-reduce, coordinate)
enclose the exchanges' encodes, decodes and waits. Every part is a union of measured intervals, the parts are
disjoint, and what none of them covers is ``other``. A wait for rows is split at the moment when the latest
peer was ready to send (its ``sent_ns`` moved onto this rank's clock): before it, waiting for a late sender,
``exposed_wait``; after it, ``exposed_transfer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import MISSING, PURPOSES, THREADS, Table
from sylvie_trace.epochs import Extents, extents, spans_of
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import (
    BACKGROUND,
    MAIN,
    SPAN_BACKWARD,
    SPAN_COORDINATE,
    SPAN_FORWARD,
    SPAN_GRADIENT_ALLREDUCE,
    SPAN_LOSS,
    SPAN_OPTIMISER,
    TRAIN,
)
from sylvie_trace.timeline import Intervals, intervals, subtract, totals_within, union


@dataclass(frozen=True)
class Breakdown:
    """Seconds per epoch. The first eight fields sum to the epoch; the last three run behind it."""

    compute: float
    encode: float
    decode: float
    exposed_wait: float
    exposed_transfer: float
    gradient_allreduce: float
    coordinate: float
    other: float
    encode_hidden: float
    decode_hidden: float
    comm_hidden: float


@dataclass(frozen=True)
class RunBreakdown:
    """Means over the measured epochs: over all ranks, and of the rank with most compute + encode + decode.

    ``attributed_fraction`` = 1 − other / epoch.
    """

    mean: Breakdown
    max_rank: Breakdown
    max_rank_number: int
    attributed_fraction: float | None


PARTS = tuple(field.name for field in fields(Breakdown))


@dataclass(frozen=True)
class RankParts:
    """A rank's epochs and, for every part of ``Breakdown``, its length in each of them in ns, shape (E,)."""

    rank: int
    extent: Extents
    parts: dict[str, npt.NDArray[np.int64]]

    def mean_s(self, epochs: Sequence[int]) -> Breakdown:
        """Mean seconds per epoch over ``epochs``."""
        chosen = np.isin(self.extent.epoch, epochs)
        return Breakdown(**{name: float(self.parts[name][chosen].mean()) / 1e9 for name in PARTS})


def rank_parts(run: Run) -> tuple[RankParts, ...]:
    """Every rank's parts, the one pass over the messages of a traced run."""
    result = []
    for trace in run.ranks:
        extent = extents(run, trace)
        result.append(RankParts(trace.rank, extent, epoch_parts_ns(run, trace, extent)))
    return tuple(result)


def break_down(ranks: Sequence[RankParts], epochs: Sequence[int]) -> RunBreakdown:
    """The breakdown over ``epochs`` (not empty), which every rank must have recorded."""
    assert epochs and ranks
    per_rank = {rank.rank: rank.mean_s(epochs) for rank in ranks}
    mean = Breakdown(
        **{part: float(np.mean([getattr(b, part) for b in per_rank.values()])) for part in PARTS}
    )
    busiest = max(per_rank, key=lambda rank: _busy(per_rank[rank]))
    epoch_s = sum(getattr(mean, part) for part in PARTS[:8])
    return RunBreakdown(mean, per_rank[busiest], busiest, 1 - mean.other / epoch_s if epoch_s > 0 else None)


def _busy(breakdown: Breakdown) -> float:
    return breakdown.compute + breakdown.encode + breakdown.decode


def epoch_parts_ns(run: Run, trace: RankTrace, extent: Extents) -> dict[str, npt.NDArray[np.int64]]:
    """Each part's length in ns in each of the rank's epochs, shape (E,); parts as in ``Breakdown``."""
    sets = part_intervals(run, trace)
    start, end = extent.start_ns, extent.end_ns
    parts = {name: totals_within(subtract(part, extent.pauses), start, end) for name, part in sets.items()}
    attributed = sum((parts[name] for name in PARTS[:7]), start=np.zeros(len(start), dtype=np.int64))
    parts["other"] = extent.length_ns - attributed
    return parts


def part_intervals(run: Run, trace: RankTrace) -> dict[str, Intervals]:
    """The intervals of every part but ``other`` over the whole run; those on the main thread are disjoint."""
    messages = trace.messages[trace.messages["purpose"] == PURPOSES[TRAIN]]
    encode = _pairs(messages, "encode", MAIN)
    decode = subtract(_pairs(messages, "decode", MAIN), encode)
    late, waiting = wait_intervals(run, trace, messages)
    codec = union(encode, decode)
    late = subtract(late, codec)
    transfer = subtract(subtract(waiting, codec), late)
    taken = union(codec, waiting)
    gradient = subtract(spans_of(run, trace, (SPAN_GRADIENT_ALLREDUCE,), epochs_only=True), taken)
    taken = union(taken, gradient)
    coordinate = subtract(spans_of(run, trace, (SPAN_COORDINATE,), epochs_only=True), taken)
    taken = union(taken, coordinate)
    working = (SPAN_FORWARD, SPAN_BACKWARD, SPAN_LOSS, SPAN_OPTIMISER)
    return {
        "compute": subtract(spans_of(run, trace, working, epochs_only=True), taken),
        "encode": encode,
        "decode": decode,
        "exposed_wait": late,
        "exposed_transfer": transfer,
        "gradient_allreduce": gradient,
        "coordinate": coordinate,
        "encode_hidden": _pairs(messages, "encode", BACKGROUND),
        "decode_hidden": _pairs(messages, "decode", BACKGROUND),
        "comm_hidden": subtract(_pairs(messages, "wire"), waiting),
    }


def wait_intervals(run: Run, trace: RankTrace, messages: Table) -> tuple[Intervals, Intervals]:
    """(time lost to late senders, all waiting) of the main thread.

    Messages that share one wait, the peers of a fused collective, end at the latest peer's arrival.
    """
    waited = messages[(messages["wait_start_ns"] != MISSING) & (messages["wait_end_ns"] != MISSING)]
    starts, ends = waited["wait_start_ns"], waited["wait_end_ns"]
    arrivals = np.clip(arrival_ns(run, trace, waited), starts, ends)
    # An unknown arrival is MISSING, the smallest number: clipping puts it at the start of the wait.
    order = np.lexsort((arrivals, ends, starts))
    starts, ends, arrivals = starts[order], ends[order], arrivals[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    return intervals(starts[last], arrivals[last]), intervals(starts, ends)


def arrival_ns(run: Run, trace: RankTrace, messages: Table) -> npt.NDArray[np.int64]:
    """When each message's peer was ready to send, on this rank's clock, shape (n,); MISSING where unknown.

    t_here = t_peer − offset_peer + offset_here. A peer without a trace has an unknown offset.
    """
    shift = np.full(run.world_size, MISSING, dtype=np.int64)
    for other in run.ranks:
        shift[other.rank] = trace.header.offset_ns - other.header.offset_ns
    moves = shift[messages["peer"]]
    known = (messages["sent_ns"] != MISSING) & (moves != MISSING)
    return np.where(known, np.where(known, messages["sent_ns"], 0) + np.where(known, moves, 0), MISSING)


def _pairs(messages: Table, name: str, thread: str | None = None) -> Intervals:
    """The union of the ``name`` intervals of ``messages``, on one thread when it is given."""
    starts, ends = messages[f"{name}_start_ns"], messages[f"{name}_end_ns"]
    chosen = (starts != MISSING) & (ends != MISSING)
    if thread is not None:
        chosen &= messages[f"{name}_thread"] == THREADS[thread]
    return intervals(starts[chosen], ends[chosen])
