"""Runs of sylvie-train in processes of their own, and what is left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "SYLVIE_TEST_MARK"
ENDS_WITHIN_S = 400.0  # generous: the machine may be busy


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: list[str]
    run_dir: Path


def environment(tmp_path: Path, mark: str = "") -> dict[str, str]:
    """An environment in which nothing outside ``tmp_path`` is written."""
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    path = os.pathsep.join([str(ROOT), str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    own = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(scratch), MARK: mark}
    return {**os.environ, **own}


def command(*words: str | Path, run_dir: Path) -> list[str]:
    """``sylvie-train WORDS`` into ``run_dir``."""
    return [sys.executable, "-m", "sylvie", *map(str, words), "--run-dir", str(run_dir)]


def train(tmp_path: Path, *words: str | Path, name: str = "run", launcher: list[str] | None = None) -> Ended:
    """Run to the end; ``launcher`` replaces ``python`` in front of ``-m sylvie``."""
    run_dir = tmp_path / name
    line = [*(launcher or [sys.executable]), *command(*words, run_dir=run_dir)[1:]]
    done = subprocess.run(line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=ENDS_WITHIN_S)
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr.splitlines(), run_dir=run_dir)


@dataclass(frozen=True, kw_only=True)
class UnderWay:
    """A run under way: the launcher, and the mark that all its processes carry."""

    process: subprocess.Popen[str]
    mark: str
    run_dir: Path

    def records(self, rank: int, kind: str) -> list[dict[str, Any]]:
        """The records of a kind that a rank has written so far."""
        return read_records(self.run_dir, rank, kind)

    def pid(self, rank: int) -> int:
        """The process of a rank, as its header names it."""
        return int(self.records(rank, "header")[0]["pid"])

    def end(self) -> tuple[int, list[str]]:
        """Wait for the launcher; exit code and lines on stderr."""
        _, err = self.process.communicate(timeout=ENDS_WITHIN_S)
        return self.process.returncode, err.splitlines()

    def left(self) -> list[int]:
        """Processes of this run that still live."""
        return marked(self.mark)


@contextmanager
def under_way(tmp_path: Path, *words: str | Path, epochs: int = 3) -> Iterator[UnderWay]:
    """A run that has recorded some epochs on both ranks and would go on for long; whatever is left is killed at the end."""
    mark, run_dir = uuid.uuid4().hex, tmp_path / "run"
    process = subprocess.Popen(
        command(*words, "--epochs", "1000000", "--eval-every", "0", run_dir=run_dir),
        cwd=tmp_path,
        env=environment(tmp_path, mark),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = UnderWay(process=process, mark=mark, run_dir=run_dir)
    try:
        wait_for(
            lambda: process.poll() is not None or all(len(run.records(rank, "epoch")) >= epochs for rank in (0, 1)),
            f"{epochs} epochs",
        )
        assert process.poll() is None, process.communicate()[1]
        yield run
    finally:
        for pid in {*marked(mark), *([process.pid] if process.poll() is None else [])}:
            os.kill(pid, 9)
        process.communicate()


def wait_for(condition: Callable[[], bool], what: str, within_s: float = ENDS_WITHIN_S) -> None:
    """Poll until the condition holds."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"waited {within_s:g} s in vain for {what}"
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Live processes that carry the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # gone, or not ours
            continue
    return found


def read_records(run_dir: Path, rank: int, kind: str) -> list[dict[str, Any]]:
    """The whole lines of a trace file that hold records of a kind."""
    path = run_dir / "trace" / f"rank-{rank:05d}.jsonl"
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [record for line in lines if (record := json.loads(line))["kind"] == kind]


def losses(run_dir: Path) -> list[float]:
    """The loss of every epoch, exactly."""
    return [record["loss"] for record in read_records(run_dir, 0, "epoch")]
