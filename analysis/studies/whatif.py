"""How well does ``sylvie-report whatif`` predict? A run traced at 1 Gbit/s against a measured run at another setting.

Every measured run is one pair: another rate, another width, another schedule, or several of them, on emulated links. It
follows its own traced run at once, because a machine's speed may drift by a tenth between runs a few minutes apart. The
error is that of the mean epoch; covered says whether the measured mean lies in the predicted interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.netlab.rate import parse_rate
from analysis.settings import Option, Outcome, Setting
from analysis.studies import Study
from sylvie_trace.epochs import common_epochs, epoch_times_s, measured_epochs
from sylvie_trace.reader import read_run
from sylvie_trace.whatif import GOODPUT_SHARE, Scenario, whatif

Options = dict[str, Option]
_GRAPHS: dict[str, Options] = {
    "debian": {"dataset": "debian13_section", "input-projection": 128, "layers": 3, "hidden": 128},
    "generator": {"dataset": "generator:nodes=30000", "layers": 3, "hidden": 128},
}
_HOME: Options = {"bits": 8, "mask": "off", "schedule": "sync"}
#: (rate, bits, schedule): what is measured beside the traced 1gbit, 8 bits, sync.
_PAIRS: tuple[tuple[str, int, str], ...] = (
    ("500mbit", 8, "sync"),
    ("200mbit", 8, "sync"),
    ("100mbit", 8, "sync"),
    ("1gbit", 1, "sync"),
    ("200mbit", 1, "sync"),
    ("200mbit", 32, "sync"),
    ("500mbit", 32, "sync"),
    ("1gbit", 8, "async"),
    ("100mbit", 8, "async"),
    ("100mbit", 1, "async"),
    ("200mbit", 4, "async"),
    ("200mbit", 32, "async"),
)


_HOME_RATE = "1gbit"


def _setting(graph: str, rate: str, bits: int, schedule: str, quick: bool, label: str = "") -> Setting:
    epochs = 9 if quick else 20  # of up to 10 epochs, all but the first are measured
    axes: Options = {"bits": bits, "mask": "off", "schedule": schedule}
    options = {**_GRAPHS[graph], **axes, "epochs": epochs, "eval-every": 0, "trace": True, "dropout": 0.5}
    return Setting(label=label or f"{graph} {bits} bit {schedule}", seed=0, options=options, rate=rate)


def _run(quick: bool, out: Path) -> None:
    conditions = Conditions()
    rows = []
    for graph in list(_GRAPHS)[1:] if quick else _GRAPHS:
        settings = []
        for rate, bits, schedule in _PAIRS:
            before = f"{graph} before {rate} {bits} bit {schedule}"
            home = _setting(graph, _HOME_RATE, int(str(_HOME["bits"])), str(_HOME["schedule"]), quick, before)
            settings += [home, _setting(graph, rate, bits, schedule, quick)]
        outcomes = Driver(out).run(settings)
        rows += [_row(graph, outcomes[2 * i], pair, outcomes[2 * i + 1]) for i, pair in enumerate(_PAIRS)]
    errors = [abs(float(str(row["error"]))) for row in rows]
    summary = {
        "pairs": len(rows),
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "covered": sum(bool(row["covered"]) for row in rows) / len(rows),
    }
    write_document(
        out,
        "whatif",
        title="What-if: predicted and measured epochs",
        conditions=conditions,
        parts=[(__doc__ or "").split("\n\n", 1)[1].strip(), _markdown(rows, summary)],
        data={"summary": summary, "rows": rows},
    )
    print(_markdown(rows, summary))


def _row(graph: str, home: Outcome, asked: tuple[str, int, str], measured: Outcome) -> dict[str, object]:
    rate, bits, schedule = asked
    nominal = parse_rate(rate).bits_per_s
    assert nominal is not None
    scenario = Scenario(
        goodput=nominal / 8 * GOODPUT_SHARE, burst_bytes=parse_rate(rate).burst_bytes, bits=bits, schedule=schedule
    )
    found = whatif(read_run(home.run_dir), scenario)
    run = read_run(measured.run_dir)
    # The first asynchronous epoch waits for nothing: it is no part of a steady state.
    steady = [epoch for epoch in measured_epochs(common_epochs(run)) if epoch >= 2]
    took = float(epoch_times_s(run, steady).mean())
    return {
        "graph": graph,
        "rate": rate,
        "bits": bits,
        "schedule": schedule,
        "predicted_s": found.epoch_s,
        "low_s": found.low,
        "high_s": found.high,
        "measured_s": took,
        "error": found.epoch_s / took - 1,
        "covered": found.low <= took <= found.high,
        "check": found.check_s / found.measured_s - 1,
    }


def _markdown(rows: Sequence[dict[str, object]], summary: dict[str, float]) -> str:
    lines = [
        "## Predicted and measured epochs",
        "",
        f"{summary['pairs']} pairs: median error {summary['median_error']:.1%}, worst {summary['worst_error']:.1%}; the "
        f"interval covers {summary['covered']:.0%}. From a run traced at 1 Gbit/s, 8 bits, sync, just before.",
        "",
        "| graph | rate | bits | schedule | predicted, s | interval | measured, s | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = {name: float(str(row[name])) for name in ("predicted_s", "low_s", "high_s", "measured_s", "error")}
        lines.append(
            f"| {row['graph']} | {row['rate']} | {row['bits']} | {row['schedule']} | {numbers['predicted_s']:.3f} | "
            f"{numbers['low_s']:.3f} to {numbers['high_s']:.3f} | {numbers['measured_s']:.3f} | {numbers['error']:+.1%} |"
        )
    return "\n".join(lines) + "\n"


STUDY = Study(name="whatif", title="How well does whatif predict an epoch's time from one traced run", run=_run)
