"""The two loops of the CPU codec, in numba: every row of a message, encoded or decoded in one visit.

Same arithmetic as sylvie.codec.reference, same hash as sylvie.codec.noise. A row is ranged, rounded to codes
of a byte each (straight into the body at 8 bits), and its codes are packed eight at a time in 64-bit words.
Where a row is not a multiple of the lanes, the last block overlaps the one before it: it computes the same
values again, so no slow remainder is left.

The rows to send lie scattered, so a row is asked for from memory some rows before its turn: without that the
kernel waits for memory half of its time.

sylvie.codec.cpu compiles these functions; they are plain Python until then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from sylvie.codec.noise import GOLDEN, M1, M2, UNIT
from sylvie.codec.vector import (
    PAIR_LANES,
    RANGE_LANES,
    bits_of,
    float_of,
    load_f32,
    load_i32,
    load_u8,
    load_u16,
    load_u64,
    pointer,
    prefetch,
    round_pairs,
    row_range,
    shifted,
    store_f32,
    store_i32,
    store_u8,
    store_u16,
    store_u64,
)

ENCODE_SIGNATURE = "int64(f4[::1], i8, i8[::1], i8[::1], u1[::1], i8[::1], u4, u4, b1, u1[::1])"
DECODE_SIGNATURE = "void(u1[::1], i8, u1[::1], i8[::1], b1, f4[::1])"
DONE = -1
INDEX_ERROR = -2

_u32, _i32, _f32, _u64 = np.uint32, np.int32, np.float32, np.uint64
_GOLDEN, _M1, _M2, _UNIT = _u32(GOLDEN), _u32(M1), _u32(M2), _f32(UNIT)
_AHEAD = 1024  # columns between the row that is asked for from memory and the one at work
_SLACK = 64  # bytes of scratch beyond a row, for the planes of a row that does not fill its last byte


@register_jitable
def _mix(x: Any) -> Any:
    x = _u32(x ^ (x >> _u32(16)))
    x = _u32(x * _M1)
    x = _u32(x ^ (x >> _u32(15)))
    x = _u32(x * _M2)
    return _u32(x ^ (x >> _u32(16)))


@register_jitable
def _row_key(message_key: Any, node_id: Any) -> Any:
    low, high = _u32(node_id), _u32(node_id >> 32)
    key = _mix(_u32(_u32(message_key ^ low) + _GOLDEN))
    return _mix(_u32(_u32(key ^ high) + _GOLDEN))


@register_jitable
def _column_hash(r1: Any, r2: Any, c: Any) -> Any:
    x = _u32(r1 + _u32(_u32(c) * _GOLDEN))
    x = _u32(x ^ (x >> _u32(16)))
    x = _u32(x * _M1)
    x = _u32(_u32(x ^ (x >> _u32(15))) ^ r2)
    x = _u32(x * _M2)
    return _u32(x ^ (x >> _u32(16)))


@register_jitable
def _bf16_down(x: Any) -> Any:
    bits = bits_of(x)
    truncated = _i32(bits & _i32(-0x10000))
    if bits < 0 and truncated != bits:
        truncated = _i32(truncated + _i32(0x10000))
    return float_of(truncated)


@register_jitable
def _bf16_up(x: Any) -> Any:
    bits = bits_of(x)
    truncated = _i32(bits & _i32(-0x10000))
    if truncated != bits:
        truncated = _i32(truncated + _i32(0x10000))
    return float_of(truncated)


@register_jitable
def _has_nan(row: Any, dim: Any) -> bool:
    for c in range(dim):  # noqa: SIM110  (numba compiles no generator expressions)
        if np.isnan(load_f32(row, c)):
            return True
    return False


@register_jitable
def _row_grid(row: Any, dim: Any, levels: Any, bf16: Any) -> Any:
    """Minimum and scale of a row, and whether the row and all that follows from it is finite."""
    if dim >= RANGE_LANES:
        low, high, total = row_range(row, dim)
        suspect = np.isnan(total)
    else:
        low = high = load_f32(row, 0)
        suspect = np.isnan(low)
        for c in range(1, dim):
            value = load_f32(row, c)
            suspect |= np.isnan(value)
            low, high = min(low, value), max(high, value)
    low, high = low + _f32(0.0), high + _f32(0.0)  # −0 becomes +0
    if bf16:
        low = _bf16_down(low)
    span = high - low
    scale = span / levels
    if bf16:
        scale = _bf16_up(scale)
    finite = np.isfinite(span) and np.isfinite(scale * levels + low)
    return low, scale, finite and not (suspect and _has_nan(row, dim))


@register_jitable
def _code(value: Any, low: Any, scale: Any, levels: Any, random: Any) -> Any:
    q = _i32((value - low) / scale + _f32(_i32(random)) * _UNIT)
    return np.uint8(min(q, levels))


@register_jitable
def _round_row(row: Any, dim: Any, low: Any, scale: Any, levels: Any, r1: Any, r2: Any, codes: Any) -> None:
    """codes[c] = min(floor((row[c] − low)/scale + u_c), levels), two columns a hash."""
    half, pairs = (dim + 1) >> 1, dim >> 1
    second, second_codes = shifted(row, half), shifted(codes, half)
    if pairs >= PAIR_LANES:
        for pair in range(0, pairs - PAIR_LANES + 1, PAIR_LANES):
            round_pairs(row, second, codes, second_codes, pair, low, scale, levels, r1, r2)
        if pairs % PAIR_LANES:
            round_pairs(row, second, codes, second_codes, pairs - PAIR_LANES, low, scale, levels, r1, r2)
    else:
        for c in range(pairs):
            x = _column_hash(r1, r2, c)
            store_u8(codes, c, _code(load_f32(row, c), low, scale, levels, x & _u32(0xFFFF)))
            store_u8(second_codes, c, _code(load_f32(second, c), low, scale, levels, x >> _u32(16)))
    if half > pairs:  # the middle column of an odd row has a hash for itself
        x = _column_hash(r1, r2, pairs)
        store_u8(codes, pairs, _code(load_f32(row, pairs), low, scale, levels, x & _u32(0xFFFF)))


def _packer(bits: int) -> Any:
    """The function that packs planes of codes; one a width, so that LLVM sees the width as a constant."""
    planes = 8 // bits

    @register_jitable
    def pack_word(codes: Any, width: Any, k: Any, packed: Any) -> None:
        word = load_u64(codes, k)
        for plane in range(1, planes):
            word |= load_u64(codes, plane * width + k) << _u64(plane * bits)
        store_u64(packed, k, word)

    @register_jitable
    def pack(codes: Any, dim: Any, packed: Any) -> None:
        width = (dim * bits + 7) >> 3
        if width >= 8:
            for k in range(0, width - 7, 8):
                pack_word(codes, width, k, packed)
            pack_word(codes, width, width - 8, packed)
            return
        for k in range(width):
            byte = _u32(0)
            for plane in range(planes):
                byte |= _u32(load_u8(codes, plane * width + k)) << _u32(plane * bits)
            store_u8(packed, k, np.uint8(byte))

    return pack


def _unpacker(bits: int) -> Any:
    """The function that spreads a packed row into planes of codes at this width."""
    planes = 8 // bits
    mask = 2**bits - 1
    word_mask = _u64(0x0101010101010101 * mask)

    @register_jitable
    def unpack_word(packed: Any, width: Any, k: Any, codes: Any) -> None:
        word = load_u64(packed, k)
        for plane in range(planes):
            store_u64(codes, plane * width + k, (word >> _u64(plane * bits)) & word_mask)

    @register_jitable
    def unpack(packed: Any, dim: Any, codes: Any) -> None:
        width = (dim * bits + 7) >> 3
        if width >= 8:
            for k in range(0, width - 7, 8):
                unpack_word(packed, width, k, codes)
            unpack_word(packed, width, width - 8, codes)
            return
        for k in range(width):
            byte = _u32(load_u8(packed, k))
            for plane in range(planes):
                store_u8(codes, plane * width + k, np.uint8((byte >> _u32(plane * bits)) & _u32(mask)))

    return unpack


_pack_1, _pack_2, _pack_4 = _packer(1), _packer(2), _packer(4)
_unpack_1, _unpack_2, _unpack_4 = _unpacker(1), _unpacker(2), _unpacker(4)


@register_jitable
def _store_grid(mins: Any, scales: Any, row: Any, bf16: Any, low: Any, scale: Any) -> None:
    if bf16:
        store_u16(mins, row * 2, np.uint16(_u32(bits_of(low)) >> _u32(16)))
        store_u16(scales, row * 2, np.uint16(_u32(bits_of(scale)) >> _u32(16)))
    else:
        store_i32(mins, row * 4, bits_of(low))
        store_i32(scales, row * 4, bits_of(scale))


@register_jitable
def _load_grid(mins: Any, scales: Any, row: Any, bf16: Any) -> Any:
    if bf16:
        low = float_of(_i32(_u32(load_u16(mins, row * 2)) << _u32(16)))
        return low, float_of(_i32(_u32(load_u16(scales, row * 2)) << _u32(16)))
    return float_of(load_i32(mins, row * 4)), float_of(load_i32(scales, row * 4))


def encode_rows(
    source: Any,
    dim: Any,
    index: Any,
    node_ids: Any,
    bits: Any,
    row_offset: Any,
    k1: Any,
    k2: Any,
    bf16: Any,
    out: Any,
) -> int:
    """Encode every row of flat float32 ``source``; k1, k2 are the message's keys.

    Returns DONE, or the first row that is not finite, or INDEX_ERROR − the first row whose index is out of
    range.
    """
    rows = index.shape[0]
    scratch = np.zeros(dim + _SLACK, dtype=np.uint8)
    codes = pointer(scratch, 0)
    mins, scales = pointer(out, 0), pointer(out, rows * (2 if bf16 else 4))
    ahead = 1 + _AHEAD // dim
    for row in range(rows):
        if index[row] < 0 or index[row] >= source.shape[0] // dim:
            return INDEX_ERROR - row
        values, packed = pointer(source, index[row] * dim), pointer(out, row_offset[row])
        if row + ahead < rows:
            prefetch(pointer(source, index[row + ahead] * dim), dim)
        b = bits[row]
        levels = _i32((1 << np.int64(b)) - 1)
        low, scale, finite = _row_grid(values, dim, _f32(levels), bf16)
        if not finite:
            return row
        _store_grid(mins, scales, row, bf16, low, scale)
        if scale == _f32(0.0):
            for k in range((dim * np.int64(b) + 7) >> 3):
                store_u8(packed, k, np.uint8(0))
            continue
        r1, r2 = _row_key(k1, node_ids[row]), _row_key(k2, node_ids[row])
        _round_row(values, dim, low, scale, levels, r1, r2, packed if b == 8 else codes)
        if b == 1:
            _pack_1(codes, dim, packed)
        elif b == 2:
            _pack_2(codes, dim, packed)
        elif b == 4:
            _pack_4(codes, dim, packed)
    return DONE


@register_jitable
def _restore_row(codes: Any, dim: Any, low: Any, scale: Any, out: Any) -> None:
    for c in range(dim):
        store_f32(out, c, scale * _f32(load_u8(codes, c)) + low)


def decode_rows(body: Any, dim: Any, bits: Any, row_offset: Any, bf16: Any, out: Any) -> None:
    """Restore every row of a body, in plan order, into flat float32 ``out`` [m·dim]."""
    rows = bits.shape[0]
    scratch = np.empty(dim + _SLACK, dtype=np.uint8)
    codes = pointer(scratch, 0)
    mins, scales = pointer(body, 0), pointer(body, rows * (2 if bf16 else 4))
    for row in range(rows):
        low, scale = _load_grid(mins, scales, row, bf16)
        packed, restored = pointer(body, row_offset[row]), pointer(out, row * dim)
        b = bits[row]
        if b == 1:
            _unpack_1(packed, dim, codes)
        elif b == 2:
            _unpack_2(packed, dim, codes)
        elif b == 4:
            _unpack_4(packed, dim, codes)
        _restore_row(packed if b == 8 else codes, dim, low, scale, restored)
