"""The rounding noise: a counter-based hash of (message, global node id, column), the same in every codec.

All arithmetic is on unsigned 32-bit integers and wraps. ``GOLDEN`` = 0x9E3779B9, ``GOLDEN2`` = 0x85EBCA6B,
``M1`` = 0x7FEB352D, ``M2`` = 0x846CA68B; ``mix`` is the low-bias two-multiply finaliser found by C. Wellons'
hash prospector::

    mix(x):      x ^= x >> 16; x *= M1; x ^= x >> 15; x *= M2; x ^= x >> 16
    fold(k, w):  mix((k ^ w) + GOLDEN)

1. Message key, twice, from the starts 1 and GOLDEN2: fold in the words seed (low, high 32 bits), epoch,
   layer, step, direction, sender, in this order, giving (k1, k2).
2. Row key: r1 = fold(fold(k1, id low), id high), r2 the same from k2; id is the global node id, so ids beyond
   2^32 differ.
3. Column c of D. One hash serves two columns: with half = ceil(D/2), i = c mod half (c or c − half)::

       x = r1 + i·GOLDEN;  x ^= x >> 16;  x *= M1;  x ^= x >> 15;  x ^= r2;  x *= M2;  x ^= x >> 16

   and u = (x & 0xFFFF)·2^−16 for c < half, (x >> 16)·2^−16 otherwise: sixteen random bits, exact in float32.

Two keys a row make 64 bits of state, so two rows share their noise about never; the second costs one xor for
two columns. Nothing here depends on the order of rows, the number of ranks (except through ``sender``), a
generator's state or time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.codec.layout import NoiseKey

GOLDEN = 0x9E3779B9
GOLDEN2 = 0x85EBCA6B
M1 = 0x7FEB352D
M2 = 0x846CA68B
MASK32 = 0xFFFFFFFF
UNIT = 2.0**-16


def _mix_int(x: int) -> int:
    x ^= x >> 16
    x = (x * M1) & MASK32
    x ^= x >> 15
    x = (x * M2) & MASK32
    return x ^ (x >> 16)


def message_keys(key: NoiseKey) -> tuple[int, int]:
    """The two 32-bit keys (k1, k2) of one message; any integer is legal in ``key`` (the seed counts modulo
    2^64)."""
    words = (key.seed, key.seed >> 32, key.epoch, key.layer, key.step, key.direction, key.sender)
    keys = [1, GOLDEN2]
    for word in words:
        keys = [_mix_int(((k ^ (word & MASK32)) + GOLDEN) & MASK32) for k in keys]
    return keys[0], keys[1]


def _mix(x: Tensor) -> Tensor:
    # int64 tensors holding 32-bit values: a product wraps modulo 2^64, whose low half is the 32-bit product
    x = x ^ (x >> 16)
    x = (x * M1) & MASK32
    x = x ^ (x >> 15)
    x = (x * M2) & MASK32
    return x ^ (x >> 16)


def row_keys(message_key: int, node_ids: Tensor) -> Tensor:
    """One 32-bit key a row, as int64 [m], from one message key and global ids int64 [m]."""
    low, high = node_ids & MASK32, (node_ids >> 32) & MASK32
    key = _mix(((message_key ^ low) + GOLDEN) & MASK32)
    return _mix(((key ^ high) + GOLDEN) & MASK32)


def uniforms(key: NoiseKey, node_ids: Tensor, dim: int) -> Tensor:
    """The noise u of every row and column, float32 [m, dim] in [0, 1), multiples of 2^−16."""
    k1, k2 = message_keys(key)
    r1, r2 = row_keys(k1, node_ids)[:, None], row_keys(k2, node_ids)[:, None]
    half = (dim + 1) // 2
    counter = torch.arange(half, dtype=torch.int64, device=node_ids.device)[None, :]
    x = (r1 + counter * GOLDEN) & MASK32
    x = x ^ (x >> 16)
    x = (x * M1) & MASK32
    x = x ^ (x >> 15) ^ r2
    x = (x * M2) & MASK32
    x = x ^ (x >> 16)
    return (torch.cat([x & 0xFFFF, x >> 16], dim=1)[:, :dim]).to(torch.float32) * UNIT
