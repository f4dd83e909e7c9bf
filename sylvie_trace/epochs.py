"""The epochs of a run on each rank's clock: their extents, and which of them are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import THREADS
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import MAIN, SPAN_CHECKPOINT, SPAN_EVALUATE
from sylvie_trace.timeline import Intervals, intervals, totals_within

#: The paper's warm-up; a run of no more epochs than this leaves out only epoch 0.
WARM_UP_EPOCHS = 10


@dataclass(frozen=True)
class Extents:
    """Epochs of one rank: ``epoch``, ``start_ns``, ``end_ns`` of shape (E,), on the rank's run clock.

    An epoch lasts from its start to the next one's (the last: to its end). ``pauses`` are the evaluations and
    checkpoints; they belong to no epoch, and ``length_ns`` leaves them out.
    """

    epoch: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    pauses: Intervals
    length_ns: npt.NDArray[np.int64]


def spans_of(run: Run, trace: RankTrace, names: Sequence[str], *, epochs_only: bool = False) -> Intervals:
    """The union of a rank's main-thread spans of these names; ``epochs_only``: those of training epochs."""
    codes = [run.span_names[name] for name in names if name in run.span_names]
    chosen = np.isin(trace.spans["name"], codes) & (trace.spans["thread"] == THREADS[MAIN])
    if epochs_only:
        chosen &= trace.spans["epoch"] >= 0
    return intervals(trace.spans["start_ns"][chosen], trace.spans["end_ns"][chosen])


def extents(run: Run, trace: RankTrace) -> Extents:
    """The extents of a rank's recorded epochs."""
    epoch = np.array([record.epoch for record in trace.epochs], dtype=np.int64)
    start = np.array([record.start_ns for record in trace.epochs], dtype=np.int64)
    end = np.array([record.end_ns for record in trace.epochs], dtype=np.int64)
    if epoch.size > 1:
        follows = epoch[1:] == epoch[:-1] + 1
        end[:-1] = np.where(follows, start[1:], end[:-1])
    pauses = spans_of(run, trace, (SPAN_EVALUATE, SPAN_CHECKPOINT))
    return Extents(epoch, start, end, pauses, end - start - totals_within(pauses, start, end))


def common_epochs(run: Run) -> list[int]:
    """Epochs that every rank recorded, ascending: after a crash some ranks lack the last one."""
    recorded = [{record.epoch for record in trace.epochs} for trace in run.ranks]
    return sorted(set.intersection(*recorded)) if recorded else []


def measured_epochs(epochs: Sequence[int]) -> list[int]:
    """All but the first 10; of 10 epochs or fewer, all but epoch 0."""
    first = WARM_UP_EPOCHS if len(epochs) > WARM_UP_EPOCHS else 1
    return [epoch for epoch in epochs if epoch >= first]


def epoch_times_s(run: Run, epochs: Sequence[int]) -> npt.NDArray[np.float64]:
    """Time of each of ``epochs`` in s, the maximum over ranks, shape (len(epochs),)."""
    longest = np.zeros(len(epochs), dtype=np.int64)
    for trace in run.ranks:
        extent = extents(run, trace)
        longest = np.maximum(longest, extent.length_ns[np.isin(extent.epoch, epochs)])
    return longest / 1e9
