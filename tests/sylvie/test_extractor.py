"""Importance, mask levels and their shuffles: properties that must hold on every pool."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sylvie.extractor import (
    MASKS,
    extract,
    importance,
    mask_levels,
    permute_in_groups,
    resolve_thresholds,
    row_bits,
)
from sylvie.partition import BoundaryPool

degrees_lists = st.lists(st.integers(0, 30), min_size=1, max_size=60)


def pool_of(degrees: list[int], receivers: list[int] | None = None) -> BoundaryPool:
    count = len(degrees)
    return BoundaryPool(
        ids=torch.arange(count) * 3 + 1,
        in_degree=torch.tensor(degrees, dtype=torch.int64),
        receivers=torch.tensor(receivers if receivers is not None else [1] * count, dtype=torch.int64),
    )


def tensor(degrees: list[int]) -> Tensor:
    return torch.tensor(degrees, dtype=torch.int64)


@given(degrees_lists)
def test_importance_is_the_definition(degrees: list[int]) -> None:
    top = max(degrees)
    most = sum(d < top for d in degrees)
    expected = [float(Fraction(sum(u < d for u in degrees), most)) if most else 1.0 for d in degrees]
    assert importance(tensor(degrees)).tolist() == expected


@given(degrees_lists)
def test_distinct_importance_is_the_definition(degrees: list[int]) -> None:
    ladder = sorted(set(degrees))
    steps = len(ladder) - 1
    expected = [float(Fraction(ladder.index(d), steps)) if steps else 1.0 for d in degrees]
    assert importance(tensor(degrees), "distinct").tolist() == expected


@pytest.mark.parametrize("kind", ["rank", "distinct"])
@given(degrees=degrees_lists, order=st.randoms(use_true_random=False))
def test_importance_ignores_ids_and_order(kind: str, degrees: list[int], order: np.random.Generator) -> None:
    places = list(range(len(degrees)))
    order.shuffle(places)
    p = importance(tensor(degrees), kind)
    moved = importance(tensor([degrees[place] for place in places]), kind)
    assert moved.tolist() == [p[place].item() for place in places]


@pytest.mark.parametrize("kind", ["rank", "distinct"])
@given(degrees=degrees_lists)
def test_importance_is_monotone_with_maximum_one(kind: str, degrees: list[int]) -> None:
    p = importance(tensor(degrees), kind).tolist()
    assert max(p) == 1.0
    assert min(p) >= 0.0
    for d_a, p_a in zip(degrees, p, strict=True):
        for d_b, p_b in zip(degrees, p, strict=True):
            assert (d_a < d_b) == (p_a < p_b)


@pytest.mark.parametrize("kind", ["rank", "distinct"])
def test_equal_degrees_and_no_boundary(kind: str) -> None:
    assert importance(tensor([4] * 9), kind).tolist() == [1.0] * 9
    assert importance(tensor([7]), kind).tolist() == [1.0]
    assert importance(tensor([]), kind).shape == (0,)


def test_hundred_distinct_degrees_meet_the_named_sets() -> None:
    """p takes 0/100 … 100/100, so a threshold met exactly counts."""
    pool = pool_of(list(range(101)))
    assert extract(pool, thresholds="top10").counts == (90, 7, 2, 2)
    assert extract(pool, thresholds="quartile").counts == (25, 25, 25, 26)
    assert extract(pool, thresholds="0.25, 0.5, 0.75").counts == (25, 25, 25, 26)
    assert extract(pool, thresholds=(0.0, 0.0, 2.0)).counts == (0, 0, 101, 0)


@given(st.lists(st.floats(0, 1), max_size=30), st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_level_is_the_number_of_thresholds_reached(p: list[float], cuts: list[float]) -> None:
    levels = mask_levels(torch.tensor(p, dtype=torch.float64), sorted(cuts))
    assert levels.dtype == torch.uint8
    assert levels.tolist() == [sum(value >= cut for cut in cuts) for value in p]


@pytest.mark.parametrize(
    ("base", "bits"), [(1, [1, 4, 2, 8, 1]), (2, [2, 8, 4, 8, 2]), (4, [4, 8, 8, 8, 4]), (8, [8] * 5)]
)
def test_bits_of_figure_7(base: int, bits: list[int]) -> None:
    levels = torch.tensor([0, 2, 1, 3, 0], dtype=torch.uint8)
    assert row_bits(levels, base).tolist() == bits
    assert row_bits(levels, base).dtype == torch.uint8


@pytest.mark.parametrize("base", [0, 3, 16, 32])
def test_other_bases_are_refused(base: int) -> None:
    with pytest.raises(ValueError, match=f"{base} is not one of"):
        row_bits(torch.zeros(1, dtype=torch.uint8), base)


@given(degrees_lists, st.integers(0, 2**32))
def test_shuffled_keeps_the_counts(degrees: list[int], seed: int) -> None:
    pool = pool_of(degrees)
    plain = extract(pool, thresholds="quartile")
    mixed = extract(pool, thresholds="quartile", mask="shuffled", seed=seed)
    assert mixed.counts == plain.counts
    again = extract(pool, thresholds="quartile", mask="shuffled", seed=seed)
    assert torch.equal(mixed.levels, again.levels)  # whichever rank asks


@given(st.data(), degrees_lists, st.integers(0, 2**32))
def test_shuffled_rows_keeps_the_counts_of_each_number_of_receivers(
    data: st.DataObject, degrees: list[int], seed: int
) -> None:
    receivers = data.draw(st.lists(st.integers(1, 3), min_size=len(degrees), max_size=len(degrees)))
    pool = pool_of(degrees, receivers)
    plain = extract(pool, thresholds="quartile").levels
    mixed = extract(pool, thresholds="quartile", mask="shuffled-rows", seed=seed).levels
    for number in set(receivers):
        chosen = pool.receivers == number
        assert sorted(plain[chosen].tolist()) == sorted(mixed[chosen].tolist())
    for base in (1, 2):  # so the rows sent have the same bits in all
        sent = [(row_bits(levels, base).long() * pool.receivers).sum().item() for levels in (plain, mixed)]
        assert sent[0] == sent[1]


def test_shuffles_move_levels_and_differ_by_seed() -> None:
    pool = pool_of(list(range(400)), [1 + place % 3 for place in range(400)])
    plain = extract(pool).levels
    for mask in ("shuffled", "shuffled-rows"):
        mixed = [extract(pool, mask=mask, seed=seed).levels for seed in range(3)]
        assert not any(torch.equal(plain, one) for one in mixed)
        assert not torch.equal(mixed[0], mixed[1])


def test_a_shuffle_reaches_every_place_equally_often() -> None:
    levels = torch.tensor([3, 0, 0, 0], dtype=torch.uint8)
    places = [int(permute_in_groups(levels, torch.zeros(4), seed).argmax()) for seed in range(2000)]
    counts = np.bincount(places, minlength=4)
    assert counts.min() > 420  # 500 expected, deviation 19
    assert counts.max() < 580


def test_off_and_empty_pool() -> None:
    assert extract(pool_of([1, 5, 9]), mask="off").counts == (3, 0, 0, 0)
    for mask in MASKS:
        empty = extract(pool_of([]), mask=mask)
        assert empty.counts == (0, 0, 0, 0)
        assert empty.levels_of(torch.empty(0, dtype=torch.int64)).shape == (0,)


def test_levels_are_found_by_global_id() -> None:
    found = extract(pool_of([1, 2, 3, 4, 5]), thresholds=(0.5, 0.75, 1.0))
    assert found.levels.tolist() == [0, 0, 1, 2, 3]
    assert found.levels_of(torch.tensor([13, 1, 7, 10])).tolist() == [3, 0, 1, 2]
    for stranger in (2, 99, -1):
        with pytest.raises(ValueError, match=f"node {stranger} is not a boundary node"):
            found.levels_of(torch.tensor([1, stranger]))


@pytest.mark.parametrize(
    "given_text", ["top9", "1,2", "0.5,0.4,0.9", "-1,0,1", "nan,0,1", "0,0,inf", "a,b,c"]
)
def test_impossible_thresholds_are_one_line(given_text: str) -> None:
    with pytest.raises(ValueError, match="mask thresholds") as caught:
        resolve_thresholds(given_text)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="mask 'random' is unknown"):
        extract(pool_of([1]), mask="random")
    with pytest.raises(ValueError, match="importance 'page-rank' is unknown"):
        extract(pool_of([1]), importance_kind="page-rank")
