"""The noise is uniform and uncorrelated along everything it is a function of, and a function of nothing
else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sylvie.codec import NoiseKey
from sylvie.codec.noise import message_keys, uniforms

KEY = NoiseKey(seed=11, epoch=4, layer=2, step=1, direction=0, sender=0)
NODES, DIM = torch.arange(2000), 128


def _correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation in standard errors of independent samples."""
    a, b = a.flatten().double() - 0.5, b.flatten().double() - 0.5
    return float((a * b).mean() * 12 * a.shape[0] ** 0.5)


def _low_byte(u: Tensor) -> Tensor:
    """The last eight of the sixteen bits as a number in [0, 1): at 8 bits a row these decide too."""
    return torch.frac(u * 256)


@pytest.mark.parametrize("lag", [1, 2, 3, 8, 16, 63, 64, 65])
def test_columns_are_uncorrelated(lag: int) -> None:
    """Lag 64 compares the two columns that share one hash."""
    u = uniforms(KEY, NODES, DIM)
    for part in (u, _low_byte(u)):
        assert abs(_correlation(part[:, :-lag], part[:, lag:])) < 5


@pytest.mark.parametrize("lag", [1, 2, 16, 256])
def test_nodes_are_uncorrelated(lag: int) -> None:
    u = uniforms(KEY, NODES, DIM)
    for part in (u, _low_byte(u)):
        assert abs(_correlation(part[:-lag], part[lag:])) < 5
        assert abs(_correlation(part[:-lag, 1:], part[lag:, :-1])) < 5


@pytest.mark.parametrize("field", ["seed", "epoch", "layer", "step", "direction", "sender"])
@pytest.mark.parametrize("change", [1, 2, 1 << 16])
def test_messages_are_uncorrelated(field: str, change: int) -> None:
    other = replace(KEY, **{field: getattr(KEY, field) + change})
    a, b = uniforms(KEY, NODES, DIM), uniforms(other, NODES, DIM)
    for one, two in ((a, b), (_low_byte(a), _low_byte(b)), (a[:, 1:], b[:, :-1]), (a[1:], b[:-1])):
        assert abs(_correlation(one, two)) < 5
    assert not torch.equal(a, b)


def test_fields_do_not_stand_in_for_each_other() -> None:
    """Epoch 1, layer 2 is not epoch 2, layer 1."""
    fields = ("seed", "epoch", "layer", "step", "direction", "sender")
    base = dict.fromkeys(fields, 0)
    keys = [message_keys(NoiseKey(**(base | {a: 1, b: 2}))) for a in fields for b in fields if a != b]
    assert len(set(keys)) == len(keys)


def test_a_seed_beyond_32_bits_counts() -> None:
    assert message_keys(replace(KEY, seed=5)) != message_keys(replace(KEY, seed=5 + 2**32))
    assert message_keys(replace(KEY, seed=-1)) == message_keys(replace(KEY, seed=2**64 - 1))


def test_node_ids_beyond_32_bits_count() -> None:
    near, far = uniforms(KEY, NODES, DIM), uniforms(KEY, NODES + 2**32, DIM)
    assert not bool((near == far).all(dim=1).any())
    assert abs(_correlation(near, far)) < 5


def test_values_are_uniform_in_sixteen_bits() -> None:
    u = uniforms(KEY, NODES, DIM)
    codes = (u.double() * 2**16).to(torch.int64)
    assert torch.equal(codes.double() / 2**16, u.double())
    assert float(u.min()) >= 0 and float(u.max()) < 1
    for values in (codes >> 8, codes & 0xFF):
        expected = values.numel() / 256
        chi2 = float(((torch.bincount(values.flatten(), minlength=256) - expected) ** 2 / expected).sum())
        assert abs(chi2 - 255) < 5 * (2 * 255) ** 0.5


def test_each_column_is_uniform() -> None:
    """Mean and variance of every column over nodes, and of every node over columns."""
    u = uniforms(KEY, torch.arange(20_000), 40).double()
    assert float((u.mean(0) - 0.5).abs().max()) < 5 * (1 / 12 / u.shape[0]) ** 0.5
    assert float((u.var(0) - 1 / 12).abs().max()) < 5 * (1 / 180 / u.shape[0]) ** 0.5


def test_noise_knows_nothing_of_order_and_company() -> None:
    """What other rows a message holds, and in which order, depends on the number of ranks; the noise must
    not."""
    shuffled = NODES[torch.randperm(len(NODES), generator=torch.Generator().manual_seed(1))][:700]
    assert torch.equal(uniforms(KEY, shuffled, DIM), uniforms(KEY, NODES, DIM)[shuffled])


def test_known_values() -> None:
    """A hash that changed would change no statistics, but no run could be repeated."""
    assert message_keys(KEY) == KNOWN_KEYS
    u = uniforms(KEY, torch.tensor([0, 1, 2**40 + 3]), 3) * 2**16
    assert u.to(torch.int64).tolist() == KNOWN_VALUES


KNOWN_KEYS = (3770634643, 2441195773)
KNOWN_VALUES = [[15155, 21844, 58974], [48735, 51456, 18178], [30499, 34100, 11736]]
