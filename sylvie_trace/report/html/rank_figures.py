"""Rank against rank: parts of the epoch, who sends last, memory."""

from __future__ import annotations

from plotly.subplots import make_subplots

from sylvie_trace.details import Details
from sylvie_trace.report.html import marks
from sylvie_trace.report.html.bins import plotted
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report.terminal import duration, percent
from sylvie_trace.report_types import Report


def balance(report: Report, detail: Details) -> Panel:
    """Parts of a measured epoch by rank, and how late each rank sends."""
    title = "Rank by rank, and who sends last"
    ranks, late = detail.ranks, detail.late
    if not ranks.parts_s:
        return Panel("balance", title, "This needs span records of measured epochs: run with --trace.", None)
    names = [str(rank) for rank in ranks.rank]
    heights = [1.0] if late is None else [0.68, 0.32]
    made = make_subplots(rows=len(heights), shared_xaxes=True, vertical_spacing=0.08, row_heights=heights)
    for part, (colour, name) in marks.PARTS.items():
        made.add_bar(x=names, y=plotted(ranks.parts_s[part]), name=name, marker_color=colour, row=1, col=1)
    if late is not None:
        shares = [percent(float(late.share[rank])) for rank in ranks.rank]
        made.add_bar(
            x=names,
            y=plotted([late.seconds_per_epoch[rank] for rank in ranks.rank]),
            name="after the rank before it",
            marker_color=marks.FORCED,
            showlegend=False,
            text=shares if len(names) <= 16 else None,
            textposition="auto",
            customdata=shares,
            hovertemplate="rank %{x}: last in %{customdata} of the exchanges, %{y:.3g} s an epoch<extra></extra>",
            row=2,
            col=1,
        )
        made.update_yaxes(title_text="last to send, s", rangemode="tozero", row=2)
    marks.dress(made, height=460 if late is not None else 340, barmode="stack", bargap=0.15)
    made.update_yaxes(title_text="s an epoch", row=1)
    made.update_xaxes(type="category")
    made.update_xaxes(title_text="rank", row=1 if late is None else 2)
    return Panel("balance", title, _says_late(report, detail), made, wide=True)


def _says_late(report: Report, detail: Details) -> str:
    late = detail.late
    if late is None:
        return "Nobody can be late: no exchange with the sending times of two ranks is recorded."
    worst = int(late.seconds_per_epoch.argmax())
    if late.seconds_per_epoch[worst] == 0:
        return "No rank sends after the others."
    fair = 1 / report.run.world_size
    return (
        "A barrier makes all ranks look slow; the arrival of their messages tells which one is. Below: time by which a rank "
        f"sent after the rank before it, over the exchanges in which it was last. Rank {worst} costs most: last in "
        f"{percent(float(late.share[worst]))} of the exchanges (equal ranks: {percent(fair)}), "
        f"{duration(float(late.seconds_per_epoch[worst]))} an epoch."
    )


def memory(report: Report, detail: Details) -> Panel:
    """Peak memory by rank."""
    ranks = detail.ranks
    names = [str(rank) for rank in ranks.rank]
    made = marks.figure(barmode="group", bargap=0.25)
    kinds = (("resident", ranks.peak_mb, "#4c78a8"), ("device", ranks.device_peak_mb, "#f58518"))
    for name, peaks, colour in kinds:
        if any(peak is not None for peak in peaks):
            made.add_bar(x=names, y=list(peaks), name=name, marker_color=colour, showlegend=True)
    made.update_yaxes(title_text="MB", rangemode="tozero")
    made.update_xaxes(title_text="rank", type="category")
    known = report.peak_memory_mb is not None
    caption = "Largest resident size of each rank's process, its imports included." if known else "No footer names it."
    return Panel("memory", "Peak memory", caption, made if known else None)
