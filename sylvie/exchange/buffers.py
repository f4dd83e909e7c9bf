"""Memory of the exchange: byte buffers that are lent for one flight, and two row buffers per site.

Row buffers alternate by epoch: while an epoch's layers read the rows of one buffer, the rows it sends itself arrive in the
other, so rows are never overwritten while they can still be read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from sylvie.exchange.flight import Site
from sylvie.exchange.streams import Mark, Streams


@dataclass(frozen=True, eq=False)
class _Free:
    buffer: Tensor
    used_until: Mark


class BytePool:
    """Lends uint8 buffers where rows are and takes them back; after the first epochs nothing is allocated any more.

    A buffer given back carries a mark of its last use. The stream that is lent it follows that mark, so a buffer may change
    streams; one that is dropped keeps its memory until both streams are done with it.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._free: list[_Free] = []
        self._lock = threading.Lock()

    def lend(self, nbytes: int) -> Tensor:
        """A buffer of exactly ``nbytes``: a view of the smallest free one that is large enough."""
        with self._lock:
            usable = [f for f in self._free if self._may_lend(f)]
            fitting = [f for f in usable if f.buffer.numel() >= nbytes]
            # One that is too small is dropped for the new, larger one, so that the pool does not grow with every width.
            taken = min(fitting, key=_size) if fitting else max(usable, key=_size, default=None)
            self._free = [f for f in self._free if f is not taken]
        if fitting and taken is not None:
            self._streams.follow(taken.used_until)
            whole = taken.buffer
        else:
            whole = self._allocate(nbytes)
        self._streams.keep(whole)
        return whole[:nbytes]

    def give_back(self, buffer: Tensor) -> None:
        """Return what ``lend`` gave, after the last work that uses it was issued on the current stream."""
        whole = buffer if buffer._base is None else buffer._base
        self._streams.keep(whole)
        free = _Free(whole, self._streams.mark())
        with self._lock:
            self._free.append(free)

    def _may_lend(self, free: _Free) -> bool:
        return True

    def _allocate(self, nbytes: int) -> Tensor:
        return self._streams.empty(nbytes)


class PinnedPool(BytePool):
    """Lends host memory that the device copies to and from. The host writes at once: what is lent is out of use."""

    def _may_lend(self, free: _Free) -> bool:
        return free.used_until.query()

    def _allocate(self, nbytes: int) -> Tensor:
        return self._streams.pinned(nbytes)


def _size(free: _Free) -> int:
    return free.buffer.numel()


class RowBuffers:
    """Two halo buffers per site, chosen by the epoch's parity; rounds of few peers get a fresh one each time."""

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._rows: dict[tuple[Site, int, torch.dtype], Tensor] = {}

    def rows(self, site: Site, epoch: int, shape: tuple[int, int], source: Tensor) -> Tensor:
        """The buffer for rows that ``epoch`` sends at ``site``, of the dtype and on the device of ``source``."""
        if self._fresh:
            return torch.empty(shape, dtype=source.dtype, device=source.device)
        key = (site, epoch % 2, source.dtype)
        rows = self._rows.get(key)
        if rows is None or rows.shape != shape:
            rows = self._rows[key] = torch.empty(shape, dtype=source.dtype, device=source.device)
        return rows
