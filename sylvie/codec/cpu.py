"""The quantizer as one fused CPU kernel: a row is gathered, ranged, rounded and packed in a single visit.

Same bytes as sylvie.codec.reference. The loops are in sylvie.codec.cpu_kernels; here they are compiled, at
the first use or by warm_up(), cached on disk where a writable place exists, and called without the GIL.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from torch import Tensor

from sylvie.codec import cpu_kernels, noise, vector
from sylvie.codec.base import NonFiniteRowError
from sylvie.codec.checks import check_decode, check_encode, index_error
from sylvie.codec.layout import BodyLayout, NoiseKey


def _revision() -> int:
    """A checksum of every source that ends in the machine code; numba's cache by itself looks at one file
    only."""
    checksum = 0
    for module in (cpu_kernels, vector, noise):
        checksum = zlib.crc32(Path(str(module.__file__)).read_bytes(), checksum)
    return checksum


def _compile(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """Machine code for one signature; from the disk cache, into it, or without it where no place can be
    written."""
    compiled: Callable[..., Any]
    try:
        function.__qualname__ = f"{function.__name__}_{_revision():08x}"  # names the cache file
        compiled = numba.njit(signature, nogil=True, cache=True)(function)
    except (
        Exception
    ):  # no place to cache in, a full disk, a damaged file in the cache: a real error comes again below
        compiled = numba.njit(signature, nogil=True)(function)
    return compiled


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        _compile(cpu_kernels.encode_rows, cpu_kernels.ENCODE_SIGNATURE),
        _compile(cpu_kernels.decode_rows, cpu_kernels.DECODE_SIGNATURE),
    )


def warm_up() -> None:
    """Compile the kernels, or load them from the cache, now and not in the first epoch; safe in many
    processes at once."""
    _kernels()


class CpuCodec:
    """The fused CPU kernel; see the module's docstring. Threads may share one: it holds no state."""

    name = "cpu"

    def encode(self, source: Tensor, index: Tensor, layout: BodyLayout, key: NoiseKey, out: Tensor) -> None:
        """See Codec.encode. Raises NonFiniteRowError for the first bad row and ValueError on bad
        arguments."""
        check_encode(source, index, layout, out)
        if layout.rows == 0:
            return
        k1, k2 = noise.message_keys(key)
        status = _kernels()[0](
            source.detach().view(-1).numpy(),
            layout.dim,
            index.numpy(),
            layout.node_ids.numpy(),
            layout.bits.numpy(),
            layout.row_offset.numpy(),
            np.uint32(k1),
            np.uint32(k2),
            layout.metadata == "bf16",
            out.numpy(),
        )
        if status <= cpu_kernels.INDEX_ERROR:
            row = cpu_kernels.INDEX_ERROR - status
            raise index_error(row, int(index[row]), source)
        if status != cpu_kernels.DONE:
            raise NonFiniteRowError(status, int(layout.node_ids[status]), key)

    def decode(self, body: Tensor, layout: BodyLayout, out: Tensor) -> None:
        """See Codec.decode. Raises ValueError on bad arguments."""
        check_decode(body, layout, out)
        if layout.rows:
            _kernels()[1](
                body.numpy(),
                layout.dim,
                layout.bits.numpy(),
                layout.row_offset.numpy(),
                layout.metadata == "bf16",
                out.detach().view(-1).numpy(),
            )

    def check(self, *, wait: bool = True) -> None:
        """Errors were raised where they happened."""
