"""METIS assignment by communication volume."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from sylvie.data.arrays import Array
from sylvie.data.graph import GraphData

VOLUME_OBJECTIVE = 1  # METIS_OBJTYPE_VOL


def metis_assignment(graph: GraphData, parts: int, seed: int, report: Callable[[str], None]) -> Array:
    """A part id for every node, int64 [N], by METIS k-way on the symmetrised graph without self-loops.

    The objective is communication volume, not edge cut; the same seed gives the same parts. Parts that
    METIS leaves empty are repaired from the largest part, and said so to ``report``. Raises ValueError when
    parts < 1 or > nodes.
    """
    check_parts(graph, parts)
    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    try:
        import pymetis  # here: a partition made elsewhere needs no METIS
    except ImportError:
        raise ValueError("cutting a graph needs pymetis, which is not installed; pip install pymetis") from None
    starts, neighbours = _symmetric_neighbours(graph)
    options = pymetis.Options(objtype=VOLUME_OBJECTIVE, seed=seed)
    # Recursive bisection, the default up to 8 parts, knows edge cut only.
    adjacency = pymetis.CSRAdjacency(starts, neighbours)
    result = pymetis.part_graph(parts, adjacency=adjacency, options=options, recursive=False)
    return repair_empty_parts(np.asarray(result[1], dtype=np.int64), parts, report)


def check_parts(graph: GraphData, parts: int) -> None:
    """Raise ValueError unless every one of ``parts`` parts can own a node."""
    if parts < 1:
        raise ValueError(f"{parts} parts are impossible; at least 1 is needed")
    if parts > graph.num_nodes:
        raise ValueError(
            f"{parts} parts are more than the {graph.num_nodes} nodes of {graph.name}; take fewer parts"
        )


def repair_empty_parts(assignment: Array, parts: int, report: Callable[[str], None]) -> Array:
    """Give every empty part half of the largest part's nodes (the highest ids), until none is empty."""
    fixed = assignment.copy()
    sizes = np.bincount(fixed, minlength=parts)
    for part in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        moved = np.flatnonzero(fixed == largest)[sizes[largest] - sizes[largest] // 2 :]
        fixed[moved] = part
        sizes[largest] -= moved.size
        sizes[part] = moved.size
        report(f"METIS left part {part} without nodes; it was given {moved.size} node(s) of part {largest}")
    return fixed


def _symmetric_neighbours(graph: GraphData) -> tuple[Array, Array]:
    """CSR of A + Aᵀ without its diagonal, each neighbour once, in 64-bit integers (METIS's width here)."""
    src, dst = graph.src.numpy(), graph.dst.numpy()
    ends = (np.concatenate((src, dst)), np.concatenate((dst, src)))
    keep = ends[0] != ends[1]
    row, column = ends[0][keep], ends[1][keep]
    ones = np.ones(row.size, dtype=np.int8)
    matrix = sp.coo_matrix((ones, (row, column)), shape=(graph.num_nodes, graph.num_nodes)).tocsr()
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
