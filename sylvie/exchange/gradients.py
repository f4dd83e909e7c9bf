"""Weight gradients summed over ranks while backward still runs.

1. Parameters are laid out in a few buckets, last layers first: the order in which backward completes them. Buckets shrink
   with the time that is left to hide them.
2. When the last gradient of a bucket is there (a hook tells), its sum over ranks is started; buckets always start in order, on
   every rank alike, so that the sums meet.
3. ``finish`` starts what has not been started, waits, and hands every parameter its summed gradient.

What is left to wait for at the end of an epoch is the last and smallest bucket.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from sylvie.exchange.reduce import Reducer, ring_bytes

_SMALLEST_BYTES = 1 << 15  # below this a message costs its latency, not its bytes


class GradientSum:
    """The sum of all gradients over ranks; one object a model, ``begin`` and ``finish`` once an epoch."""

    def __init__(self, parameters: Iterable[Tensor], reducer: Reducer) -> None:
        self._reducer = reducer
        self._parameters = [p for p in parameters if p.requires_grad]
        self._buckets = _bucketed(self._parameters) if reducer.world_size > 1 else []
        self._place = {id(p): number for number, bucket in enumerate(self._buckets) for p in bucket}
        self._missing: list[int] = []
        self._running: list[tuple[Tensor, Callable[[], None]]] = []
        if self._buckets:
            me = weakref.ref(self)  # a parameter's hooks are out of the garbage collector's sight: no cycle through them

            def completed(parameter: Tensor) -> None:
                if (found := me()) is not None:
                    found._completed(parameter)

            for p in self._parameters:
                p.register_post_accumulate_grad_hook(completed)  # type: ignore[no-untyped-call]

    @property
    def bucket_bytes(self) -> list[int]:
        """Bytes that this rank sends for every bucket, in the order in which their sums start; nothing on a single rank."""
        return [sum(ring_bytes(p, self._reducer.world_size) for p in bucket) for bucket in self._buckets]

    def begin(self) -> None:
        """Before backward: nothing is there yet. Without this call the next ``finish`` would hand out old sums."""
        assert not self._missing, "begin() before the last finish()"
        self._missing = [len(bucket) for bucket in self._buckets]
        self._running = []

    def finish(self) -> int:
        """After backward: every ``grad`` is the sum over ranks. Returns the bytes that this rank sent.

        A parameter without a gradient on this rank contributes zeros: another rank may have one.
        """
        assert self._missing or not self._buckets, "finish() without begin()"
        for p in self._parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        while len(self._running) < len(self._buckets):
            self._start_next()
        self._missing, sent = [], 0
        for bucket, (flat, wait) in zip(self._buckets, self._running, strict=True):
            wait()
            sent += ring_bytes(flat, self._reducer.world_size)
            for p, piece in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
                assert p.grad is not None
                p.grad.copy_(piece.view_as(p))
        return sent

    def _completed(self, parameter: Tensor) -> None:
        if not self._missing:  # a backward outside an epoch
            return
        self._missing[self._place[id(parameter)]] -= 1
        while len(self._running) < len(self._buckets) and self._missing[len(self._running)] == 0:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self._buckets[len(self._running)]
        flat = torch.cat([p.grad.reshape(-1) for p in bucket if p.grad is not None])
        self._running.append((flat, self._reducer.start_sum(flat)))


def _bucketed(parameters: list[Tensor]) -> list[list[Tensor]]:
    """Parameters in reverse order, each bucket about half of what is left: as backward runs out, less can be hidden."""
    left, share = _nbytes(parameters), 0
    buckets: list[list[Tensor]] = []
    for p in reversed(parameters):
        size = _nbytes([p])
        filled = _nbytes(buckets[-1]) if buckets else 0
        if not buckets or filled + size // 2 > share:
            share = max(left // 2, _SMALLEST_BYTES)
            buckets.append([])
        buckets[-1].append(p)
        left -= size
    return buckets


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
