"""The driver with a small program in the trainer's place: each run once, half runs again, failures said."""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import __main__ as cli
from analysis.driver import Driver
from analysis.netlab import why_unavailable
from analysis.run_files import is_complete
from analysis.settings import Setting, paired
from analysis.studies import Study

# Writes what a training run leaves, and a line into `calls`; options of its own make it fail in several ways.
TRAIN = """
import json, os, pathlib, sys, time
words = sys.argv[1:]
options = dict(zip(words[::2], words[1::2]))
calls, run_dir, rank = pathlib.Path(__file__).with_name("calls"), pathlib.Path(options["--run-dir"]), 0
world = int(os.environ.get("WORLD_SIZE", options.get("--parts", 2)))
ranks = [int(os.environ["RANK"])] if "RANK" in os.environ else range(world)
fate = options.get("--fate")
if 0 in ranks:
    with calls.open("a") as stream:
        stream.write(" ".join(words) + "\\n")
    assert "RANK" in os.environ or not run_dir.exists()
if fate == "die":
    sys.exit("rank 1 died (exit code 7) in epoch 3")
(run_dir / "trace").mkdir(parents=True, exist_ok=True)
for rank in ranks:
    lines = [{"kind": "header", "world_size": world}, {"kind": "epoch", "epoch": 0, "loss": 1.0}]
    if fate != "half":
        lines.append({"kind": "footer", "complete": True})
    text = "".join(json.dumps(line) + "\\n" for line in lines)
    (run_dir / "trace" / f"rank-{rank:05d}.jsonl").write_text(text)
if fate == "hang":
    if os.fork() == 0:
        (calls.with_name("grandchild")).write_text(str(os.getpid()))
    time.sleep(60)
if 0 in ranks:
    (run_dir / "seed").write_text(options["--seed"])
"""
REPORT = """
import json, pathlib, sys
run_dir, json_flag = sys.argv[1:]
assert json_flag == "--json"
seed = int((pathlib.Path(run_dir) / "seed").read_text())
if seed == 13:
    sys.exit("trace of a newer schema")
print(json.dumps({"run": {"seed": seed, "complete": True}, "epoch_time_s": {"median": 0.5 + seed}}))
"""


class Bench:
    """An output directory, and the two programs beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "train.py").write_text(TRAIN)
        (place / "report.py").write_text(REPORT)

    def driver(self, **options: Any) -> Driver:
        return Driver(
            self.place / "out",
            train=(sys.executable, str(self.place / "train.py")),
            report=(sys.executable, str(self.place / "report.py")),
            **options,
        )

    def calls(self) -> int:
        path = self.place / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _settings(*seeds: int, **options: Any) -> list[Setting]:
    return [Setting(label="one bit", seed=seed, options={"bits": 1, **options}) for seed in seeds]


def test_each_setting_runs_once_and_is_reused(bench: Bench) -> None:
    first = bench.driver().run(_settings(3, 4))
    assert [outcome.report and outcome.report["epoch_time_s"]["median"] for outcome in first] == [3.5, 4.5]
    assert not any(outcome.reused for outcome in first)
    assert bench.calls() == 2
    again = bench.driver().run(_settings(3, 4, 5))
    assert [outcome.reused for outcome in again] == [True, True, False]
    assert [outcome.report for outcome in again][:2] == [outcome.report for outcome in first]
    assert bench.calls() == 3
    bench.driver().run(_settings(3, bits=2))  # another option is another run
    assert bench.calls() == 4


def test_an_interrupted_run_starts_again_from_nothing(bench: Bench) -> None:
    (outcome,) = bench.driver().run(_settings(3))
    trace = outcome.run_dir / "trace" / "rank-00001.jsonl"
    trace.write_text(trace.read_text()[:-5])  # torn by a kill
    (outcome.run_dir / "report.json").unlink()
    (again,) = bench.driver().run(_settings(3))
    assert not again.reused
    assert again.report == outcome.report
    assert bench.calls() == 2


def test_failures_are_said_or_kept(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match=r"exit code 1: rank 1 died \(exit code 7\) in epoch 3"):
        bench.driver().run(_settings(3, fate="die"))
    settings = [*_settings(3, fate="die"), *_settings(3, fate="half"), *_settings(13), *_settings(5)]
    outcomes = bench.driver(keep_going=True).run(settings)
    errors = [outcome.error or "" for outcome in outcomes]
    assert "died" in errors[0]
    assert "no complete run" in errors[1]
    assert "newer schema" in errors[2]
    assert errors[3] == ""
    assert [outcome.report is None for outcome in outcomes] == [True, True, True, False]


def test_a_run_over_its_time_is_stopped_with_its_children(bench: Bench) -> None:
    start = time.monotonic()
    (outcome,) = bench.driver(keep_going=True, timeout_s=0.8).run(_settings(3, fate="hang"))
    assert time.monotonic() - start < 10
    assert outcome.error is not None
    assert outcome.error.startswith("exit code 124")
    child = int((bench.place / "grandchild").read_text())
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{child}") and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline, "the run's child lives on"
        time.sleep(0.05)


def test_arguments_and_order() -> None:
    options = {"bits": 1, "overlap": False, "trace": True, "mask": None, "lr": 0.01}
    setting = Setting(label="a", seed=7, recipe="quickstart", options=options)
    words = " ".join(setting.arguments(Path("/r")))
    assert words == "quickstart --bits 1 --no-overlap --trace --lr 0.01 --seed 7 --run-dir /r"
    settings = paired({"x": {"bits": 1}, "y": {}}, seeds=[1, 2], recipe="r", rate="200mbit")
    assert [(each.label, each.seed) for each in settings] == [("x", 1), ("y", 1), ("x", 2), ("y", 2)]
    assert len({each.name for each in settings}) == 4
    assert all(each.name.replace("-", "").isalnum() and "200mbit" in each.name for each in settings)
    assert Setting(label="a", seed=1, options={"parts": 4}).hosts == 4
    with pytest.raises(ValueError, match="run-dir"):
        Setting(label="a", seed=1, options={"run-dir": "x"})


def test_completeness(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    lines = [{"kind": "header", "world_size": 2}, {"kind": "footer", "complete": True}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert not is_complete(tmp_path)
    (trace / "rank-00000.jsonl").write_text(text)
    assert not is_complete(tmp_path)  # the second rank left nothing
    (trace / "rank-00001.jsonl").write_text(text.replace("true", "false"))
    assert not is_complete(tmp_path)
    (trace / "rank-00001.jsonl").write_text(text)
    assert is_complete(tmp_path)
    (trace / "rank-00001.jsonl").write_text("")
    assert not is_complete(tmp_path)
    (tmp_path / "report.json").write_text('{"run": {"complete": true}}')
    assert is_complete(tmp_path)


def test_two_drivers_do_not_share_a_directory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: object) -> None:
        bench.driver().run(_settings(4))

    monkeypatch.setattr(Driver, "_known", second)
    with pytest.raises(RuntimeError, match="in use by another driver"):
        bench.driver().run(_settings(3))


@pytest.mark.netlab
def test_runs_in_an_emulated_network_and_resumes_without_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    settings = [Setting(label="linked", seed=seed, options={"parts": 2}, rate="1gbit") for seed in (1, 2)]
    outcomes = bench.driver().run(settings)
    for outcome in outcomes:
        assert outcome.link is not None
        assert outcome.link["goodput_bytes_per_s"] > 50e6
        assert len(outcome.link["hosts"]) == 2
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    again = bench.driver().run(settings)
    assert [outcome.link for outcome in again] == [outcome.link for outcome in outcomes]
    assert bench.calls() == 2
    with pytest.raises(ValueError, match="root"):
        bench.driver().run([Setting(label="new", seed=1, rate="1gbit")])


def test_the_list_and_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--list"]) == cli.main([]) == 0
    assert "links" in capsys.readouterr().out
    seen: list[tuple[bool, Path]] = []
    study = Study(name="tiny", title="A tiny one", run=lambda quick, out: seen.append((quick, out)))

    def studies() -> Mapping[str, Study]:
        return {"tiny": study}

    monkeypatch.setattr(cli, "all_studies", studies)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tiny", "--quick"]) == 0
    assert cli.main(["tiny", "--out", "here"]) == 0
    assert seen == [(True, Path("runs/studies/tiny-quick")), (False, Path("here"))]
    assert (tmp_path / "runs/studies/tiny-quick").is_dir()
    capsys.readouterr()
    assert cli.main(["tinny"]) == 2
    assert "tiny" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        cli.main(["--list", "--quick"])
    assert stop.value.code == 2
