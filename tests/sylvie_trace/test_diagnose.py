"""Diagnosis: every cause from a run that has it, none from a run that has not, links judged by their evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sylvie_trace.cli import main
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.diagnose import Diagnosis, diagnose
from sylvie_trace.questions import subjects
from sylvie_trace.schema import Decision, Epoch, Footer, Message
from sylvie_trace.summary import run_parts

Make = Callable[..., Any]
SYNC = ControllerConfig(bits=1, schedule="sync")
#: A loss that falls ever slower, and losses under which the rule is true about as often as false.
FLATTENING = [2.0, *([1.0] * 39)]
UNEVEN = [2.0 / (1 + epoch) + 0.05 * (epoch % 3) for epoch in range(40)]


def described(made: Any, **sections: Any) -> Any:
    """Change run.json: ``described(made, describes={"mask": "degree"}, boundary={…})``."""
    info = json.loads(made.directory.run_json.read_text())
    for name, change in sections.items():
        info[name] = {**info[name], **change} if isinstance(info.get(name), dict) else change
    made.directory.run_json.write_text(json.dumps(info))
    return made


def healthy(synthetic: Make, **changes: Any) -> Any:
    """A run of the full method in which nothing is wrong."""
    made = synthetic(**{"epochs": 40, "losses": UNEVEN, **changes})
    return described(
        made,
        describes={"mask": "degree"},
        boundary={"by_degree": buckets(0, 0, 1.5, 3)},
        partition={"edges": [100, 100, 100, 100][: made.plan.world_size]},
        links=[{"src": 0, "dst": 1, "rtt_s": 0.001, "bytes_per_s": 2e4}],
    )


def buckets(*levels: float) -> list[dict[str, float]]:
    return [
        {
            "from_quantile": place / len(levels),
            "rows": 10,
            "mean_level": level,
            "min_degree": 10 * place,
            "max_degree": 10 * place + 9,
        }
        for place, level in enumerate(levels)
    ]


def diagnosis_of(made: Any, against: Any = None) -> Diagnosis:
    paths = [made.path] if against is None else [made.path, against.path]
    subject, *rest = subjects(paths)
    return diagnose(subject, run_parts(subject.run), rest[0] if rest else None)


def warnings(found: Diagnosis) -> set[str]:
    return {cause.check for cause in found.causes if cause.status == "warning"} | {f.check for f in found.findings}


def test_a_healthy_run_has_no_warning(synthetic: Make) -> None:
    found = diagnosis_of(healthy(synthetic))
    assert warnings(found) == set() and found.broken is None
    assert (found.links[0].status, found.links[3].status) == ("holds", "holds")
    assert found.verdict.startswith("the chain holds")


def slow_rank(synthetic: Make, late: int) -> Any:
    return healthy(synthetic, world_size=3, late_ms=(0, 0, late), controller=SYNC)


def narrow_link(synthetic: Make, transfer: int) -> Any:
    return healthy(synthetic, transfer_ms=transfer, controller=SYNC)


def mask(synthetic: Make, *levels: float) -> Any:
    return described(healthy(synthetic), boundary={"by_degree": buckets(*levels)})


def stuck_width(synthetic: Make, base: int) -> Any:
    """Epochs run with one width, whatever the rule decides."""

    def change(rank: int, record: Any) -> Any:
        return msgspec.structs.replace(record, base_bits=base) if isinstance(record, Epoch) else record

    return healthy(synthetic, change=change)


def off(synthetic: Make, **axes: str) -> Any:
    config = ControllerConfig(
        delta=3,
        bits=int(axes["bits"]) if "bits" in axes else None,
        schedule=axes.get("schedule", "adaptive"),
    )
    return described(healthy(synthetic, controller=config), describes=axes)


FAULTS: list[tuple[str, Callable[[Make], Any]]] = [
    ("slow_rank", lambda make: slow_rank(make, 20)),
    ("slow_rank", lambda make: slow_rank(make, 80)),
    ("slow_link", lambda make: narrow_link(make, 60)),
    ("slow_link", lambda make: narrow_link(make, 400)),
    ("wrong_mask", lambda make: mask(make, 0, 0, 0, 0)),
    ("wrong_mask", lambda make: mask(make, 3, 1, 0, 0)),
    ("width_stuck", lambda make: stuck_width(make, 1)),
    ("width_stuck", lambda make: stuck_width(make, 8)),
    ("axis_off_schedule", lambda make: off(make, schedule="sync")),
    ("axis_off_bits", lambda make: off(make, bits="1")),
    ("axis_off_mask", lambda make: off(make, mask="off")),
]


@pytest.mark.parametrize(("name", "inject"), FAULTS)
def test_an_injected_fault_is_named(synthetic: Make, name: str, inject: Callable[[Make], Any]) -> None:
    found = diagnosis_of(inject(synthetic))
    assert name in warnings(found)
    # Nothing is blamed that was not injected: what follows from the fault, and the fixed axes of some runs, aside.
    follows = {
        "slow_rank": {"straggler"},
        "slow_link": {"metadata", "boundary_share"},
        "width_stuck": {"audit", "decisions", "width_high"},
    }
    blamed = {check for check in warnings(found) if not check.startswith("axis_off")}
    assert blamed - {name} <= follows.get(name, set())


def test_what_breaks_is_the_verdict(synthetic: Make) -> None:
    found = diagnosis_of(mask(synthetic, 3, 1, 0, 0))
    assert found.broken == 4 and found.links[3].status == "broken"
    assert "mask does not protect high-degree nodes" in found.verdict
    assert "in-degree 30 to 39 have mask level 0.00" in found.causes[0].evidence
    found = diagnosis_of(slow_rank(synthetic, 80))
    assert "rank 2 works" in found.verdict


def test_imbalance_is_not_a_slow_machine(synthetic: Make) -> None:
    made = described(slow_rank(synthetic, 40), partition={"edges": [100, 100, 190]})
    found = diagnosis_of(made)
    assert "imbalance" in warnings(found) and "slow_rank" not in warnings(found)


def test_a_control_mask_is_no_fault(synthetic: Make) -> None:
    made = described(mask(synthetic, 1, 0, 1, 0), describes={"mask": "shuffled"})
    found = diagnosis_of(made)
    assert "wrong_mask" not in warnings(found)
    assert "mask_control" in {cause.check for cause in found.causes if cause.status == "note"}


def test_bytes_that_do_not_fall_break_link_1(synthetic: Make) -> None:
    def fat(rank: int, record: Any) -> Any:
        if isinstance(record, Message):
            return msgspec.structs.replace(record, main_bytes=640, recv_main_bytes=640)
        return msgspec.structs.replace(record, main_bytes=640) if isinstance(record, Epoch) else record

    found = diagnosis_of(healthy(synthetic, change=fat))
    assert found.broken == 1 and "compression" in warnings(found)


@pytest.mark.parametrize(
    ("rule", "delta", "losses", "check", "status"),
    [
        # Under the equation a flattening loss with equal epoch times is never worse: the wall clock's is a surprise …
        ("equation", 3, FLATTENING, "sync_never", "warning"),
        # … under the prose a loss that falls ever faster is never worse,
        ("prose", 3, [100 - 0.1 * t * t for t in range(40)], "sync_never", "warning"),
        # and a window that never agrees with itself holds everything.
        ("window", 12, UNEVEN, "width_stuck", "warning"),
        ("equation", 30, UNEVEN, "delta_slow", "warning"),
    ],
)
def test_worse_and_stuck_depend_on_the_rule(
    synthetic: Make, rule: str, delta: int, losses: list[float], check: str, status: str
) -> None:
    config = ControllerConfig(rule=rule, delta=delta)
    found = diagnosis_of(healthy(synthetic, losses=losses, controller=config))
    assert (check, status) in {(cause.check, cause.status) for cause in found.causes}


def test_a_constant_clock_explains_an_equation_that_is_never_true(synthetic: Make) -> None:
    config = ControllerConfig(delta=3, clock="constant")
    found = diagnosis_of(healthy(synthetic, losses=FLATTENING, controller=config))
    assert ("sync_never", "note") in {(cause.check, cause.status) for cause in found.causes}


def test_a_width_pinned_at_8(synthetic: Make) -> None:
    # By the prose a loss that falls ever slower is always worse.
    found = diagnosis_of(healthy(synthetic, losses=FLATTENING, controller=ControllerConfig(rule="prose", delta=3)))
    assert {"width_high", "never_async"} <= warnings(found)


@pytest.mark.parametrize("largest", [2, 4, 8])
@pytest.mark.parametrize("rule", ["equation", "prose"])
def test_a_width_at_its_largest_is_not_stuck(synthetic: Make, largest: int, rule: str) -> None:
    """An outcome that cannot widen any further was not ignored; and a small largest base leaves the mask its room."""
    config = ControllerConfig(rule=rule, delta=3, max_base=largest)
    found = warnings(diagnosis_of(healthy(synthetic, controller=config)))
    assert "width_stuck" not in found and ("width_high" not in found or largest == 8)
    pinned = warnings(diagnosis_of(healthy(synthetic, losses=FLATTENING, controller=replace(config, rule="prose"))))
    assert ("width_high" in pinned) == (largest == 8) and "width_stuck" not in pinned


def test_message_count_and_metadata(synthetic: Make) -> None:
    made = described(
        healthy(synthetic, transfer_ms=60, controller=SYNC),
        links=[{"src": 0, "dst": 1, "rtt_s": 0.1, "bytes_per_s": 1e9}],
    )
    found = diagnosis_of(made)
    # 16 columns of one bit are 2 bytes, beside 8 of metadata.
    assert {"message_count", "metadata", "slow_link"} <= warnings(found)
    assert any("4.0" in c.evidence or "5.6" in c.evidence for c in found.causes if c.check == "metadata")


def test_encode_bound_and_little_to_gain(synthetic: Make) -> None:
    found = diagnosis_of(healthy(synthetic, encode_ms=20, decode_ms=10))
    assert "encode_bound" in warnings(found)
    fast = described(healthy(synthetic), links=[{"src": 0, "dst": 1, "rtt_s": 0.0, "bytes_per_s": 1e9}])
    found = diagnosis_of(fast)
    assert "little_to_gain" in {cause.check for cause in found.causes if cause.status == "note"}
    assert found.links[1].status == "idle"


def test_quality_is_judged_against_a_baseline(synthetic: Make) -> None:
    def worse(rank: int, record: Any) -> Any:
        if isinstance(record, Footer):
            return msgspec.structs.replace(record, quality={**record.quality, "test_at_best_val": 0.7})
        return record

    baseline = described(
        healthy(synthetic, controller=ControllerConfig(bits=32, schedule="sync"), transfer_ms=200),
        config={"system": "vanilla"},
    )
    found = diagnosis_of(healthy(synthetic, change=worse), baseline)
    assert "quality_lost" in warnings(found) and found.broken == 4
    assert "(measured)" in found.links[1].evidence  # 200 ms, not what the probed link would give
    assert "quality_lost" not in warnings(diagnosis_of(healthy(synthetic), baseline))
    described(baseline, dataset={"fingerprint": "other"})
    with pytest.raises(ValueError, match="is no baseline of"):
        diagnosis_of(healthy(synthetic), baseline)


def test_a_loss_that_rises_and_a_mode_that_does_not_follow(synthetic: Make) -> None:
    found = diagnosis_of(healthy(synthetic, losses=[*UNEVEN[:20], *([3.0] * 20)]))
    assert "loss_rose" in warnings(found)

    def change(rank: int, record: Any) -> Any:
        return msgspec.structs.replace(record, mode="sync") if isinstance(record, Epoch) else record

    assert "mode_stuck" in warnings(diagnosis_of(healthy(synthetic, change=change)))


@pytest.mark.parametrize("system", ["vanilla", "sar"])
def test_a_baseline_is_not_blamed_for_what_it_does_not_try(synthetic: Make, system: str) -> None:
    made = healthy(synthetic, controller=ControllerConfig(bits=32, schedule="sync"))
    described(made, config={"system": system, "bits": "32"}, describes={"bits": "32", "schedule": "sync", "mask": "off"})
    found = diagnosis_of(made)
    assert warnings(found) == set()
    assert [link.status for link in found.links] == ["off"] * 4


def test_without_message_records_times_are_unknown_not_made_up(synthetic: Make) -> None:
    found = diagnosis_of(healthy(synthetic, trace=False))
    assert found.links[1].status == found.links[2].status == "unknown"
    assert found.links[0].status == "holds"


def test_from_the_command_line(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = stuck_width(synthetic, 1)
    assert main(["diagnose", str(made.path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [link["number"] for link in answer["links"]] == [1, 2, 3, 4]
    assert answer["causes"][0]["check"] == "width_stuck" and answer["broken"] == 4
    assert main(["diagnose", str(made.path)]) == 0
    printed = capsys.readouterr().out
    assert "width_stuck" in printed and "4  broken" in printed


def test_decisions_of_the_synthetic_runs_are_the_rules(synthetic: Make) -> None:
    """The healthy run really moves: otherwise the tests above would show nothing."""
    lines = healthy(synthetic).lines(0)
    decided = [msgspec.convert(line, Decision) for line in lines if line["kind"] == "decision"]
    assert {decision.outcome for decision in decided} == {"true", "false", "hold"}
