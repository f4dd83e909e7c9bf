"""Small graphs for tests: arrays in the project's npz form, and hypothesis strategies over whole graphs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sylvie.data.checks import build_graph
from sylvie.data.graph import GraphData


def tiny_arrays(nodes: int = 12, classes: int = 3, columns: int = 4, seed: int = 0) -> dict[str, Any]:
    """Arrays of a valid small graph in the npz form: a directed ring with a few chords, all masks filled."""
    rng = np.random.default_rng(seed)
    ring = np.arange(nodes)
    src = np.concatenate((ring, ring[::3]))
    dst = np.concatenate(((ring + 1) % nodes, (ring[::3] + 5) % nodes))
    masks = np.arange(nodes) % 3
    return {
        "edge_index": np.stack((src, dst)).astype(np.int32),
        "x": rng.standard_normal((nodes, columns)).astype(np.float32),
        "y": np.arange(nodes, dtype=np.int64) % classes,
        "train_mask": masks == 0,
        "val_mask": masks == 1,
        "test_mask": masks == 2,
    }


def write_npz(path: Path, **changes: Any) -> Path:
    """Write ``tiny_arrays`` with some arrays replaced; None leaves one out."""
    arrays = {**tiny_arrays(), **changes}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def graph_of(nodes: int, edges: list[tuple[int, int]], *, seed: int = 0, sparse: bool = False) -> GraphData:
    """A graph with these edges, random features and labels, and every mask non-empty (they may overlap)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((nodes, 3)).astype(np.float32)
    if sparse:
        import scipy.sparse as sp

        x = sp.csr_matrix(np.where(x > 0, x, 0))
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    masks = rng.random((3, nodes)) < 0.5
    masks[:, 0] = True
    return build_graph(
        name="test",
        src=ends[:, 0],
        dst=ends[:, 1],
        features=x,
        labels=rng.integers(0, 2, nodes),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        num_classes=2,
        report=lambda _: None,
    )


@st.composite
def graphs_and_parts(draw: st.DrawFn, max_nodes: int = 14, max_parts: int = 4) -> tuple[GraphData, Any, int]:
    """A directed graph (loops, isolated nodes, parallel edges), an assignment, the number of parts."""
    nodes = draw(st.integers(1, max_nodes))
    parts = draw(st.integers(1, min(nodes, max_parts)))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    rest = draw(st.lists(st.integers(0, parts - 1), min_size=nodes - parts, max_size=nodes - parts))
    assignment = draw(st.permutations([*range(parts), *rest]))
    graph = graph_of(nodes, edges, seed=draw(st.integers(0, 99)), sparse=draw(st.booleans()))
    return graph, np.array(assignment, dtype=np.int64), parts


def real_graph_root() -> Path:
    """Folder of the real graphs beside the checkout; the test skips itself where there is none."""
    given = os.environ.get("SYLVIE_TEST_DATA")
    root = Path(given) if given else Path(__file__).parents[2].parent / "shared" / "data"
    if not (root / "debian13_section.npz").is_file():
        pytest.skip("the real graphs are not here; set SYLVIE_TEST_DATA to their folder")
    return root
