"""Wire format 1, byte for byte: golden bodies, planes worked out by hand, and the CPU codec against the
reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sylvie.codec import Codec, NoiseKey, body_layout, codec_for
from sylvie.codec.layout import WIDTHS
from sylvie.codec.reference import pack_planar, unpack_planar

RoundTrip = Callable[..., tuple[Tensor, Tensor]]
DIMS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 256, 300)


def _mixed_rows(dim: int, count: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of all kinds and widths: normal, constant, −0, denormal, huge, one outlier."""
    g = torch.Generator().manual_seed(seed + dim)
    rows = torch.randn(count, dim, generator=g)
    rows[0], rows[1], rows[2] = 2.5, -0.0, 0.0
    rows[3] *= 1e-42
    rows[4] *= 1e37
    rows[5, -1] = 1e6
    rows[6] = -rows[6].abs()
    rows[7] = torch.where(rows[7] > 0, 0.0, -0.0)
    rows[8] = 1e-45 * (rows[8] > 0)
    rows[9] = torch.nextafter(torch.ones(dim), torch.full((dim,), 2.0)) - (rows[9] > 0).float() * 2**-23
    bits = torch.tensor(WIDTHS, dtype=torch.uint8)[torch.randint(0, 4, (count,), generator=g)]
    return rows, bits


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("dim", DIMS)
def test_cpu_bytes_are_the_reference_bytes(dim: int, metadata: str, key: NoiseKey) -> None:
    rows, bits = _mixed_rows(dim)
    g = torch.Generator().manual_seed(1)
    index = torch.randint(0, len(rows), (150,), generator=g)
    nodes = torch.randint(0, 2**40, (150,), generator=g)
    layout = body_layout(nodes, bits[index], dim, metadata)
    bodies, restored = [], []
    for name in ("reference", "cpu"):
        codec = codec_for("cpu", name)
        bodies.append(torch.full((layout.nbytes,), 0x5A, dtype=torch.uint8))
        restored.append(torch.empty(150, dim))
        codec.encode(rows, index, layout, key, bodies[-1])
        codec.decode(bodies[-1], layout, restored[-1])
    assert torch.equal(bodies[0], bodies[1])
    assert torch.equal(restored[0].view(torch.int32), restored[1].view(torch.int32))


@pytest.mark.parametrize("shift", range(1, 8))
def test_a_body_may_start_at_any_byte(codec: Codec, key: NoiseKey, round_trip: RoundTrip, shift: int) -> None:
    rows, bits = _mixed_rows(37)
    plain = round_trip(codec, rows, bits, key)
    moved = round_trip(codec, rows, bits, key, shift=shift)
    assert torch.equal(plain[0], moved[0]) and torch.equal(plain[1], moved[1])


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("dim", [1, 5, 33, 64, 131])
def test_nothing_beside_the_body_is_touched(codec: Codec, key: NoiseKey, dim: int, metadata: str) -> None:
    """Encoder and decoder work in blocks; neither may spill over the body's or the rows' ends."""
    rows, bits = _mixed_rows(dim)
    layout = body_layout(torch.arange(60), bits, dim, metadata)
    buffer = torch.full((layout.nbytes + 200,), 0xA5, dtype=torch.uint8)
    codec.encode(rows, torch.arange(60), layout, key, buffer[100:-100])
    assert bool((buffer[:100] == 0xA5).all()) and bool((buffer[-100:] == 0xA5).all())
    halo = torch.full((64, dim), 7.0)
    codec.decode(buffer[100:-100], layout, halo[2:62])
    assert bool((halo[:2] == 7).all()) and bool((halo[62:] == 7).all())


def test_planes_by_hand() -> None:
    # 2 bits, 5 columns: w = 2 bytes, byte 0 holds columns 0, 2, 4, byte 1 columns 1, 3
    codes = torch.tensor([[1, 2, 3, 0, 2]], dtype=torch.uint8)
    assert pack_planar(codes, 2).tolist() == [[1 | 3 << 2 | 2 << 4, 2 | 0 << 2]]
    # 1 bit, 9 columns: w = 2, even columns in byte 0
    codes = torch.tensor([[1, 0, 1, 1, 0, 0, 0, 1, 1]], dtype=torch.uint8)
    assert pack_planar(codes, 1).tolist() == [[0b10011, 0b1010]]
    # 4 bits, 3 columns: w = 2; 8 bits: the columns themselves
    assert pack_planar(torch.tensor([[9, 10, 11]], dtype=torch.uint8), 4).tolist() == [[9 | 11 << 4, 10]]
    assert pack_planar(torch.tensor([[9, 255]], dtype=torch.uint8), 8).tolist() == [[9, 255]]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("dim", DIMS)
def test_unpacking_undoes_packing(bits: int, dim: int) -> None:
    codes = torch.randint(0, 2**bits, (9, dim), dtype=torch.uint8)
    packed = pack_planar(codes, bits)
    assert packed.shape == (9, -(-dim * bits // 8))
    assert torch.equal(unpack_planar(packed, bits, dim), codes)


def test_layout_groups_rows_by_width_in_plan_order() -> None:
    bits = torch.tensor([8, 1, 4, 1, 2, 8], dtype=torch.uint8)
    layout = body_layout(torch.arange(6), bits, 9)
    # w = 9, 2, 5, 2, 3, 9 after 48 bytes of metadata; order 1, 3 | 4 | 2 | 0, 5
    assert layout.row_offset.tolist() == [60, 48, 55, 50, 52, 69]
    assert (layout.meta_bytes, layout.main_bytes, layout.nbytes) == (48, 30, 78)


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
def test_metadata_stands_first_minima_then_scales(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, metadata: str
) -> None:
    rows = torch.tensor([[1.0, 4.0], [-2.0, 28.0], [0.5, 0.5]])
    body, _ = round_trip(codec, rows, torch.tensor([2, 4, 8], dtype=torch.uint8), key, metadata=metadata)
    count = 24 if metadata == "fp32" else 12
    kind = torch.float32 if metadata == "fp32" else torch.bfloat16
    assert body[:count].clone().view(kind).tolist() == [1.0, -2.0, 0.5, 1.0, 2.0, 0.0]


# A body of wire format 1. The message: nodes 3, 2^33 + 1, 70, 5 at 1, 2, 4, 8 bits, 5 columns, column c of row r being
# ((7r + 3c) mod 11 − 4)/4. If these change, old and new ranks no longer understand each other: raise the wire format.
GOLDEN = {
    "fp32": (
        "000080 bf000000 bf000040 bf000080 bf000010 40abaa2a 3f898808 3ea1a020 3c0a2207 04590fff 337fcc00"
    ),
    "bf16": "80bf00 bf40bf80 bf10402b 3f093e21 3c0a2207 04590ffe 337fcb00",
}


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
def test_golden_bytes(codec: Codec, round_trip: RoundTrip, metadata: str) -> None:
    r, c = torch.arange(4)[:, None], torch.arange(5)[None, :]
    rows = ((7 * r + 3 * c) % 11 - 4).float() / 4
    body, restored = round_trip(
        codec,
        rows,
        torch.tensor([1, 2, 4, 8], dtype=torch.uint8),
        NoiseKey(seed=2024, epoch=17, layer=2, step=0, direction=1, sender=3),
        node_ids=torch.tensor([3, 2**33 + 1, 70, 5]),
        metadata=metadata,
    )
    assert bytes(body.tolist()).hex(" ", 4) == GOLDEN[metadata]
    steps = torch.tensor([1.0, 1 / 3, 1 / 15, 1 / 255])[:, None] * (rows.amax(1) - rows.amin(1))[:, None]
    assert bool(((restored - rows).abs() <= 1.01 * steps).all())


def test_noise_is_the_same_whatever_else_the_message_holds(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip
) -> None:
    """With more ranks a rank's rows spread over more messages; an embedding must be rounded alike in all of
    them."""
    rows, _ = _mixed_rows(40)
    nodes = torch.arange(60) * 7
    _, together = round_trip(codec, rows, 2, key, node_ids=nodes)
    part = torch.tensor([41, 3, 17])
    _, apart = round_trip(codec, rows[part].contiguous(), 2, key, node_ids=nodes[part])
    assert torch.equal(apart, together[part])


def test_embeddings_and_gradients_are_rounded_apart(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip
) -> None:
    rows = torch.randn(50, 64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    forward = round_trip(codec, rows, 4, key)[1]
    backward = round_trip(codec, rows, 4, replace(key, direction=1, sender=1))[1]
    other_sender = round_trip(codec, rows, 4, replace(key, direction=1, sender=2))[1]
    assert not torch.equal(forward, backward) and not torch.equal(backward, other_sender)
    assert torch.equal(forward, round_trip(codec, rows, 4, key)[1])
    scale = (rows.detach().amax(1) - rows.detach().amin(1)) / 15
    for restored in (forward, backward, other_sender):
        assert bool(((restored - rows.detach()).abs() <= 1.0001 * scale[:, None]).all())
