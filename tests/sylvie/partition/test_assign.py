"""Assignments: METIS's, repaired where it leaves a part empty, and ready ones from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sylvie.data import load
from sylvie.partition.assignment import read_assignment
from sylvie.partition.build import find_crossings
from sylvie.partition.metis import metis_assignment, repair_empty_parts
from tests.sylvie.graphs import graph_of

SMALL = "generator:nodes=600,degree=8"


def quiet(_: str) -> None:
    """Takes notices."""


@pytest.mark.parametrize("parts", [1, 2, 5, 9])
def test_metis_is_balanced_and_repeatable(parts: int) -> None:
    graph = load(SMALL)
    assignment = metis_assignment(graph, parts, 1, quiet)
    sizes = np.bincount(assignment, minlength=parts)
    assert sizes.shape == (parts,)
    assert sizes.min() > 0
    assert sizes.max() <= 1.2 * 600 / parts
    assert np.array_equal(assignment, metis_assignment(graph, parts, 1, quiet))


def test_metis_cuts_better_than_chance() -> None:
    ring = graph_of(200, [(node, (node + 1) % 200) for node in range(200)])
    assignment = metis_assignment(ring, 4, 0, quiet)
    assert find_crossings(ring, assignment).node.size <= 12
    scattered = np.arange(200) % 4
    assert find_crossings(ring, scattered).node.size == 200


def test_seed_changes_the_parts() -> None:
    graph = load(SMALL)
    assert any(
        not np.array_equal(metis_assignment(graph, 4, 0, quiet), metis_assignment(graph, 4, seed, quiet))
        for seed in (1, 2, 3)
    )


@given(st.integers(2, 12), st.data())
@settings(max_examples=40, deadline=None)
def test_metis_never_leaves_a_part_empty(nodes: int, data: st.DataObject) -> None:
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    parts = data.draw(st.integers(1, nodes))
    assignment = metis_assignment(graph_of(nodes, edges), parts, 0, quiet)
    assert sorted(set(assignment.tolist())) == list(range(parts))


def test_empty_parts_are_repaired_and_said() -> None:
    said: list[str] = []
    fixed = repair_empty_parts(np.array([2, 2, 2, 2, 2, 0]), 4, said.append)
    assert np.bincount(fixed, minlength=4).min() >= 1
    assert fixed.tolist() == [2, 2, 3, 1, 1, 0]
    assert len(said) == 2
    assert "part 1" in said[0]
    untouched = np.array([1, 0])
    assert repair_empty_parts(untouched, 2, said.append).tolist() == [1, 0]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("parts", "words"), [(0, "at least 1"), (-2, "at least 1"), (4, "more than the 3 nodes")]
)
def test_impossible_part_counts(parts: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metis_assignment(graph_of(3, [(0, 1)]), parts, 0, quiet)


@pytest.mark.parametrize("text", ["0\n1\n1\n2\n", "0\n1\n1\n2", " 0\n1 \n1\r\n2\n"])
def test_ready_assignment(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.part.3"
    path.write_bytes(text.encode())
    assert read_assignment(path, 4, 3).tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0\n1\n1\n", "has 3 lines for 4 nodes"),
        ("0\n1\n1\n2\n0\n", "has 5 lines for 4 nodes"),
        ("", "has 0 lines for 4 nodes"),
        ("0\n1\n3\n2\n", "line 3 names part 3"),
        ("0\n1\n-1\n2\n", "line 3 names part -1"),
        ("0\n1\n1.5\n2\n", "line 3 is '1.5', not a part id"),
        ("0\n\n1\n2\n", "line 2 is '', not a part id"),
        ("0\n99999999999999999999\n1\n2\n", "line 2 is '99999999999999999999'"),
        ("0\n1\n1\n0\n", "part 2 of 3 has no node"),
    ],
)
def test_bad_assignment_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "graph.part.3"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_assignment(path, 4, 3)
    assert words in str(caught.value)
    assert "graph.part.3" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_binary_assignment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such assignment file"):
        read_assignment(tmp_path / "gone", 4, 3)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read as an assignment"):
        read_assignment(tmp_path / "binary", 4, 3)
