"""The quantizer's two Triton kernels: a tile of rows of one width, encoded or decoded in one visit.

Same arithmetic as sylvie.codec.reference, same hash as sylvie.codec.noise, both step for step. A program
treats ROWS rows by BLOCK byte positions (BLOCK ≥ w, the bytes of a packed row) and walks the 8/b planes:
column k + j·w of plane j ends in byte k, so packing needs no exchange between lanes. The row is read twice,
the second time from the nearest cache.

Division is ``div_rn`` and the launcher turns contraction off (``enable_fp_fusion=False``), without which the
bytes would differ from the other codecs'. A message body may start at any byte of a buffer, so metadata is
written and read byte by byte.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from sylvie.codec import noise

GOLDEN = tl.constexpr(noise.GOLDEN)
M1 = tl.constexpr(noise.M1)
M2 = tl.constexpr(noise.M2)
UNIT = tl.constexpr(noise.UNIT)
LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def _mix(x):
    x = x ^ (x >> 16)
    x = (x * M1).to(tl.uint32)
    x = x ^ (x >> 15)
    x = (x * M2).to(tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def _row_key(message_key, node_ids):
    low = (node_ids & 0xFFFFFFFF).to(tl.uint32)
    high = ((node_ids >> 32) & 0xFFFFFFFF).to(tl.uint32)
    key = _mix(((message_key ^ low) + GOLDEN).to(tl.uint32))
    return _mix(((key ^ high) + GOLDEN).to(tl.uint32))


@triton.jit
def _noise(r1, r2, column, half):
    in_first = column < half
    counter = tl.where(in_first, column, column - half).to(tl.uint32)
    x = (r1 + (counter * GOLDEN).to(tl.uint32)).to(tl.uint32)
    x = x ^ (x >> 16)
    x = (x * M1).to(tl.uint32)
    x = x ^ (x >> 15) ^ r2
    x = (x * M2).to(tl.uint32)
    x = x ^ (x >> 16)
    return tl.where(in_first, x & 0xFFFF, x >> 16).to(tl.int32).to(tl.float32) * UNIT


@triton.jit
def _store_word(body, position, word, BYTES: tl.constexpr, mask):
    for byte in tl.static_range(BYTES):
        tl.store(body + position + byte, ((word >> (8 * byte)) & 0xFF).to(tl.uint8), mask=mask)


@triton.jit
def _load_word(body, position, BYTES: tl.constexpr, mask):
    word = tl.load(body + position, mask=mask, other=0).to(tl.uint32)
    for byte in tl.static_range(1, BYTES):
        word = word | (tl.load(body + position + byte, mask=mask, other=0).to(tl.uint32) << (8 * byte))
    return word


@triton.jit(do_not_specialize=["count", "total", "source_rows", "k1", "k2"])
def encode_kernel(
    source,
    index,
    node_ids,
    row_offset,
    selected,
    count,
    total,
    source_rows,
    k1,
    k2,
    body,
    status,
    DIM: tl.constexpr,
    BITS: tl.constexpr,
    BF16: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Encode rows ``selected`` [count] (plan positions, all BITS wide) of a message of ``total`` rows.

    ``status`` int64 [2] collects the smallest plan position of a row that is not finite, and of one whose
    index is out of range.
    """
    PLANES: tl.constexpr = 8 // BITS
    WIDTH: tl.constexpr = (DIM * BITS + 7) // 8
    HALF: tl.constexpr = (DIM + 1) // 2
    LEVELS: tl.constexpr = 2**BITS - 1
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = place < count
    row = tl.load(selected + place, mask=live, other=0)
    taken = tl.load(index + row, mask=live, other=0)
    inside = (taken >= 0) & (taken < source_rows)
    tl.atomic_min(status + 1 + row * 0, row, mask=live & (inside == 0))
    live = live & inside
    start = (taken * DIM)[:, None]
    k = tl.arange(0, BLOCK)[None, :]

    # 1. range
    low = tl.full([ROWS, BLOCK], float("inf"), tl.float32)
    high = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    wrong = tl.zeros([ROWS, BLOCK], tl.int32)
    for plane in tl.static_range(PLANES):
        column = k + plane * WIDTH
        used = live[:, None] & (k < WIDTH) & (column < DIM)
        h = tl.load(source + start + column, mask=used, other=0.0)
        wrong = wrong | (used & ((tl.abs(h) <= LARGEST) == 0)).to(tl.int32)  # a NaN compares false
        low = tl.where(used & (h < low), h, low)
        high = tl.where(used & (h > high), h, high)
    least = tl.where(live, tl.min(low, axis=1), 0.0) + 0.0  # −0 becomes +0
    most = tl.where(live, tl.max(high, axis=1), 0.0) + 0.0

    # 2. grid
    if BF16:
        bits = least.to(tl.int32, bitcast=True)
        truncated = bits & -65536
        truncated = tl.where((bits < 0) & (truncated != bits), truncated + 65536, truncated)
        least = truncated.to(tl.float32, bitcast=True)
    span = most - least
    scale = tl.div_rn(span, tl.full([ROWS], LEVELS, tl.float32))
    if BF16:
        bits = scale.to(tl.int32, bitcast=True)
        truncated = bits & -65536
        truncated = tl.where(truncated != bits, truncated + 65536, truncated)
        scale = truncated.to(tl.float32, bitcast=True)
    finite = (tl.max(wrong, axis=1) == 0) & (tl.abs(span) <= LARGEST)
    finite = finite & (tl.abs(scale * LEVELS + least) <= LARGEST)
    tl.atomic_min(status + row * 0, row, mask=live & (finite == 0))
    live = live & finite
    if BF16:
        _store_word(body, row * 2, least.to(tl.uint32, bitcast=True) >> 16, 2, live)
        _store_word(body, (total + row) * 2, scale.to(tl.uint32, bitcast=True) >> 16, 2, live)
    else:
        _store_word(body, row * 4, least.to(tl.uint32, bitcast=True), 4, live)
        _store_word(body, (total + row) * 4, scale.to(tl.uint32, bitcast=True), 4, live)

    # 3. round and pack
    ids = tl.load(node_ids + row, mask=live, other=0)
    r1, r2 = _row_key(k1.to(tl.uint32), ids)[:, None], _row_key(k2.to(tl.uint32), ids)[:, None]
    flat = scale == 0.0
    step = tl.where(flat, 1.0, scale)[:, None]
    packed = tl.zeros([ROWS, BLOCK], tl.int32)
    for plane in tl.static_range(PLANES):
        column = k + plane * WIDTH
        used = live[:, None] & (k < WIDTH) & (column < DIM) & (flat[:, None] == 0)
        h = tl.load(source + start + column, mask=used, other=0.0)
        steps = tl.div_rn(tl.where(used, h - least[:, None], 0.0), step + tl.zeros([ROWS, BLOCK], tl.float32))
        q = tl.minimum((steps + _noise(r1, r2, column, HALF)).to(tl.int32), LEVELS)
        packed = packed | (tl.where(used, q, 0) << (plane * BITS))
    offset = tl.load(row_offset + row, mask=live, other=0)[:, None]
    tl.store(body + offset + k, packed.to(tl.uint8), mask=live[:, None] & (k < WIDTH))


@triton.jit(do_not_specialize=["count", "total"])
def decode_kernel(
    body,
    row_offset,
    selected,
    count,
    total,
    out,
    DIM: tl.constexpr,
    BITS: tl.constexpr,
    BF16: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Restore rows ``selected`` [count] (plan positions, all BITS wide) of a message of ``total`` rows into
    out [total, DIM]."""
    PLANES: tl.constexpr = 8 // BITS
    WIDTH: tl.constexpr = (DIM * BITS + 7) // 8
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = place < count
    row = tl.load(selected + place, mask=live, other=0)
    if BF16:
        low = (_load_word(body, row * 2, 2, live) << 16).to(tl.float32, bitcast=True)
        scale = (_load_word(body, (total + row) * 2, 2, live) << 16).to(tl.float32, bitcast=True)
    else:
        low = _load_word(body, row * 4, 4, live).to(tl.float32, bitcast=True)
        scale = _load_word(body, (total + row) * 4, 4, live).to(tl.float32, bitcast=True)
    offset = tl.load(row_offset + row, mask=live, other=0)[:, None]
    k = tl.arange(0, BLOCK)[None, :]
    packed = tl.load(body + offset + k, mask=live[:, None] & (k < WIDTH), other=0).to(tl.int32)
    for plane in tl.static_range(PLANES):
        column = k + plane * WIDTH
        q = ((packed >> (plane * BITS)) & (2**BITS - 1)).to(tl.float32)
        restored = scale[:, None] * q + low[:, None]
        tl.store(
            out + row[:, None] * DIM + column, restored, mask=live[:, None] & (k < WIDTH) & (column < DIM)
        )


def tile(dim: int, bits: int) -> dict[str, Any]:
    """Rows and byte positions of a program: about 2048 columns of work, at least one row."""
    block = triton.next_power_of_2((dim * bits + 7) // 8)
    return {"BLOCK": block, "ROWS": max(1, 2048 * bits // (8 * block)), "BITS": bits, "DIM": dim}
