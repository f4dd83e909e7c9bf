"""The rounding is unbiased with the variance it should have, and the check notices quantizers that are
not."""

from __future__ import annotations

from typing import Protocol

import pytest
import torch
from torch import Tensor

from sylvie.codec import Codec, NoiseKey, body_layout, codec_for
from sylvie.codec.noise import uniforms
from sylvie.codec.reference import bf16_down, quantize, row_grid

DRAWS = 20_000
WIDTHS = (1, 2, 4, 8)


class Restore(Protocol):
    def __call__(self, row: Tensor, bits: int, draws: int) -> Tensor: ...


def _row(dim: int = 48, seed: int = 0) -> Tensor:
    return torch.randn(dim, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def _grid(row: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and the fractional part f of every element, float64, from the reference's fp32 minimum and
    scale."""
    low, scale, _ = row_grid(row[None, :], torch.tensor([2.0**bits - 1]), "fp32")
    steps = (row.double() - low.double()) / scale.double()
    return scale.double(), steps - steps.floor()


def worst_bias(row: Tensor, bits: int, restored: Tensor) -> float:
    """The largest |mean − h| over the columns, in standard errors (float32 rounding of the values allowed
    for)."""
    scale, fraction = _grid(row, bits)
    error = scale * (fraction * (1 - fraction) / restored.shape[0]).sqrt()
    rounding = 2.0**-22 * row.abs().max().double()
    off = ((restored.double().mean(0) - row.double()).abs() - rounding).clamp(min=0)
    return float((off / error.clamp(min=1e-12)).max())


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_column_is_unbiased(restore: Restore, bits: int, seed: int) -> None:
    row = _row(seed=seed)
    assert worst_bias(row, bits, restore(row, bits, DRAWS)) <= 5


@pytest.mark.parametrize("bits", WIDTHS)
def test_noise_over_epochs_is_unbiased(codec: Codec, bits: int) -> None:
    """The same nodes in many epochs, as training sees them: 50 nodes in 200 epochs."""
    row = _row(dim=40, seed=3)
    nodes, index = torch.arange(50) * 1009, torch.zeros(50, dtype=torch.int64)
    layout = body_layout(nodes, torch.full((50,), bits, dtype=torch.uint8), row.shape[0])
    body = torch.empty(layout.nbytes, dtype=torch.uint8)
    restored = torch.empty(200, 50, row.shape[0])
    for epoch in range(200):
        key = NoiseKey(seed=1, epoch=epoch, layer=2, step=0, direction=1, sender=3)
        codec.encode(row[None, :], index, layout, key, body)
        codec.decode(body, layout, restored[epoch])
    assert worst_bias(row, bits, restored.flatten(0, 1)) <= 5


@pytest.mark.parametrize("bits", WIDTHS)
def test_control_round_half_up_is_noticed(bits: int) -> None:
    row = _row()
    assert worst_bias(row, bits, _quantized_with(row, bits, torch.full((DRAWS, row.shape[0]), 0.5))) > 5


@pytest.mark.parametrize("bits", WIDTHS)
def test_control_four_random_bits_are_noticed(bits: int, key: NoiseKey) -> None:
    row = _row()
    coarse = (uniforms(key, torch.arange(DRAWS), row.shape[0]) * 16).floor() / 16
    assert worst_bias(row, bits, _quantized_with(row, bits, coarse)) > 5


@pytest.mark.parametrize("bits", WIDTHS)
def test_control_passes_with_the_real_noise(bits: int, key: NoiseKey) -> None:
    """The controls differ from the real quantizer in their noise alone."""
    row = _row()
    noise = uniforms(key, torch.arange(DRAWS), row.shape[0])
    assert worst_bias(row, bits, _quantized_with(row, bits, noise)) <= 5


def _quantized_with(row: Tensor, bits: int, noise: Tensor) -> Tensor:
    rows = row.expand(noise.shape[0], -1).contiguous()
    levels = torch.full((noise.shape[0],), 2.0**bits - 1)
    low, scale, _ = row_grid(rows, levels, "fp32")
    codes = quantize(rows, low, scale, levels, noise)
    return scale[:, None] * codes.to(torch.float32) + low[:, None]


@pytest.mark.parametrize("bits", WIDTHS)
def test_element_variance_is_scale_squared_f_one_minus_f(restore: Restore, bits: int) -> None:
    row = _row(seed=5)
    scale, fraction = _grid(row, bits)
    wanted = fraction * (1 - fraction)
    found = restore(row, bits, DRAWS).double().var(0) / scale**2
    # a 0/1 variable of variance v has a sample variance of standard error sqrt(v(1 − 4v)/n), and 1/n where v = 1/4
    error = (wanted * (1 - 4 * wanted)).clamp(min=0).div(DRAWS).sqrt()
    assert bool(((found - wanted).abs() <= 5 * error + 10 / DRAWS + 1e-5).all())


@pytest.mark.parametrize("bits", WIDTHS)
def test_row_variance_is_below_a_quarter_and_not_a_sixth(restore: Restore, bits: int) -> None:
    """D·scale²/4 bounds a row's variance; D·scale²/6 is its mean for evenly spread values and no bound."""
    shares = []
    for seed in range(8):
        row = _row(dim=128, seed=seed)
        scale, _ = _grid(row, bits)
        shares.append(float(restore(row, bits, 4000).double().var(0).sum() / (128 * scale**2)))
        assert shares[-1] <= 0.25
    mean = sum(shares) / len(shares)
    if bits == 1:
        assert mean * 6 > 1.15  # normal values crowd around the middle of a one-bit grid
    else:
        assert mean == pytest.approx(1 / 6, rel=0.2)


@pytest.mark.parametrize("bits", WIDTHS)
def test_bf16_metadata_is_unbiased_too(codec: Codec, key: NoiseKey, bits: int) -> None:
    row = _row(seed=9) * 1.37 + 20
    layout = body_layout(
        torch.arange(DRAWS), torch.full((DRAWS,), bits, dtype=torch.uint8), row.shape[0], "bf16"
    )
    body = torch.empty(layout.nbytes, dtype=torch.uint8)
    codec.encode(row[None, :], torch.zeros(DRAWS, dtype=torch.int64), layout, key, body)
    restored = torch.empty(DRAWS, row.shape[0])
    codec.decode(body, layout, restored)
    low, scale, _ = row_grid(row[None, :], torch.tensor([2.0**bits - 1]), "bf16")
    steps = (row.double() - low.double()) / scale.double()
    fraction = steps - steps.floor()
    error = scale.double() * (fraction * (1 - fraction) / DRAWS).sqrt()
    off = (restored.double().mean(0) - row.double()).abs()
    assert bool((off <= 5 * error + 2.0**-20 * row.abs().max()).all())
    assert bool((steps <= 2**bits - 1 + 1e-4).all())  # the clamp never cuts a value off


def test_a_bf16_step_rounded_down_is_noticed(key: NoiseKey) -> None:
    """Why the step goes up: with a smaller one the clamp cuts the largest values off."""
    row = torch.linspace(0, 15 * (1 + 2.0**-8), 33)  # the step lies half way between two bfloat16
    rows, levels = row.expand(DRAWS, -1).contiguous(), torch.full((DRAWS,), 15.0)
    low = bf16_down(rows.amin(dim=1))
    scale = bf16_down((rows.amax(dim=1) - low) / levels)
    codes = quantize(rows, low, scale, levels, uniforms(key, torch.arange(DRAWS), row.shape[0]))
    restored = scale[:, None] * codes.float() + low[:, None]
    off = (restored.double().mean(0) - row.double()).abs()
    assert float(off.max()) > 5 * float(scale[0]) * (0.25 / DRAWS) ** 0.5


def test_codec_for_names_what_there_is() -> None:
    assert codec_for("cpu").name == "cpu"
    assert codec_for("cpu", "reference").name == "reference"
    for device, kind in (("cpu", "cuda"), ("cuda", "cpu"), ("cpu", "fast")):
        with pytest.raises(ValueError, match="no codec"):
            codec_for(device, kind)
