"""Where the bytes went: by exchange, by pair of ranks, over epochs; always beside what fp32 would weigh."""

from __future__ import annotations

import numpy as np
from plotly.subplots import make_subplots

from sylvie_trace.details import Details, Floats
from sylvie_trace.report.html import marks
from sylvie_trace.report.html.bins import bins, plotted
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report.terminal import size
from sylvie_trace.report_types import Report

_UNTRACED = "This needs message records: run with --trace."
_NOTHING = "No boundary row was exchanged in the measured epochs."


def by_exchange(report: Report, detail: Details) -> Panel:
    """Bytes by layer and direction, and how many times as much fp32 would be."""
    title = "Bytes by layer and direction"
    if not detail.exchanges:
        return Panel("bytes-by-exchange", title, _UNTRACED if report.staleness is None else _NOTHING, None)
    names = [marks.site(e.layer, e.step, e.direction) for e in detail.exchanges]
    made = make_subplots(
        rows=1, cols=2, column_widths=[0.6, 0.4], subplot_titles=("bytes sent an epoch", "fp32 would be so many times as much")
    )
    for kind, (colour, name) in marks.BYTES.items():
        values = plotted([e.bytes[kind] for e in detail.exchanges])
        made.add_bar(x=names, y=values, name=name, marker_color=colour, row=1, col=1)
    ratio = [_over(e.bytes["fp32"], sum(e.bytes[kind] for kind in marks.BYTES)) for e in detail.exchanges]
    labels = [size(e.bytes["fp32"]) for e in detail.exchanges]
    made.add_bar(
        x=names,
        y=plotted([np.nan if value is None else value for value in ratio]),
        name=marks.FP32[1],
        marker_color=marks.FP32[0],
        text=[None if value is None else f"{value:.3g}×" for value in ratio] if len(names) <= 12 else None,
        textposition="auto",
        customdata=labels,
        hovertemplate="%{x}: %{y:.3g} times as much, %{customdata} in fp32<extra></extra>",
        row=1,
        col=2,
    )
    marks.dress(made, height=380, barmode="stack", legend={"y": 1.12})
    made.update_yaxes(rangemode="tozero")
    made.update_yaxes(title_text="bytes", col=1)
    caption = "Mean of the measured epochs, summed over ranks, counted at the sender. fwd: embeddings, bwd: their gradients."
    return Panel("bytes-by-exchange", title, caption, made, wide=True)


def over_epochs(report: Report, detail: Details) -> Panel:
    """Bytes over epochs beside the fp32 equivalent and the weight gradients, on a logarithmic scale."""
    epochs = detail.epochs
    grouped = bins(epochs.epoch, marks.POINTS // 2)
    made = marks.figure(hovermode="x unified")
    lines = [(name, colour, epochs.bytes[kind]) for kind, (colour, name) in marks.BYTES.items()]
    if "fp32" in epochs.bytes:
        lines.append((marks.FP32[1], marks.FP32[0], epochs.bytes["fp32"]))
    lines.append(("weight gradients", "#b279a2", epochs.gradient_allreduce))
    for name, colour, values in lines:
        positive = np.where(values > 0, values, np.nan)
        if np.isfinite(positive).any():
            made.add_scatter(x=grouped.x, y=grouped.mean(positive), name=name, mode="lines", line_color=colour)
    made.update_yaxes(title_text="bytes an epoch", type="log", exponentformat="SI", dtick=1)
    made.update_xaxes(title_text="epoch")
    caption = "Summed over ranks, logarithmic; a kind that sent nothing has no line."
    shown = made if len(epochs.epoch) else None
    return Panel("bytes-over-epochs", "Bytes over epochs", f"{caption} {grouped.note}", shown)


def by_pair(report: Report, detail: Details) -> Panel:
    """Bytes from each rank to each, with a choice of what is counted."""
    title = "Bytes by pair of ranks"
    if report.run.world_size == 1:
        return Panel("bytes-by-pair", title, "One rank sends nothing.", None)
    if not detail.pairs:
        return Panel("bytes-by-pair", title, _UNTRACED if report.staleness is None else _NOTHING, None)
    pairs = detail.pairs
    sent = pairs["main"] + pairs["meta"] + pairs["header"]
    ranks = [str(rank) for rank in range(len(sent))]
    views = (("sent", sent), ("rows", pairs["main"]), ("metadata", pairs["meta"]), ("fp32 equivalent", pairs["fp32"]))
    hover = [[_pair_words(pairs, sent, source, target) for target in range(len(sent))] for source in range(len(sent))]
    small = len(ranks) <= 8
    made = marks.figure(height=420)
    made.add_heatmap(
        x=ranks,
        y=ranks,
        z=_cells(sent),
        text=_texts(sent) if small else None,
        texttemplate="%{text}" if small else None,
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        colorscale="Cividis",
        zmin=0,
        zmax=float(sent.max()),
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": "bytes"}, "exponentformat": "SI", "thickness": 12},
    )
    buttons = [
        {
            "label": name,
            "method": "restyle",
            "args": [{"z": [_cells(values)], "zmax": [float(values.max())], **({"text": [_texts(values)]} if small else {})}],
        }
        for name, values in views
    ]
    made.update_layout(
        updatemenus=[
            {
                "buttons": buttons,
                "type": "buttons",
                "direction": "right",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
            }
        ],
        margin={"t": 48},
    )
    made.update_xaxes(title_text="to rank", type="category")
    made.update_yaxes(title_text="from rank", type="category", autorange="reversed")
    off = sent[~np.eye(len(sent), dtype=bool)]
    caption = (
        f"Mean of the measured epochs. The busiest pair sends {size(float(off.max()))}, the mean pair "
        f"{size(float(off.mean()))}. The buttons choose what is counted."
    )
    return Panel("bytes-by-pair", title, caption, made)


def _pair_words(pairs: dict[str, Floats], sent: Floats, source: int, target: int) -> str:
    if source == target:
        return f"rank {source} keeps its rows"
    ratio = _over(float(pairs["fp32"][source, target]), float(sent[source, target]))
    parts = ", ".join(f"{name} {size(float(pairs[kind][source, target]))}" for kind, (_, name) in marks.BYTES.items())
    return (
        f"{source} to {target}: {size(float(sent[source, target]))}<br>{parts}<br>"
        f"fp32 {size(float(pairs['fp32'][source, target]))}" + (f", {ratio:.3g} times as much" if ratio else "")
    )


def _cells(values: Floats) -> list[list[float | None]]:
    rows = [plotted(row) for row in values]
    for index, row in enumerate(rows):
        row[index] = None
    return rows


def _texts(values: Floats) -> list[list[str]]:
    return [["" if i == j else size(float(value)) for j, value in enumerate(row)] for i, row in enumerate(values)]


def _over(a: float, b: float) -> float | None:
    return a / b if b > 0 else None
