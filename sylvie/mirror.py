"""The mirror of a run: a process of its own, started beside the ranks, that never holds them up.

It reads what rank 0 writes, so no rank does anything for it. What it says becomes a note on stderr; when it cannot start,
hangs or dies, that is a note too.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from sylvie.launch import tell
from sylvie_trace.export.wandb_ import END_S


@contextlib.contextmanager
def mirrored(mode: str, run_dir: Path, say: Callable[[str], None] = tell) -> Iterator[None]:
    """Mirror ``run_dir`` to W&B while the block runs; ``mode`` off does nothing. The end of the block waits a bounded time."""
    if mode == "off":
        yield
        return
    command = [sys.executable, "-m", "sylvie_trace.export.wandb_", str(run_dir), "--mode", mode, "--follow"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        )
    except OSError as error:
        say(f"note: W&B: the mirror did not start: {error}")
        yield
        return
    listener = threading.Thread(target=_listen, args=(process, say), daemon=True)
    listener.start()
    try:
        yield
    finally:
        _end(process, END_S[mode], say)
        listener.join(1.0)


def _listen(process: subprocess.Popen[str], say: Callable[[str], None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            say(f"note: W&B: {line.strip()}")


def _end(process: subprocess.Popen[str], patience_s: float, say: Callable[[str], None]) -> None:
    """Close its stdin, by which it knows that the run is over, and wait for its last words."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        say(f"note: W&B: the mirror did not end within {patience_s:.0f} s and was stopped; the trace has everything")
        return
    if process.returncode not in (0, 1):  # 1: it has said why
        say(f"note: W&B: the mirror died (exit code {process.returncode}); the trace has everything")
