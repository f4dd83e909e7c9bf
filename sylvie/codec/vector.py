"""Pieces of the CPU kernel that are written as explicit vectors, as numba intrinsics over LLVM's vector
types.

LLVM's own vectoriser does not take floating-point minima (their order would change) and narrows 32-bit codes
to bytes eight at a time. Written as vectors of 16 and 32 lanes both become a few instructions, on whatever
vector unit the machine has; the arithmetic is the plain one, lane by lane: no fast-math flag is ever set, so
nothing is contracted or reordered.

Arrays are handed about as bare pointers, because a numba array passed on is counted by two atomic operations,
which cost more than rounding a short row. A message body may start at any byte of a larger buffer, so every
access claims alignment 1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.core.types
import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]

from sylvie.codec.noise import GOLDEN, M1, M2, MASK32, UNIT

# numba's annotations describe neither what these helpers return nor how an intrinsic is called
cgutils: Any = numba.core.cgutils
types: Any = numba.core.types

PAIR_LANES = 16  # pairs of columns that round_pairs treats at once
RANGE_LANES = 32  # columns that row_range treats at once

_I8, _I32, _F32 = ir.IntType(8), ir.IntType(32), ir.FloatType()


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function that numba code calls with values and that is written as LLVM instructions."""
    return numba.extending.intrinsic(function)


@intrinsic
def float_of(typingctx: Any, bits: Any) -> Any:
    """The float32 whose bits are this int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.int32), codegen


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """The bits of a float32 as int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I32)

    return types.int32(types.float32), codegen


@intrinsic
def pointer(typingctx: Any, array: Any, item: Any) -> Any:
    """Where this item of a one-dimensional array lies."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data
        return builder.gep(data, [args[1]])

    return types.CPointer(array.dtype)(array, types.intp), codegen


@intrinsic
def shifted(typingctx: Any, base: Any, items: Any) -> Any:
    """The pointer so many items further on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return base(base, types.intp), codegen


def _loader(item_type: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, base: Any, item: Any) -> Any:
        """The value at a pointer plus so many of the *pointer's* items."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target = context.get_value_type(item_type).as_pointer()
            return builder.load(builder.bitcast(builder.gep(args[0], [args[1]]), target), align=1)

        return item_type(base, types.intp), codegen

    return load


def _storer(item_type: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, base: Any, item: Any, value: Any) -> Any:
        """Write a value at a pointer plus so many of the *pointer's* items."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target = context.get_value_type(item_type).as_pointer()
            builder.store(args[2], builder.bitcast(builder.gep(args[0], [args[1]]), target), align=1)
            return context.get_dummy_value()

        return types.void(base, types.intp, item_type), codegen

    return store


load_u8, load_u16, load_i32 = _loader(types.uint8), _loader(types.uint16), _loader(types.int32)
load_u64, load_f32 = _loader(types.uint64), _loader(types.float32)
store_u8, store_u16, store_i32 = _storer(types.uint8), _storer(types.uint16), _storer(types.int32)
store_u64, store_f32 = _storer(types.uint64), _storer(types.float32)


def _lanes(item: Any, value: int | float, count: int) -> Any:
    return ir.Constant(ir.VectorType(item, count), [value] * count)


def _splat(builder: Any, value: Any, count: int) -> Any:
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, _I32(0))
    return builder.shuffle_vector(first, undefined, _lanes(_I32, 0, count))


def _load_lanes(builder: Any, base: Any, item: Any, count: int) -> Any:
    target = ir.VectorType(base.type.pointee, count).as_pointer()
    return builder.load(builder.bitcast(builder.gep(base, [item]), target), align=1)


def _store_lanes(builder: Any, value: Any, base: Any, item: Any) -> None:
    builder.store(value, builder.bitcast(builder.gep(base, [item]), value.type.as_pointer()), align=1)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _fold_lanes(builder: Any, value: Any, combine: Any) -> Any:
    count = value.type.count
    while count > 1:
        count //= 2
        low = ir.Constant(ir.VectorType(_I32, count), list(range(count)))
        high = ir.Constant(ir.VectorType(_I32, count), list(range(count, 2 * count)))
        value = combine(
            builder, builder.shuffle_vector(value, value, low), builder.shuffle_vector(value, value, high)
        )
    return builder.extract_element(value, _I32(0))


@intrinsic
def row_range(typingctx: Any, row: Any, dim: Any) -> Any:
    """Minimum, maximum and sum of a float32 row of dim ≥ RANGE_LANES columns, lane by lane.

    A NaN is skipped or not by the first two but always makes the sum NaN; so may an overflow, which only asks
    for a closer look.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base, dim = args
        step = ir.Constant(dim.type, RANGE_LANES)
        last = builder.sub(dim, step)
        first = _load_lanes(
            builder, base, last, RANGE_LANES
        )  # the last block, which may overlap the one before
        combines = (_smaller, _larger, _add)
        totals = [cgutils.alloca_once_value(builder, first) for _ in combines]
        with cgutils.for_range_slice(builder, ir.Constant(dim.type, 0), last, step) as (column, _):
            values = _load_lanes(builder, base, column, RANGE_LANES)
            for total, combine in zip(totals, combines, strict=True):
                builder.store(combine(builder, values, builder.load(total)), total)
        folded = [_fold_lanes(builder, builder.load(t), c) for t, c in zip(totals, combines, strict=True)]
        return cgutils.pack_array(builder, folded)

    return types.UniTuple(types.float32, 3)(row, types.intp), codegen


def _hash_pairs(builder: Any, r1: Any, r2: Any, pair: Any) -> tuple[Any, Any]:
    """The noise module's column hash of PAIR_LANES pairs from this one on: the low and the high 16 bits."""
    n = PAIR_LANES
    counters = ir.Constant(ir.VectorType(_I32, n), [(i * GOLDEN) & MASK32 for i in range(n)])
    start = builder.add(r1, builder.mul(builder.trunc(pair, _I32), _I32(GOLDEN)))
    x = builder.add(_splat(builder, start, n), counters)
    x = builder.xor(x, builder.lshr(x, _lanes(_I32, 16, n)))
    x = builder.mul(x, _lanes(_I32, M1, n))
    x = builder.xor(builder.xor(x, builder.lshr(x, _lanes(_I32, 15, n))), _splat(builder, r2, n))
    x = builder.mul(x, _lanes(_I32, M2, n))
    high = builder.lshr(x, _lanes(_I32, 16, n))
    return builder.and_(builder.xor(x, high), _lanes(_I32, 0xFFFF, n)), high


def _codes(builder: Any, values: Any, low: Any, scale: Any, levels: Any, random: Any) -> Any:
    """min(floor((values − low)/scale + random·2^−16), levels) as bytes; truncation is the floor, all being ≥
    0."""
    n = PAIR_LANES
    steps = builder.fdiv(builder.fsub(values, _splat(builder, low, n)), _splat(builder, scale, n))
    noise = builder.fmul(builder.sitofp(random, ir.VectorType(_F32, n)), _lanes(_F32, UNIT, n))
    q = builder.fptosi(builder.fadd(steps, noise), ir.VectorType(_I32, n))
    top = _splat(builder, levels, n)
    q = builder.select(builder.icmp_signed("<", q, top), q, top)
    return builder.trunc(q, ir.VectorType(_I8, n))


@intrinsic
def round_pairs(
    typingctx: Any,
    first: Any,
    second: Any,
    first_codes: Any,
    second_codes: Any,
    pair: Any,
    low: Any,
    scale: Any,
    levels: Any,
    r1: Any,
    r2: Any,
) -> Any:
    """Codes of PAIR_LANES pairs of columns, from this pair on; scale > 0. ``first`` and ``second`` point at
    the row's halves."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, second, first_codes, second_codes, pair, low, scale, levels, r1, r2 = args
        randoms = _hash_pairs(builder, r1, r2, pair)
        for half, codes, random in zip((first, second), (first_codes, second_codes), randoms, strict=True):
            values = _load_lanes(builder, half, pair, PAIR_LANES)
            _store_lanes(builder, _codes(builder, values, low, scale, levels, random), codes, pair)
        return context.get_dummy_value()

    scalars = (types.intp, types.float32, types.float32, types.int32, types.uint32, types.uint32)
    return types.void(first, second, first_codes, second_codes, *scalars), codegen


@intrinsic
def prefetch(typingctx: Any, base: Any, items: Any) -> Any:
    """Ask for the cache lines of so many float32 from here on, to be read soon; never faults."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base, items = args
        byte_pointer = _I8.as_pointer()
        hint = ir.FunctionType(ir.VoidType(), [byte_pointer, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0i8")
        step = ir.Constant(items.type, 16)
        with cgutils.for_range_slice(builder, ir.Constant(items.type, 0), items, step) as (item, _):
            address = builder.bitcast(builder.gep(base, [item]), byte_pointer)
            builder.call(function, [address, _I32(0), _I32(3), _I32(1)])  # read, keep near, data
        return context.get_dummy_value()

    return types.void(base, types.intp), codegen
