"""The report as a summary for a terminal."""

from __future__ import annotations

from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sylvie_trace.breakdown import PARTS, Breakdown
from sylvie_trace.report_types import Report

_STYLES = {"warning": "bold yellow", "note": "cyan", "absent": "dim"}


def render(report: Report, console: Console) -> None:
    """Print the summary: what ran, how fast, where the time and the bytes went, findings."""
    run = report.run
    console.print(Text(f"{run.run_id}  {run.system or '?'} on {run.dataset or '?'}", style="bold"))
    console.print(
        Text(
            f"model {run.model}, {run.world_size} ranks, bits {run.bits}, mask {run.mask}, "
            f"schedule {run.schedule}, seed {run.seed}, {run.epochs} epochs"
            f"{'' if run.complete else ', incomplete'}"
        )
    )
    console.print(_figures(report))
    if report.breakdown_s is not None and report.breakdown_max_rank_s is not None:
        console.print(_breakdown(report, report.breakdown_s, report.breakdown_max_rank_s))
    if report.bytes_per_epoch is not None and report.bytes_per_epoch.by_layer:
        console.print(_layers(report))
    for finding in report.findings:
        line = Text(f"{finding.status:8}", style=_STYLES[finding.status])
        line.append(f" {finding.check}: {finding.evidence}", style="default")
        console.print(line, soft_wrap=True)


def duration(seconds: float | None) -> str:
    """``1.234 s`` or ``12.3 ms``; a dash for None."""
    if seconds is None:
        return "–"
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def size(number: float | None) -> str:
    """``12.3 MB`` and the like, decimal units; a dash for None."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.4g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"


def percent(share: float | None) -> str:
    """``12.3 %``; a dash for None."""
    return "–" if share is None else f"{share:.1%}".replace("%", " %")


def _figures(report: Report) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    time, traffic, quality = report.epoch_time_s, report.bytes_per_epoch, report.quality
    if time is not None:
        table.add_row(
            "epoch",
            f"median {duration(time.median)}, mean {duration(time.mean)}, p95 {duration(time.p95)} "
            f"({time.n} measured, {time.warmup_excluded} left out)",
        )
    if traffic is not None:
        sent = traffic.main + traffic.meta + traffic.header
        ratio = report.compression_ratio
        table.add_row(
            "messages",
            f"{size(sent)} an epoch, of them {size(traffic.meta)} metadata; fp32 would be "
            f"{size(traffic.fp32_equivalent)}"
            + (f", {ratio:.2f} times as much" if ratio is not None else ""),
        )
        table.add_row("gradients", f"{size(traffic.gradient_allreduce)} an epoch in the all-reduce")
    if report.bits is not None and report.bits.mean is not None:
        table.add_row("bits a row", f"{report.bits.mean:.3f}")
    modes = report.modes
    table.add_row(
        "epochs",
        f"{modes.sync} sync ({modes.forced_sync} by the rule), {modes.async_} async, "
        f"{modes.switches} switches",
    )
    moves = "adaptive" in (report.run.bits, report.run.schedule)
    if moves and report.ldr_replay.constant_clock_differs is not None:
        differs = percent(report.ldr_replay.constant_clock_differs)
        table.add_row(
            "rule", f"{differs} of {report.ldr_replay.decided} decisions differ with a constant clock"
        )
    if quality.metric is not None:
        table.add_row(
            quality.metric,
            f"best validation {percent(quality.best_val)}, test there {percent(quality.test_at_best_val)}, "
            f"final test {percent(quality.final_test)}",
        )
    if report.peak_memory_mb is not None:
        table.add_row("memory", f"peak {report.peak_memory_mb.max:.0f} MB a rank")
    return table


def _breakdown(report: Report, mean: Breakdown, busiest: Breakdown) -> Table:
    table = Table("part of an epoch", title=None, box=None, pad_edge=False)
    for heading in ("mean over ranks", "share", f"rank {report.breakdown_max_rank}"):
        table.add_column(heading, justify="right")
    epoch = sum(getattr(mean, part) for part in PARTS[:8])
    for field in fields(Breakdown):
        value = getattr(mean, field.name)
        share = percent(value / epoch) if field.name in PARTS[:8] and epoch > 0 else "behind"
        table.add_row(
            field.name.replace("_", " "), duration(value), share, duration(getattr(busiest, field.name))
        )
    return table


def _layers(report: Report) -> Table:
    table = Table("exchange", box=None, pad_edge=False)
    for heading in ("rows", "main", "metadata", "wire", "exposed"):
        table.add_column(heading, justify="right")
    assert report.bytes_per_epoch is not None
    for layer in report.bytes_per_epoch.by_layer or ():
        table.add_row(
            f"L{layer.layer}.{layer.step} {layer.direction}",
            f"{layer.rows:.0f}",
            size(layer.main),
            size(layer.meta),
            duration(layer.wire_s),
            duration(layer.exposed_s),
        )
    return table
