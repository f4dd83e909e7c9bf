"""What each width, mask, controller and form of metadata costs in quality and saves in bytes; rows are never stale here.

Pubmed under METIS, where messages matter little and seeds matter much, and two cases that count: a generated graph and
wordnet, both in four random parts. Everything is compared with 32 bits of the same seed. A row at a width between the fixed
ones is also compared with the straight line between its neighbours at the same bytes: above 0 a mask spends its bytes better
than one width for all. Metadata is fp32 unless a row says bf16.
Times on a link come from one short run a setting on two emulated hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analysis.cases import PUBMED, WORDNET, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.netlab import why_unavailable
from analysis.settings import Option, Outcome, Setting, paired
from analysis.studies import Study
from analysis.tables import Column, Summary, Table, build_table, summarise, value_at

_FIXED = ("1 bit", "2 bits", "4 bits", "8 bits")
VARIANTS: Mapping[str, Mapping[str, Option]] = {
    "32 bits": {"bits": 32},
    "8 bits": {"bits": 8},
    "4 bits": {"bits": 4},
    "2 bits": {"bits": 2},
    "1 bit": {"bits": 1},
    "1 bit, top10": {"bits": 1, "mask": "degree", "mask-thresholds": "top10"},
    "1 bit, quartile": {"bits": 1, "mask": "degree", "mask-thresholds": "quartile"},
    "1 bit, quartile of distinct": {
        "bits": 1,
        "mask": "degree",
        "mask-thresholds": "quartile",
        "importance": "distinct",
    },
    "adaptive to 8, top10, wall clock": {"bits": "adaptive", "ldr-max-base": 8},
    "adaptive to 8, top10, constant clock": {"bits": "adaptive", "ldr-max-base": 8, "ldr-clock": "constant"},
    "8 bits, bf16 metadata": {"bits": 8, "metadata": "bf16"},
    "1 bit, bf16 metadata": {"bits": 1, "metadata": "bf16"},
    "1 bit, top10, bf16 metadata": {
        "bits": 1,
        "mask": "degree",
        "mask-thresholds": "top10",
        "metadata": "bf16",
    },
}
_ON_WORDNET = ("32 bits", "2 bits", "1 bit", "1 bit, top10", "adaptive to 8, top10, wall clock", "1 bit, top10, bf16 metadata")
_BASELINE = "32 bits"
_QUALITY = "quality.test_at_best_val"
_COLUMNS = (
    Column(title="test at best validation, %", path=_QUALITY, scale=100, versus="difference"),
    Column(title="main, MB an epoch", path="bytes_per_epoch.main", scale=1e-6, digits=3),
    Column(title="metadata, MB an epoch", path="bytes_per_epoch.meta", scale=1e-6, digits=3),
    Column(title="bits a row", path="bits.mean"),
    Column(title="epoch on local ranks, ms", path="epoch_time_s.median", scale=1e3, digits=1),
)
_LINK_COLUMNS = (
    Column(title="epoch, ms", path="epoch_time_s.median", scale=1e3, digits=0, versus="speedup"),
    Column(title="main, MB an epoch", path="bytes_per_epoch.main", scale=1e-6, digits=3),
    Column(title="metadata, MB an epoch", path="bytes_per_epoch.meta", scale=1e-6, digits=3),
    Column(title="weight gradients, MB an epoch", path="bytes_per_epoch.gradient_allreduce", scale=1e-6, digits=3),
    Column(title="goodput, MB/s", path="link.goodput_bytes_per_s", scale=1e-6, digits=1),
)


def _run(quick: bool, out: Path) -> None:
    conditions, driver = Conditions(), Driver(out, keep_going=True)
    print(f"expected on two idle cores: {'2' if quick else '25'} minutes, part of it on emulated links", flush=True)
    parts: list[str | Table] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    lines: dict[str, dict[str, Any]] = {}

    def write() -> None:  # after every case: a study that is stopped leaves what it has
        title = "Compression: quality and bytes of every width, mask and form of metadata, synchronous"
        write_document(out, "compression", title=title, conditions=conditions, parts=parts, data={"above_the_line": lines})

    for title, options, seeds in _cases(quick, out):
        common: Options = {"parts": 2, "schedule": "sync", "eval-every": 5}
        common |= options
        chosen = _ON_WORDNET if "Wordnet" in title else tuple(VARIANTS)
        variants: dict[str, Options] = {label: common | _axes(label) for label in chosen}
        outcomes = driver.run(paired(variants, seeds))
        line = above_the_line(outcomes)
        lines[title] = {label: asdict(summary) for label, summary in line.items()}
        parts += [build_table(title, outcomes, _COLUMNS, baseline=_BASELINE), _line_text(line)]
        write()
    if (reason := why_unavailable()) is None:
        parts.append(_on_a_link(quick, out, driver))
    else:
        parts.append(f"Not measured on an emulated link: {reason}.")
    write()


def _axes(label: str) -> Options:
    axes = dict(VARIANTS[label])
    return axes if axes["bits"] == 32 else {"metadata": "fp32"} | axes


def _cases(quick: bool, out: Path) -> list[tuple[str, Options, range]]:
    if quick:
        small: Options = {"dataset": "generator:nodes=2000", "layers": 2, "hidden": 32, "epochs": 30}
        split: Options = {"partition": random_assignment("generator:nodes=2000", 2, out)}
        return [("A generated graph in 2 random parts", small | split, range(2))]
    name = "generator:nodes=12000,degree=10,features=64"
    generated: Options = {"dataset": name, "layers": 2, "hidden": 64, "parts": 4, "epochs": 60}
    generated |= {"partition": random_assignment(name, 4, out)}
    wordnet: Options = {"parts": 4, "partition": random_assignment("wordnet30_lexname", 4, out), "epochs": 40}
    return [
        ("A generated graph, GraphSAGE, 4 random parts (a case that counts)", generated, range(5)),
        ("Pubmed, GraphSAGE, 2 METIS parts", PUBMED | {"epochs": 40}, range(10)),
        ("Pubmed, GCN, 2 METIS parts", PUBMED | {"model": "gcn", "epochs": 40}, range(10)),
        ("Wordnet, GraphSAGE, 4 random parts (a case that counts)", WORDNET | wordnet, range(3)),
    ]


def _on_a_link(quick: bool, out: Path, driver: Driver) -> Table:
    """One short run a setting at 200 Mbit/s; a controller needs δ epochs before it does anything."""
    name = "generator:nodes=2000" if quick else "generator:nodes=16000,degree=20,features=64"
    case: Options = {"dataset": name, "layers": 2, "hidden": 32 if quick else 128}
    common = case | {
        "parts": 2,
        "partition": random_assignment(name, 2, out),
        "schedule": "sync",
        "epochs": 20,
        "eval-every": 0,
    }
    settings = [Setting(label=label, seed=0, options=common | _axes(label), rate="200mbit") for label in VARIANTS]
    title = f"{name}, GraphSAGE, 2 random parts on 2 hosts at 200 Mbit/s, 20 epochs"
    return build_table(title, driver.run(settings), _LINK_COLUMNS, baseline=_BASELINE)


def above_the_line(outcomes: Sequence[Outcome]) -> dict[str, Summary]:
    """Per label its metric minus that of one width for all at the same bytes (main and metadata), paired by seed, in points.

    The line joins the fixed widths of the same seed and form of metadata, straight in log2 of the bytes; beyond its ends a
    label has no value.
    """
    found: dict[str, list[float]] = {}
    by_seed: dict[int, dict[str, tuple[float, float]]] = {}
    for outcome in outcomes:
        main, meta = value_at(outcome, "bytes_per_epoch.main"), value_at(outcome, "bytes_per_epoch.meta")
        quality = value_at(outcome, _QUALITY)
        if main is not None and meta is not None and quality is not None:
            by_seed.setdefault(outcome.setting.seed, {})[outcome.setting.label] = (main + meta, quality)
    for points in by_seed.values():
        line = sorted(points[label] for label in _FIXED if label in points)
        if len(line) < len(_FIXED):
            continue
        sizes, qualities = np.log2([size for size, _ in line]), [quality for _, quality in line]
        for label, (size, quality) in points.items():
            if label in _FIXED or not line[0][0] <= size <= line[-1][0]:
                continue
            found.setdefault(label, []).append(100 * (quality - float(np.interp(np.log2(size), sizes, qualities))))
    return {label: summary for label, values in found.items() if (summary := summarise(values)) is not None}


def _line_text(line: Mapping[str, Summary]) -> str:
    rows = []
    for label, summary in line.items():
        interval = "" if summary.low is None else f", [{summary.low:+.2f}, {summary.high:+.2f}]"
        rows.append(f"* {label}: {summary.mean:+.2f}{interval}")
    head = "Points above one width for all at equal bytes (main and metadata, straight in log2 of the bytes, paired by seed):"
    return "\n".join([head, "", *rows])


STUDY = Study(
    name="compression", title="What widths, masks and metadata cost in quality and save in bytes, synchronous", run=_run
)
