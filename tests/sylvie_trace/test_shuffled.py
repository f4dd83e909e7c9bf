"""The shuffled-mask diagnostic: pairs, bytes beside quality, p-values, power, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sylvie_trace.cli import main
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.schema import Footer

Make = Callable[..., Any]
Runs = Callable[..., list[Path]]


@pytest.fixture
def runs(synthetic: Make) -> Runs:
    """Writes runs of a mask: ``runs("degree", "1", tests, schedule=…, levels=…)``, one a seed."""

    def write(mask: str, base: str, tests: Sequence[float], **changes: Any) -> list[Path]:
        made = []
        for seed, test in enumerate(tests):

            def change(rank: int, record: Any, test: float = test) -> Any:
                if isinstance(record, Footer):
                    return msgspec.structs.replace(record, quality={**record.quality, "test_at_best_val": test})
                return record

            schedule = changes.get("schedule", "sync")
            controller = ControllerConfig(bits=int(base), schedule=schedule)
            run = synthetic(epochs=11, change=change, controller=controller, trace=False)
            document = json.loads(run.directory.run_json.read_text())
            document["config"] |= {"seed": seed, "mask": mask, "bits": base, "mask_seed": seed}
            document["describes"] = {"mask": mask, "bits": base, "schedule": schedule}
            document["boundary"]["level_counts"] = changes.get("levels", [17, 1, 1, 1])
            document["partition"] = {"fingerprint": changes.get("partition", "p")}
            run.directory.run_json.write_text(json.dumps(document))
            made.append(run.path)
        return made

    return write


def answer(paths: Sequence[Path], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["shuffled-mask", "--json", *map(str, paths)]) == 0
    return json.loads(capsys.readouterr().out)


GOOD = [0.80, 0.81, 0.82, 0.80, 0.83, 0.81, 0.82, 0.80]
WORSE = [0.78, 0.80, 0.79, 0.785, 0.80, 0.79, 0.80, 0.785]


def test_an_effect_with_its_p_value_and_bytes(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [*runs("degree", "1", GOOD), *runs("shuffled-rows", "1", WORSE)]
    found = answer(paths, capsys)
    assert "not a result of the paper" in found["notice"]
    (effect,) = found["effects"]
    mean = sum(a - b for a, b in zip(GOOD, WORSE, strict=True)) / 8
    assert effect["effect"]["estimate"] == pytest.approx(mean)
    # All eight differences have one sign: only two of 2^8 flips are as far out.
    assert effect["p_value"] == effect["smallest_p"] == effect["p_holm"] == 2 / 256
    assert effect["verdict"] == "high-degree nodes deserve the bits"
    assert effect["bytes_degree"] == effect["bytes_control"] == 2 * (20 + 80 + 32)
    assert effect["bytes_ratio"] == 1.0 and 0 < effect["detectable"] < 0.02
    assert len(found["missing"]) == 3
    assert main(["shuffled-mask", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert "not a result of the paper" in printed and "0.00781" in printed and "not run: no pair" in printed


def test_comparisons_are_corrected_for_their_number(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    noise = [0.81, 0.80, 0.83, 0.79, 0.83, 0.80, 0.83, 0.79]
    paths = [
        *runs("degree", "1", GOOD),
        *runs("shuffled", "1", WORSE),
        *runs("shuffled-rows", "1", noise),
        *runs("degree", "2", GOOD),
        *runs("shuffled-rows", "2", GOOD),
    ]
    found = answer(paths, capsys)
    effects = {(effect["base"], effect["control"]): effect for effect in found["effects"]}
    assert len(effects) == 3
    strong, weak = effects["1", "shuffled"], effects["1", "shuffled-rows"]
    assert strong["p_holm"] == pytest.approx(3 * strong["p_value"]) and strong["p_holm"] < 0.05
    assert weak["verdict"] == "inconclusive" and weak["power"] < 0.8
    none = effects["2", "shuffled-rows"]
    assert none["p_value"] == 1.0 and none["verdict"].startswith("no difference beyond")


def test_other_nodes_may_deserve_the_bits(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer([*runs("degree", "2", WORSE), *runs("shuffled", "2", GOOD)], capsys)
    assert found["effects"][0]["verdict"] == "other nodes deserve the bits more"


@pytest.mark.parametrize(
    ("control", "said"),
    [
        ({"tests": GOOD[:5]}, "at least 6 seeds are needed"),
        ({"schedule": "async"}, "has schedule async"),
        ({"base": "4"}, "has bits 4"),
        ({"mask": "off"}, "has mask off"),
        ({"levels": [18, 1, 1, 0]}, "different numbers of nodes at each level"),
        ({"partition": "q"}, "partition differs"),
        ({"base": "2"}, "nothing can be paired"),
    ],
)
def test_what_is_refused(runs: Runs, capsys: pytest.CaptureFixture[str], control: dict[str, Any], said: str) -> None:
    given = {"mask": "shuffled", "base": "1", "tests": GOOD, **control}
    paths = [*runs("degree", "1", GOOD), *runs(given.pop("mask"), given.pop("base"), given.pop("tests"), **given)]
    assert main(["shuffled-mask", *map(str, paths)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
