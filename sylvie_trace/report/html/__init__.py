"""The report as one self-contained page: no network, light and dark, every name escaped.

``page`` puts the sentences, the pictures and the tables into the template; plotly's library is inlined once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec
import plotly.graph_objects as go
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from sylvie_trace.details import Details
from sylvie_trace.diagnose.types import Diagnosis
from sylvie_trace.reader import Run
from sylvie_trace.report.html import learning_figures, rank_figures, time_figures, traffic_figures, words
from sylvie_trace.report.html.advice import advise_all
from sylvie_trace.report.html.marks import Panel
from sylvie_trace.report.html.tables import tables
from sylvie_trace.report_types import Report, to_builtins
from sylvie_trace.run_dir import finite, write_atomically

#: Characters that HTML changes or forbids wherever they stand, and what to show for them.
_REPLACED = {0: "␀", 13: "&#13;"}


def chapters(report: Report, detail: Details) -> list[tuple[str, list[Panel]]]:
    """Every picture in reading order, by heading."""
    return [
        (
            "Where the epoch goes",
            [
                time_figures.mean_epoch(report),
                time_figures.over_epochs(report, detail),
                time_figures.communication(report, detail),
                rank_figures.balance(report, detail),
            ],
        ),
        (
            "What the three axes did, and what it cost in quality",
            [
                learning_figures.controller(report, detail),
                learning_figures.widths(report, detail),
                learning_figures.ages(detail),
                learning_figures.quality(report, detail),
            ],
        ),
        (
            "Where the bytes go",
            [
                traffic_figures.by_exchange(report, detail),
                traffic_figures.over_epochs(report, detail),
                traffic_figures.by_pair(report, detail),
            ],
        ),
        ("The run as a whole", [time_figures.stages(report), rank_figures.memory(report, detail)]),
    ]


def page(run: Run, report: Report, detail: Details, diagnosis: Diagnosis | None = None) -> str:
    """The whole page; with a ``diagnosis``, the causal chain and its causes as well."""
    facts = report.run
    advised = advise_all(report.findings, diagnosis.causes if diagnosis else ())
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_visible)
    environment.filters["figure_json"] = figure_json
    template = environment.from_string(_asset("page.html.j2"))
    return template.render(
        css=Markup(_asset("page.css")),
        javascript=Markup(_asset("page.js")),
        plotly=Markup(get_plotlyjs()),
        heading=f"{facts.system or 'run'} on {facts.dataset or 'an unnamed graph'}",
        facts=_facts(report),
        verdict=words.verdict(report),
        trust=words.trust(report, sum(item.status == "warning" for item in advised)),
        chain=diagnosis,
        findings=[item for item in advised if item.status != "absent"],
        absent=[item for item in advised if item.status == "absent"],
        tiles=words.tiles(report),
        axes=words.axes(report),
        chapters=_arranged(chapters(report, detail)),
        tables=tables(run),
        report_json=script_json(msgspec.json.encode(finite(to_builtins(report))).decode()),
    )


def write(run: Run, report: Report, detail: Details, path: Path, diagnosis: Diagnosis | None = None) -> None:
    """Write ``report.html`` in one step."""
    write_atomically(path, page(run, report, detail, diagnosis).encode("utf-8", "replace"))


def _facts(report: Report) -> str:
    run = report.run
    settings = f"bits {run.bits}, mask {run.mask}, schedule {run.schedule}, seed {run.seed}"
    ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    ended = "" if run.complete else ", incomplete"
    return f"{run.model} on {ranks}, {settings}, {run.epochs} epochs{ended} · run {run.run_id}"


def _arranged(parts: Sequence[tuple[str, list[Panel]]]) -> list[tuple[str, list[Panel], list[Panel]]]:
    """Each chapter's pictures, then the panels that only say why there is none."""
    return [
        (title, [p for p in panels if p.figure is not None], [p for p in panels if p.figure is None]) for title, panels in parts
    ]


def _visible(value: object) -> object:
    """Text with the characters that HTML would change made safe; markup as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(str(escape(value)).translate(_REPLACED))


def figure_json(figure: go.Figure) -> Markup:
    """A figure as JSON that may stand inside a script element."""
    return script_json(figure.to_json(validate=False, engine="json"))


def script_json(text: str) -> Markup:
    """JSON whose letters cannot end a script element or a line of it."""
    return Markup(re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
