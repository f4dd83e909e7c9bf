"""What rank 0 tells the person at the terminal: a live view there, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from sylvie.coordinator import Coordinated
from sylvie.launch import tell

_PLAIN_LINES = 50
_REDRAW_S = 0.2


class Console:
    """Progress of a run, on stderr; silent on other ranks. ``terminal`` is where the live view goes, None for plain lines.

    The view is drawn between epochs, at most five times a second: no thread of its own, nothing during an epoch.
    """

    def __init__(
        self,
        *,
        rank: int,
        epochs: int,
        metric: str,
        terminal: RichConsole | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs, self._metric, self._clock = epochs, metric, clock
        self._silent = rank != 0
        self._every = max(1, epochs // _PLAIN_LINES)
        self._waited_ns: Callable[[], int] = lambda: 0
        self._waited_before = 0
        self._scores = ""
        self._started, self._drawn = clock(), float("-inf")
        if terminal is None and not self._silent and sys.stderr.isatty():
            terminal = RichConsole(stderr=True)
        self._live: Live | None = None
        if terminal is not None and not self._silent:
            self._live = Live(console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def watch(self, waited_ns: Callable[[], int]) -> None:
        """Where to ask for the ns that the main thread has waited for rows since the run began; the run starts now."""
        self._waited_ns, self._started = waited_ns, self._clock()

    def epoch(self, epoch: int, closed: Coordinated, metrics: dict[str, float | None], seconds: float) -> None:
        """Tell the end of an epoch."""
        if self._silent:
            return
        waited = self._waited_ns()
        exposed_s, self._waited_before = (waited - self._waited_before) / 1e9, waited
        scores = " ".join(f"{split} {value:.4f}" for split, value in metrics.items() if value is not None)
        self._scores = scores or self._scores
        last = epoch == self._epochs - 1
        if self._live is not None:
            now = self._clock()
            if last or scores or now - self._drawn >= _REDRAW_S:
                self._drawn = now
                self._show(self._live)
                self._live.update(self._view(epoch, closed, seconds, exposed_s), refresh=True)
            if last:
                self.close()
        elif epoch % self._every == 0 or scores or last:
            verdict = closed.verdict
            text = f"loss {closed.loss:.4f}  {seconds * 1e3:.0f} ms, {exposed_s * 1e3:.0f} exposed"
            text += f"  next {verdict.base_next} bit {verdict.mode_next}"
            tell(f"epoch {epoch}: {text}" + (f"  {self._metric} {scores}" if scores else ""))

    @staticmethod
    def _show(live: Live) -> None:
        if not live.is_started:
            live.start()
            live.console.show_cursor(True)  # a run that is killed must not leave the terminal without one

    def close(self) -> None:
        """Leave the terminal as it was, the last view standing."""
        if self._live is not None:
            self._live.stop()

    def _view(self, epoch: int, closed: Coordinated, seconds: float, exposed_s: float) -> Group:
        """Epoch and time left; loss, bits and mode; the epoch's time and how much of it was exposed communication."""
        verdict, done = closed.verdict, epoch + 1
        left = (self._clock() - self._started) / done * (self._epochs - done)
        head = Table.grid(padding=(0, 2))
        head.add_row(f"epoch {done}/{self._epochs}", ProgressBar(self._epochs, done, width=36), f"{_clock_time(left)} left")
        body = Table.grid(padding=(0, 2))
        smoothed = f"smoothed {verdict.smoothed_loss:.4f}"
        body.add_row("loss", f"{closed.loss:.4f}, {smoothed}")
        forced = ", forced by the rule" if verdict.forced_sync else ""
        body.add_row("next", f"base {verdict.base_next} bit, {verdict.mode_next}{forced}")
        share = exposed_s / seconds if seconds > 0 else 0.0
        body.add_row("time", f"{seconds * 1e3:.0f} ms, exposed communication {exposed_s * 1e3:.1f} ms ({share:.0%})")
        if self._scores:
            body.add_row(self._metric, self._scores)
        return Group(head, body)


def _clock_time(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
