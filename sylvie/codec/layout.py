"""Where every byte of a message lies: wire format 1, shared by all codecs.

After the 32-byte header (written by the exchange, not by a codec) a message's *body* holds

1. the minimum of every row in plan order, then the scale of every row in plan order;
2. the rows grouped by width 1, 2, 4, 8, in plan order inside a group, each ``ceil(D·b/8)`` = w bytes, planar:
   byte k holds columns k, k + w, k + 2w, …, the first in the lowest bits.

A row at 32 bits has no metadata and its D columns follow as they are (fp32, or fp64 in a float64 run).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WIDTHS = (1, 2, 4, 8)
METADATA_BYTES = {"fp32": 8, "bf16": 4}


@dataclass(frozen=True, kw_only=True)
class NoiseKey:
    """What the rounding noise is a function of, beside global node id and column.

    ``direction`` is 0 for embeddings, 1 for gradients; ``sender`` is the sending rank for gradients and 0 for
    embeddings, so that an embedding's noise does not depend on how many ranks there are.
    """

    seed: int
    epoch: int
    layer: int
    step: int
    direction: int
    sender: int


@dataclass(frozen=True, kw_only=True, eq=False)
class BodyLayout:
    """The body of one quantized message: m rows of ``dim`` columns, each at its own width.

    ``row_offset[i]`` is the byte at which row i (plan order) starts in the body; its minimum and scale stand
    at ``i · meta/2`` and ``(m + i) · meta/2`` for ``meta`` = 8 (fp32) or 4 (bf16) bytes.
    """

    dim: int
    metadata: str
    node_ids: Tensor  # int64 [m] global ids, plan order
    bits: Tensor  # uint8 [m]
    row_offset: Tensor  # int64 [m]
    main_bytes: int
    meta_bytes: int

    @property
    def rows(self) -> int:
        """Rows in the message."""
        return int(self.bits.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the body, metadata and rows."""
        return self.meta_bytes + self.main_bytes


def body_layout(node_ids: Tensor, bits: Tensor, dim: int, metadata: str = "fp32") -> BodyLayout:
    """Lay out a body for rows ``node_ids`` [m] at widths ``bits`` [m]; raises ValueError on an unknown width."""
    if metadata not in METADATA_BYTES:
        raise ValueError(f"metadata form {metadata!r} is unknown; use one of {', '.join(METADATA_BYTES)}")
    if not bool(torch.isin(bits, torch.tensor(WIDTHS, dtype=bits.dtype)).all()):
        raise ValueError(f"a row width is not one of {WIDTHS}: {sorted(set(bits.tolist()) - set(WIDTHS))}")
    rows = int(bits.shape[0])
    meta_bytes = rows * METADATA_BYTES[metadata]
    row_bytes = (bits.to(torch.int64) * dim + 7) // 8
    order = torch.argsort(bits, stable=True)
    grouped = row_bytes[order]
    offset = torch.empty(rows, dtype=torch.int64)
    offset[order] = meta_bytes + torch.cumsum(grouped, 0) - grouped
    return BodyLayout(
        dim=dim,
        metadata=metadata,
        node_ids=node_ids,
        bits=bits,
        row_offset=offset,
        main_bytes=int(row_bytes.sum()),
        meta_bytes=meta_bytes,
    )
