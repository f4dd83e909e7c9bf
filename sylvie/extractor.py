"""Graph Extractor (§7): how important is each boundary node, and which mask level does that give it.

Pure functions over the boundary pool. Every rank holds the same pool, so every rank gets the same levels
without asking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sylvie.partition.partition import BoundaryPool

MASKS = ("degree", "off", "shuffled", "shuffled-rows")
IMPORTANCE_KINDS = ("rank", "distinct")
NAMED_THRESHOLDS = {"top10": (0.90, 0.97, 0.99), "quartile": (0.25, 0.50, 0.75)}
NUM_LEVELS = 4
MAX_BITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundaryLevels:
    """The mask level of every boundary node, fixed for a run."""

    ids: Tensor  # int64 [P] global ids, ascending
    levels: Tensor  # uint8 [P], 0 to 3
    mask: str
    thresholds: tuple[float, float, float]
    importance: str
    counts: tuple[int, int, int, int]  # boundary nodes at level 0, 1, 2, 3

    def levels_of(self, global_ids: Tensor) -> Tensor:
        """Levels uint8 [m] of boundary nodes given by global id, int64 [m]; raises ValueError for any other
        node.
        """
        place = torch.searchsorted(self.ids, global_ids)
        found = place < self.ids.shape[0]
        found[found.clone()] = self.ids[place[found]] == global_ids[found]
        if not bool(found.all()):
            raise ValueError(f"node {int(global_ids[~found][0])} is not a boundary node of this partition")
        return self.levels[place]


def extract(
    pool: BoundaryPool,
    *,
    mask: str = "degree",
    thresholds: str | Sequence[float] = "top10",
    importance_kind: str = "rank",
    seed: int = 0,
) -> BoundaryLevels:
    """Rank the pool and set the levels; the same arguments give the same levels on every rank.

    ``off`` puts every node at level 0. ``shuffled`` permutes the degree levels over the pool by ``seed``:
    as many nodes at each level, degree no longer in play. ``shuffled-rows`` permutes among nodes with equal
    numbers of receiving ranks, so that rows and bytes sent stay equal too. Raises ValueError for an unknown
    name or impossible thresholds.
    """
    if mask not in MASKS:
        raise ValueError(f"mask {mask!r} is unknown; use one of {', '.join(MASKS)}")
    cuts = resolve_thresholds(thresholds)
    if mask == "off":
        levels = torch.zeros(pool.ids.shape[0], dtype=torch.uint8)
    else:
        levels = mask_levels(importance(pool.in_degree, importance_kind), cuts)
        if mask == "shuffled":
            levels = permute_in_groups(levels, torch.zeros_like(pool.receivers), seed)
        elif mask == "shuffled-rows":
            levels = permute_in_groups(levels, pool.receivers, seed)
    count = torch.bincount(levels.to(torch.int64), minlength=NUM_LEVELS).tolist()
    return BoundaryLevels(
        ids=pool.ids,
        levels=levels,
        mask=mask,
        thresholds=cuts,
        importance=importance_kind,
        counts=(count[0], count[1], count[2], count[3]),
    )


def resolve_thresholds(given: str | Sequence[float]) -> tuple[float, float, float]:
    """Three thresholds by name (``top10``, ``quartile``), as "a,b,c", or as numbers: 0 ≤ a ≤ b ≤ c, finite.

    A threshold above 1 is never reached. Raises ValueError in one line otherwise.
    """
    if isinstance(given, str):
        if given in NAMED_THRESHOLDS:
            return NAMED_THRESHOLDS[given]
        try:
            values = [float(text) for text in given.split(",")]
        except ValueError:
            raise ValueError(
                f"mask thresholds {given!r} are unknown; use {', '.join(NAMED_THRESHOLDS)} or numbers a,b,c"
            ) from None
    else:
        values = [float(value) for value in given]
    if len(values) != 3 or not all(map(math.isfinite, values)) or values != sorted(values) or values[0] < 0:
        raise ValueError(f"mask thresholds {given!r} must be three numbers with 0 <= a <= b <= c")
    return values[0], values[1], values[2]


def importance(in_degree: Tensor, kind: str = "rank") -> Tensor:
    """Importance p in [0, 1] of pool nodes by global in-degree d, int64 [P] -> float64 [P].

    ``rank``: p(v) = #{u: d_u < d_v} / #{u: d_u < d_max}; ``distinct``: the same over the distinct degrees.
    The largest degree has 1, equal degrees have equal p, and when all are equal p is 1 for all. Counts are
    integers, divided once.
    """
    if kind not in IMPORTANCE_KINDS:
        raise ValueError(f"importance {kind!r} is unknown; use one of {', '.join(IMPORTANCE_KINDS)}")
    if not in_degree.numel():
        return torch.empty(0, dtype=torch.float64)
    ordered = torch.unique(in_degree) if kind == "distinct" else torch.sort(in_degree).values
    below = torch.searchsorted(ordered, in_degree)
    most = int(below.max())
    if most == 0:
        return torch.ones(in_degree.shape[0], dtype=torch.float64)
    return below.to(torch.float64) / most


def mask_levels(p: Tensor, thresholds: Sequence[float]) -> Tensor:
    """Mask level = number of thresholds θ with p ≥ θ; float64 [P] -> uint8 [P]."""
    levels = torch.zeros(p.shape[0], dtype=torch.uint8)
    for threshold in thresholds:
        levels += (p >= threshold).to(torch.uint8)
    return levels


def permute_in_groups(levels: Tensor, group: Tensor, seed: int) -> Tensor:
    """Permute levels [P] by ``seed`` among nodes with equal ``group`` [P]; counts of each level per group
    stay.
    """
    rng = np.random.default_rng(seed)
    groups = group.numpy()
    ordered = np.argsort(groups, kind="stable")
    mixed = np.lexsort((rng.random(groups.size), groups))
    result = np.empty(groups.size, dtype=np.uint8)
    result[ordered] = levels.numpy()[mixed]
    return torch.from_numpy(result)


def row_bits(levels: Tensor, base: int) -> Tensor:
    """Bits of a row: min(8, base · 2^level), base in {1, 2, 4, 8}; uint8 [m] -> uint8 [m]."""
    if base not in (1, 2, 4, 8):
        raise ValueError(f"base bit width {base} is not one of 1, 2, 4, 8")
    return torch.clamp(torch.bitwise_left_shift(torch.full_like(levels, base), levels), max=MAX_BITS)
