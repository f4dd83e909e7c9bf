"""What the terminal shows: a live view there, plain lines elsewhere, nothing on other ranks."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from sylvie.console import Console
from sylvie.coordinator import Coordinated
from sylvie_trace.decision import Verdict

ROOT = Path(__file__).parents[2]


def closed(loss: float, base: int = 2, mode: str = "sync", forced: bool = True) -> Coordinated:
    verdict = Verdict(
        smoothed_loss=loss + 1,
        ldr=-0.5,
        descent_rate=0.5,
        ldr_reference=None,
        outcome="true",
        base_next=base,
        mode_next=mode,
        forced_sync=forced,
    )
    return Coordinated(loss=loss, et_wall_s=0.2, et_s=0.2, verdict=verdict)


def test_the_live_view_says_where_the_run_is() -> None:
    screen, now = io.StringIO(), [100.0]
    terminal = RichConsole(file=screen, force_terminal=True, width=110, color_system=None)
    console = Console(rank=0, epochs=8, metric="accuracy", terminal=terminal, clock=lambda: now[0])
    waited = [0]
    console.watch(lambda: waited[0])
    now[0], waited[0] = 160.0, 50_000_000
    console.epoch(1, closed(0.25), {"val": 0.5, "test": None}, 0.2)
    shown = screen.getvalue()
    assert "epoch 2/8" in shown and "3:00 left" in shown  # 60 s for 2 epochs, 6 to go
    assert "0.2500, smoothed 1.2500" in shown
    assert "base 2 bit, sync, forced by the rule" in shown
    assert "200 ms, exposed communication 50.0 ms (25%)" in shown
    assert "val 0.5000" in shown and "test" not in shown
    screen.truncate(0)
    now[0], waited[0] = 160.1, 60_000_000
    console.epoch(2, closed(0.24), {}, 0.2)
    assert screen.getvalue().strip("\x00") == ""  # too soon to draw again
    console.epoch(7, closed(0.125, 1, "async", False), {}, 0.1)
    shown = screen.getvalue()
    assert "epoch 8/8" in shown and "0:00 left" in shown and "base 1 bit, async" in shown and "0.1250" in shown
    assert "exposed communication 0.0 ms" in shown and "val 0.5000" in shown  # the last scores stay


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(rank=0, epochs=100, metric="accuracy")
    console.watch(lambda: 12_000_000)
    for epoch in range(100):
        console.epoch(epoch, closed(0.5), {"val": 0.75} if epoch == 7 else {}, 0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "epoch 0: loss 0.5000  200 ms, 12 exposed  next 2 bit sync"
    assert "epoch 7: loss 0.5000  200 ms, 0 exposed  next 2 bit sync  accuracy val 0.7500" in lines
    assert len(lines) == 52 and lines[-1].startswith("epoch 99:")


def test_other_ranks_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(rank=1, epochs=2, metric="accuracy", terminal=RichConsole(force_terminal=True))
    console.epoch(1, closed(0.5), {}, 0.2)
    console.close()
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


def test_a_run_on_a_terminal_draws_and_leaves_it_usable(tmp_path: Path) -> None:
    """A real run with a pseudo-terminal as its stderr: every part of the view is drawn, the cursor is left on."""
    words = [sys.executable, "-W", "ignore", "-m", "sylvie", "--parts", "1", "--epochs", "3", "--hidden", "8"]
    words += ["--run-dir", str(tmp_path / "run"), "--cache-dir", str(tmp_path / "cache")]
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110"}
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    assert process.wait(60) == 0
    text = seen.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for part in ("epoch 3/3", "left", "smoothed", "base", "exposed communication", "accuracy"):
        assert part in plain, plain
    assert text.rindex("\x1b[?25h") > text.rfind("\x1b[?25l")
