"""Worker: one background thread that runs a rank's exchanges in the order in which they were posted.

All ranks post in the same order (the program's), so their collectives meet. A failure is kept and raised in the main thread
at its next visit; every ticket that was still open is woken.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Ticket:
    """The promise that a posted job will be done."""

    def __init__(self) -> None:
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or badly."""
        return self._done.is_set()


class Worker:
    """A thread with a queue. ``timeout_s`` bounds every wait for a ticket."""

    def __init__(self, timeout_s: float, name: str = "exchange") -> None:
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], Ticket] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Queue a job; raises the worker's earlier failure, if there was one."""
        self.check()
        ticket = Ticket()
        self._queue.put((job, ticket))
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return when the job is done; raises its failure, or TimeoutError."""
        if not ticket._done.wait(self._timeout_s):
            self.check()
            raise TimeoutError(f"a background exchange did not end within {self._timeout_s:g} s")
        self.check()

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Let the queued jobs end and stop the thread; raises a failure that nobody has seen."""
        self._queue.put(None)
        self._thread.join(self._timeout_s)
        self.check()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            job, ticket = item
            if self._error is None:
                try:
                    job()
                except BaseException as error:
                    self._error = error
            ticket._done.set()
