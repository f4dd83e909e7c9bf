"""`python -m analysis.bench epoch [--json]`: an epoch of every system against what it could be at best, on an emulated link.

1. The computation alone (`analysis.standing_rows`), on two hosts at once.
2. A link rate at which the exchange takes between .91 and .93 of vanilla's epoch; or the rate that is given.
3. All settings in one start on that link, traced; each one's epoch, its bound (`analysis.bounds`) and its test metric. Before
   every setting a few epochs of the computation alone: a machine's speed drifts, and their mean has drifted along.

Needs what `analysis.netlab` needs. About seven minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.bounds import mean_bound_s
from analysis.jobs import Job, write_jobs
from analysis.netlab import NetLab, why_unavailable
from analysis.run_files import read_json

SHARE = (0.91, 0.93)
_AIM = 0.92
_NOMINAL = 0.955  # goodput of TCP over the nominal rate on the emulated link
# Few input columns: layer 1 sends nothing, but its weight gradient would outweigh the 1-bit messages.
_GRAPH = "generator:nodes=32000,degree=40,classes=16,features=32"
COMMON = {"dataset": _GRAPH, "model": "graphsage", "layers": "4", "hidden": "128", "dropout": "0.3", "eval-every": "0"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting of the bench."""

    name: str
    options: dict[str, str]
    epochs: int
    session: str | None = None


ROWS = (
    Row(name="vanilla", options={"system": "vanilla"}, epochs=6),
    Row(name="vanilla-plain", options={"system": "vanilla", "no-overlap": ""}, epochs=6),
    Row(name="1-bit-async", options={"system": "sylvie", "bits": "1", "schedule": "async"}, epochs=40),
    Row(name="1-bit-sync", options={"system": "sylvie", "bits": "1", "schedule": "sync"}, epochs=20),
    Row(name="default-5", options={"system": "sylvie"}, epochs=50),
    Row(name="default-20", options={"system": "sylvie", "ldr-delta": "20"}, epochs=70),
)
MORE = (
    *(
        Row(name=f"{bits}-bit-{schedule}", options={"system": "sylvie", "bits": bits, "schedule": schedule}, epochs=epochs)
        for bits in ("32", "8", "4", "2", "1")
        for schedule, epochs in (("sync", 12), ("async", 20), ("adaptive", 30))
        if (bits, schedule) not in (("1", "async"), ("1", "sync"))
    ),
    Row(name="pipegcn", options={"system": "pipegcn"}, epochs=12),
    Row(name="bns-gcn", options={"system": "bns-gcn"}, epochs=20),
    Row(name="sar", options={"system": "sar"}, epochs=8),
)


class Bench:
    """Runs batches on an emulated link and keeps their run directories below ``out``."""

    def __init__(self, out: Path, common: dict[str, str], seed: int) -> None:
        self.out, self._common, self._seed = out, common, seed

    def run(self, lab: NetLab, rows: Sequence[Row], folder: str) -> dict[str, dict[str, Any]]:
        """Reports by row name; raises ValueError when a run fails, naming its log."""
        jobs = []
        for row in rows:
            run_dir = self.out / folder / row.name
            options = self._common | {"seed": str(self._seed), "epochs": str(row.epochs), "run-dir": str(run_dir)} | row.options
            words = [word for key, value in options.items() for word in (f"--{key}", value) if word]
            job = Job(
                arguments=(*words, "--trace"), run_dir=run_dir, log=self.out / folder / f"{row.name}.log", session=row.session
            )
            jobs.append(job)
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        batch = self.out / folder / "jobs.json"
        write_jobs(batch, lab.hosts, jobs)
        with (self.out / folder / "lab.log").open("ab") as log:
            lab.run([sys.executable, "-m", "analysis.batch", str(batch)], log=log)
        return {row.name: self._report(job) for row, job in zip(rows, jobs, strict=True)}

    def _report(self, job: Job) -> dict[str, Any]:
        if not job.complete:
            raise ValueError(f"{job.run_dir} is not complete: read {job.log} and {job.log.parent / 'lab.log'}")
        from sylvie_trace.reader import read_run
        from sylvie_trace.report import build
        from sylvie_trace.report.json_ import dumps
        from sylvie_trace.report_types import to_builtins

        report: dict[str, Any] = json.loads(dumps(to_builtins(build(read_run(job.run_dir)))))
        return report


def epoch_s(report: dict[str, Any]) -> float:
    """Mean epoch time of the measured epochs, seconds."""
    return float(report["epoch_time_s"]["mean"])


def find_rate(bench: Bench, compute_only: float, bytes_per_epoch: float) -> tuple[str, float]:
    """(rate, vanilla's epoch) with an exchange share inside SHARE: from the bytes first, then corrected by measurement."""
    goodput = bytes_per_epoch / (compute_only / (1 - _AIM) - compute_only)
    for attempt in range(4):
        rate = f"{goodput / _NOMINAL * 8 / 1e6:.1f}mbit"
        with NetLab(2, rate) as lab:
            row = Row(name="vanilla", options={"system": "vanilla"}, epochs=4)
            vanilla = epoch_s(bench.run(lab, [row], f"search-{attempt}")["vanilla"])
        share = 1 - compute_only / vanilla
        print(f"rate {rate}: vanilla {vanilla:.3f} s, exchange share {share:.4f}", file=sys.stderr, flush=True)
        if SHARE[0] <= share <= SHARE[1]:
            break
        goodput *= (vanilla - compute_only) / (compute_only / (1 - _AIM) - compute_only)
    return rate, vanilla


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; with --json the last line on stdout is the result."""
    parser = argparse.ArgumentParser(prog="python -m analysis.bench epoch", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    parser.add_argument("--rate", help="link rate such as 200mbit (default: searched)")
    parser.add_argument("--all", action="store_true", help="every width, schedule and system, not only the budgets' rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where run directories go (default: a temporary folder)")
    options = parser.parse_args(argv)
    if (reason := why_unavailable()) is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    out = options.out or Path(tempfile.mkdtemp(prefix="sylvie-bench-"))
    try:
        result = measure(Bench(out, COMMON, options.seed), options.rate, (*ROWS, *MORE) if options.all else ROWS)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result) if options.json else _table(result))
    return 0


def measure(bench: Bench, rate: str | None, rows: Sequence[Row]) -> dict[str, Any]:
    """The whole bench; see CONTRACT for the keys."""
    with NetLab(2, "1gbit") as lab:
        first = bench.run(lab, [_standing(""), Row(name="probe", options={"system": "vanilla"}, epochs=2)], "floor")
    compute_only = epoch_s(first["compute-only"])
    per_epoch = first["probe"]["bytes_per_epoch"]
    bytes_per_host = (per_epoch["main"] + per_epoch["header"] + per_epoch["gradient_allreduce"]) / 2
    if rate is None:
        rate, _ = find_rate(bench, compute_only, bytes_per_host)
    with NetLab(2, rate) as lab:
        reports = bench.run(lab, [each for row in rows for each in (_standing(f"-{row.name}"), row)], "rows")
        goodput = lab.goodput_bytes_per_s
    assert goodput is not None
    compute_only = statistics.mean(epoch_s(reports[_standing(f"-{row.name}").name]) for row in rows)
    vanilla = epoch_s(reports["vanilla"])
    return {
        "rate": rate,
        "goodput_bytes_per_s": goodput,
        "compute_only_s": compute_only,
        "exchange_share": 1 - compute_only / vanilla,
        "rows": [_row(bench, row, reports[row.name], compute_only, goodput) for row in rows],
    }


def _standing(suffix: str) -> Row:
    session = "analysis.standing_rows:StandingSession"
    return Row(name=f"compute-only{suffix}", options={"system": "vanilla"}, epochs=10, session=session)


def _row(bench: Bench, row: Row, report: dict[str, Any], compute_only: float, goodput: float) -> dict[str, Any]:
    run_dir = bench.out / "rows" / row.name
    config = (read_json(run_dir / "run.json") or {}).get("config", {})
    return {
        "system": config.get("system"),
        "bits": config.get("bits"),
        "mask": config.get("mask"),
        "schedule": config.get("schedule"),
        "ldr_rule": config.get("ldr_rule"),
        "ldr_delta": config.get("ldr_delta"),
        "seed": config.get("seed"),
        "overlap": config.get("overlap"),
        "epochs": row.epochs,
        "run_dir": str(run_dir),
        "epoch_s": epoch_s(report),
        "bound_s": mean_bound_s(run_dir, compute_only, goodput),
        "test_metric": report["quality"]["final_test"],
        "attributed_fraction": report.get("attributed_fraction"),
        "modes": report.get("modes"),
    }


def _table(result: dict[str, Any]) -> str:
    share, vanilla = result["exchange_share"], result["rows"][0]["epoch_s"]
    lines = [
        f"rate {result['rate']}, goodput {result['goodput_bytes_per_s'] / 1e6:.2f} MB/s, compute only "
        f"{result['compute_only_s']:.4f} s, exchange share {share:.4f}, limit {1 / (1 - share):.2f}",
        "| system | bits | mask | schedule | δ | epoch s | × vanilla | of 1/(1 − s) | bound s | epoch/bound | test |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        speedup = vanilla / row["epoch_s"]
        cells = (
            row["system"] + ("" if row["overlap"] else " (no overlap)"),
            row["bits"],
            row["mask"],
            row["schedule"],
            row["ldr_delta"] if row["system"] == "sylvie" else "",
            f"{row['epoch_s']:.4f}",
            f"{speedup:.2f}",
            f"{speedup * (1 - share):.2f}",
            f"{row['bound_s']:.4f}",
            f"{row['epoch_s'] / row['bound_s']:.2f}",
            f"{row['test_metric']:.4f}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
