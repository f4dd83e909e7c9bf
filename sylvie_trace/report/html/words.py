"""The report in sentences: the verdict, whether to trust the run, what the three axes did, and the figures on top."""

from __future__ import annotations

from dataclasses import dataclass

from sylvie_trace.breakdown import Breakdown
from sylvie_trace.report.html import marks
from sylvie_trace.report.terminal import duration, percent, size
from sylvie_trace.report_types import Report


@dataclass(frozen=True)
class Tile:
    """One figure on top of the page."""

    name: str
    value: str
    note: str


def verdict(report: Report) -> str:
    """The run in one line: how fast, where the time goes, what compression and staleness did, quality."""
    time = report.epoch_time_s
    if time is None:
        return f"No epoch is left to measure: {report.run.epochs} recorded by every rank."
    parts = [f"{duration(time.median)} an epoch{_where(report.breakdown_s)}"]
    if report.compression_ratio is not None:
        ratio = report.compression_ratio
        parts.append(
            "messages as large as fp32"
            if 0.9 < ratio < 1.1
            else f"messages {ratio:.1f} times smaller than fp32"
            if ratio >= 1.1
            else f"messages {1 / ratio:.1f} times as large as fp32"
        )
    modes = report.modes
    if modes.async_ and modes.sync:
        parts.append(f"{modes.async_} of {modes.sync + modes.async_} epochs asynchronous")
    elif modes.async_:
        parts.append("every epoch asynchronous")
    score = report.quality.test_at_best_val
    if score is not None:
        parts.append(f"test {report.quality.metric or 'score'} {percent(score)}")
    return "; ".join(parts) + "."


def _where(mean: Breakdown | None) -> str:
    if mean is None:
        return ""
    whole = sum(getattr(mean, part) for part in marks.PARTS)
    if whole <= 0:
        return ""
    waiting = mean.exposed_wait + mean.exposed_transfer
    words = f": {percent(mean.compute / whole)} computing, {percent(waiting / whole)} waiting for rows"
    rest = {name: getattr(mean, name) for name in ("encode", "decode", "gradient_allreduce", "coordinate", "other")}
    largest = max(rest, key=lambda name: rest[name])
    if rest[largest] > 0.1 * whole:
        words += f", {percent(rest[largest] / whole)} {marks.PARTS[largest][1]}"
    return words


def trust(report: Report, warnings: int) -> tuple[str, str]:
    """(``good`` or ``care``, one sentence): whether the figures may be used; ``warnings`` stand on the page."""
    contradicted = {"audit", "decisions"} & {finding.check for finding in report.findings if finding.status == "warning"}
    checked = "bytes add up, ages and causality hold" if report.staleness is not None else "bytes add up (no message records)"
    if not report.run.complete:
        return "care", "Read with care: the run is not complete."
    if contradicted:
        return "care", "Do not trust it: the records contradict each other, see below."
    if warnings:
        many = _many(warnings, "warning")
        return "care", f"The run is complete and {checked}; {many} below."
    return "good", f"The run is complete, {checked}, and no check complains."


def tiles(report: Report) -> list[Tile]:
    """The figures that a reader looks for first."""
    time, traffic, bits, modes = report.epoch_time_s, report.bytes_per_epoch, report.bits, report.modes
    result = []
    if time is not None:
        note = f"median of {time.n}, p95 {duration(time.p95)}, {time.warmup_excluded} left out"
        result.append(Tile("epoch", duration(time.median), note))
    if report.throughput_epochs_per_s is not None:
        result.append(Tile("throughput", f"{report.throughput_epochs_per_s:.3g} /s", "measured epochs a second"))
    if traffic is not None:
        sent = traffic.main + traffic.meta + traffic.header
        note = f"metadata {size(traffic.meta)}, fp32 {size(traffic.fp32_equivalent)}"
        result.append(Tile("sent an epoch", size(sent), note))
    if report.compression_ratio is not None:
        result.append(Tile("compression", f"{report.compression_ratio:.3g} ×", "fp32 bytes by bytes sent"))
    if bits is not None and bits.mean is not None:
        note = f"pool {bits.node_mean:.3g}" if bits.node_mean is not None else "mean over rows sent"
        result.append(Tile("bits a row", f"{bits.mean:.3g}", note))
    note = f"{modes.forced_sync} by the rule, {_many(modes.switches, 'switch')}"
    result.append(Tile("sync / async", f"{modes.sync} / {modes.async_}", note))
    quality = report.quality
    if quality.test_at_best_val is not None:
        note = f"at the best validation, {percent(quality.best_val)}; final {percent(quality.final_test)}"
        result.append(Tile(f"test {quality.metric or 'score'}", percent(quality.test_at_best_val), note))
    if report.peak_memory_mb is not None:
        result.append(
            Tile("peak memory", f"{report.peak_memory_mb.max:.0f} MB", f"mean rank {report.peak_memory_mb.mean:.0f} MB")
        )
    return result


def axes(report: Report) -> list[tuple[str, str]]:
    """What each of the three axes was set to and did."""
    run, modes, bits, boundary = report.run, report.modes, report.bits, report.boundary
    mask = f"mask {run.mask}"
    if boundary.pool_nodes is not None and boundary.share_of_nodes is not None:
        mask += f"; {boundary.pool_nodes} boundary nodes, {percent(boundary.share_of_nodes)} of the graph"
    counts = boundary.level_counts
    if run.mask == "off":
        mask += "; every row has the base width"
    elif counts is not None and any(counts):
        levels = ", ".join(f"{percent(number / sum(counts))} × {1 << level}" for level, number in enumerate(counts) if number)
        mask += f"; share of nodes by factor on the base: {levels}"
    width = f"bits {run.bits}"
    if report.series.base_bits:
        used = [(base, report.series.base_bits.count(base)) for base in sorted(set(report.series.base_bits))]
        width += "; base " + ", ".join(f"{base} in {_many(number, 'epoch')}" for base, number in used)
    if bits is not None and bits.mean is not None:
        width += f"; {bits.mean:.3g} bits a row on average"
    execution = f"schedule {run.schedule}; {modes.sync} synchronous epochs, {modes.forced_sync} of them forced by the rule, "
    execution += f"{modes.async_} asynchronous, {_many(modes.switches, 'switch')}"
    differs = report.ldr_replay.constant_clock_differs
    if differs is not None and "adaptive" in (run.bits, run.schedule):
        execution += f"; {percent(differs)} of {report.ldr_replay.decided} decisions would differ with a constant clock"
    return [("Data: bits by node", mask), ("Time: base bits", width), ("Execution: sync or async", execution)]


def _many(number: int, noun: str) -> str:
    """``1 switch``, ``2 switches``."""
    return f"{number} {noun}" + ("" if number == 1 else "es" if noun == "switch" else "s")
