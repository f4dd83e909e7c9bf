"""Workers: who runs a rank's exchanges, in the order in which they were posted.

All ranks post in the same order (the program's), so their collectives meet.

Worker          one background thread; collectives block it, not the main thread.
StreamWorker    nobody: each job is issued at once, on the thread that posts it, with the communication stream current and
                behind what the posting stream has been given so far. One issuing thread, one order.
StagedWorker    one background thread whose jobs use the device: the communication stream is current there, too.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from sylvie.exchange.streams import Mark, Streams


class Ticket(Protocol):
    """The promise that a posted job will be done."""

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or badly, on the device, too."""


class Issuer(Protocol):
    """Takes jobs in order. ``wait`` lets the current stream (or thread) go on only after a job."""

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Hand over a job; raises an earlier failure, if there was one."""

    def wait(self, ticket: Ticket) -> None:
        """Work from here on comes after the job; raises its failure, or TimeoutError."""

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did."""

    def close(self) -> None:
        """Let the jobs end; raises a failure that nobody has seen."""


class _ThreadTicket:
    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def done(self) -> bool:
        return self.ended.is_set()


class Worker:
    """A thread with a queue. ``timeout_s`` bounds every wait for a ticket.

    A failure is kept and raised in the main thread at its next visit; every ticket that was still open is woken.
    """

    def __init__(self, timeout_s: float, name: str = "exchange") -> None:
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], _ThreadTicket] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Queue a job; raises the worker's earlier failure, if there was one."""
        self.check()
        ticket = _ThreadTicket()
        self._queue.put((job, ticket))
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return when the job is done; raises its failure, or TimeoutError."""
        assert isinstance(ticket, _ThreadTicket)
        if not ticket.ended.wait(self._timeout_s):
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
        while self._work_off(self._queue.get()):
            pass

    def _work_off(self, item: tuple[Callable[[], None], _ThreadTicket] | None) -> bool:
        """Do one job; a call of its own, so that a waiting thread holds on to no job and its rows."""
        if item is None:
            return False
        job, ticket = item
        if self._error is None:
            try:
                job()
            except BaseException as error:
                self._error = error
        ticket.ended.set()
        return True


class _StreamTicket:
    def __init__(self, arrived: Mark) -> None:
        self.arrived = arrived

    @property
    def done(self) -> bool:
        return self.arrived.query()


class StreamWorker:
    """Issues jobs on the communication stream; the host never waits here, and a failure to issue is raised at once.

    A peer that does not answer is left to the timeout of the process group.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Issue a job behind the current stream's work so far."""
        ready = self._streams.mark()
        with self._streams.communication():
            self._streams.follow(ready)
            job()
            return _StreamTicket(self._streams.mark())

    def wait(self, ticket: Ticket) -> None:
        """Let the current stream's later work begin after the job."""
        assert isinstance(ticket, _StreamTicket)
        self._streams.follow(ticket.arrived)

    def check(self) -> None:
        """Failures were raised where they happened."""

    def close(self) -> None:
        """Nothing is held."""


class _StagedTicket:
    def __init__(self) -> None:
        self.inner: Ticket | None = None
        self.arrived: Mark | None = None  # stays None where the job failed

    @property
    def done(self) -> bool:
        ended = self.inner is not None and self.inner.done
        return ended and (self.arrived is None or self.arrived.query())


class StagedWorker:
    """A Worker for jobs that use the device: on its thread the communication stream is current."""

    def __init__(self, inner: Worker, streams: Streams) -> None:
        self._inner, self._streams = inner, streams
        self.check, self.close = inner.check, inner.close

    def submit(self, job: Callable[[], None]) -> Ticket:
        """Queue a job that begins, on the device, behind the current stream's work so far."""
        ready, ticket = self._streams.mark(), _StagedTicket()

        def run() -> None:
            with self._streams.communication():
                self._streams.follow(ready)
                job()
                ticket.arrived = self._streams.mark()

        ticket.inner = self._inner.submit(run)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Wait until the job was issued (not until the device has done it), then let the current stream follow it."""
        assert isinstance(ticket, _StagedTicket) and ticket.inner is not None
        self._inner.wait(ticket.inner)
        assert ticket.arrived is not None
        self._streams.follow(ticket.arrived)
