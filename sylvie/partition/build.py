"""GraphData + assignment -> the Partition of every rank and the pool of boundary nodes.

1. Order nodes by (part, global id): a rank's inner nodes are a stretch of that order.
2. Take the distinct (receiving part, owner, node) triples of edges that cross parts: a part's halo, and, read
   the other way, what each owner sends.
3. Part by part, take the in-edges of its inner nodes and number both ends locally.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sylvie.data.arrays import Array, sorted_unique
from sylvie.data.graph import GraphData, SparseRows
from sylvie.partition.metis import check_parts
from sylvie.partition.partition import BoundaryPool, Partition

_INT32_ROWS = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Crossings:
    """The distinct (receiver, owner, node) of edges between parts, sorted by all three; int64 [h] each."""

    receiver: Array
    owner: Array
    node: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Whole:
    """What every part reads: arrays over the whole graph."""

    graph: GraphData
    owner: Array  # [N]
    row: Array  # [N] inner row number at the owner
    crossings: Crossings
    in_degree: Array
    out_degree: Array
    has_self_loop: Array
    fingerprint: str


def partition_fingerprint(graph_fingerprint: str, assignment: Array, parts: int) -> str:
    """16 hex digits over graph, assignment and number of parts."""
    digest = hashlib.sha256(f"{graph_fingerprint}|{parts}|".encode())
    digest.update(np.ascontiguousarray(assignment, dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def find_crossings(graph: GraphData, assignment: Array) -> Crossings:
    """Which node goes to which part: each once however many edges want it there."""
    src, dst = graph.src.numpy(), graph.dst.numpy()
    cross = assignment[src] != assignment[dst]
    sources, receivers = src[cross], assignment[dst[cross]]
    keys = sorted_unique(receivers * graph.num_nodes + sources)
    receiver, node = np.divmod(keys, graph.num_nodes)
    owner = assignment[node]
    order = np.lexsort((node, owner, receiver))
    return Crossings(receiver=receiver[order], owner=owner[order], node=node[order])


def boundary_pool(graph: GraphData, crossings: Crossings) -> BoundaryPool:
    """All nodes that some other part needs, each once, with global in-degree and number of receivers."""
    ids, receivers = np.unique(crossings.node, return_counts=True)
    return BoundaryPool(
        ids=torch.from_numpy(ids), in_degree=graph.in_degrees()[ids], receivers=torch.from_numpy(receivers)
    )


def iter_partitions(
    graph: GraphData, assignment: Array, parts: int, crossings: Crossings, graph_fingerprint: str
) -> Iterator[Partition]:
    """The partitions of ranks 0, 1, … one at a time, so that only one is in memory beside the graph.

    assignment int64 [N], every part with at least one node; ``crossings`` of the same assignment. With one
    part the halo is empty. Edges of a partition are sorted by (destination, global source id), so a node's
    neighbours are summed in the same order whatever the assignment.
    """
    check_parts(graph, parts)
    assert assignment.shape == (graph.num_nodes,)
    order = np.argsort(assignment, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(assignment, minlength=parts))))
    row = np.empty(graph.num_nodes, dtype=np.int64)
    row[order] = np.arange(graph.num_nodes) - np.repeat(starts[:-1], np.diff(starts))
    self_loop = np.zeros(graph.num_nodes, dtype=np.bool_)
    self_loop[graph.src[graph.src == graph.dst].numpy()] = True
    whole = _Whole(
        graph=graph,
        owner=assignment,
        row=row,
        crossings=crossings,
        in_degree=graph.in_degrees().numpy(),
        out_degree=graph.out_degrees().numpy(),
        has_self_loop=self_loop,
        fingerprint=partition_fingerprint(graph_fingerprint, assignment, parts),
    )
    for rank in range(parts):
        yield _partition(whole, rank, parts, order[starts[rank] : starts[rank + 1]])


def _partition(whole: _Whole, rank: int, parts: int, inner: Array) -> Partition:
    graph, crossings = whole.graph, whole.crossings
    received = crossings.receiver == rank
    halo = crossings.node[received]
    sent = crossings.owner == rank  # stays sorted by (receiver, node)
    local_ids = np.concatenate((inner, halo))
    assert local_ids.size <= _INT32_ROWS
    src, dst = _local_edges(whole, rank, inner.size, halo)
    rows = torch.from_numpy(inner)
    return Partition(
        rank=rank,
        world_size=parts,
        fingerprint=whole.fingerprint,
        num_nodes=graph.num_nodes,
        num_edges=int(graph.src.shape[0]),
        num_classes=graph.num_classes,
        multilabel=graph.multilabel,
        num_train=int(graph.train_mask.sum()),
        num_val=int(graph.val_mask.sum()),
        num_test=int(graph.test_mask.sum()),
        inner_ids=rows,
        halo_ids=torch.from_numpy(halo),
        recv_splits=tuple(np.bincount(crossings.owner[received], minlength=parts).tolist()),
        send_index=torch.from_numpy(whole.row[crossings.node[sent]]),
        send_splits=tuple(np.bincount(crossings.receiver[sent], minlength=parts).tolist()),
        src=torch.from_numpy(src),
        dst=torch.from_numpy(dst),
        in_degree=torch.from_numpy(whole.in_degree[local_ids]),
        out_degree=torch.from_numpy(whole.out_degree[local_ids]),
        has_self_loop=torch.from_numpy(whole.has_self_loop[local_ids]),
        features=select_rows(graph.features, rows),
        labels=graph.labels[rows],
        train_mask=graph.train_mask[rows],
        val_mask=graph.val_mask[rows],
        test_mask=graph.test_mask[rows],
    )


def _local_edges(whole: _Whole, rank: int, num_inner: int, halo: Array) -> tuple[Array, Array]:
    """In-edges of the inner nodes in local rows, int32, sorted by (destination, global source id)."""
    src, dst = whole.graph.src.numpy(), whole.graph.dst.numpy()
    mine = whole.owner[dst] == rank
    # One sort of a joint key: destinations are ascending in their rows as in their ids.
    keys = np.sort(whole.row[dst[mine]] * whole.graph.num_nodes + src[mine])
    row, source = np.divmod(keys, whole.graph.num_nodes)
    place = whole.row.copy()
    place[halo] = num_inner + np.arange(halo.size)
    return place[source].astype(np.int32), row.astype(np.int32)


def select_rows(features: Tensor | SparseRows, rows: Tensor) -> Tensor | SparseRows:
    """The given feature rows, in the given order; CSR stays CSR."""
    if isinstance(features, Tensor):
        return features[rows]
    indptr, wanted = features.indptr.numpy(), rows.numpy()
    lengths = indptr[wanted + 1] - indptr[wanted]
    pointers = np.concatenate(([0], np.cumsum(lengths)))
    places = np.repeat(indptr[wanted] - pointers[:-1], lengths) + np.arange(pointers[-1])
    picked = torch.from_numpy(places)
    return SparseRows(
        indptr=torch.from_numpy(pointers),
        indices=features.indices[picked],
        values=features.values[picked],
        shape=(int(rows.shape[0]), features.shape[1]),
    )
