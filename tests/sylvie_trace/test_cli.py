"""sylvie-report from outside: outputs, files, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.cli import main
from sylvie_trace.decision import ControllerConfig

Make = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def test_the_summary_and_report_json(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic()
    assert main([str(made.path)]) == 0
    printed = capsys.readouterr().out
    for word in ("synthetic", "graphsage", "exposed wait", "L2.0 forward", "accuracy"):
        assert word in printed
    written = json.loads(made.directory.report_json.read_text())
    assert main(["--json", str(made.path)]) == 0
    assert json.loads(capsys.readouterr().out) == written
    assert not list(made.path.glob(".report*"))


def test_validate(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic()
    assert main(["validate", str(made.path)]) == 0
    assert capsys.readouterr().out.startswith("valid: 2 ranks, ")
    made.rewrite(1, made.directory.trace_file(1).read_text()[:-3])
    assert main(["validate", str(made.path)]) == 1
    assert capsys.readouterr().out.count("\n") == 1
    assert main(["validate", str(made.path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False and "torn" in answer["violation"]
    made.rewrite(0, "rubbish\n")
    assert main(["validate", str(made.path)]) == 1
    assert "rank-00000.jsonl:1: not JSON" in capsys.readouterr().out


def test_replay(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic()
    assert main(["replay", str(made.path)]) == 0
    assert "0 of 8 decisions differ" in capsys.readouterr().out
    assert (
        main(["replay", str(made.path), "--rule", "prose", "--delta", "2", "--lambda", "0.5", "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["config"]["rule"] == "prose" and answer["log_follows_rule"] is True
    assert len(answer["verdicts"]) == 12 and answer["decided"] == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["valdate", "x"], "did you mean validate"),
        (["no-such-run"], "neither a run directory nor a command"),
        ([], "required: RUN"),
        (["validate"], "required: RUN"),
        (["validate", "no-such-run"], "is not a directory"),
        (["replay", "x", "--rule", "guess"], "invalid choice"),
        (["--colour", "."], "unrecognized arguments"),
        (["."], "has no run.json"),
        (["validate", "."], "has no run.json"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_bad_replay_settings_are_refused(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(synthetic(epochs=3).path), "--delta", "0"]) == 2
    assert "delta 0" in capsys.readouterr().err
    fixed = synthetic(epochs=3, controller=ControllerConfig(bits=4)).path
    assert main(["replay", str(fixed), "--max-base", "8"]) == 2
    assert "fixed at 4 bits" in capsys.readouterr().err
    assert main(["replay", str(fixed)]) == 0 and "base" not in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_one_line(
    synthetic: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(synthetic(epochs=3).path), "--html", str(tmp_path / "none" / "x.html")]) == 2
    said = capsys.readouterr().err
    assert "none" in said and said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "--help"], ["replay", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0 and "RUN" in capsys.readouterr().out


def test_the_module_is_the_program(synthetic: Make) -> None:
    made = synthetic(epochs=2)
    command = [sys.executable, "-m", "sylvie_trace"]
    done = subprocess.run(
        [*command, "validate", made.path], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*command, "nothing"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
