"""The quantizer in plain torch: slow, readable, and the definition of what every other codec must produce.

Arithmetic is float32, round to nearest, one operation at a time: no contraction, IEEE division. For a row h
of width D at b bits with L = 2^b − 1 levels above zero::

    min, max    with −0 replaced by +0
    fp32 form:  scale = (max − min) / L
    bf16 form:  min rounded down to bfloat16, then scale = (max − min) / L rounded up to bfloat16
    q = min(floor((h − min) / scale + u), L)        0 where scale = 0
    restored = scale·q + min                        two roundings

Rounding the bf16 minimum down and the bf16 step up keeps every value inside the grid [min, min + L·scale], so
that the clamp never cuts a value off and the rounding stays unbiased. A row whose values, range or top of the
grid ``scale·L + min`` is not finite is an error. A range below L/2 times the smallest denormal gives scale =
0: the row is restored as its minimum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.codec.base import NonFiniteRowError
from sylvie.codec.checks import check_decode, check_encode, index_error
from sylvie.codec.layout import WIDTHS, BodyLayout, NoiseKey
from sylvie.codec.noise import uniforms


def bf16_down(x: Tensor) -> Tensor:
    """The largest bfloat16 ≤ x, as float32 (−inf below the most negative bfloat16)."""
    bits = x.contiguous().view(torch.int32)
    truncated = bits & -0x10000
    inexact_negative = (bits < 0) & (bits != truncated)
    return (truncated + inexact_negative.to(torch.int32) * 0x10000).view(torch.float32)


def bf16_up(x: Tensor) -> Tensor:
    """The smallest bfloat16 ≥ x for x ≥ 0, as float32 (inf above the largest bfloat16)."""
    bits = x.contiguous().view(torch.int32)
    truncated = bits & -0x10000
    return (truncated + (bits != truncated).to(torch.int32) * 0x10000).view(torch.float32)


def row_grid(rows: Tensor, levels: Tensor, metadata: str) -> tuple[Tensor, Tensor, Tensor]:
    """Minimum and scale of every row (float32 [m], as the wire carries them) and whether the row is finite
    (bool [m]).

    ``rows`` is float32 [m, D], ``levels`` float32 [m] = 2^b − 1.
    """
    low, high = rows.amin(dim=1) + 0.0, rows.amax(dim=1) + 0.0  # adding +0 turns −0 into +0
    if metadata == "bf16":
        low = bf16_down(low)
    scale = (high - low) / levels
    if metadata == "bf16":
        scale = bf16_up(scale)
    finite = (
        torch.isfinite(rows).all(dim=1) & torch.isfinite(high - low) & torch.isfinite(scale * levels + low)
    )
    return low, scale, finite


def quantize(rows: Tensor, low: Tensor, scale: Tensor, levels: Tensor, noise: Tensor) -> Tensor:
    """Codes q as uint8 [m, D] for rows and noise float32 [m, D], low, scale and levels float32 [m]."""
    step = torch.where(scale == 0, 1.0, scale)[:, None]
    q = torch.minimum(torch.floor((rows - low[:, None]) / step + noise), levels[:, None])
    return torch.where(scale[:, None] == 0, 0.0, q).to(torch.uint8)


def pack_planar(codes: Tensor, bits: int) -> Tensor:
    """Pack codes uint8 [n, D] into uint8 [n, w], w = ceil(D·bits/8); byte k holds columns k, k + w, …, low
    bits first."""
    rows, dim = codes.shape
    planes, width = 8 // bits, (dim * bits + 7) // 8
    padded = torch.zeros(rows, planes * width, dtype=torch.uint8, device=codes.device)
    padded[:, :dim] = codes
    packed = torch.zeros(rows, width, dtype=torch.uint8, device=codes.device)
    for plane in range(planes):
        packed |= padded[:, plane * width : (plane + 1) * width] << (plane * bits)
    return packed


def unpack_planar(packed: Tensor, bits: int, dim: int) -> Tensor:
    """Undo pack_planar: uint8 [n, w] -> codes uint8 [n, dim]."""
    planes = [(packed >> (plane * bits)) & (2**bits - 1) for plane in range(8 // bits)]
    return torch.cat(planes, dim=1)[:, :dim]


def _write_metadata(values: Tensor, metadata: str, out: Tensor) -> None:
    if metadata == "bf16":  # exact: the low 16 bits are zero already
        out.copy_((values.view(torch.int32) >> 16).to(torch.int16).view(torch.uint8))
    else:
        out.copy_(values.contiguous().view(torch.uint8))


def _read_metadata(body: Tensor, metadata: str) -> Tensor:
    values = body.clone()  # aligned, wherever the body starts
    if metadata == "bf16":
        return (values.view(torch.int16).to(torch.int32) << 16).view(torch.float32)
    return values.view(torch.float32)


def _row_bytes(layout: BodyLayout, bits: int) -> tuple[Tensor, Tensor]:
    """Plan positions [n] of the rows at this width and the body positions [n, w] of their bytes."""
    rows = torch.nonzero(layout.bits == bits).flatten()
    width = (layout.dim * bits + 7) // 8
    return rows, layout.row_offset[rows][:, None] + torch.arange(width, device=layout.row_offset.device)


class ReferenceCodec:
    """The quantizer in plain torch operations; see the module's docstring for the arithmetic."""

    name = "reference"

    def encode(self, source: Tensor, index: Tensor, layout: BodyLayout, key: NoiseKey, out: Tensor) -> None:
        """See Codec.encode. Raises NonFiniteRowError for the first bad row and ValueError on bad
        arguments."""
        check_encode(source, index, layout, out)
        if layout.rows == 0:
            return
        outside = torch.nonzero((index < 0) | (index >= source.shape[0])).flatten()
        if outside.shape[0]:
            raise index_error(int(outside[0]), int(index[outside[0]]), source)
        rows = source.detach()[index]
        levels = ((1 << layout.bits.to(torch.int32)) - 1).to(torch.float32)
        low, scale, finite = row_grid(rows, levels, layout.metadata)
        if not bool(finite.all()):
            bad = int(torch.nonzero(~finite)[0])
            raise NonFiniteRowError(bad, int(layout.node_ids[bad]), key)
        codes = quantize(rows, low, scale, levels, uniforms(key, layout.node_ids, layout.dim))
        half = layout.meta_bytes // 2
        _write_metadata(low, layout.metadata, out[:half])
        _write_metadata(scale, layout.metadata, out[half : layout.meta_bytes])
        for bits in WIDTHS:
            selected, position = _row_bytes(layout, bits)
            out[position] = pack_planar(codes[selected], bits)

    def decode(self, body: Tensor, layout: BodyLayout, out: Tensor) -> None:
        """See Codec.decode. Raises ValueError on bad arguments."""
        check_decode(body, layout, out)
        if layout.rows == 0:
            return
        half = layout.meta_bytes // 2
        low = _read_metadata(body[:half], layout.metadata)
        scale = _read_metadata(body[half : layout.meta_bytes], layout.metadata)
        for bits in WIDTHS:
            selected, position = _row_bytes(layout, bits)
            codes = unpack_planar(body[position], bits, layout.dim).to(torch.float32)
            out[selected] = scale[selected, None] * codes + low[selected, None]

    def check(self, *, wait: bool = True) -> None:
        """Errors were raised where they happened."""
