"""A comparison of settings on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sylvie_trace.compare import Comparison, Versus
from sylvie_trace.groups import Group
from sylvie_trace.report.terminal import duration, percent, size
from sylvie_trace.resample import Interval


def render(found: Comparison, console: Console) -> None:
    """Print cautions, the settings, each against the baseline, and what it takes to reach a quality."""
    for caution in found.cautions:
        console.print(Text(f"caution  {caution.evidence}", style="bold yellow"), soft_wrap=True)
    console.print(_groups(found))
    for versus in found.versus:
        console.print(Text(describe(versus, found), style=""), soft_wrap=True)
    if any(group.reached for group in found.groups):
        console.print(_reached(found))


def _groups(found: Comparison) -> Table:
    table = Table("setting", box=None, pad_edge=False)
    metric = found.metric or "test metric"
    for heading in ("runs", "epoch", "epochs/s", "a message epoch", "exposed", metric, "on the Pareto front"):
        table.add_column(heading, justify="right")
    for group in found.groups:
        rate = group.throughput_epochs_per_s
        table.add_row(
            group.label + (" (baseline)" if group.label == found.baseline else ""),
            str(len(group.runs)),
            duration(group.epoch_s),
            "–" if rate is None else f"{rate:.4g}",
            size(group.bytes_per_epoch),
            percent(group.exposed_share),
            _plus_minus(group),
            "yes" if group.pareto else "no",
        )
    return table


def _plus_minus(group: Group) -> str:
    if group.test is None:
        return "–"
    spread = "" if group.test_std is None else f" ± {100 * group.test_std:.2f}"
    return f"{100 * group.test:.2f}{spread} %"


def describe(versus: Versus, found: Comparison) -> str:
    """A setting against the baseline in two sentences."""
    limit = (
        "Amdahl limit not known (run the baseline with --trace)"
        if versus.amdahl_limit is None
        else f"Amdahl limit {versus.amdahl_limit:.2f}"
    )
    speed = "speed not measured"
    if versus.speedup is not None:
        speed = f"{versus.speedup.estimate:.2f} times as fast{_bounds(versus.speedup, 1, '.2f')}, {limit}"
    quality = "quality not measured"
    if versus.quality is not None:
        quality = f"{100 * versus.quality.estimate:+.2f} points{_bounds(versus.quality, 100, '+.2f')}"
    repeats = (
        f"{versus.pairs} pair{'s' if versus.pairs != 1 else ''}" if versus.pairs else f"no pairs, {versus.unpaired} runs apart"
    )
    few = versus.speedup is None or versus.speedup.low is None
    why = f"; an interval needs {found.min_repeats} repeats" if few else ""
    return (
        f"{versus.label} against {found.baseline} ({repeats}{why}): {speed}: {versus.speed_verdict}. "
        f"Quality {quality}: {versus.quality_verdict}."
    )


def _bounds(interval: Interval, scale: float, form: str) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f" [{scale * interval.low:{form}}, {scale * interval.high:{form}}]"


def _reached(found: Comparison) -> Table:
    table = Table("to reach a validation metric of", box=None, pad_edge=False)
    for group in found.groups:
        table.add_column(group.label, justify="right")
    for place, reached in enumerate(found.groups[0].reached):
        row = [f"{100 * reached.target:.1f} %"]
        for group in found.groups:
            each = group.reached[place]
            row.append(f"{duration(each.time_s)}, {size(each.bytes)} ({each.runs} of {each.of} runs)")
        table.add_row(*row)
    return table
