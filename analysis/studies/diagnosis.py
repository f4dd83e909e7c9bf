"""Does ``sylvie-report diagnose`` name what is wrong, and nothing where nothing is? Faults injected, and healthy runs.

Five kinds of fault at two strengths on two graphs, and every system on both graphs as it should be. The confusion matrix
counts the kinds of warning that each kind of run gets.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.driver import Driver
from analysis.run_files import write_atomically
from analysis.settings import Option, Setting
from analysis.studies import Study
from sylvie_trace.diagnose import Diagnosis, diagnose
from sylvie_trace.questions import subjects
from sylvie_trace.summary import run_parts

Options = dict[str, Option]
#: Graphs, quick and full: one dense and one sparse boundary, both small.
_GRAPHS: dict[str, Options] = {
    "dense": {"dataset": "generator", "layers": 3, "hidden": 64},
    "sparse": {"dataset": "generator:nodes=12000,degree=6,classes=5,features=32", "layers": 3, "hidden": 96},
}
_SYSTEMS = ("sylvie", "vanilla", "pipegcn", "bns-gcn", "sar")
#: (kind, strength, fault, options). Link rates are such that a synchronous epoch's rows take about as long as its work.
_FAULTS: tuple[tuple[str, str, str, Options], ...] = (
    ("slow rank", "1.6 times", "slow-rank:0.6", {}),
    ("slow rank", "3 times", "slow-rank:2", {}),
    ("slow link", "4 MB/s", "slow-link:4e6", {}),
    ("slow link", "1 MB/s", "slow-link:1e6", {}),
    ("wrong mask", "flat", "flat-mask", {}),
    ("wrong mask", "turned round", "turned-mask", {}),
    ("stuck width", "at 1", "stuck-width:1", {}),
    ("stuck width", "at 8", "stuck-width:8", {}),
    ("disabled axis", "execution", "none", {"schedule": "sync"}),
    ("disabled axis", "data and time", "none", {"bits": 1}),
)
#: The kind of fault that a check names; checks that are not listed count as "other".
KINDS = {
    "slow_rank": "slow rank",
    "straggler": "slow rank",
    "imbalance": "slow rank",
    "slow_link": "slow link",
    "slower_than_probed": "slow link",
    "message_count": "slow link",
    "boundary_share": "slow link",
    "metadata": "slow link",
    "wrong_mask": "wrong mask",
    "width_stuck": "stuck width",
    "width_high": "stuck width",
    "decisions": "stuck width",
    "axis_off_mask": "disabled axis",
    "axis_off_bits": "disabled axis",
    "axis_off_schedule": "disabled axis",
}


def warnings_of(found: Diagnosis) -> list[str]:
    """Checks that a diagnosis warns of, the report's included."""
    causes = [cause.check for cause in found.causes if cause.status == "warning"]
    return [*causes, *(finding.check for finding in found.findings)]


def _launcher(fault: str) -> list[str]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*torchrun, "-m", "analysis.inject", fault]


def _diagnose(run_dir: Path) -> Diagnosis:
    (subject,) = subjects([run_dir])
    return diagnose(subject, run_parts(subject.run))


def _row(kind: str, strength: str, graph: str, found: Diagnosis) -> dict[str, object]:
    checks = warnings_of(found)
    named = sorted({KINDS.get(check, "other") for check in checks})
    return {"kind": kind, "strength": strength, "graph": graph, "named": named, "checks": checks, "verdict": found.verdict}


def _run(quick: bool, out: Path) -> None:
    common: Options = {"epochs": 40, "trace": True, "parts": 2, "eval-every": 10, "dropout": 0.2}
    graphs = dict(list(_GRAPHS.items())[:1]) if quick else _GRAPHS
    rows = []
    for graph, options in graphs.items():
        for system in _SYSTEMS:
            setting = Setting(label=f"healthy {system} {graph}", seed=0, options={**common, **options, "system": system})
            (outcome,) = Driver(out / "healthy").run([setting])
            rows.append(_row("healthy", system, graph, _diagnose(outcome.run_dir)))
        for kind, strength, fault, changes in _FAULTS:
            setting = Setting(label=f"{kind} {strength} {graph}", seed=0, options={**common, **options, **changes})
            (outcome,) = Driver(out / fault.replace(":", "-"), train=_launcher(fault)).run([setting])
            rows.append(_row(kind, strength, graph, _diagnose(outcome.run_dir)))
    write_atomically(out / "diagnosis.json", json.dumps(rows, indent=1) + "\n")
    write_atomically(out / "diagnosis.md", _markdown(rows))
    print(_markdown(rows))


def _markdown(rows: Sequence[dict[str, object]]) -> str:
    kinds = list(dict.fromkeys(str(row["kind"]) for row in rows))
    columns = [kind for kind in kinds if kind != "healthy"] + ["other", "nothing"]
    lines = ["## What `diagnose` names", "", f"| run | runs | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for kind in kinds:
        own = [row["named"] for row in rows if row["kind"] == kind]
        counts = [sum(column in (named or ["nothing"]) for named in own if isinstance(named, list)) for column in columns]
        lines.append(f"| {kind} | {len(own)} | {' | '.join(map(str, counts))} |")
    lines += ["", "| run | strength | graph | warnings |", "|---|---|---|---|"]
    for row in rows:
        checks = row["checks"]
        assert isinstance(checks, list)
        lines.append(f"| {row['kind']} | {row['strength']} | {row['graph']} | {', '.join(checks) or 'none'} |")
    return "\n".join(lines) + "\n"


STUDY = Study(name="diagnosis", title="Does diagnose name what is wrong, and nothing where nothing is", run=_run)
