"""What recording every message and span costs an epoch.

The same run with and without `--trace`, block after block in the same processes, on two local ranks; every pair of neighbours
gives a ratio of mean epoch times. Fixed settings, so that both compute the same: their losses must agree bit for bit.
"""

from __future__ import annotations

from pathlib import Path

from analysis.cases import Options
from analysis.document import Conditions, write_document
from analysis.driver import Driver
from analysis.settings import Outcome, paired
from analysis.studies import Study
from analysis.tables import Summary, summarise, value_at

_CASE: Options = {"layers": 4, "hidden": 128, "bits": 1, "schedule": "async", "eval-every": 0}


def _run(quick: bool, out: Path) -> None:
    conditions = Conditions()
    blocks, nodes, epochs = (2, 2000, 20) if quick else (12, 16000, 30)
    case = _CASE | {"dataset": f"generator:nodes={nodes},degree=40,classes=16,features=32", "epochs": epochs}
    print(f"expected on two idle cores: {'1 minute' if quick else '4 minutes'}", flush=True)
    settings = paired({"off": case | {"trace": False}, "on": case | {"trace": True}}, range(blocks))
    outcomes = Driver(out).run(settings)
    overhead, losses = compare(outcomes)
    interval = "" if overhead.low is None else f", 95 % interval [{overhead.low:+.2f}, {overhead.high:+.2f}]"
    text = (
        f"{case['dataset']}, GraphSAGE of 4 layers, 1 bit, async, {blocks} pairs of blocks of {epochs} epochs: "
        f"tracing adds {overhead.mean:+.2f} % to an epoch{interval}. "
        f"Losses of {losses} of {blocks} pairs are the same, bit for bit."
    )
    intro = __doc__.split("\n\n", 1)[1].strip() if __doc__ else ""
    write_document(
        out,
        "tracing",
        title="What tracing costs",
        conditions=conditions,
        parts=[intro, text],
        data={"overhead_percent": overhead.mean, "low": overhead.low, "high": overhead.high, "equal_losses": losses},
    )
    print(text)


def compare(outcomes: list[Outcome]) -> tuple[Summary, int]:
    """(percent that tracing adds to the mean epoch, over pairs; pairs with equal losses)."""
    by_seed: dict[int, dict[str, Outcome]] = {}
    for outcome in outcomes:
        by_seed.setdefault(outcome.setting.seed, {})[outcome.setting.label] = outcome
    ratios, equal = [], 0
    for pair in by_seed.values():
        on, off = (value_at(pair[label], "epoch_time_s.mean") for label in ("on", "off"))
        assert on is not None and off is not None
        ratios.append(100 * (on / off - 1))
        series = [pair[label].report["series"]["L"] for label in ("on", "off") if pair[label].report is not None]  # type: ignore[index]
        equal += series[0] == series[1]
    summary = summarise(ratios)
    assert summary is not None
    return summary, equal


STUDY = Study(name="tracing", title="What recording every message and span costs an epoch", run=_run)
