"""Rows at the edge: constants, −0, denormals, the clamp, values that are not finite, bad arguments, nothing
at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sylvie.codec import Codec, NoiseKey, NonFiniteRowError, body_layout
from sylvie.codec.noise import uniforms

RoundTrip = Callable[..., tuple[Tensor, Tensor]]
WIDTHS = (1, 2, 4, 8)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.7, 1e-45, 1e-38, -3.4028234663852886e38, 0.1])
@pytest.mark.parametrize("dim", [1, 7, 128])
def test_constant_rows_are_exact(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, bits: int, value: float, dim: int
) -> None:
    rows = torch.full((3, dim), value)
    body, restored = round_trip(codec, rows, bits, key)
    assert torch.equal(restored, rows)
    assert not bool(torch.signbit(restored).any()) or value < 0
    assert not bool(body[12:].any())  # scales and codes are zero


@pytest.mark.parametrize("dim", [2, 16, 40])
def test_a_zero_minimum_is_plus_zero_on_the_wire(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, dim: int
) -> None:
    rows = torch.zeros(4, dim)
    rows[0, 0] = rows[1, -1] = rows[2] = -0.0
    rows[3, :2] = torch.tensor([-0.0, 1.0])
    body, restored = round_trip(codec, rows, 8, key)
    assert not bool(body[:16].any()) and not bool(body[16:28].any())
    assert not bool(torch.signbit(restored).any())


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_single_column_is_exact(codec: Codec, key: NoiseKey, round_trip: RoundTrip, bits: int) -> None:
    rows = torch.randn(20, 1)
    assert torch.equal(round_trip(codec, rows, bits, key)[1], rows)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("size", [1e-44, 3e-43, 1e-40, 1e-30, 1.0, 1e30, 1.6e38])
def test_tiny_and_huge_ranges(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, bits: int, size: float
) -> None:
    rows = (torch.rand(30, 50, generator=torch.Generator().manual_seed(1)) * 2 - 1) * size
    restored = round_trip(codec, rows, bits, key)[1]
    step = (rows.amax(1) - rows.amin(1)) / (2**bits - 1)
    # where the step itself is denormal it is a whole number of smallest denormals, at 255 levels off by up to half of that
    slack = 2.0**-149 * (2**bits + 1)
    assert bool(((restored - rows).abs() <= step[:, None] * 1.0001 + slack).all())


def test_the_clamp_holds_255_where_rounding_would_wrap_to_zero(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip
) -> None:
    """A range whose 255th part, rounded, fits into it 255 times and a bit; and noise just below 1 for its
    maximum."""
    tops = torch.linspace(1, 2, 4000)
    over = tops[(tops / (tops / 255)) > 255]
    assert len(over)
    nodes = torch.arange(400_000)
    nodes = nodes[uniforms(key, nodes, 2)[:, 1] == 65535 / 65536]
    assert len(nodes)
    rows = torch.stack([torch.zeros(len(nodes)), over[0].expand(len(nodes))], dim=1).contiguous()
    unclamped = torch.floor(rows[:, 1] / (rows[:, 1] / 255) + 65535 / 65536)
    assert unclamped.tolist() == [256.0] * len(
        nodes
    )  # one byte more, and the largest value becomes the smallest
    body, restored = round_trip(codec, rows, 8, key, node_ids=nodes)
    assert body[8 * len(nodes) :].view(-1, 2)[:, 1].tolist() == [255] * len(nodes)
    assert bool((restored[:, 1] >= over[0] * 0.999).all())


@pytest.mark.parametrize("bits", WIDTHS)
def test_extremes_of_a_row_survive_within_rounding(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, bits: int
) -> None:
    """The minimum is exact; the maximum is on the grid up to a rounding error, so it misses by a step very
    rarely."""
    rows = torch.randn(500, 33, generator=torch.Generator().manual_seed(4))
    restored = round_trip(codec, rows, bits, key)[1]
    low, at = rows.min(dim=1)
    assert torch.equal(restored.gather(1, at[:, None])[:, 0], low)
    high, at = rows.max(dim=1)
    close = (restored.gather(1, at[:, None])[:, 0] - high).abs() <= 2**-21 * (high - low)
    assert int((~close).sum()) <= 2


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), -float("nan")])
@pytest.mark.parametrize("dim, column", [(1, 0), (5, 2), (64, 0), (64, 63), (130, 129), (130, 70), (33, 16)])
def test_values_that_are_not_finite_are_refused(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, bad: float, dim: int, column: int, metadata: str
) -> None:
    rows = torch.randn(9, dim)
    rows[4, column] = rows[6, 0] = bad
    with pytest.raises(NonFiniteRowError, match="global node 1004") as caught:
        round_trip(codec, rows, 2, key, node_ids=torch.arange(1000, 1009), metadata=metadata)
    assert (caught.value.row, caught.value.node_id, caught.value.key) == (4, 1004, key)
    for word in ("epoch 3", "layer 1", "step 0", "forward"):
        assert word in str(caught.value)


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("dim", [2, 64])
def test_a_range_beyond_float32_is_refused(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, metadata: str, dim: int
) -> None:
    rows = torch.zeros(2, dim)
    rows[1, 0], rows[1, 1] = 3e38, -3e38
    with pytest.raises(NonFiniteRowError, match="row 1 "):
        round_trip(codec, rows, 4, key, metadata=metadata)


def test_bf16_metadata_that_would_overflow_is_refused(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip
) -> None:
    """fp32 metadata can carry these rows, a bfloat16 minimum rounded down or step rounded up cannot."""
    largest = torch.finfo(torch.float32).max
    for row in ([-largest, -largest], [0.0, largest]):
        rows = torch.tensor([row])
        assert torch.allclose(round_trip(codec, rows, 1, key)[1], rows)
        with pytest.raises(NonFiniteRowError):
            round_trip(codec, rows, 1, key, metadata="bf16")


@pytest.mark.parametrize("dim", [3, 64])
def test_a_sum_that_overflows_is_no_reason_to_refuse(
    codec: Codec, key: NoiseKey, round_trip: RoundTrip, dim: int
) -> None:
    rows = torch.full((1, dim), 1.2e38)
    rows[0, ::2] = -1.2e38
    assert bool(round_trip(codec, rows, 1, key)[1].isfinite().all())


def test_an_empty_selection_costs_no_bytes(codec: Codec, key: NoiseKey) -> None:
    layout = body_layout(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.uint8), 16)
    assert layout.nbytes == 0
    body = torch.empty(0, dtype=torch.uint8)
    codec.encode(torch.randn(5, 16), torch.empty(0, dtype=torch.int64), layout, key, body)
    codec.encode(torch.empty(0, 16), torch.empty(0, dtype=torch.int64), layout, key, body)
    codec.decode(body, layout, torch.empty(0, 16))


def test_bad_arguments_are_named(codec: Codec, key: NoiseKey) -> None:
    layout = body_layout(torch.arange(3), torch.full((3,), 4, dtype=torch.uint8), 8)
    source, index = torch.randn(5, 8), torch.arange(3)
    body, out = torch.empty(layout.nbytes, dtype=torch.uint8), torch.empty(3, 8)
    for source_, index_, body_, word in (
        (source.double(), index, body, "source"),
        (torch.randn(5, 9), index, body, "source"),
        (torch.randn(8, 5).T, index, body, "source"),
        (source, index.int(), body, "index"),
        (source, torch.arange(4), body, "index"),
        (source, index, body[:-1], "out"),
        (source, index, body.view(torch.int8), "out"),
    ):
        with pytest.raises(ValueError, match=word):
            codec.encode(source_, index_, layout, key, body_)
    for body_, out_, word in ((body[1:], out, "body"), (body, out.double(), "out"), (body, out[:2], "out")):
        with pytest.raises(ValueError, match=word):
            codec.decode(body_, layout, out_)


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_an_index_outside_the_rows_is_an_error_not_a_crash(codec: Codec, key: NoiseKey, wrong: int) -> None:
    layout = body_layout(torch.arange(3), torch.full((3,), 4, dtype=torch.uint8), 8)
    body = torch.empty(layout.nbytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"index\[1\]"):
        codec.encode(torch.randn(5, 8), torch.tensor([0, wrong, 1]), layout, key, body)


def test_unknown_widths_and_forms_are_refused() -> None:
    with pytest.raises(ValueError, match="row width"):
        body_layout(torch.arange(2), torch.tensor([4, 3], dtype=torch.uint8), 8)
    with pytest.raises(ValueError, match="fp16"):
        body_layout(torch.arange(1), torch.tensor([4], dtype=torch.uint8), 8, "fp16")
