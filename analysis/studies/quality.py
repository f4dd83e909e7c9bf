"""Does the default keep vanilla's quality on a case that counts, and does longer training close the gap?

A generated graph in two random parts, GraphSAGE, ten seeds, trained slowly to its end and fast and briefly. The rule's clock
is that of a link on which vanilla spends 92 % of its epoch in exchange. Beside the default: the paper's base up to 8, what
late rows alone cost (32 bits, async), what widths alone cost (adaptive width, sync), and what remote rows are worth (zeroed).
"""

from __future__ import annotations

from pathlib import Path

from analysis.cases import Options, random_assignment
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.link_model import busiest_bytes, link_rate
from analysis.settings import paired
from analysis.studies import Study
from analysis.tables import Column, Table, build_table

_BASELINE = "vanilla"
_ZERO = "analysis.zero_halo:ZeroHaloSession"
_COLUMNS = (
    Column(title="test at best validation, %", path="quality.test_at_best_val", scale=100, versus="difference"),
    Column(title="bits a row", path="bits.mean"),
    Column(title="synchronous epochs", path="modes.sync", digits=0),
    Column(title="messages, MB an epoch", path="bytes_per_epoch.main", scale=1e-6, digits=3),
)


def _run(quick: bool, out: Path) -> None:
    conditions, driver = Conditions(), Driver(out, keep_going=True)
    print("expected: 1 minute" if quick else "expected: 15 minutes on two idle cores", flush=True)
    parts: list[str | Table] = [__doc__.split("\n\n", 1)[1].strip()] if __doc__ else []
    name = "generator:nodes=2000" if quick else "generator:nodes=12000,degree=10,features=64"
    for lr, epochs in ((0.01, 30),) if quick else ((0.003, 300), (0.01, 80)):
        case: Options = {"dataset": name, "layers": 2, "hidden": 64, "lr": lr, "dropout": 0.5, "epochs": epochs}
        case |= {"parts": 2, "partition": random_assignment(name, 2, out), "eval-every": 10}
        seeds = range(2 if quick else 10)
        outcomes = driver.run(paired({_BASELINE: case | {"system": "vanilla"}}, seeds))
        done = next(outcome for outcome in outcomes if outcome.report is not None)
        clock: Options = {"ldr-clock": "modelled", "ldr-link-rate": link_rate(busiest_bytes(done.run_dir)[0])}
        outcomes += driver.run(
            paired(
                {
                    "default": case | clock,
                    "default, δ 20": case | clock | {"ldr-delta": 20},
                    "base up to 8": case | clock | {"ldr-max-base": 8},
                    "default, sync": case | clock | {"schedule": "sync"},
                    "32 bits, async": case | {"bits": 32, "schedule": "async"},
                },
                seeds,
            )
        )
        outcomes += driver.run(paired({"vanilla, halo zeroed": case | {"system": "vanilla"}}, seeds[:3], session=_ZERO))
        title = f"{name}, 2 random parts, {epochs} epochs, learning rate {lr}"
        parts.append(build_table(title, outcomes, _COLUMNS, baseline=_BASELINE))
        write_document(out, "quality", title="Quality of the default beside vanilla", conditions=conditions, parts=parts)


STUDY = Study(name="quality", title="Does the default keep vanilla's quality, and does longer training help", run=_run)
