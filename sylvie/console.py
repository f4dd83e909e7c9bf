"""What rank 0 tells the person at the terminal: a progress bar there, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sylvie.coordinator import Coordinated
from sylvie.launch import tell

_PLAIN_LINES = 50


class Console:
    """Progress of a run, on stderr; silent on other ranks."""

    def __init__(self, *, rank: int, epochs: int, metric: str) -> None:
        self._epochs, self._metric = epochs, metric
        self._silent = rank != 0
        self._every = max(1, epochs // _PLAIN_LINES)
        self._progress: Progress | None = None
        if not self._silent and sys.stderr.isatty():
            from rich.console import Console as RichConsole

            self._progress = Progress(
                TextColumn("epoch"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=RichConsole(stderr=True),
            )
            self._task = self._progress.add_task("", total=epochs)
            self._progress.start()

    def epoch(self, epoch: int, closed: Coordinated, metrics: dict[str, float | None], seconds: float) -> None:
        """Tell the end of an epoch."""
        if self._silent:
            return
        scores = " ".join(f"{split} {value:.4f}" for split, value in metrics.items() if value is not None)
        verdict = closed.verdict
        text = f"loss {closed.loss:.4f}  {seconds * 1e3:.0f} ms  next {verdict.base_next} bit {verdict.mode_next}"
        text += f"  {self._metric} {scores}" if scores else ""
        if self._progress is not None:
            self._progress.update(self._task, completed=epoch + 1, description=text)
        elif epoch % self._every == 0 or scores or epoch == self._epochs - 1:
            tell(f"epoch {epoch}: {text}")
        if epoch == self._epochs - 1 and self._progress is not None:
            self._progress.stop()


class Phases:
    """Lines on the offline stage, held back for a second: of a stage that is refused at once, only the refusal is told."""

    def __init__(self, say: Callable[[str], None] = tell, patience_s: float = 1.0) -> None:
        self._say, self._held, self._lock = say, list[str](), threading.Lock()
        self._open = False
        self._timer = threading.Timer(patience_s, self._release)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, text: str) -> None:
        """Tell a line, now or when patience is over."""
        with self._lock:
            if self._open:
                self._say(text)
            else:
                self._held.append(text)

    def close(self, *, refused: bool) -> None:
        """The stage has ended: what is held is told, or forgotten with it."""
        self._timer.cancel()
        if not refused:
            self._release()

    def _release(self) -> None:
        with self._lock:
            self._open = True
            for text in self._held:
                self._say(text)
            self._held.clear()
