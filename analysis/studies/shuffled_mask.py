"""Runs for ``sylvie-report shuffled-mask``: do nodes of high degree deserve the extra bits, or would any do?

The degree mask, ``shuffled`` and ``shuffled-rows`` at a fixed base of 1 and 2 bits, synchronously, on one partition that
makes the boundary count (a random assignment), with several seeds. A diagnostic of this project, not a result of the paper.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from analysis.driver import Driver
from analysis.run_files import write_atomically
from analysis.settings import Option, Setting
from analysis.studies import Study
from analysis.tables import Column, build_table, write_table

_MASKS, _BASES = ("degree", "shuffled-rows", "shuffled"), ("1", "2")
#: (dataset, nodes, options) of the case, quick and full: with these assignments a model without halo rows is much worse.
_QUICK: tuple[str, int, dict[str, Option]] = ("generator:nodes=2000", 2000, {"epochs": 40, "layers": 2, "hidden": 32})
_FULL: tuple[str, int, dict[str, Option]] = (
    "generator:nodes=12000,degree=10,features=64",
    12_000,
    {"epochs": 60, "layers": 2, "hidden": 64, "lr": 0.01, "dropout": 0.5},
)
_COLUMNS = (
    Column(title="test, %", path="quality.test_at_best_val", scale=100, versus="difference"),
    Column(title="bytes an epoch, MB", path="bytes_per_epoch.main", scale=1e-6, digits=3),
    Column(title="bits a row", path="bits.mean", digits=3),
)


def _run(quick: bool, out: Path) -> None:
    dataset, nodes, options = _QUICK if quick else _FULL
    parts, seeds = 4, range(6 if quick else 10)
    assignment = out / "assignment.part"
    owners = np.random.default_rng(0).permutation(np.arange(nodes) % parts)
    write_atomically(assignment, "".join(f"{owner}\n" for owner in owners.tolist()))
    common: dict[str, Option] = {
        **options,
        "dataset": dataset,
        "parts": parts,
        "partition": str(assignment),
        "schedule": "sync",
        "eval-every": 5,
        "trace": True,
    }
    settings = [
        Setting(label=f"{mask}, base {base}", seed=seed, options={**common, **_axes(mask, base, seed)})
        for seed in seeds
        for base in _BASES
        for mask in _MASKS
    ]
    outcomes = Driver(out).run(settings)
    for base in _BASES:
        chosen = [outcome for outcome in outcomes if outcome.setting.label.endswith(f"base {base}")]
        title = f"Degree mask and its shuffles, base {base}, sync (a diagnostic of this project, not a result of the paper)"
        write_table(build_table(title, chosen, _COLUMNS, baseline=f"degree, base {base}"), out, f"base-{base}")
    runs = [os.path.relpath(outcome.run_dir, out) for outcome in outcomes]
    write_atomically(out / "runs.json", json.dumps(runs, indent=1) + "\n")
    print(f"next: cd {out} && sylvie-report shuffled-mask runs/*/")


def _axes(mask: str, base: str, seed: int) -> dict[str, Option]:
    """A shuffle of its own for every seed: one shuffle alone might be a lucky one."""
    return {"mask": mask, "bits": base, **({} if mask == "degree" else {"mask-seed": seed + 1})}


STUDY = Study(name="shuffled-mask", title="Do nodes of high degree deserve the extra bits, or would any nodes do", run=_run)
