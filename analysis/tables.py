"""From outcomes to tables: mean ± standard deviation over seeds, and differences paired by seed."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from analysis.run_files import write_atomically
from analysis.settings import Outcome

Comparison = Literal["none", "difference", "speedup"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One figure of the report: `path` is dotted (`epoch_time_s.median`, `link.goodput_bytes_per_s`).

    scale    what the value is multiplied by, for a readable unit (name that unit in the title)
    versus   how a row is compared with the baseline's run of the same seed: value − baseline, or
             baseline / value (how many times faster, for times)
    """

    title: str
    path: str
    scale: float = 1.0
    digits: int = 2
    versus: Comparison = "none"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Of n values: mean, sample standard deviation, Student's 95 % interval of the mean (None below two)."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One label's figure: its values by seed, their summary, the summary of the paired comparison.

    A summary is None where no seed has a value.
    """

    values: Mapping[int, float]
    summary: Summary | None
    versus: Summary | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows are labels, in the order of their first outcome."""

    title: str
    columns: tuple[Column, ...]
    baseline: str | None
    rows: Mapping[str, tuple[Cell, ...]]
    failed: tuple[str, ...]


def value_at(outcome: Outcome, path: str) -> float | None:
    """The number at a dotted path of the report (below `link.`: of the link); None if absent or null."""
    head, _, rest = path.partition(".")
    node: Any = outcome.link if head == "link" else outcome.report
    for key in (rest if head == "link" else path).split("."):
        if not isinstance(node, Mapping) or key not in node:
            return None
        node = node[key]
    if isinstance(node, bool) or not isinstance(node, int | float) or not math.isfinite(node):
        return None
    return float(node)


def summarise(values: Sequence[float]) -> Summary | None:
    """Mean, deviation and interval; None for no value."""
    n = len(values)
    if n == 0:
        return None
    mean = float(np.mean(values))
    if n == 1:
        return Summary(mean=mean, std=None, low=None, high=None, n=1)
    std = float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    return Summary(mean=mean, std=std, low=mean - half, high=mean + half, n=n)


def build_table(
    title: str, outcomes: Sequence[Outcome], columns: Sequence[Column], baseline: str | None = None
) -> Table:
    """Group outcomes by label and compare each with the baseline's run of the same seed.

    Raises ValueError if no outcome has the baseline's label, or if a label has a seed twice.
    """
    grouped: dict[str, dict[int, Outcome]] = {}
    for outcome in outcomes:
        seeds = grouped.setdefault(outcome.setting.label, {})
        if outcome.setting.seed in seeds:
            raise ValueError(
                f"label {outcome.setting.label!r} has seed {outcome.setting.seed} twice: rename one"
            )
        seeds[outcome.setting.seed] = outcome
    if baseline is not None and baseline not in grouped:
        raise ValueError(f"baseline {baseline!r} is not among the labels {', '.join(grouped)}")
    reference = grouped[baseline] if baseline is not None else {}
    rows = {
        label: tuple(_cell(column, seeds, reference if label != baseline else {}) for column in columns)
        for label, seeds in grouped.items()
    }
    failed = tuple(f"{each.setting.name}: {each.error}" for each in outcomes if each.error)
    return Table(title=title, columns=tuple(columns), baseline=baseline, rows=rows, failed=failed)


def _values(column: Column, seeds: Mapping[int, Outcome]) -> dict[int, float]:
    found = {seed: value_at(outcome, column.path) for seed, outcome in seeds.items()}
    return {seed: value * column.scale for seed, value in found.items() if value is not None}


def _cell(column: Column, seeds: Mapping[int, Outcome], reference: Mapping[int, Outcome]) -> Cell:
    values = _values(column, seeds)
    versus: list[float] = []
    if column.versus != "none":
        base = _values(column, reference)
        pairs = [(value, base[seed]) for seed, value in values.items() if seed in base]
        if column.versus == "difference":
            versus = [value - against for value, against in pairs]
        else:
            versus = [against / value for value, against in pairs if value > 0]
    return Cell(values=values, summary=summarise(list(values.values())), versus=summarise(versus))


def _plus_minus(summary: Summary, digits: int, sign: str = "") -> str:
    text = f"{summary.mean:{sign}.{digits}f}"
    return text if summary.std is None else f"{text} ± {summary.std:.{digits}f}"


def _with_interval(summary: Summary, digits: int, sign: str = "") -> str:
    text = _plus_minus(summary, digits, sign)
    return (
        text
        if summary.low is None
        else f"{text}, [{summary.low:{sign}.{digits}f}, {summary.high:{sign}.{digits}f}]"
    )


def _cell_text(column: Column, cell: Cell) -> str:
    if cell.summary is None:
        return "not measured"
    text = _plus_minus(cell.summary, column.digits)
    if cell.versus is None:
        return text
    if column.versus == "difference":
        return f"{text} (Δ {_with_interval(cell.versus, column.digits, '+')})"
    return f"{text} (× {_with_interval(cell.versus, 2)})"


def markdown(table: Table) -> str:
    """The table as markdown; what a bracket holds is said below it, failed runs too."""
    head = ["", "seeds", *(column.title for column in table.columns)]
    lines = [f"## {table.title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label, cells in table.rows.items():
        counts = sorted({cell.summary.n for cell in cells if cell.summary is not None}) or [0]
        texts = [_cell_text(column, cell) for column, cell in zip(table.columns, cells, strict=True)]
        lines.append(f"| {label} | {' to '.join(map(str, counts))} | {' | '.join(texts)} |")
    lines += [
        "",
        "Mean ± sample standard deviation over seeds; in brackets Student's 95 % interval of a mean.",
    ]
    kinds = {column.versus for column in table.columns} if table.baseline is not None else set()
    if "difference" in kinds:
        lines.append(f"Δ: the difference to {table.baseline}, paired by seed.")
    if "speedup" in kinds:
        lines.append(f"×: how many times faster than {table.baseline}, paired by seed.")
    lines += [f"\nFailed: {line}" for line in table.failed]
    return "\n".join(lines) + "\n"


def as_json(table: Table) -> dict[str, Any]:
    """The table with all its values by seed; a missing figure is null."""
    return {
        "title": table.title,
        "baseline": table.baseline,
        "columns": [asdict(column) for column in table.columns],
        "rows": [
            {
                "label": label,
                "cells": {
                    column.title: asdict(cell) for column, cell in zip(table.columns, cells, strict=True)
                },
            }
            for label, cells in table.rows.items()
        ],
        "failed": list(table.failed),
    }


def write_table(table: Table, out: Path, name: str) -> None:
    """Write `name`.md and `name`.json into `out`."""
    write_atomically(out / f"{name}.md", markdown(table))
    write_atomically(out / f"{name}.json", json.dumps(as_json(table), indent=1, allow_nan=False) + "\n")
