"""A device that is only imagined: streams as vector clocks, and a detector of races between them.

Work is done at once, on the host, but every tensor operation is booked on the stream that is current, with the order that
marks and hand-overs have promised so far (Lamport's happens-before, by vector clocks). Two uses of a memory, one of them
writing, that no promise orders would be a race on a real device, and fail here. A mark is known to have come only when
somebody waited for it or, by chance, when asked. The host may not wait inside an epoch at all.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, SupportsInt

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HERE = threading.local()  # .streams: the imagined device of the calling thread; .name: its current stream

#: Operations after which the host knows a value of the device's.
_WAITING = {"_local_scalar_dense", "nonzero", "unique_dim", "_unique2", "equal"}


def current() -> FakeStreams | None:
    found: FakeStreams | None = getattr(HERE, "streams", None)
    return found


@contextmanager
def unbooked() -> Iterator[None]:
    """Around work on tables that always lie on the host."""
    streams, HERE.streams = current(), None
    try:
        yield
    finally:
        HERE.streams = streams


@contextmanager
def as_host() -> Iterator[None]:
    """Around work that the host does by itself, on host memory."""
    before = getattr(HERE, "name", "compute")
    HERE.name = _host()
    try:
        yield
    finally:
        HERE.name = before


class FakeMark:
    def __init__(self, streams: FakeStreams, known: Counter[str]) -> None:
        self._streams, self.known, self._come = streams, known, False

    def query(self) -> bool:
        if not self._come and self._streams.chance() < 0.3:
            self._come = True
        if self._come:
            self._streams.learn(self.known)
        return self._come

    def synchronize(self) -> None:
        if not self._come:
            self._streams.host_waits("a mark")
        self._come = True
        self._streams.learn(self.known)


class FakeMoment:
    def __init__(self, streams: FakeStreams) -> None:
        self._streams, self._ns = streams, time.monotonic_ns()

    def __int__(self) -> int:
        self._streams.host_waits("a moment")
        return self._ns


class FakeStreams:
    """See the module's docstring. ``tracking(trainer)`` is what a rank's thread must run in."""

    device = torch.device("cpu")
    in_step = False

    def __init__(self, seed: int) -> None:
        self._clocks: dict[str, Counter[str]] = {}
        self._rng = np.random.default_rng(seed)
        self._lock = threading.RLock()
        self._writes: dict[int, tuple[str, int]] = {}
        self._reads: dict[int, dict[str, int]] = {}
        self._held: list[Any] = []  # no memory is used twice, so that an address is a tensor
        self._kept: set[tuple[int, str]] = set()
        self.hot = False
        self._epochs = 0
        self.accesses = 0
        self.crossings = 0

    # --- what the exchange sees

    def mark(self) -> FakeMark:
        return FakeMark(self, Counter(self._book()))

    def follow(self, mark: Any) -> None:
        if isinstance(mark, FakeMark):
            with self._lock:
                self._clocks[self._stream()] |= mark.known

    @contextmanager
    def communication(self) -> Iterator[None]:
        before = getattr(HERE, "streams", None), getattr(HERE, "name", "compute")
        HERE.streams, HERE.name = self, "communication"
        self._book()
        try:
            if before[0] is None:
                with Tracking():
                    yield
            else:
                yield
        finally:
            HERE.streams, HERE.name = before

    def keep(self, tensor: Tensor) -> None:
        self._kept.add((_address(tensor), self._stream()))

    def empty(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def pinned(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def moment(self) -> SupportsInt:
        return FakeMoment(self)

    def anchor(self) -> None:
        self._epochs += 1
        self.hot = self._epochs > 1  # the first epoch makes what is kept

    # --- what the test sees

    def chance(self) -> float:
        return float(self._rng.random())

    def host_waits(self, what: str) -> None:
        if self.hot and threading.current_thread() is getattr(self, "main", None):
            raise AssertionError(f"the host waits for {what} inside an epoch")

    def learn(self, known: Counter[str]) -> None:
        """The calling thread knows that this work is done; what it asks for next comes after it."""
        with self._lock:
            self._clocks.setdefault(_host(), Counter()).update({})
            self._clocks[_host()] |= known

    def touch(self, tensor: Tensor, *, writes: bool, by_host: bool = False) -> None:
        """Book a use of a tensor's memory; AssertionError where an earlier one is not known to be over."""
        with self._lock:
            user = _host() if by_host else self._stream()
            known = self._book(user)
            where = _address(tensor)
            self._held.append(tensor.untyped_storage())
            self.accesses += 1
            earlier = list(self._reads.get(where, {}).items()) if writes else []
            if where in self._writes:
                earlier.append(self._writes[where])
            for other, at in earlier:
                self.crossings += other != user
                if known[other] < at:
                    raise AssertionError(f"race: {user} {'writes' if writes else 'reads'} what {other} is still using")
            if writes:
                self._writes[where], self._reads[where] = (user, known[user]), {}
            else:
                self._reads.setdefault(where, {})[user] = known[user]

    def must_keep(self, tensor: Tensor) -> None:
        """AssertionError unless the current stream has a hold on a memory that another might give away."""
        if (_address(tensor), self._stream()) not in self._kept:
            raise AssertionError(f"{self._stream()} uses memory that it did not keep")

    @contextmanager
    def tracking(self, trainer: Any) -> Iterator[None]:
        """Book everything that the calling thread does, and call it hot from the start of an epoch to the optimiser's step."""
        HERE.streams, HERE.name, self.main = self, "compute", threading.current_thread()
        plain_step = trainer.optimiser.step

        def step() -> None:
            self.hot = False
            plain_step()

        trainer.optimiser.step = step
        try:
            with Tracking():
                yield
        finally:
            HERE.streams = None

    def _stream(self) -> str:
        return getattr(HERE, "name", "compute")

    def _book(self, user: str | None = None) -> Counter[str]:
        """One more piece of work of a stream, after all that the asking thread knows to be done; its clock."""
        with self._lock:
            user = user or self._stream()
            clock = self._clocks.setdefault(user, Counter())
            clock |= self._clocks.setdefault(_host(), Counter())
            self._clocks[user] = clock
            clock[user] += 1
            if user == _host():
                return clock
            return clock


def _host() -> str:
    return f"host {threading.get_ident()}"


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Tracking(TorchDispatchMode):
    """Books every tensor operation of a thread on its current stream."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        streams = current()
        if streams is None:
            return func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _WAITING:
            streams.host_waits(func.overloadpacket.__name__)
        given = list(zip(func._schema.arguments, args, strict=False))
        given += [(a, kwargs[a.name]) for a in func._schema.arguments if kwargs and a.name in kwargs]
        name = func.overloadpacket.__name__
        is_view = name.startswith(("empty", "new_empty")) or any(  # what gives memory uses none
            a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments
        )
        if not is_view:
            for argument, value in given:
                writes = argument.alias_info is not None and argument.alias_info.is_write
                for tensor in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.numel():
                        streams.touch(tensor, writes=writes)
        result = func(*args, **(kwargs or {}))
        if not is_view and isinstance(result, Tensor) and result.layout == torch.strided and result.numel():
            streams.touch(result, writes=True)
        return result
