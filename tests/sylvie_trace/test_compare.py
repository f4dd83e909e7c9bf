"""Comparison of settings: grouping, pairing, the gate, intervals, curves, the Pareto front."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sylvie_trace.cli import main
from sylvie_trace.compare import INCONCLUSIVE, compare, verdict
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.resample import Interval
from sylvie_trace.schema import Epoch, Footer

Make = Callable[..., Any]
Runs = Callable[..., list[Path]]


@pytest.fixture
def runs(synthetic: Make) -> Runs:
    """Writes one run a seed: ``runs(system=…, seeds=…, tests=…, transfer_ms=…)``."""

    def write(seeds: Sequence[int], tests: Sequence[float], *, bits: str = "1", **changes: Any) -> list[Path]:
        info = {"config": changes.pop("config", {}), "other": changes.pop("other", {})}
        made = []
        for seed, test in zip(seeds, tests, strict=True):

            def change(rank: int, record: Any, test: float = test) -> Any:
                if isinstance(record, Epoch) and record.epoch % 5 == 4:
                    value = test * (record.epoch + 1) / 40
                    return msgspec.structs.replace(record, metrics={"val": value, "test": value})
                if isinstance(record, Footer):
                    quality = {**record.quality, "test_at_best_val": test, "best_val": test}
                    return msgspec.structs.replace(record, quality=quality)
                return record

            controller = ControllerConfig(bits=int(bits), schedule="sync")
            run = synthetic(epochs=40, change=change, controller=controller, **changes)
            document = json.loads(run.directory.run_json.read_text())
            document["config"] |= {"seed": seed, "bits": bits, "epochs": 40, **info["config"]}
            document["describes"]["bits"] = bits
            document["dataset"]["fingerprint"] = "d"
            document["partition"] = {"fingerprint": "p"}
            document |= info["other"]
            run.directory.run_json.write_text(json.dumps(document))
            made.append(run.path)
        return made

    return write


def answer(paths: Sequence[Path], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["compare", "--json", *map(str, paths)]) == 0
    return json.loads(capsys.readouterr().out)


def test_speedup_is_the_ratio_of_mean_throughputs_beside_its_limit(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = range(6)
    slow = runs(seeds, [0.8, 0.81, 0.79, 0.8, 0.82, 0.8], transfer_ms=57, gap_ms=0)
    fast = runs(reversed(seeds), [0.8, 0.82, 0.8, 0.79, 0.81, 0.8], bits="2", transfer_ms=7)
    found = answer([*slow, *fast], capsys)
    assert found["baseline"] == "sylvie, bits 1" and len(found["groups"]) == 2
    versus = found["versus"][0]
    assert (versus["pairs"], versus["unpaired"]) == (6, 0)
    assert versus["speedup"]["estimate"] == pytest.approx(100 / 50)
    assert versus["speed_verdict"] == "faster"
    assert versus["amdahl_limit"] == pytest.approx(1 / (1 - 0.57))
    # Paired by seed the qualities are equal, whatever their order on the command line.
    assert versus["quality"] == {"estimate": 0.0, "low": 0.0, "high": 0.0, "n": 6}
    assert versus["quality_verdict"] == "same"


def test_few_repeats_are_inconclusive(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [*runs([1, 2], [0.5, 0.5], transfer_ms=40), *runs([1, 2], [0.9, 0.9], bits="8")]
    versus = answer(paths, capsys)["versus"][0]
    assert versus["speedup"]["low"] is None and versus["speed_verdict"] == INCONCLUSIVE
    assert versus["quality_verdict"] == INCONCLUSIVE and versus["quality"]["estimate"] == pytest.approx(0.4)
    assert main(["compare", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert "an interval needs 5 repeats" in printed and "inconclusive" in printed


def test_a_difference_within_the_noise_is_inconclusive(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    before = [0.80, 0.84, 0.78, 0.82, 0.79]
    after = [0.83, 0.80, 0.81, 0.80, 0.80]
    paths = [*runs(range(5), before), *runs(range(5), after, bits="8")]
    versus = answer(paths, capsys)["versus"][0]
    assert versus["quality"]["low"] < 0 < versus["quality"]["high"]
    assert versus["quality_verdict"] == INCONCLUSIVE


def test_curves_and_pareto(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    better = runs([0, 1], [0.8, 0.9], transfer_ms=57)
    faster = runs([0, 1], [0.6, 0.7], bits="2", transfer_ms=7)
    beaten = runs([0, 1], [0.5, 0.6], bits="4", transfer_ms=27)
    found = answer([*better, *faster, *beaten], capsys)
    assert [group["pareto"] for group in found["groups"]] == [True, True, False]
    points = found["groups"][0]["curve"]
    assert [point["epoch"] for point in points] == [4, 9, 14, 19, 24, 29, 34, 39]
    assert points[0]["time_s"] == pytest.approx(5 * 0.1)  # 5 epochs of 100 ms, without the evaluation
    assert points[-1]["val"] == pytest.approx(0.85) and points[-1]["runs"] == 2
    # 40 epochs, two ranks: 10 rows of 2 bytes, 80 bytes metadata, a header, and 1000 bytes of gradients each.
    assert points[-1]["bytes"] == 40 * 2 * (20 + 80 + 32 + 1000)
    reached = found["groups"][0]["reached"][0]
    assert reached["target"] == pytest.approx(0.9 * 0.85) and (reached["runs"], reached["of"]) == (2, 2)
    assert found["groups"][1]["reached"][2]["runs"] == 0 and found["groups"][1]["reached"][2]["time_s"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"other": {"dataset": {"name": "made", "fingerprint": "other"}}}, "dataset differs"),
        ({"config": {"model": "gcn"}}, "model differs"),
        ({"config": {"hidden": 7}}, "hidden differs"),
    ],
)
def test_another_job_is_refused(runs: Runs, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str) -> None:
    paths = [*runs([0], [0.8]), *runs([0], [0.8], bits="2", **change)]
    assert main(["compare", *map(str, paths)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_another_partition_or_machine_is_a_caution(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    devices = [{"host": "b", "cpu": "Other", "cores": 4, "threads": 1, "device": "cpu"}]
    other = {"partition": {"fingerprint": "q"}, "devices": devices}
    paths = [*runs(range(5), [0.8] * 5), *runs(range(5), [0.8] * 5, bits="2", other=other)]
    found = answer(paths, capsys)
    assert {caution["fact"] for caution in found["cautions"]} == {"partition", "machine"}
    versus = found["versus"][0]
    # Nothing can be paired: the two sides are resampled apart, and both numbers of runs are said.
    assert (versus["pairs"], versus["unpaired"], versus["speedup"]["n"]) == (0, 5, 5)


@pytest.mark.parametrize(
    ("interfaces", "rates", "differs"),
    [
        (("lo", "lo"), (1e9, 2e8), False),
        (("eth0", "lo"), (1e8, 1e9), True),
        (("eth0", "eth0"), (1e8, 1.2e8), False),
        (("eth0", "eth0"), (1e8, 2e8), True),
    ],
)
def test_another_link_is_a_caution(
    runs: Runs,
    capsys: pytest.CaptureFixture[str],
    interfaces: tuple[str, str],
    rates: tuple[float, float],
    differs: bool,
) -> None:
    paths = []
    for bits, interface, rate in zip(("1", "2"), interfaces, rates, strict=True):
        link = {"src": 0, "dst": 1, "rtt_s": 1e-4, "bytes_per_s": rate}
        paths += runs([0], [0.8], bits=bits, other={"interface": interface, "links": [link]})
    facts = {caution["fact"] for caution in answer(paths, capsys)["cautions"]}
    assert ("link" in facts) is differs


def test_numbers_of_parts_are_settings_that_cannot_be_paired(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer([*runs([0, 1], [0.8, 0.8]), *runs([0, 1], [0.8, 0.8], world_size=3)], capsys)
    assert [group["label"] for group in found["groups"]] == ["sylvie, parts 2", "sylvie, parts 3"]
    assert found["versus"][0]["pairs"] == 0 and "parts" in {caution["fact"] for caution in found["cautions"]}


def test_one_setting_or_one_run_twice_is_refused(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    paths = runs([0, 1], [0.8, 0.9])
    assert main(["compare", *map(str, paths)]) == 2
    assert "have one setting" in capsys.readouterr().err
    assert main(["compare", str(paths[0]), str(paths[0])]) == 2
    assert "named twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.1, 1.2, "faster"), (0.5, 0.9, "slower"), (0.98, 1.02, "same"), (0.9, 1.2, INCONCLUSIVE), (None, None, INCONCLUSIVE)],
)
def test_verdicts(low: float | None, high: float | None, said: str) -> None:
    assert verdict(Interval(1.0, low, high, 9), 1.0, 0.03, ("faster", "slower")) == said
    assert asdict(Interval(1.0, low, high, 9))["n"] == 9


def test_the_library_takes_subjects(runs: Runs) -> None:
    from sylvie_trace.questions import subjects

    paths = [*runs([0], [0.8]), *runs([0], [0.7], bits="2")]
    found = compare(subjects(paths))
    assert found.groups[0].runs == ("run-1",) and found.versus[0].quality is not None


def test_a_run_from_before_the_largest_base_was_an_option_is_the_papers(runs: Runs, synthetic: Make) -> None:
    """Its base doubled up to 8; where the width is fixed the option says nothing about the setting."""
    from sylvie_trace.questions import subjects

    adaptive: dict[str, Any] = {"bits": "adaptive"}
    paths = runs([0], [0.8], config=adaptive | {"ldr_max_base": "8"}) + runs([0], [0.8], config=adaptive)
    paths += runs([0], [0.8], config=adaptive | {"ldr_max_base": "2"})
    paths += runs([0], [0.8], config={"bits": "4", "ldr_max_base": "2"}) + runs([0], [0.8], config={"bits": "4"})
    now, before, ours, fixed, fixed_before = (subject.setting for subject in subjects(paths))
    assert now == before != ours
    assert fixed == fixed_before
