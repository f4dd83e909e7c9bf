"""Streams: in which order a device does what the host asks of it, and when it did it.

On a CUDA device two streams matter: the current one, on which a rank computes, and the communication stream, on which rows
travel. Work on one is ordered; between the two only *marks* order anything: ``follow(mark)`` lets the current stream's later
work begin after the mark's earlier work, without making the host wait. On the host work is done when its call returns, and
all of this is free.

Moments are what ``int()`` turns into run-clock nanoseconds. A moment of a device is a timed event; it is placed on the run
clock by its distance from the epoch's anchor, an event whose time on the host is known because the device was idle then.
Asking for its value waits until it has happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, SupportsInt

import torch
from torch import Tensor


class Mark(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Whether the work before it is done; does not wait."""

    def synchronize(self) -> None:
        """Let the calling thread wait until the work before it is done."""


class Streams(Protocol):
    """Hand-overs between the streams of one device; ``in_step``: work is done when its call returns."""

    device: torch.device
    in_step: bool

    def mark(self) -> Mark:
        """Here, on the current stream."""

    def follow(self, mark: Mark) -> None:
        """Let later work on the current stream begin after the mark."""

    def communication(self) -> AbstractContextManager[Any]:
        """Make the communication stream the calling thread's current one."""

    def keep(self, tensor: Tensor) -> None:
        """Let nobody reuse the memory of ``tensor``, once freed, before the current stream's work so far is done."""

    def empty(self, nbytes: int) -> Tensor:
        """New bytes where rows are."""

    def pinned(self, nbytes: int) -> Tensor:
        """New bytes on the host that the device copies to and from by itself."""

    def moment(self) -> SupportsInt:
        """Now, on the current stream."""

    def anchor(self) -> None:
        """Tie the device's time to the run clock; call it where the current stream is idle."""


class _Done:
    """The mark of work that is done already."""

    def query(self) -> bool:
        """Always."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""


DONE = _Done()
_NO_SWITCH = nullcontext()


class HostStreams:
    """The host: every call has done its work when it returns."""

    device = torch.device("cpu")
    in_step = True

    def __init__(self, clock: Callable[[], int]) -> None:
        self.moment: Callable[[], SupportsInt] = clock

    def mark(self) -> Mark:
        """Done."""
        return DONE

    def follow(self, mark: Mark) -> None:
        """Nothing to do."""

    def communication(self) -> AbstractContextManager[Any]:
        """There is one order only."""
        return _NO_SWITCH

    def keep(self, tensor: Tensor) -> None:
        """Nothing to do."""

    def empty(self, nbytes: int) -> Tensor:
        """uint8 [nbytes]."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def pinned(self, nbytes: int) -> Tensor:
        """uint8 [nbytes]."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def anchor(self) -> None:
        """One clock is enough."""


@dataclass(frozen=True, eq=False)
class _Anchor:
    event: torch.cuda.Event
    host_ns: int


@dataclass(frozen=True, eq=False)
class _DeviceMoment:
    anchor: _Anchor
    event: torch.cuda.Event

    def __int__(self) -> int:
        self.event.synchronize()
        elapsed_ms: float = self.anchor.event.elapsed_time(self.event)
        return self.anchor.host_ns + round(elapsed_ms * 1e6)


class CudaStreams:
    """A CUDA device with a communication stream of its own, of high priority: its kernels are short and others wait for them.

    ``timed``: moments are events on the device; otherwise the host's clock when the work was asked for, at no cost.
    """

    in_step = False

    def __init__(self, device: torch.device, clock: Callable[[], int], *, timed: bool) -> None:
        self.device = device
        self._clock, self._timed = clock, timed
        self._communication = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._anchor: _Anchor | None = None

    def mark(self) -> Mark:
        """An event on the current stream."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def follow(self, mark: Mark) -> None:
        """The current stream waits for the event; the host does not."""
        if isinstance(mark, torch.cuda.Event):  # DONE needs no waiting
            mark.wait(torch.cuda.current_stream(self.device))

    def communication(self) -> AbstractContextManager[Any]:
        """The communication stream, for the calling thread."""
        return torch.cuda.stream(self._communication)

    def keep(self, tensor: Tensor) -> None:
        """``record_stream`` of the current stream."""
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(self.device))

    def empty(self, nbytes: int) -> Tensor:
        """uint8 [nbytes] on the device."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def pinned(self, nbytes: int) -> Tensor:
        """uint8 [nbytes], page-locked."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def moment(self) -> SupportsInt:
        """A timed event on the current stream, or the host's clock."""
        if not self._timed:
            return self._clock()
        if self._anchor is None:
            self.anchor()
        assert self._anchor is not None
        return _DeviceMoment(self._anchor, self._timed_event())

    def anchor(self) -> None:
        """One event, waited for: microseconds on an idle stream."""
        if self._timed:
            event = self._timed_event()
            event.synchronize()
            self._anchor = _Anchor(event, self._clock())

    def _timed_event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event
