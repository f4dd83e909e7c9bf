"""Colours, names and the empty figure that every picture starts from."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from sylvie_trace.schema import FORWARD

#: Parts of an epoch in the order they are stacked: colour, and name in words.
PARTS = {
    "compute": ("#4c78a8", "compute"),
    "encode": ("#72b7b2", "encode"),
    "decode": ("#54a24b", "decode"),
    "exposed_wait": ("#e45756", "waiting for a late sender"),
    "exposed_transfer": ("#f58518", "waiting for the transfer"),
    "gradient_allreduce": ("#b279a2", "weight-gradient all-reduce"),
    "coordinate": ("#d6b422", "coordinate"),
    "other": ("#9d9da5", "other"),
}
HIDDEN = {
    "encode_hidden": ("#72b7b2", "encode, hidden"),
    "decode_hidden": ("#54a24b", "decode, hidden"),
    "comm_hidden": ("#bab0ac", "transfer, hidden"),
}
BYTES = {
    "main": ("#4c78a8", "rows"),
    "meta": ("#f58518", "metadata"),
    "header": ("#9d9da5", "headers"),
}
FP32 = ("#e45756", "the same rows in fp32")
WIDTHS = {1: "#4c78a8", 2: "#72b7b2", 4: "#f2b134", 8: "#e45756", 32: "#9d9da5", 64: "#79706e"}
SYNC, ASYNC, FORCED = "#4c78a8", "#f58518", "#e45756"

#: The most bars and the most points of a line that one picture draws over epochs.
BARS, POINTS = 250, 2000


@dataclass(frozen=True)
class Panel:
    """A picture with its heading and how to read it; without ``figure`` the ``caption`` says why there is none."""

    name: str
    title: str
    caption: str
    figure: go.Figure | None
    wide: bool = False


def figure(*, height: int = 340, **layout: object) -> go.Figure:
    """An empty figure; fonts, grid and background are set by the page, for light and dark."""
    made = go.Figure()
    dress(made, height=height, **layout)
    return made


def dress(made: go.Figure, *, height: int = 340, **layout: object) -> None:
    """Give a figure the page's margins and legend."""
    made.update_layout(
        template=go.layout.Template(),
        height=height,
        margin={"l": 64, "r": 24, "t": 12, "b": 48},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left", "traceorder": "normal"},
        hovermode="closest",
    )
    made.update_layout(**layout)
    made.update_xaxes(automargin=True)
    made.update_yaxes(automargin=True)


def site(layer: int, step: int, direction: str) -> str:
    """``L2.0 fwd``: an exchange."""
    return f"L{layer}.{step} {'fwd' if direction == FORWARD else 'bwd'}"
