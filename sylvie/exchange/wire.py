"""Wire: the fused byte layout of one exchange — every peer's message, header and body, one after the other.

A wire belongs to (route, D, base bits, peers of the round) and is built once. At base 32 rows travel as they are; below, the
codec writes them at ``min(8, base · 2^level)`` bits each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sylvie.codec.base import Codec
from sylvie.codec.layout import BodyLayout, NoiseKey, body_layout
from sylvie.exchange.header import HEADER_BYTES
from sylvie.exchange.plan import Route
from sylvie.extractor import row_bits


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageShape:
    """Place and size of one peer's message inside the fused buffer; ``layout`` is None for plain rows."""

    peer: int
    offset: int
    rows: int
    main_bytes: int
    meta_bytes: int
    layout: BodyLayout | None

    @property
    def body(self) -> slice:
        """Bytes of the body, behind the header."""
        start = self.offset + HEADER_BYTES
        return slice(start, start + self.main_bytes + self.meta_bytes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Wire:
    """The fused messages out and in; splits are bytes per peer, 0 where no row travels (then no header does either)."""

    route: Route
    dim: int
    base: int
    dtype: torch.dtype
    out: tuple[MessageShape, ...]
    incoming: tuple[MessageShape, ...]
    send_splits: list[int]
    recv_splits: list[int]
    source_start: int = 0  # plan number of the source's first row: above 0 for the gradients of a later round

    def pack(self, source: Tensor, buffer: Tensor, codec: Codec | None, key: NoiseKey) -> None:
        """Write the bodies of all outgoing messages from ``source`` [rows, D] into ``buffer``; headers come later."""
        if self.base != 32:
            source = source.to(torch.float32)
        source = source.contiguous()
        for shape in self.out:
            body, index = buffer[shape.body], self._index[shape.peer]
            if shape.layout is None:
                rows = body.view(self.dtype).view(shape.rows, self.dim)
                torch.index_select(source, 0, index, out=rows)
            else:
                assert codec is not None, "quantized rows need a codec"
                codec.encode(source, index, shape.layout, key, body)

    def unpack(self, buffer: Tensor, codec: Codec | None, out: Tensor, scratch: Tensor | None = None) -> None:
        """Restore all arrived rows into ``out`` [arrivals, D], each peer's at its slice.

        ``scratch`` (float32, same shape) is what the codec writes to where ``out`` has another dtype.
        """
        target = out if self.base == 32 or out.dtype == torch.float32 else scratch
        assert target is not None, "quantized rows need a float32 target"
        first = self.first_row
        for shape in self.incoming:
            place = self.route.in_slice[shape.peer]
            rows = target[place.start - first : place.stop - first]
            if shape.layout is None:
                rows.copy_(buffer[shape.body].view(self.dtype).view(shape.rows, self.dim))
            else:
                assert codec is not None, "quantized rows need a codec"
                codec.decode(buffer[shape.body], shape.layout, rows)
        if target is not out:
            out.copy_(target)

    @cached_property
    def _index(self) -> dict[int, Tensor]:
        return {shape.peer: self.route.out_index[shape.peer] - self.source_start for shape in self.out}

    @property
    def first_row(self) -> int:
        """The arrival number of this wire's first row: 0, or a later one in a round of few peers."""
        return min((self.route.in_slice[s.peer].start for s in self.incoming), default=0)

    @cached_property
    def histogram(self) -> dict[int, int]:
        """Outgoing rows by width (32 for plain rows)."""
        counts: Counter[int] = Counter()
        for shape in self.out:
            counts.update(shape.layout.bits.tolist() if shape.layout else {32: shape.rows})
        return dict(counts)

    @property
    def rows_in(self) -> int:
        """Rows that arrive."""
        return sum(shape.rows for shape in self.incoming)


def _shapes(
    ids: Sequence[Tensor], levels: Sequence[Tensor], peers: Sequence[int], dim: int, base: int, itemsize: int, metadata: str
) -> tuple[MessageShape, ...]:
    shapes, offset = [], 0
    for peer in peers:
        rows = int(ids[peer].shape[0])
        if rows == 0:
            continue
        layout = None
        main, meta = rows * dim * itemsize, 0
        if base != 32:
            layout = body_layout(ids[peer], row_bits(levels[peer], base), dim, metadata)
            main, meta = layout.main_bytes, layout.meta_bytes
        shapes.append(MessageShape(peer=peer, offset=offset, rows=rows, main_bytes=main, meta_bytes=meta, layout=layout))
        offset += HEADER_BYTES + main + meta
    return tuple(shapes)


def build_wire(
    route: Route,
    *,
    dim: int,
    base: int,
    dtype: torch.dtype,
    metadata: str,
    send_peers: Sequence[int],
    recv_peers: Sequence[int],
    source_start: int = 0,
) -> Wire:
    """Lay out the exchange of ``route`` with the given peers at row width ``dim`` and base bits (32 = plain rows).

    ``source_start``: the plan's number of the first row that ``pack`` will be given.
    """
    itemsize = torch.empty(0, dtype=dtype).element_size()
    out = _shapes(route.out_ids, route.out_levels, send_peers, dim, base, itemsize, metadata)
    incoming = _shapes(route.in_ids, route.in_levels, recv_peers, dim, base, itemsize, metadata)
    send, recv = [0] * len(route.out_ids), [0] * len(route.out_ids)
    for splits, shapes in ((send, out), (recv, incoming)):
        for shape in shapes:
            splits[shape.peer] = HEADER_BYTES + shape.main_bytes + shape.meta_bytes
    return Wire(
        route=route,
        dim=dim,
        base=base,
        dtype=dtype,
        out=out,
        incoming=incoming,
        send_splits=send,
        recv_splits=recv,
        source_start=source_start,
    )
