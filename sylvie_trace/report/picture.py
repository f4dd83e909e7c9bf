"""Self-contained pages of a few pictures: a comparison of settings, and a replay beside the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from sylvie_trace.compare import Comparison
from sylvie_trace.decision import Verdict
from sylvie_trace.groups import Group
from sylvie_trace.replay import Replay
from sylvie_trace.report.comparison import describe
from sylvie_trace.report.html import figure_json, marks
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report_types import Report
from sylvie_trace.run_dir import write_atomically
from sylvie_trace.schema import SYNC

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#d6b422", "#9d9da5", "#79706e", "#bab0ac")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem; }
body { color: #1a1a1a; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-bottom: 0; } figcaption, .caption { color: #666; margin: 0 0 .5rem; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181c; } .caption { color: #a0a0a0; } }
</style>
<script>{{ plotly }}</script>
</head>
<body>
<h1>{{ title }}</h1>
{% for line in lines %}<p>{{ line }}</p>
{% endfor %}
{% for panel in panels %}<section>
<h2>{{ panel.title }}</h2>
<p class="caption">{{ panel.caption }}</p>
{% if panel.figure is not none %}<div id="{{ panel.name }}"></div>
<script>
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, ink = dark ? "#e6e6e6" : "#1a1a1a";
  const made = {{ figure(panel.figure) }};
  const clear = "rgba(0,0,0,0)";
  Object.assign(made.layout, {paper_bgcolor: clear, plot_bgcolor: clear, font: {color: ink}, modebar: {bgcolor: clear}});
  for (const name of Object.keys(made.layout).filter(key => /^[xy]axis/.test(key)))
    Object.assign(made.layout[name], {gridcolor: dark ? "#33373d" : "#e5e5e5", zerolinecolor: dark ? "#4a4f57" : "#cccccc"});
  Plotly.newPlot("{{ panel.name }}", made.data, made.layout, {responsive: true, displaylogo: false});
})();
</script>{% endif %}
</section>
{% endfor %}
</body>
</html>
"""


def page(title: str, lines: Sequence[str], panels: Sequence[Panel]) -> str:
    """A page with its library inlined: it needs no network."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(_PAGE)
    return template.render(title=title, lines=lines, panels=panels, plotly=Markup(get_plotlyjs()), figure=figure_json)


def write_comparison(found: Comparison, path: Path) -> None:
    """Quality against time, against bytes, and the Pareto front of speed and quality."""
    lines = [*(caution.evidence for caution in found.cautions), *(describe(versus, found) for versus in found.versus)]
    metric = found.metric or "metric"
    panels = [
        _curves(found, "time", "Time to quality", "seconds of training", f"validation {metric}"),
        _curves(found, "bytes", "Bytes to quality", "MB sent by all ranks", f"validation {metric}"),
        _pareto(found, f"test {metric}"),
    ]
    write_atomically(path, page("Settings compared", lines, panels).encode("utf-8", "replace"))


def _name(group: Group) -> str:
    """A label as plotly shows it: its own small markup is no markup here."""
    return str(escape(group.label))


def _curves(found: Comparison, name: str, title: str, x_title: str, y_title: str) -> Panel:
    made = marks.figure(height=380)
    for place, group in enumerate(found.groups):
        points = group.curve
        x = [point.time_s if name == "time" else point.bytes / 1e6 for point in points]
        spread = [point.val_std or 0.0 for point in points]
        made.add_scatter(
            x=x,
            y=[point.val for point in points],
            error_y={"type": "data", "array": spread, "thickness": 1, "width": 0},
            name=_name(group),
            mode="lines+markers",
            line={"color": _COLOURS[place % len(_COLOURS)]},
        )
    made.update_xaxes(title_text=x_title)
    made.update_yaxes(title_text=y_title)
    caption = "Means over the runs of a setting, with their standard deviation; evaluations are outside the time."
    return Panel(f"compare-{name}", title, caption, made)


def _pareto(found: Comparison, y_title: str) -> Panel:
    made = marks.figure(height=380)
    front: list[tuple[float, float]] = []
    for place, group in enumerate(found.groups):
        x, y = group.throughput_epochs_per_s, group.test
        if x is None or y is None:
            continue
        front += [(x, y)] if group.pareto else []
        symbol = "circle" if group.pareto else "circle-open"
        made.add_scatter(
            x=[x],
            y=[y],
            error_y={"type": "data", "array": [group.test_std or 0.0], "thickness": 1, "visible": group.test_std is not None},
            name=_name(group),
            mode="markers",
            marker={"size": 12, "symbol": symbol, "color": _COLOURS[place % len(_COLOURS)]},
        )
    front.sort()
    made.add_scatter(
        x=[x for x, _ in front],
        y=[y for _, y in front],
        name="Pareto front",
        mode="lines",
        line={"dash": "dot", "color": "#9d9da5", "shape": "vh"},
    )
    made.update_xaxes(title_text="epochs per second")
    made.update_yaxes(title_text=y_title)
    caption = "Filled: no other setting is both faster and better in the mean. Bars: standard deviation over runs."
    return Panel("compare-pareto", "Speed against quality", caption, made)


def write_replay(report: Report, result: Replay, constant: Replay, path: Path) -> None:
    """The descent rate that the rule saw, and the widths and modes of the log beside those of the replay."""
    config = result.config
    lines = [
        f"R{config.description[1:]}: {result.differ} of {result.decided} decisions differ from the log; "
        f"with a constant clock {constant.differ} of {constant.decided}.",
        "A replay is open loop: losses and times are what they were under the decisions really taken.",
    ]
    panels = [_rates(result, config.delta), _widths(report, result, constant), _modes(report, result, constant)]
    write_atomically(path, page("The controllers replayed", lines, panels).encode("utf-8", "replace"))


def _rates(result: Replay, delta: int) -> Panel:
    made = marks.figure(height=320)
    epochs = list(range(len(result.verdicts)))
    made.add_scatter(x=epochs, y=[v.ldr for v in result.verdicts], name="ldr", mode="lines")
    reference = [verdict.ldr_reference for verdict in result.verdicts]
    made.add_scatter(x=epochs, y=reference, name=f"ldr {delta} epochs before", mode="lines", line={"dash": "dot"})
    made.update_xaxes(title_text="epoch")
    made.update_yaxes(title_text="LDR, 1/s")
    return Panel("replay-ldr", "What the rule compares", "The replayed descent rate and the one it is compared with.", made)


def _widths(report: Report, result: Replay, constant: Replay) -> Panel:
    made = marks.figure(height=280)
    logged = list(report.series.base_bits)
    _lines(made, logged, result, constant, lambda verdict: verdict.base_next)
    made.update_yaxes(title_text="base bits", type="log", tickvals=[1, 2, 4, 8, 32])
    return Panel("replay-bits", "Base width", "As logged, as replayed, and as a constant clock would have it.", made)


def _modes(report: Report, result: Replay, constant: Replay) -> Panel:
    made = marks.figure(height=220)
    logged = [int(mode != SYNC) for mode in report.series.mode]
    _lines(made, logged, result, constant, lambda verdict: int(verdict.mode_next != SYNC))
    made.update_yaxes(tickvals=[0, 1], ticktext=["sync", "async"], range=[-0.2, 1.2])
    return Panel("replay-mode", "Mode", "As logged, as replayed, and as a constant clock would have it.", made)


def _lines(made: go.Figure, logged: Sequence[int], result: Replay, constant: Replay, value: Callable[[Verdict], int]) -> None:
    """One step line each; what an epoch runs with is what the one before it concluded."""
    sides = (
        ("log", None, "#4c78a8", "solid"),
        ("replay", result, "#f58518", "dash"),
        ("constant clock", constant, "#54a24b", "dot"),
    )
    for name, replayed, colour, dash in sides:
        y = list(logged)
        if replayed is not None:
            y = [*y[:1], *map(value, replayed.verdicts)][: len(y)]
        made.add_scatter(
            x=list(range(len(y))), y=y, name=name, mode="lines", line={"color": colour, "dash": dash, "shape": "hv"}
        )
    made.update_xaxes(title_text="epoch")
