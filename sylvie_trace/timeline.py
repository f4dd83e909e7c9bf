"""Interval algebra on nanoseconds.

A *set* is an int64 array of shape (n, 2): half-open intervals [start, end), sorted, disjoint, none empty
and none touching the next. Every function takes and returns sets, so overlapping events never count twice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), dtype=np.int64)


def intervals(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
    """The set covered by [starts[i], ends[i]), shapes (n,); empty and inverted pairs cover nothing."""
    first, last = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    kept = last > first
    first, last = first[kept], last[kept]
    if not first.size:
        return EMPTY
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    opens = np.concatenate(([True], first[1:] > last[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.stack((first[opens], last[closes]), axis=1)


def union(*sets: Intervals) -> Intervals:
    """All points that lie in at least one set."""
    joined = np.concatenate((EMPTY, *sets))
    return intervals(joined[:, 0], joined[:, 1])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """All points that lie in both sets."""
    return _select(a, b, wanted_in_b=True)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """All points of ``a`` that do not lie in ``b``."""
    return _select(a, b, wanted_in_b=False)


def clip(a: Intervals, low: int, high: int) -> Intervals:
    """The part of ``a`` inside [low, high)."""
    return intervals(np.maximum(a[:, 0], low), np.minimum(a[:, 1], high))


def total(a: Intervals) -> int:
    """Length of the set in ns."""
    return int((a[:, 1] - a[:, 0]).sum())


def totals_within(a: Intervals, starts: npt.ArrayLike, ends: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Length in ns of ``a`` inside each [starts[i], ends[i]), shape (n,): one pass for all epochs."""
    first, last = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    return _covered_before(a, np.maximum(first, last)) - _covered_before(a, first)


def _covered_before(a: Intervals, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Length of ``a`` left of each point."""
    if not a.size:
        return np.zeros(points.shape, dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(a[:, 1] - a[:, 0])))
    index = np.searchsorted(a[:, 0], points, side="right")
    overhang = np.where(index > 0, np.maximum(a[np.maximum(index - 1, 0), 1] - points, 0), 0)
    result: npt.NDArray[np.int64] = before[index] - overhang
    return result


def _contains(a: Intervals, points: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each point lies in ``a``."""
    if not a.size:
        return np.zeros(points.shape, dtype=np.bool_)
    index = np.searchsorted(a[:, 0], points, side="right")
    inside: npt.NDArray[np.bool_] = (index > 0) & (points < a[np.maximum(index - 1, 0), 1])
    return inside


def _select(a: Intervals, b: Intervals, *, wanted_in_b: bool) -> Intervals:
    """Cut the line at every end of either set; keep the pieces in ``a`` that are, or are not, in ``b``."""
    points = np.unique(np.concatenate((a.ravel(), b.ravel())))
    if points.size < 2:
        return EMPTY
    starts, ends = points[:-1], points[1:]
    kept = _contains(a, starts) & (_contains(b, starts) == wanted_in_b)
    return intervals(starts[kept], ends[kept])
