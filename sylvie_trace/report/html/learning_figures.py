"""What the controllers saw and did: loss, descent rate, widths, modes, ages; and what the model learned."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sylvie_trace.details import Details
from sylvie_trace.report.html import marks
from sylvie_trace.report.html.bins import Bins, bins, numbers, plotted
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report_types import Report, Series
from sylvie_trace.schema import ASYNC

#: The most bands of forced synchronisation that a picture can carry.
_BANDS = 150


def controller(report: Report, detail: Details) -> Panel:
    """Loss, LDR, base bits and mode on one axis, forced synchronisations marked."""
    series, forced = report.series, report.modes.forced_sync_epochs
    count = len(series.L)
    grouped = bins(np.arange(count), marks.POINTS if count <= marks.POINTS else marks.POINTS // 2)
    made = make_subplots(rows=4, shared_xaxes=True, vertical_spacing=0.035, row_heights=[0.36, 0.27, 0.2, 0.17])
    _losses(made, series, grouped)
    _ldr(made, series, grouped)
    x, base = grouped.x, grouped.mean(series.base_bits)
    line = {"color": "#4c78a8", "shape": "hvh"}
    made.add_scatter(x=x, y=base, name="base bits", line=line, mode="lines", showlegend=False, row=3, col=1)
    strips = _strips(made, series, forced)
    runs = _runs(forced)
    banded = len(runs) <= _BANDS
    marks.dress(made, height=620, hovermode="x")
    if banded:
        band = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line_width": 0}
        made.update_layout(
            shapes=[
                {**band, "xref": "x", "x0": first - 0.5, "x1": last + 0.5, "fillcolor": "rgba(228,87,86,0.13)"}
                for first, last in runs
            ]
        )
    for row, title in ((1, "loss"), (2, "LDR, 1/s"), (3, "base bits")):
        made.update_yaxes(title_text=title, row=row)
    made.update_yaxes(type="log", tickvals=[1, 2, 4, 8, 32], range=_bit_range(series.base_bits), row=3)
    made.update_xaxes(title_text="epoch", row=4)
    words = ["LDR = change of the smoothed loss by the second; the scale shows the bulk of it, double-click for all."]
    if forced:
        words.append(
            f"Epochs made synchronous by the rule ({len(forced)}) are shaded."
            if banded
            else f"{len(forced)} epochs were made synchronous by the rule: see the strip."
        )
    if grouped.size > 1:
        words.append(f"{grouped.note} The pale band runs from their smallest to their largest value.")
    if strips.size > 1 and grouped.size == 1:
        words.append(f"The strips show shares of {strips.size} epochs.")
    return Panel(
        "controller",
        "What the controllers saw and did",
        " ".join(words),
        made if count else None,
        wide=True,
    )


def _strips(made: go.Figure, series: Series, forced: list[int]) -> Bins:
    """Two strips of shares: epochs that ran asynchronously, and those that the rule made synchronous."""
    count = len(series.mode)
    strips = bins(np.arange(count), 500)
    was_forced = np.zeros(count)
    was_forced[[epoch for epoch in forced if epoch < count]] = 1
    shares = [strips.mean(was_forced), strips.mean([mode == ASYNC for mode in series.mode])]
    empty = "rgba(128,128,128,0.12)"
    made.add_heatmap(
        x=strips.x,
        y=["forced sync", "async"],
        z=[shares[0], [None if share is None else 2 + share for share in shares[1]]],  # [0, 1] and [2, 3]: two colours
        zmin=0,
        zmax=3,
        colorscale=[[0, empty], [1 / 3, marks.FORCED], [2 / 3, empty], [1, marks.ASYNC]],
        showscale=False,
        customdata=shares,
        hovertemplate="epoch %{x}: %{y} %{customdata:.0%}<extra></extra>",
        ygap=3,
        row=4,
        col=1,
    )
    return strips


def _losses(made: go.Figure, series: Series, grouped: Bins) -> None:
    values, smooth = numbers(series.L), numbers(series.F)
    _band(made, grouped, values, "76,120,168", row=1)
    _line(made, grouped, values, "loss", "#4c78a8", 1.2, row=1)
    _line(made, grouped, smooth, "smoothed loss", "#e45756", 2, row=1)


def _ldr(made: go.Figure, series: Series, grouped: Bins) -> None:
    values = numbers(series.ldr)
    _band(made, grouped, values, "84,162,75", row=2)
    _line(made, grouped, values, "LDR", "#54a24b", 1.4, row=2)
    known = values[np.isfinite(values)]
    if known.size >= 20:
        low, high = np.percentile(known, [4, 98])
        room = 0.25 * (high - low) or abs(high) or 1.0
        made.update_yaxes(range=plotted([min(low - room, -room / 4), max(high + room, room / 4)]), row=2)


def _line(made: go.Figure, grouped: Bins, values: npt.ArrayLike, name: str, colour: str, width: float, *, row: int) -> None:
    made.add_scatter(
        x=grouped.x,
        y=grouped.mean(values),
        name=name,
        mode="lines",
        line={"color": colour, "width": width},
        row=row,
        col=1,
    )


def _band(made: go.Figure, grouped: Bins, values: npt.ArrayLike, rgb: str, *, row: int) -> None:
    """From the smallest to the largest value of each bin; nothing when every epoch is drawn."""
    if grouped.size == 1:
        return
    shared = {"x": grouped.x, "mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    made.add_scatter(y=grouped.low(values), row=row, col=1, **shared)
    made.add_scatter(
        y=grouped.high(values),
        fill="tonexty",
        fillcolor=f"rgba({rgb},0.18)",
        row=row,
        col=1,
        **shared,
    )


def _runs(epochs: list[int]) -> list[tuple[int, int]]:
    """Consecutive epochs as (first, last)."""
    if not epochs:
        return []
    starts = [epochs[0], *(b for a, b in pairwise(epochs) if b != a + 1)]
    ends = [*(a for a, b in pairwise(epochs) if b != a + 1), epochs[-1]]
    return list(zip(starts, ends, strict=True))


def _bit_range(base: list[int]) -> list[float]:
    widest = max(base, default=8)
    return [-0.12, float(np.log10(max(widest, 8) * 1.35))]


def widths(report: Report, detail: Details) -> Panel:
    """Rows sent by width over epochs, and their mean width."""
    title = "Bits of the rows sent, over epochs"
    epochs = detail.epochs
    total = np.sum(list(epochs.rows.values()), axis=0) if epochs.rows else np.zeros(0)
    if not total.any():
        return Panel("widths", title, "No row was sent.", None)
    grouped = bins(epochs.epoch, marks.BARS)
    made = marks.figure(barmode="stack", bargap=0.0, hovermode="x unified")
    share = np.where(total > 0, total, np.nan)
    for width, rows in epochs.rows.items():
        name = f"{width} bit" if width < 32 else f"{width} bit (not quantized)"
        made.add_bar(
            x=grouped.x, y=grouped.mean(rows / share), name=name, marker_color=marks.WIDTHS[width], marker_line_width=0
        )
    mean = np.sum([width * rows for width, rows in epochs.rows.items()], axis=0) / share
    line = {"color": "#222222", "width": 1.8}  # the page puts its own ink here
    made.add_scatter(x=grouped.x, y=grouped.mean(mean), name="mean bits", yaxis="y2", mode="lines", line=line, meta="ink")
    made.update_layout(
        yaxis={"title": {"text": "share of rows"}, "tickformat": ".0%", "range": [0, 1]},
        yaxis2={
            "title": {"text": "mean bits"},
            "overlaying": "y",
            "side": "right",
            "range": [0, max(8, *epochs.rows)],
            "showgrid": False,
            "dtick": max(8, *epochs.rows) / 4,
        },
        margin={"r": 64},
    )
    made.update_yaxes(automargin=True)
    made.update_xaxes(title_text="epoch")
    return Panel("widths", title, f"Training messages, both directions, all ranks. {grouped.note}", made)


def ages(detail: Details) -> Panel:
    """How old the rows were that each epoch used."""
    title = "Age of the rows used"
    counts = {age: number for age, number in detail.epochs.ages.items() if number.any()}
    if not counts:
        return Panel("ages", title, "No message record tells an age: nothing was exchanged, or --trace was off.", None)
    grouped = bins(detail.epochs.epoch, marks.BARS)
    made = marks.figure(barmode="stack", bargap=0.0)
    for age, number in counts.items():
        name = {0: "this epoch's (synchronous)", 1: "one epoch old (asynchronous)"}.get(age, f"{age} epochs old")
        colour = {0: marks.SYNC, 1: marks.ASYNC}.get(age, marks.FORCED)
        made.add_bar(x=grouped.x, y=grouped.mean(number), name=name, marker_color=colour, marker_line_width=0)
    made.update_yaxes(title_text="messages used")
    made.update_xaxes(title_text="epoch")
    return Panel("ages", title, f"From the header of every message that was used. {grouped.note}", made)


def quality(report: Report, detail: Details) -> Panel:
    """Scores by split over epochs."""
    metric = report.quality.metric or "score"
    if not detail.metrics:
        return Panel("quality", "Quality", "No epoch was evaluated.", None)
    made = marks.figure()
    colours = {"train": "#9d9da5", "val": "#f58518", "test": "#4c78a8"}
    for split, (epochs, values) in detail.metrics.items():
        thin = bins(np.array(epochs), marks.POINTS)
        made.add_scatter(
            x=thin.x,
            y=thin.mean(values),
            name=split if split in colours else "other",
            mode="lines+markers" if len(thin.x) <= 60 else "lines",
            line_color=colours.get(split, "#b279a2"),
        )
    best = report.quality
    if best.best_epoch is not None and best.best_val is not None:
        made.add_scatter(
            x=[best.best_epoch],
            y=[best.best_val],
            name="best validation",
            mode="markers",
            marker={"symbol": "star", "size": 13, "color": "#e45756"},
        )
    made.update_yaxes(title_text=metric if metric.isidentifier() else "score", tickformat=".0%")
    made.update_xaxes(title_text="epoch")
    return Panel(
        "quality", "Quality over epochs", "Evaluated on fresh fp32 rows, synchronously, in every system.", made, wide=True
    )
