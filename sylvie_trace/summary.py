"""Builds a run's report from its records: numbers here, rendering in ``sylvie_trace.report``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from sylvie_trace.breakdown import RankParts, break_down, rank_parts
from sylvie_trace.columns import MISSING, PURPOSES
from sylvie_trace.epochs import common_epochs, epoch_times_s, measured_epochs
from sylvie_trace.findings import find
from sylvie_trace.reader import Run
from sylvie_trace.replay import replay
from sylvie_trace.report_types import (
    Boundary,
    EpochTime,
    Memory,
    Modes,
    Quality,
    ReplayFacts,
    Report,
    RunFacts,
    Series,
)
from sylvie_trace.schema import ASYNC, SYNC, TRAIN
from sylvie_trace.traffic import bits_used, bytes_total, epoch_traffic
from sylvie_trace.wall import online, overhead, wall


def run_parts(run: Run) -> tuple[RankParts, ...]:
    """Every rank's parts of its epochs; none without message and span records."""
    return rank_parts(run) if run.traced and common_epochs(run) else ()


def build(run: Run, parts: Sequence[RankParts] | None = None) -> Report:
    """The report of a run, findings included. What the records do not tell is None.

    ``parts``: the result of ``run_parts`` when it is at hand.
    """
    common = common_epochs(run)
    measured = measured_epochs(common)
    parts = run_parts(run) if parts is None else parts
    breakdown = break_down(parts, measured) if parts and measured else None
    traffic = epoch_traffic(run, measured) if measured and not run.missing_ranks else None
    times = wall(run)
    work = online(parts) if parts else None
    boundary = _boundary(run.section("boundary"))
    epoch_time = _epoch_time(run, common, measured)
    report = Report(
        run=_facts(run, len(common)),
        epoch_time_s=epoch_time,
        throughput_epochs_per_s=1 / epoch_time.mean if epoch_time and epoch_time.mean > 0 else None,
        breakdown_s=breakdown.mean if breakdown else None,
        breakdown_max_rank_s=breakdown.max_rank if breakdown else None,
        breakdown_max_rank=breakdown.max_rank_number if breakdown else None,
        attributed_fraction=breakdown.attributed_fraction if breakdown else None,
        bytes_per_epoch=traffic,
        bytes_total=bytes_total(run),
        compression_ratio=traffic.compression_ratio if traffic else None,
        bits=bits_used(run, measured, boundary.level_counts) if measured else None,
        boundary=boundary,
        modes=_modes(run, set(common)),
        staleness=_staleness(run) if run.traced else None,
        ldr_replay=_replay(run),
        quality=_quality(run),
        series=_series(run),
        wall_s=times,
        offline_cached=_typed(run.info, "offline_cached", bool),
        online_s=work,
        overhead=overhead(times, work),
        peak_memory_mb=_memory([t.footer.peak_memory_mb for t in run.ranks if t.footer]),
        device_peak_mb=max((m for m in _known([t.footer.device_peak_mb for t in run.ranks if t.footer])), default=None),
    )
    return msgspec.structs.replace(report, findings=find(run, report))


def _typed(source: Mapping[str, Any], key: str, kind: type) -> Any:
    """``source[key]`` when it is of ``kind``, else None: run.json may come from another version."""
    value = source.get(key)
    return value if isinstance(value, kind) else None


def _facts(run: Run, epochs: int) -> RunFacts:
    config, describes = run.section("config"), run.section("describes")
    dataset = run.section("dataset").get("name", config.get("dataset"))

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    return RunFacts(
        run_id=run.ranks[0].header.run_id,
        dataset=text(dataset),
        model=text(config.get("model")),
        system=text(config.get("system")),
        bits=text(describes.get("bits", config.get("bits"))),
        mask=text(describes.get("mask", config.get("mask"))),
        schedule=text(describes.get("schedule", config.get("schedule"))),
        world_size=run.world_size,
        seed=_typed(config, "seed", int),
        epochs=epochs,
        complete=run.complete,
    )


def _epoch_time(run: Run, common: Sequence[int], measured: Sequence[int]) -> EpochTime | None:
    if not measured:
        return None
    times = epoch_times_s(run, measured)
    return EpochTime(
        median=float(np.median(times)),
        mean=float(times.mean()),
        std=float(times.std(ddof=1)) if len(times) > 1 else None,
        p95=float(np.percentile(times, 95)),
        n=len(times),
        warmup_excluded=len(common) - len(measured),
    )


def _boundary(section: Mapping[str, Any]) -> Boundary:
    """run.json's boundary, field by field; a field of another form is left out."""
    values: dict[str, Any] = dict.fromkeys(Boundary.__struct_fields__)
    for name, hint in Boundary.__annotations__.items():
        try:
            values[name] = msgspec.convert(section.get(name), _BOUNDARY_HINTS[hint])
        except msgspec.ValidationError:
            values[name] = None
    return Boundary(**values)


_BOUNDARY_HINTS: dict[str, Any] = {
    "int | None": int | None,
    "float | None": float | None,
    "str | None": str | None,
    "list[int] | None": list[int] | None,
    "list[float] | None": list[float] | None,
}


def _modes(run: Run, ran: set[int]) -> Modes:
    """Modes of the epochs that every rank recorded."""
    first = run.ranks[0]
    modes = [record.mode for record in first.epochs if record.epoch in ran]
    forced = [d.epoch + 1 for d in first.decisions if d.forced_sync and d.epoch + 1 in ran]
    return Modes(
        sync=modes.count(SYNC),
        async_=modes.count(ASYNC),
        switches=sum(before != after for before, after in pairwise(modes)),
        forced_sync=len(forced),
        forced_sync_epochs=forced,
    )


def _staleness(run: Run) -> dict[str, int]:
    """Consumed training messages by age, summed over ranks; rows used a second time count again."""
    counts: Counter[str] = Counter({"0": 0, "1": 0})
    for trace in run.ranks:
        consumed = trace.messages["age"][trace.messages["purpose"] == PURPOSES[TRAIN]]
        ages = np.concatenate((consumed[consumed != MISSING], trace.reuses["age"]))
        values, numbers = np.unique(ages, return_counts=True)
        counts.update(dict(zip(map(str, values.tolist()), numbers.tolist(), strict=True)))
    return dict(counts)


def _replay(run: Run) -> ReplayFacts:
    try:
        result = replay(run, constant_clock=True)
    except ValueError:
        return ReplayFacts(constant_clock_differs=None, decided=0)
    return ReplayFacts(constant_clock_differs=result.differs_share, decided=result.decided)


def _quality(run: Run) -> Quality:
    for trace in run.ranks:
        if trace.footer is not None and trace.footer.quality:
            try:
                return msgspec.convert(trace.footer.quality, Quality)
            except msgspec.ValidationError:
                continue
    return _quality_so_far(run)


def _quality_so_far(run: Run) -> Quality:
    """Of a run without a footer: its evaluations up to the end, which every rank recorded alike."""
    metric = _typed(run.info, "metric", str)
    known = [(record.metrics["val"], record) for record in run.ranks[0].epochs if record.metrics.get("val") is not None]
    if not known:
        return Quality(metric=metric)
    _, best = max(known, key=lambda pair: (pair[0], -pair[1].epoch))
    return Quality(
        metric=metric,
        best_val=best.metrics["val"],
        test_at_best_val=best.metrics.get("test"),
        best_epoch=best.epoch,
    )


def _series(run: Run) -> Series:
    epochs = run.ranks[0].epochs
    return Series(
        L=[record.loss for record in epochs],
        F=[record.smoothed_loss for record in epochs],
        ldr=[record.ldr for record in epochs],
        descent_rate=[record.descent_rate for record in epochs],
        epoch_time_s=[record.et_wall_s for record in epochs],
        et=[record.et_s for record in epochs],
        base_bits=[record.base_bits for record in epochs],
        mode=[record.mode for record in epochs],
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _memory(peaks: Sequence[float | None]) -> Memory | None:
    known = _known(peaks)
    return Memory(max=max(known), mean=sum(known) / len(known)) if known else None
