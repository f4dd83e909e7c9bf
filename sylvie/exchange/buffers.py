"""Memory of the exchange: byte buffers that are lent for one flight, and two row buffers per site.

Row buffers alternate by epoch: while an epoch's layers read the rows of one buffer, the rows it sends itself arrive in the
other, so rows are never overwritten while they can still be read.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from sylvie.exchange.flight import Site


class BytePool:
    """Lends uint8 buffers and takes them back; after the first epochs nothing is allocated any more."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        self._lock = threading.Lock()

    def lend(self, nbytes: int) -> Tensor:
        """A buffer of exactly ``nbytes``: a view of the smallest free one that is large enough."""
        with self._lock:
            fitting = [b for b in self._free if b.numel() >= nbytes]
            # One that is too small is dropped for the new, larger one, so that the pool does not grow with every width.
            taken = min(fitting, key=Tensor.numel) if fitting else max(self._free, key=Tensor.numel, default=None)
            self._free = [b for b in self._free if b is not taken]
        if fitting and taken is not None:
            return taken[:nbytes]
        return torch.empty(nbytes, dtype=torch.uint8)[:]

    def give_back(self, buffer: Tensor) -> None:
        """Return what ``lend`` gave."""
        whole = buffer if buffer._base is None else buffer._base
        with self._lock:
            self._free.append(whole)


class RowBuffers:
    """Two halo buffers per site, chosen by the epoch's parity; rounds of few peers get a fresh one each time."""

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._rows: dict[tuple[Site, int, torch.dtype], Tensor] = {}

    def rows(self, site: Site, epoch: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """The buffer for rows that ``epoch`` sends at ``site``."""
        if self._fresh:
            return torch.empty(shape, dtype=dtype)
        key = (site, epoch % 2, dtype)
        rows = self._rows.get(key)
        if rows is None or rows.shape != shape:
            rows = self._rows[key] = torch.empty(shape, dtype=dtype)
        return rows
