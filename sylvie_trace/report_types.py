"""The report of a run as frozen records; field names are report.json's keys, units are in the names.

Seconds end in ``_s``, shares and metrics are fractions. None means "cannot be computed"; a finding says why.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sylvie_trace.breakdown import Breakdown
from sylvie_trace.traffic import BitsUsed, BytesTotal, EpochTraffic
from sylvie_trace.wall import Online, Overhead, Wall


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know. ``status``: ``note``, ``warning``, or ``absent`` for a missing number."""

    check: str
    status: str
    evidence: str


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was run."""

    run_id: str
    dataset: str | None
    model: str | None
    system: str | None
    bits: str | None
    mask: str | None
    schedule: str | None
    world_size: int
    seed: int | None
    epochs: int
    complete: bool


class EpochTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the measured epochs, s, each the maximum over ranks; ``std`` is the sample's, None for one."""

    median: float
    mean: float
    std: float | None
    p95: float
    n: int
    warmup_excluded: int


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """The boundary pool, as the extractor found it."""

    pool_nodes: int | None
    share_of_nodes: float | None
    halo_rows: int | None
    level_counts: list[int] | None
    thresholds: list[float] | None
    importance: str | None


class Modes(msgspec.Struct, frozen=True, kw_only=True):
    """Execution modes over all epochs; ``forced_sync`` counts epochs that a true rule made synchronous."""

    sync: int
    async_: int = msgspec.field(name="async")
    switches: int
    forced_sync: int
    forced_sync_epochs: list[int]


class ReplayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The replay with a constant clock: the share of decisions that differ, and of how many."""

    constant_clock_differs: float | None
    decided: int


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics as fractions."""

    metric: str | None = None
    best_val: float | None = None
    test_at_best_val: float | None = None
    final_test: float | None = None
    best_epoch: int | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One entry an epoch. ``epoch_time_s`` is the wall clock's et, ``et`` what the rule divided by."""

    L: list[float | None]
    F: list[float | None]
    ldr: list[float | None]
    descent_rate: list[float | None]
    epoch_time_s: list[float]
    et: list[float]
    base_bits: list[int]
    mode: list[str]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak resident memory of the ranks, MB."""

    max: float
    mean: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that report.json says; rendered by ``sylvie_trace.report``."""

    run: RunFacts
    epoch_time_s: EpochTime | None
    throughput_epochs_per_s: float | None
    breakdown_s: Breakdown | None
    breakdown_max_rank_s: Breakdown | None
    breakdown_max_rank: int | None
    attributed_fraction: float | None
    bytes_per_epoch: EpochTraffic | None
    bytes_total: BytesTotal | None
    compression_ratio: float | None
    bits: BitsUsed | None
    boundary: Boundary
    modes: Modes
    staleness: dict[str, int] | None
    ldr_replay: ReplayFacts
    quality: Quality
    series: Series
    wall_s: Wall
    offline_cached: bool | None
    online_s: Online | None
    overhead: Overhead
    peak_memory_mb: Memory | None
    device_peak_mb: float | None
    findings: tuple[Finding, ...] = ()


def to_builtins(report: Report) -> dict[str, Any]:
    """The report as plain dictionaries, lists, numbers and strings, keyed as report.json."""
    result: dict[str, Any] = msgspec.to_builtins(report)
    return result
