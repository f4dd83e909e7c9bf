"""Where the time went: an epoch by class, over epochs, by exchange, and the whole run by stage."""

from __future__ import annotations

import numpy as np
from plotly.subplots import make_subplots

from sylvie_trace.breakdown import Breakdown
from sylvie_trace.details import Details, EpochDetail
from sylvie_trace.report.html import marks
from sylvie_trace.report.html.bins import bins, plotted
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report.terminal import duration, percent
from sylvie_trace.report_types import Report

_UNTRACED = "The classes need message and span records: run with --trace."


def over_epochs(report: Report, detail: Details) -> Panel:
    """Epoch time stacked by class over epochs."""
    epochs = detail.epochs
    grouped = bins(epochs.epoch, marks.BARS)
    made = marks.figure(height=380, barmode="stack", bargap=grouped.gap, hovermode="x unified")
    if epochs.parts_s is not None:
        for part, (colour, name) in marks.PARTS.items():
            made.add_bar(x=grouped.x, y=grouped.mean(epochs.parts_s[part]), name=name, marker_color=colour, marker_line_width=0)
    else:
        made.add_bar(x=grouped.x, y=grouped.mean(epochs.time_s), name="epoch", marker_color=marks.PARTS["compute"][0])
    made.add_scatter(
        x=grouped.x,
        y=grouped.mean(epochs.time_s),
        name="slowest rank",
        mode="lines",
        line={"color": "#79706e", "width": 1, "dash": "dot"},
    )
    made.update_xaxes(title_text="epoch")
    made.update_yaxes(title_text="s", rangemode="tozero")
    if detail.measured and len(detail.measured) < len(epochs.epoch):
        made.add_vline(x=detail.measured[0] - 0.5, line={"color": "#9d9da5", "width": 1, "dash": "dash"})
    cut = _cut(epochs, detail.measured)
    if cut is not None:
        made.update_yaxes(range=[0, cut])
    words = (
        ["Mean over ranks; the dotted line is the slowest rank. Measured epochs start at the dashed line."]
        if epochs.parts_s is not None
        else [_UNTRACED]
    )
    return Panel(
        "time-over-epochs",
        "Epoch time by class, over epochs",
        " ".join([*words, grouped.note, _says_cut(epochs, cut)]),
        made if len(epochs.epoch) else None,
        wide=True,
    )


def _cut(epochs: EpochDetail, measured: tuple[int, ...]) -> float | None:
    """Where to end the axis when the warm-up would flatten the rest; None when nothing needs cutting."""
    chosen = epochs.time_s[np.isin(epochs.epoch, measured)]
    if not chosen.size:
        return None
    top = 1.6 * float(np.percentile(chosen, 99))
    return float(f"{top:.3g}") if float(epochs.time_s.max()) > top else None


def _says_cut(epochs: EpochDetail, cut: float | None) -> str:
    if cut is None:
        return ""
    beyond = epochs.time_s > cut
    longest = int(epochs.time_s.argmax())
    return (
        f"{int(beyond.sum())} epoch{'s' if beyond.sum() > 1 else ''} beyond the axis, the longest "
        f"epoch {epochs.epoch[longest]} with {duration(float(epochs.time_s[longest]))}: double-click to see all."
    )


def mean_epoch(report: Report) -> Panel:
    """The mean measured epoch: where it goes, on average and on the busiest rank, and what runs behind it."""
    title = "Where a measured epoch goes"
    mean, busiest = report.breakdown_s, report.breakdown_max_rank_s
    if mean is None or busiest is None:
        return Panel("mean-epoch", title, _UNTRACED if report.epoch_time_s else "No epoch is left after the warm-up.", None)
    rows = ["behind it (not in the sum)", f"rank {report.breakdown_max_rank}, the busiest", "mean over ranks"]
    made = marks.figure(height=300, barmode="stack", bargap=0.35)
    for part, (colour, name) in marks.PARTS.items():
        values = [None, getattr(busiest, part), getattr(mean, part)]
        made.add_bar(
            y=rows,
            x=values,
            name=name,
            orientation="h",
            marker_color=colour,
            text=[None, _share(busiest, part), _share(mean, part)],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
        )
    for part, (colour, name) in marks.HIDDEN.items():
        made.add_bar(
            y=rows,
            x=[getattr(mean, part), None, None],
            name=name,
            orientation="h",
            marker={"color": colour, "pattern": {"shape": "/", "size": 5}},
        )
    made.update_xaxes(title_text="s")
    made.update_layout(legend={"y": 1.04})
    caption = (
        "Disjoint measured stretches of each rank's main thread. Waiting is split where the last sender was ready. "
        "The hatched bars ran in the background while the main thread worked."
    )
    return Panel("mean-epoch", title, caption, made, wide=True)


def _share(breakdown: Breakdown, part: str) -> str | None:
    whole = sum(getattr(breakdown, name) for name in marks.PARTS)
    share = getattr(breakdown, part) / whole if whole > 0 else 0
    return f"{share:.0%}".replace("%", " %") if share >= 0.03 else None


def communication(report: Report, detail: Details) -> Panel:
    """Exposed against hidden communication, by exchange and over epochs."""
    title = "Communication: exposed against hidden"
    epochs = detail.epochs
    if epochs.parts_s is None:
        return Panel("communication", title, _UNTRACED, None)
    if not detail.exchanges:
        return Panel("communication", title, "No boundary row was exchanged in the measured epochs.", None)
    made = make_subplots(
        rows=1, cols=2, column_widths=[0.42, 0.58], subplot_titles=("by exchange, a measured epoch", "over epochs")
    )
    names = [marks.site(e.layer, e.step, e.direction) for e in detail.exchanges]
    grouped = bins(epochs.epoch, marks.BARS)
    kinds = (
        ("exposed_wait", "wait_s", marks.PARTS["exposed_wait"], ""),
        ("exposed_transfer", "transfer_s", marks.PARTS["exposed_transfer"], ""),
        ("comm_hidden", "hidden_s", marks.HIDDEN["comm_hidden"], "/"),
    )
    for part, field, (colour, name), pattern in kinds:
        marker = {"color": colour, "pattern": {"shape": pattern, "size": 5}, "line": {"width": 0}}
        shared = {"name": name, "legendgroup": part, "marker": marker}
        made.add_bar(x=names, y=plotted([getattr(e, field) for e in detail.exchanges]), row=1, col=1, **shared)
        made.add_bar(x=grouped.x, y=grouped.mean(epochs.parts_s[part]), showlegend=False, row=1, col=2, **shared)
    marks.dress(made, height=380, barmode="stack", bargap=grouped.gap, legend={"y": 1.12})
    communicates = np.sum([epochs.parts_s[part] for part, *_ in kinds], axis=0)
    chosen = communicates[np.isin(epochs.epoch, detail.measured)]
    top = 1.5 * float(np.percentile(chosen, 99)) if chosen.size else 0.0
    made.update_yaxes(title_text="s", rangemode="tozero")
    if 0 < top < float(communicates.max()):
        made.update_yaxes(range=[0, float(f"{top:.3g}")], col=2)
    made.update_xaxes(title_text="epoch", col=2)
    caption = (
        "Mean over ranks. Hidden: rows were on the wire while the main thread worked. What is exposed costs time; "
        "synchronous epochs expose it, asynchronous ones hide it."
    )
    return Panel("communication", title, f"{caption} {grouped.note}", made, wide=True)


def stages(report: Report) -> Panel:
    """The whole run: offline, training, Sylvie's online work, evaluation."""
    wall, online, shares = report.wall_s, report.online_s, report.overhead
    title = "The whole run: offline, online, training"
    made = marks.figure(height=320, barmode="stack", bargap=0.3, margin={"l": 64, "r": 90, "t": 12, "b": 48})
    rows: list[tuple[str, str, float | None, str]] = [
        ("offline", "load", wall.load, "#bab0ac"),
        ("offline", "partition", wall.partition, "#b279a2"),
        ("offline", "extract", wall.extract, "#4c78a8"),
        ("training", "training", wall.train, "#4c78a8"),
        ("online work in it", "encode", online.encode if online else None, marks.PARTS["encode"][0]),
        ("online work in it", "decode", online.decode if online else None, marks.PARTS["decode"][0]),
        ("online work in it", "coordinate", online.coordinate if online else None, marks.PARTS["coordinate"][0]),
        ("evaluation", "evaluation", wall.evaluate, "#9d9da5"),
    ]
    known = [(group, name, value, colour) for group, name, value, colour in rows if value is not None]
    totals: dict[str, float] = {}
    for group, name, value, colour in known:
        totals[group] = totals.get(group, 0.0) + value
        made.add_bar(y=[group], x=[value], name=name, orientation="h", marker_color=colour, showlegend=name != group)
    for group, value in totals.items():
        made.add_annotation(y=group, x=value, text=f" {duration(value)}", showarrow=False, xanchor="left")
    made.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=list(totals))
    made.update_xaxes(title_text="s", rangemode="tozero")
    caption = (
        "Seconds of the run, each the maximum over ranks (online work: mean over ranks, hidden or not). Offline work is "
        f"{percent(shares.offline_share)} of training and offline together ({percent(shares.offline_share_without_partition)} "
        f"without the partition); online work is {percent(shares.online_share)} of training: encode "
        f"{percent(shares.encode_share)}, decode {percent(shares.decode_share)}, coordinate {percent(shares.coordinate_share)}."
        + (" Partition and plan came from the cache." if report.offline_cached else "")
    )
    return Panel("stages", title, caption, made if known else None)
