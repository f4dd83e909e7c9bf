"""The interval algebra against sets of points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sylvie_trace.timeline import (
    EMPTY,
    Intervals,
    clip,
    intersect,
    intervals,
    subtract,
    total,
    totals_within,
    union,
)

pairs = st.lists(st.tuples(st.integers(-30, 30), st.integers(-30, 30)), max_size=8)


def make(ends: list[tuple[int, int]]) -> Intervals:
    return intervals([a for a, _ in ends], [b for _, b in ends])


def points(a: Intervals) -> set[int]:
    return {point for low, high in a.tolist() for point in range(low, high)}


def raw_points(ends: list[tuple[int, int]]) -> set[int]:
    return {point for low, high in ends for point in range(low, high)}


def check_normal(a: Intervals) -> None:
    """Sorted, not empty, disjoint, not touching."""
    assert a.dtype == np.int64 and a.shape[1:] == (2,)
    assert (a[:, 0] < a[:, 1]).all()
    assert (a[1:, 0] > a[:-1, 1]).all()


@given(pairs)
def test_intervals_cover_the_given_points(ends: list[tuple[int, int]]) -> None:
    made = make(ends)
    check_normal(made)
    assert points(made) == raw_points(ends)
    assert total(made) == len(raw_points(ends))


@given(pairs, pairs)
def test_set_operations(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = make(first), make(second)
    for result, expected in (
        (union(a, b), points(a) | points(b)),
        (intersect(a, b), points(a) & points(b)),
        (subtract(a, b), points(a) - points(b)),
    ):
        check_normal(result)
        assert points(result) == expected


@given(pairs, st.integers(-35, 35), st.integers(-35, 35))
def test_clip_and_totals_within(ends: list[tuple[int, int]], low: int, high: int) -> None:
    made = make(ends)
    inside = {point for point in points(made) if low <= point < high}
    clipped = clip(made, low, high)
    check_normal(clipped)
    assert points(clipped) == inside
    assert totals_within(made, [low, low], [high, high]).tolist() == [len(inside)] * 2


@given(pairs, pairs)
def test_parts_add_up(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = make(first), make(second)
    assert total(a) == total(intersect(a, b)) + total(subtract(a, b))
    assert total(union(a, b)) == total(a) + total(b) - total(intersect(a, b))


def test_nothing() -> None:
    assert total(union()) == 0
    assert total(subtract(EMPTY, EMPTY)) == 0
    assert total(intervals([], [])) == 0
    assert totals_within(EMPTY, [0], [10]).tolist() == [0]


def test_nanoseconds_of_a_long_uptime_stay_exact() -> None:
    start = 2**60 + 1
    assert total(clip(intervals([start], [start + 3]), start + 1, start + 10)) == 2
