"""What run.json says about rows by degree is what the plan has."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from sylvie.build import plan_for
from sylvie.config import Config
from sylvie.data.generator import GeneratorSettings, generate
from sylvie.extractor import BoundaryLevels, extract
from sylvie.partition import BoundaryPool
from sylvie.partition.build import boundary_pool, find_crossings, iter_partitions
from sylvie.partition.partition import Partition
from sylvie.protection import levels_by_degree


@pytest.fixture(scope="module")
def parts() -> tuple[list[Partition], BoundaryPool]:
    graph = generate(GeneratorSettings(nodes=400, degree=8, classes=4, features=4))
    owners = (torch.arange(400) % 3).numpy()
    crossings = find_crossings(graph, owners)
    return list(iter_partitions(graph, owners, 3, crossings, "test")), boundary_pool(graph, crossings)


def described(parts: tuple[list[Partition], BoundaryPool], levels: BoundaryLevels) -> list[dict[str, float | int]]:
    part = parts[0][1]
    return levels_by_degree(part, plan_for(Config(), part, levels))


def test_levels_rise_with_the_degree(parts: tuple[list[Partition], BoundaryPool]) -> None:
    found = described(parts, extract(parts[1], mask="degree", thresholds="quartile"))
    levels = [bucket["mean_level"] for bucket in found]
    assert levels == sorted(levels) and levels[0] < 1 and levels[-1] == 3
    assert found[-1]["mean_factor"] == 8
    degrees = [(bucket["min_degree"], bucket["max_degree"]) for bucket in found]
    assert all(low <= high for low, high in degrees)
    assert all(before[1] < after[0] for before, after in pairwise(degrees))
    part = parts[0][1]
    assert sum(bucket["rows"] for bucket in found) == part.send_index.shape[0] + part.num_halo


def test_a_mask_that_went_wrong_is_seen(parts: tuple[list[Partition], BoundaryPool]) -> None:
    right = extract(parts[1], mask="degree", thresholds="top10")
    found = described(parts, replace(right, levels=3 - right.levels))
    assert found[-1]["mean_level"] == 0 and found[0]["mean_level"] == 3
    flat = described(parts, extract(parts[1], mask="off"))
    assert {bucket["mean_level"] for bucket in flat} == {0.0}


def test_a_part_without_a_boundary_has_no_buckets() -> None:
    graph = generate(GeneratorSettings(nodes=60, degree=4, classes=2, features=2))
    owners = torch.zeros(60, dtype=torch.int64).numpy()
    crossings = find_crossings(graph, owners)
    (part,) = iter_partitions(graph, owners, 1, crossings, "test")
    levels = extract(boundary_pool(graph, crossings))
    assert levels_by_degree(part, plan_for(Config(), part, levels)) == []
