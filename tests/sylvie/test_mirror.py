"""The mirror beside a run: it starts, ends, hangs or dies, and the run is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sylvie import mirror
from sylvie.cli import main
from sylvie.mirror import mirrored
from tests.sylvie_trace.wandb_file import read_offline

ROOT = Path(__file__).parents[2]


def test_off_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with mirrored("off", tmp_path):
        pass


def test_one_that_cannot_start_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    said: list[str] = []
    with mirrored("offline", tmp_path, said.append):
        pass
    assert len(said) == 1 and said[0].startswith("note: W&B: the mirror did not start")


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("import time; time.sleep(100)", "did not end within 1 s and was stopped"),
        ("import os; os.kill(os.getpid(), 9)", "the mirror died (exit code -9)"),
        ("print('a\\nb')", "note: W&B: b"),
    ],
)
def test_one_that_hangs_or_dies_is_a_note(body: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(mirror, "END_S", {"offline": 1.0})
    said: list[str] = []
    start = time.monotonic()
    with mirrored("offline", tmp_path, said.append):
        assert time.monotonic() - start < 30
    assert any(note in line for line in said), said


def test_the_block_ends_as_it_would_without(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="training failed"), mirrored("offline", tmp_path, lambda _: None):
        raise RuntimeError("training failed")


def test_a_run_and_its_mirror(tmp_path: Path) -> None:
    """One job, one W&B run, with every epoch; the same losses as without a mirror."""
    words = [sys.executable, "-W", "ignore", "-m", "sylvie", "--epochs", "3", "--hidden", "8", "--ldr-clock", "constant"]
    words += ["--cache-dir", str(tmp_path / "cache")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    for name, extra in (("with", ["--wandb", "offline"]), ("without", [])):
        command = [*words, *extra, "--run-dir", str(tmp_path / name)]
        done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        assert ("3 epochs mirrored" in done.stderr) == bool(extra)
    found = read_offline(tmp_path / "with")
    assert found.runs == 1
    losses = [line["train/loss"] for line in found.history if "train/loss" in line]
    without = (tmp_path / "without" / "trace" / "rank-00000.jsonl").read_text()
    records = [json.loads(line) for line in without.splitlines()]
    assert losses == [record["loss"] for record in records if record["kind"] == "epoch"]
    assert not (tmp_path / "without" / "wandb").exists()


def test_online_without_a_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example")
    assert main(["--wandb", "online", "--run-dir", str(tmp_path / "run")]) == 2
    assert "needs a key for wandb.example" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
