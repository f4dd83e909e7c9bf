"""A prediction on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sylvie_trace.report.terminal import duration, size
from sylvie_trace.whatif import Prediction, Scenario


def render(found: Prediction, scenario: Scenario, console: Console) -> None:
    """Print the answer, its interval, how well the model knows the run itself, and what it takes for granted."""
    asked = [f"goodput {scenario.goodput / 1e6:.4g} MB/s"]
    asked += [f"latency {scenario.latency_s * 1e3:.3g} ms"] if scenario.latency_s is not None else []
    asked += [f"bits {scenario.bits}"] if scenario.bits is not None else []
    asked += [f"schedule {scenario.schedule}"] if scenario.schedule is not None else []
    asked += [f"{scenario.ranks} ranks"] if scenario.ranks is not None else []
    lines = [
        f"an epoch takes {duration(found.epoch_s)}, between {duration(found.low)} and {duration(found.high)} "
        f"({found.throughput_epochs_per_s:.4g} epochs/s; {found.speedup:.2f} times as fast as the run)",
        f"work on the main thread {duration(found.compute_s)}, {size(found.bytes_per_rank)} an epoch from the busiest rank",
        f"the run itself: measured {duration(found.measured_s)}, by the model {duration(found.check_s)} "
        f"({found.check_s / found.measured_s - 1:+.1%}), {found.epochs_replayed} epochs replayed",
    ]
    console.print(Text(", ".join(asked), style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for assumption in found.assumptions:
        console.print(Text(f"assumed: {assumption}", style="dim"), soft_wrap=True)
