"""The local graphs, against a plain reading of their definition, on random directed graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from torch import Tensor

from sylvie.data import GraphData, SparseRows, fingerprint
from sylvie.partition import Partition
from sylvie.partition.build import boundary_pool, find_crossings, iter_partitions
from tests.sylvie.graphs import graph_of, graphs_and_parts

Drawn = tuple[GraphData, Any, int]


def built(graph: GraphData, assignment: Any, parts: int) -> list[Partition]:
    return list(
        iter_partitions(graph, assignment, parts, find_crossings(graph, assignment), fingerprint(graph))
    )


def local_ids(part: Partition) -> list[int]:
    return [*part.inner_ids.tolist(), *part.halo_ids.tolist()]


def dense(features: Tensor | SparseRows) -> Any:
    if isinstance(features, Tensor):
        return features.numpy()
    return sp.csr_matrix((features.values, features.indices, features.indptr), features.shape).toarray()


def halo_of(part: Partition, owner: int) -> list[int]:
    start = sum(part.recv_splits[:owner])
    return part.halo_ids.tolist()[start : start + part.recv_splits[owner]]


def sent_to(part: Partition, peer: int) -> list[int]:
    start = sum(part.send_splits[:peer])
    rows = part.send_index[start : start + part.send_splits[peer]]
    return part.inner_ids[rows].tolist()


@given(graphs_and_parts())
def test_every_edge_is_once_an_in_edge_of_its_destinations_owner(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    found = []
    for part in built(graph, assignment, parts):
        ids = local_ids(part)
        assert part.src.dtype == part.dst.dtype == torch.int32
        for src, dst in zip(part.src.tolist(), part.dst.tolist(), strict=True):
            assert dst < part.num_inner
            assert assignment[ids[dst]] == part.rank
            found.append((ids[src], ids[dst]))
    assert sorted(found) == sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


@given(graphs_and_parts())
def test_inner_nodes_are_the_assignment(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    for part in built(graph, assignment, parts):
        assert part.inner_ids.tolist() == np.flatnonzero(assignment == part.rank).tolist()
        rows = part.inner_ids
        assert np.array_equal(dense(part.features), dense(graph.features)[rows.numpy()])
        for name in ("labels", "train_mask", "val_mask", "test_mask"):
            assert torch.equal(getattr(part, name), getattr(graph, name)[rows])
        assert (part.rank, part.world_size, part.num_nodes) == (part.rank, parts, graph.num_nodes)
        assert part.num_edges == graph.src.shape[0]
        assert part.num_train == int(graph.train_mask.sum())
        assert part.num_val == int(graph.val_mask.sum())
        assert part.num_test == int(graph.test_mask.sum())


@given(graphs_and_parts())
def test_halo_is_exactly_the_remote_in_neighbours(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    for part in built(graph, assignment, parts):
        assert len(part.recv_splits) == len(part.send_splits) == parts
        assert part.recv_splits[part.rank] == part.send_splits[part.rank] == 0
        for owner in range(parts):
            wanted = {
                u
                for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
                if assignment[v] == part.rank and assignment[u] == owner != part.rank
            }
            assert halo_of(part, owner) == sorted(wanted)


@given(graphs_and_parts())
def test_rows_sent_are_the_halo_rows_expected_in_the_same_order(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    ranks = built(graph, assignment, parts)
    for sender in ranks:
        for receiver in ranks:
            assert sent_to(sender, receiver.rank) == halo_of(receiver, sender.rank)


@given(graphs_and_parts())
def test_degrees_and_loops_are_those_of_the_whole_graph(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    edges = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for part in built(graph, assignment, parts):
        for row, node in enumerate(local_ids(part)):
            assert part.in_degree[row] == sum(v == node for _, v in edges)
            assert part.out_degree[row] == sum(u == node for u, _ in edges)
            assert bool(part.has_self_loop[row]) == ((node, node) in edges)


@given(graphs_and_parts())
def test_pool_is_the_union_of_all_halos(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    pool = boundary_pool(graph, find_crossings(graph, assignment))
    halos = [set(part.halo_ids.tolist()) for part in built(graph, assignment, parts)]
    union = sorted(set().union(*halos))
    assert pool.ids.tolist() == union
    assert pool.receivers.tolist() == [sum(node in halo for halo in halos) for node in union]
    assert pool.in_degree.tolist() == graph.in_degrees()[pool.ids].tolist()


@given(graphs_and_parts())
@settings(max_examples=30)
def test_aggregation_over_parts_equals_the_whole_graph(drawn: Drawn) -> None:
    graph, assignment, parts = drawn
    rows = torch.from_numpy(dense(graph.features)).double()
    whole = torch.zeros_like(rows).index_add_(0, graph.dst, rows[graph.src])
    for part in built(graph, assignment, parts):
        local = rows[torch.tensor(local_ids(part))]
        summed = torch.zeros(part.num_inner, rows.shape[1], dtype=torch.float64)
        summed.index_add_(0, part.dst.long(), local[part.src.long()])
        assert torch.allclose(summed, whole[part.inner_ids], atol=1e-12)


def test_neighbours_are_summed_in_global_order() -> None:
    graph = graph_of(5, [(4, 0), (1, 0), (3, 0), (0, 0), (2, 0), (1, 4), (0, 4)])
    for assignment in ([0, 0, 0, 0, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 1]):
        owner_of_0 = built(graph, np.array(assignment), 2)[assignment[0]]
        ids = local_ids(owner_of_0)
        row_of_0 = ids.index(0)
        sources = owner_of_0.src[owner_of_0.dst == row_of_0].tolist()
        assert [ids[row] for row in sources] == [0, 1, 2, 3, 4]


def test_one_part_has_no_halo() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (3, 3)])
    (part,) = built(graph, np.zeros(4, dtype=np.int64), 1)
    assert part.num_halo == 0
    assert part.send_index.shape == (0,)
    assert part.recv_splits == part.send_splits == (0,)
    assert part.src.shape == (3,)


def test_parts_without_edges_and_without_common_edges() -> None:
    graph = graph_of(6, [(0, 1), (2, 3), (1, 2)])
    first, second, third = built(graph, np.array([0, 0, 1, 1, 2, 2]), 3)
    assert (first.num_halo, second.num_halo, third.num_halo) == (0, 1, 0)
    assert first.send_splits == (0, 1, 0)
    assert third.src.shape == (0,)
    assert third.num_inner == 2


def test_fingerprint_names_graph_assignment_and_parts() -> None:
    graph = graph_of(4, [(0, 1), (1, 2)])
    other = graph_of(4, [(0, 1), (1, 3)])
    prints = [
        built(graph, np.array([0, 0, 1, 1]), 2),
        built(graph, np.array([0, 1, 1, 0]), 2),
        built(other, np.array([0, 0, 1, 1]), 2),
    ]
    assert len({ranks[0].fingerprint for ranks in prints}) == 3
    assert prints[0][0].fingerprint == prints[0][1].fingerprint
