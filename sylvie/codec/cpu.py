"""The quantizer as one fused CPU kernel: a row is gathered, ranged, rounded and packed in a single visit.

Same bytes as sylvie.codec.reference (see there for the arithmetic, and sylvie.codec.noise for the hash), at a share of the
memory copy's rate instead of a fiftieth of it. What makes it fast, and what LLVM needs to turn it into vector code:

1. Minimum and maximum are taken over the float's bits mapped to an integer with the same order: an integer reduction may be
   reordered freely, a float one may not without fast-math; and a NaN, of either sign, ends beyond an infinity, where it shows.
2. One hash serves columns c and c + ceil(D/2), so the row is rounded as two halves in one loop.
3. Codes go to a scratch row of bytes, and from there into planes eight bytes at a time in 64-bit words.

Kernels are compiled at the first use or by warm_up(), cached on disk where a writable place exists, and release the GIL.
fast-math stays off: LLVM then neither contracts to FMA nor reorders.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable
from torch import Tensor

from sylvie.codec.base import NonFiniteRowError
from sylvie.codec.checks import check_decode, check_encode
from sylvie.codec.layout import BodyLayout, NoiseKey
from sylvie.codec.noise import GOLDEN, M1, M2, UNIT, message_keys

u32, i32, f32, u64 = np.uint32, np.int32, np.float32, np.uint64
_GOLDEN, _M1, _M2, _UNIT = u32(GOLDEN), u32(M1), u32(M2), f32(UNIT)
_INDEX_ERROR = -2


@intrinsic  # type: ignore[untyped-decorator]
def _float_of(typingctx: Any, bits: Any) -> Any:
    """The float32 whose bits are this int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _bits_of(typingctx: Any, value: Any) -> Any:
    """The bits of a float32 as int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.int32))

    return types.int32(types.float32), codegen


# Arrays are handed to the helpers as bare pointers: a numba array passed on is counted by two atomic operations, which cost
# more than rounding a row. A body may start at any byte of a larger buffer, so every access claims an alignment of 1 only.


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typingctx: Any, array: Any, item: Any) -> Any:
    """Where this item of a one-dimensional array lies."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data
        return builder.gep(data, [args[1]])

    return types.CPointer(array.dtype)(array, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _shifted(typingctx: Any, pointer: Any, items: Any) -> Any:
    """The pointer so many items further on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


def _load(item_type: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typingctx: Any, pointer: Any, item: Any) -> Any:
        """The value at pointer plus so many of the *pointer's* items."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            llvm_type = context.get_value_type(item_type).as_pointer()
            return builder.load(builder.bitcast(builder.gep(args[0], [args[1]]), llvm_type), align=1)

        return item_type(pointer, types.intp), codegen

    return load


def _store(item_type: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(typingctx: Any, pointer: Any, item: Any, value: Any) -> Any:
        """Write a value at pointer plus so many of the *pointer's* items."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            llvm_type = context.get_value_type(item_type).as_pointer()
            builder.store(args[2], builder.bitcast(builder.gep(args[0], [args[1]]), llvm_type), align=1)
            return context.get_dummy_value()

        return types.void(pointer, types.intp, item_type), codegen

    return store


_load_u8, _load_u16, _load_i32, _load_u64, _load_f32 = map(
    _load, (types.uint8, types.uint16, types.int32, types.uint64, types.float32)
)
_store_u8, _store_u16, _store_i32, _store_u64, _store_f32 = map(
    _store, (types.uint8, types.uint16, types.int32, types.uint64, types.float32)
)


@register_jitable  # type: ignore[untyped-decorator]
def _mix(x: Any) -> Any:
    x = u32(x ^ (x >> u32(16)))
    x = u32(x * _M1)
    x = u32(x ^ (x >> u32(15)))
    x = u32(x * _M2)
    return u32(x ^ (x >> u32(16)))


@register_jitable  # type: ignore[untyped-decorator]
def _row_key(message_key: Any, node_id: Any) -> Any:
    low, high = u32(node_id), u32(node_id >> 32)
    key = _mix(u32(u32(message_key ^ low) + _GOLDEN))
    return _mix(u32(u32(key ^ high) + _GOLDEN))


@register_jitable  # type: ignore[untyped-decorator]
def _ordered_range(row: Any, dim: Any) -> Any:
    """Smallest and largest of a row's bits, mapped so that integer order is the floats' order."""
    low, high = i32(0x7FFFFFFF), i32(-0x80000000)
    for c in range(dim):
        b = _load_i32(row, c)
        b = i32(b ^ (i32(b >> i32(31)) & i32(0x7FFFFFFF)))
        low = min(low, b)
        high = max(high, b)
    return low, high


@register_jitable  # type: ignore[untyped-decorator]
def _float_of_ordered(b: Any) -> Any:
    return _float_of(i32(b ^ (i32(b >> i32(31)) & i32(0x7FFFFFFF)))) + f32(0.0)


@register_jitable  # type: ignore[untyped-decorator]
def _bf16_down(x: Any) -> Any:
    bits = _bits_of(x)
    truncated = i32(bits & i32(-0x10000))
    if bits < 0 and truncated != bits:
        truncated = i32(truncated + i32(0x10000))
    return _float_of(truncated)


@register_jitable  # type: ignore[untyped-decorator]
def _bf16_up(x: Any) -> Any:
    bits = _bits_of(x)
    truncated = i32(bits & i32(-0x10000))
    if truncated != bits:
        truncated = i32(truncated + i32(0x10000))
    return _float_of(truncated)


@register_jitable  # type: ignore[untyped-decorator]
def _column_hash(r1: Any, r2: Any, c: Any) -> Any:
    x = u32(r1 + u32(u32(c) * _GOLDEN))
    x = u32(x ^ (x >> u32(16)))
    x = u32(x * _M1)
    x = u32(u32(x ^ (x >> u32(15))) ^ r2)
    x = u32(x * _M2)
    return u32(x ^ (x >> u32(16)))


@register_jitable  # type: ignore[untyped-decorator]
def _code(value: Any, low: Any, scale: Any, levels: Any, random: Any) -> Any:
    q = i32((value - low) / scale + f32(i32(random)) * _UNIT)
    return np.uint8(min(q, levels))


@register_jitable  # type: ignore[untyped-decorator]
def _round_row(row: Any, dim: Any, low: Any, scale: Any, levels: Any, r1: Any, r2: Any, codes: Any) -> None:
    """codes[c] = min(floor((row[c] − low)/scale + u_c), levels), two columns a hash."""
    half, pairs = (dim + 1) >> 1, dim >> 1
    second, second_codes = _shifted(row, half), _shifted(codes, half)
    for c in range(pairs):
        x = _column_hash(r1, r2, c)
        _store_u8(codes, c, _code(_load_f32(row, c), low, scale, levels, x & u32(0xFFFF)))
        _store_u8(second_codes, c, _code(_load_f32(second, c), low, scale, levels, x >> u32(16)))
    if half > pairs:
        x = _column_hash(r1, r2, pairs)
        _store_u8(codes, pairs, _code(_load_f32(row, pairs), low, scale, levels, x & u32(0xFFFF)))


@register_jitable  # type: ignore[untyped-decorator]
def _pack(codes: Any, bits: Any, width: Any, out: Any) -> None:
    """Planes of codes (bytes, zero beyond the row) into width bytes of out."""
    planes = 8 // bits
    words = width >> 3
    for k in range(words):
        packed = _load_u64(codes, k * 8)
        for plane in range(1, planes):
            packed |= _load_u64(codes, plane * width + k * 8) << u64(plane * bits)
        _store_u64(out, k * 8, packed)
    for k in range(words * 8, width):
        byte = u32(0)
        for plane in range(planes):
            byte |= u32(_load_u8(codes, plane * width + k)) << u32(plane * bits)
        _store_u8(out, k, np.uint8(byte))


@register_jitable  # type: ignore[untyped-decorator]
def _unpack(packed_row: Any, bits: Any, width: Any, codes: Any) -> None:
    """A row's width bytes into planes of codes."""
    planes = 8 // bits
    words = width >> 3
    mask = u32((1 << bits) - 1)
    word_mask = u64(0x0101010101010101) * u64(mask)
    for k in range(words):
        packed = _load_u64(packed_row, k * 8)
        for plane in range(planes):
            _store_u64(codes, plane * width + k * 8, (packed >> u64(plane * bits)) & word_mask)
    for k in range(words * 8, width):
        byte = u32(_load_u8(packed_row, k))
        for plane in range(planes):
            _store_u8(codes, plane * width + k, np.uint8((byte >> u32(plane * bits)) & mask))


@register_jitable  # type: ignore[untyped-decorator]
def _zero(out: Any, width: Any) -> None:
    for k in range(width):
        _store_u8(out, k, np.uint8(0))


def _encode_rows(
    source: Any, dim: Any, index: Any, node_ids: Any, bits: Any, row_offset: Any, k1: Any, k2: Any, bf16: Any, out: Any
) -> int:
    """Encode every row; −1 when done, the row that is not finite, or _INDEX_ERROR − the row whose index is out of range."""
    rows = index.shape[0]
    scratch = np.zeros(dim + 64, dtype=np.uint8)
    codes = _pointer(scratch, 0)
    mins, scales = _pointer(out, 0), _pointer(out, rows * (2 if bf16 else 4))
    for row in range(rows):
        if index[row] < 0 or index[row] >= source.shape[0] // dim:
            return _INDEX_ERROR - row
        values = _pointer(source, index[row] * dim)
        b = np.int64(bits[row])
        levels = i32((1 << b) - 1)
        least, most = _ordered_range(values, dim)
        low, high = _float_of_ordered(least), _float_of_ordered(most)
        if bf16:
            low = _bf16_down(low)
        span = high - low
        scale = span / f32(levels)
        if bf16:
            scale = _bf16_up(scale)
        if not (np.isfinite(span) and np.isfinite(scale * f32(levels) + low)):
            return row
        if bf16:
            _store_u16(mins, row * 2, np.uint16(u32(_bits_of(low)) >> u32(16)))
            _store_u16(scales, row * 2, np.uint16(u32(_bits_of(scale)) >> u32(16)))
        else:
            _store_i32(mins, row * 4, _bits_of(low))
            _store_i32(scales, row * 4, _bits_of(scale))
        width = (dim * b + 7) >> 3
        packed = _pointer(out, row_offset[row])
        if scale == f32(0.0):
            _zero(packed, width)
            continue
        r1, r2 = _row_key(k1, node_ids[row]), _row_key(k2, node_ids[row])
        _round_row(values, dim, low, scale, levels, r1, r2, codes)
        if b == 1:
            _pack(codes, 1, width, packed)
        elif b == 2:
            _pack(codes, 2, width, packed)
        elif b == 4:
            _pack(codes, 4, width, packed)
        else:
            _pack(codes, 8, width, packed)
    return -1


@register_jitable  # type: ignore[untyped-decorator]
def _restore_row(codes: Any, dim: Any, low: Any, scale: Any, out: Any) -> None:
    for c in range(dim):
        _store_f32(out, c, scale * f32(_load_u8(codes, c)) + low)


def _decode_rows(body: Any, dim: Any, bits: Any, row_offset: Any, bf16: Any, out: Any) -> None:
    """Restore every row of a body into out, float32 flattened [m·dim]."""
    rows = bits.shape[0]
    scratch = np.empty(dim + 64, dtype=np.uint8)
    codes = _pointer(scratch, 0)
    mins, scales = _pointer(body, 0), _pointer(body, rows * (2 if bf16 else 4))
    for row in range(rows):
        if bf16:
            low = _float_of(i32(u32(_load_u16(mins, row * 2)) << u32(16)))
            scale = _float_of(i32(u32(_load_u16(scales, row * 2)) << u32(16)))
        else:
            low, scale = _float_of(_load_i32(mins, row * 4)), _float_of(_load_i32(scales, row * 4))
        b = np.int64(bits[row])
        width = (dim * b + 7) >> 3
        packed, restored = _pointer(body, row_offset[row]), _pointer(out, row * dim)
        if b == 8:
            _restore_row(packed, dim, low, scale, restored)
            continue
        if b == 1:
            _unpack(packed, 1, width, codes)
        elif b == 2:
            _unpack(packed, 2, width, codes)
        else:
            _unpack(packed, 4, width, codes)
        _restore_row(codes, dim, low, scale, restored)


_ENCODE_SIGNATURE = "int64(f4[::1], i8, i8[::1], i8[::1], u1[::1], i8[::1], u4, u4, b1, u1[::1])"
_DECODE_SIGNATURE = "void(u1[::1], i8, u1[::1], i8[::1], b1, f4[::1])"


def _compile(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """Compile for one signature, with the disk cache where numba finds a writable place, without it elsewhere."""
    try:
        return numba.njit(signature, nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except (RuntimeError, OSError):  # no cache locator, or a full or read-only disk
        return numba.njit(signature, nogil=True, cache=False)(function)  # type: ignore[no-any-return]


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _compile(_encode_rows, _ENCODE_SIGNATURE), _compile(_decode_rows, _DECODE_SIGNATURE)


def warm_up() -> None:
    """Compile the kernels, or load them from the cache, now rather than inside the first epoch; safe in many processes."""
    _kernels()


class CpuCodec:
    """The fused CPU kernel; see the module's docstring. Threads may share one: it holds no state."""

    name = "cpu"

    def encode(self, source: Tensor, index: Tensor, layout: BodyLayout, key: NoiseKey, out: Tensor) -> None:
        """See Codec.encode. Raises NonFiniteRowError for the first bad row and ValueError on bad arguments."""
        check_encode(source, index, layout, out)
        if layout.rows == 0:
            return
        k1, k2 = message_keys(key)
        status = _kernels()[0](
            source.detach().view(-1).numpy(),
            layout.dim,
            index.numpy(),
            layout.node_ids.numpy(),
            layout.bits.numpy(),
            layout.row_offset.numpy(),
            u32(k1),
            u32(k2),
            layout.metadata == "bf16",
            out.numpy(),
        )
        if status >= 0:
            raise NonFiniteRowError(status, int(layout.node_ids[status]))
        if status <= _INDEX_ERROR:
            row = _INDEX_ERROR - status
            raise ValueError(f"index[{row}] = {int(index[row])} is outside the {source.shape[0]} rows of source")

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
