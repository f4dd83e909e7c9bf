"""How well a graph was cut: balance, boundary and volume."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sylvie.data.arrays import Array
from sylvie.data.graph import GraphData
from sylvie.partition.build import Crossings
from sylvie.partition.manifest import PartitionStatistics, RankStatistics
from sylvie.partition.partition import Partition


def rank_statistics(part: Partition) -> RankStatistics:
    """The numbers of one rank."""
    return RankStatistics(
        inner=part.num_inner,
        halo=part.num_halo,
        edges=int(part.src.shape[0]),
        send_rows=int(part.send_index.shape[0]),
        train=int(part.train_mask.sum()),
        peers=sum(rows > 0 for rows in part.recv_splits),
    )


def partition_statistics(
    graph: GraphData, assignment: Array, crossings: Crossings, ranks: Sequence[RankStatistics]
) -> PartitionStatistics:
    """The numbers of the whole partition."""
    inner = np.array([rank.inner for rank in ranks])
    edges = np.array([rank.edges for rank in ranks])
    pool_nodes = int(np.unique(crossings.node).size)
    cut = assignment[graph.src.numpy()] != assignment[graph.dst.numpy()]
    return PartitionStatistics(
        ranks=tuple(ranks),
        balance=float(inner.max() / inner.mean()),
        edge_balance=float(edges.max() / edges.mean()) if edges.sum() else 1.0,
        pool_nodes=pool_nodes,
        boundary_share=pool_nodes / graph.num_nodes,
        volume=int(crossings.node.size),
        cut_edges=int(cut.sum()),
    )
