"""Quality against time and bytes: what a run had reached after how much of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sylvie_trace.epochs import common_epochs, epoch_times_s
from sylvie_trace.reader import Run


@dataclass(frozen=True)
class Point:
    """After ``epoch``: seconds of training (without evaluations), bytes sent by all ranks (messages and weight
    gradients), the validation metric, and the best of it so far."""

    epoch: int
    time_s: float
    bytes: int
    val: float
    best_val: float


@dataclass(frozen=True)
class MeanPoint:
    """Means over the runs of a setting at an epoch that all of them evaluated; ``val_std`` None for one run."""

    epoch: int
    time_s: float
    bytes: float
    val: float
    val_std: float | None
    runs: int


def curve(run: Run) -> tuple[Point, ...]:
    """One point per evaluated epoch; empty when no epoch has a validation metric."""
    epochs = common_epochs(run)
    if not epochs:
        return ()
    seconds = np.cumsum(epoch_times_s(run, epochs))
    sent = dict.fromkeys(epochs, 0)
    for trace in run.ranks:
        for record in trace.epochs:
            if record.epoch in sent:
                own = record.main_bytes + record.meta_bytes + record.header_bytes
                sent[record.epoch] += own + record.gradient_allreduce_bytes
    total, best, points = 0, -np.inf, []
    metrics = {record.epoch: record.metrics for record in run.ranks[0].epochs}
    for place, epoch in enumerate(epochs):
        total += sent[epoch]
        val = metrics[epoch].get("val")
        if val is not None:
            best = max(best, val)
            points.append(Point(epoch, float(seconds[place]), total, val, float(best)))
    return tuple(points)


def mean_curve(curves: Sequence[Sequence[Point]]) -> tuple[MeanPoint, ...]:
    """The mean over runs, epoch by epoch, of the epochs that every run evaluated."""
    if not curves or not all(curves):
        return ()
    by_epoch = [{point.epoch: point for point in one} for one in curves]
    shared = sorted(set.intersection(*(set(one) for one in by_epoch)))
    result = []
    for epoch in shared:
        points = [one[epoch] for one in by_epoch]
        vals = [point.val for point in points]
        result.append(
            MeanPoint(
                epoch=epoch,
                time_s=float(np.mean([point.time_s for point in points])),
                bytes=float(np.mean([point.bytes for point in points])),
                val=float(np.mean(vals)),
                val_std=float(np.std(vals, ddof=1)) if len(vals) > 1 else None,
                runs=len(points),
            )
        )
    return tuple(result)


def first_reaching(points: Sequence[Point], target: float) -> Point | None:
    """The first evaluated epoch whose validation metric is at least ``target``."""
    return next((point for point in points if point.val >= target), None)
