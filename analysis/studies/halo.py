"""How much does each graph need its halo, and is the halo the whole difference to one process?

GraphSAGE on four ranks, under METIS and in random parts: as it is, with every halo row zeroed (training and evaluation,
input features included), and beside plain DGL in one process on the whole graph. Exact distributed training must agree with
plain DGL within the spread over seeds; what zeroing costs says whether a study of messages on this case can see anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from analysis.cases import DEBIAN, WORDNET, Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.plain_sage import train_plain
from analysis.run_files import read_json, write_atomically
from analysis.settings import Outcome, Setting, paired
from analysis.studies import Study
from analysis.tables import Column, Table, build_table

_ZERO = "analysis.zero_halo:ZeroHaloSession"
_PLAIN = "plain DGL, one process"
_PARTS = 4
_COLUMNS = (
    Column(title="test at best validation, %", path="quality.test_at_best_val", scale=100, versus="difference"),
    Column(title="best validation, %", path="quality.best_val", scale=100),
    Column(title="halo rows", path="boundary.halo_rows", digits=0),
    Column(title="boundary share of nodes", path="boundary.share_of_nodes"),
)


def _run(quick: bool, out: Path) -> None:
    conditions, driver = Conditions(), Driver(out, keep_going=True)
    print("expected: 2 minutes" if quick else "expected: 12 minutes on two idle cores", flush=True)
    seeds = range(2 if quick else 3)
    parts: list[str | Table] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    for case in _cases(quick):
        outcomes = [_plain(case, seed, out) for seed in seeds] + driver.run(_settings(case, seeds, out))
        title = f"{case['dataset']}, GraphSAGE, {_PARTS} ranks, {case['epochs']} epochs"
        parts.append(build_table(title, outcomes, _COLUMNS, baseline=_PLAIN))
        title = "Halo: what it is worth on each graph, and vanilla against plain DGL"
        write_document(out, "halo", title=title, conditions=conditions, parts=parts)


def _cases(quick: bool) -> list[Options]:
    if quick:
        small: Options = {"layers": 2, "hidden": 32, "dropout": 0.5, "lr": 0.01, "epochs": 40, "eval-every": 5}
        return [small | {"dataset": "generator:nodes=2000"}]
    return [case | {"epochs": 40, "eval-every": 5} for case in (DEBIAN, WORDNET)]


def _settings(case: Options, seeds: Sequence[int], out: Path) -> list[Setting]:
    common = case | {"parts": _PARTS, "system": "vanilla"}
    split: Options = {"partition": random_assignment(str(case["dataset"]), _PARTS, out)}
    settings = []
    for label, options in (("METIS", common), ("random", common | split)):
        for kind, session in (("", None), (", halo zeroed", _ZERO)):
            settings += paired({f"vanilla, {label}{kind}": options}, seeds, session=session)
    return settings


def _plain(case: Options, seed: int, out: Path) -> Outcome:
    """One plain run, kept on disk as the driver keeps the others; the halo columns stay empty."""
    setting = Setting(label=_PLAIN, seed=seed, options=case)
    path = out / "plain" / f"{setting.name}.json"
    quality = read_json(path)
    if quality is None:
        quality = train_plain(
            str(case["dataset"]),
            seed=seed,
            projection=int(case.get("input-projection") or 0),
            hidden=int(case["hidden"] or 0),
            layers=int(case["layers"] or 0),
            dropout=float(case["dropout"] or 0),
            lr=float(case["lr"] or 0),
            epochs=int(case["epochs"] or 0),
            eval_every=int(case["eval-every"] or 0),
        )
        write_atomically(path, json.dumps(quality) + "\n")
    return Outcome(setting=setting, run_dir=path.parent, report={"quality": quality})


STUDY = Study(name="halo", title="How much each graph needs its halo, and vanilla against plain DGL", run=_run)
