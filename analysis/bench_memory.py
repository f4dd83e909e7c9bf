"""`python -m analysis.bench memory [--json]`: the memory of a rank of a deep model against what training it must hold.

Two starts of the same run on two local ranks, see `analysis.memory_session`. About a minute on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.jobs import Job, run_watched, write_jobs
from analysis.memory_session import result_file
from analysis.run_files import read_json

_PARTS = 2
_OPTIONS = {
    "dataset": "generator:nodes=100000,degree=10,features=128",
    "layers": "8",
    "hidden": "128",
    "epochs": "3",
    "eval-every": "0",
    "parts": str(_PARTS),
}
MODELS = ("gcnii", "gcn", "graphsage", "dagnn", "jknet", "gat")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; with --json the last line on stdout is the result."""
    parser = argparse.ArgumentParser(prog="python -m analysis.bench memory", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    parser.add_argument("--models", nargs="+", default=["gcnii"], choices=MODELS, help="which models (default: gcnii)")
    parser.add_argument("--nodes", type=int, default=100_000, help="nodes of the generated graph")
    parser.add_argument("--out", type=Path, help="where run directories go (default: a temporary folder)")
    options = parser.parse_args(argv)
    out = options.out or Path(tempfile.mkdtemp(prefix="sylvie-memory-"))
    try:
        rows = [row for model in options.models for row in measure(out, model, options.nodes)]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"rows": rows}) if options.json else _table(rows))
    return 0


def measure(out: Path, model: str, nodes: int) -> list[dict[str, Any]]:
    """A row a rank: bytes of each kind that must be held, their sum, the bytes taken, and the ratio."""
    dataset = _OPTIONS["dataset"].replace("100000", str(nodes))
    kinds = [_run(out / f"{model}-{name}", model, dataset, session) for name, session in _SESSIONS.items()]
    rows = []
    for rank, (must, took) in enumerate(zip(*kinds, strict=True)):
        total = sum(must.values())
        rows.append({"model": model, "rank": rank, **must, "sum": total, **took, "ratio": took["above_imports"] / total})
    return rows


_SESSIONS = {
    "counted": "analysis.memory_session:CountingSession",
    "weighed": "analysis.memory_session:WeighingSession",
}


def _run(folder: Path, model: str, dataset: str, session: str) -> list[dict[str, float]]:
    options = _OPTIONS | {"dataset": dataset, "model": model, "run-dir": str(folder / "run")}
    words = tuple(word for key, value in options.items() for word in (f"--{key}", value))
    job = Job(arguments=words, run_dir=folder / "run", log=folder / "run.log", session=session)
    folder.mkdir(parents=True, exist_ok=True)
    write_jobs(folder / "jobs.json", _PARTS, [job])
    log = folder / "batch.log"
    command = [sys.executable, "-m", "analysis.batch", str(folder / "jobs.json")]
    with log.open("wb") as stream:
        rc = run_watched(command, stream, timeout_s=None, jobs=[job])
    found = [read_json(result_file(job.run_dir, rank)) for rank in range(_PARTS)]
    if rc != 0 or not all(found):
        raise ValueError(f"{job.run_dir} failed (exit code {rc}): read {log} and {job.log}")
    return [dict(each) for each in found if each]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = ("features", "activations", "parameters", "boundary", "sum", "above_imports")
    head = ["| model | rank | " + " | ".join(f"{name.replace('_', ' ')}, MB" for name in names) + " | ratio |"]
    head.append("|---" * (len(names) + 3) + "|")
    for row in rows:
        cells = [row["model"], str(row["rank"]), *(f"{row[name] / 1e6:.0f}" for name in names), f"{row['ratio']:.2f}"]
        head.append("| " + " | ".join(cells) + " |")
    return "\n".join(head)
