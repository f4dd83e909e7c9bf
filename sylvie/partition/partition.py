"""Partition: what one rank owns of the graph, and whom it sends which rows.

*Inner* nodes are owned by the rank; *halo* nodes are remote in-neighbours of inner nodes. Local row numbers
count inner rows first, then halo rows. Both ends of a pair order the rows between them by global id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sylvie.data.graph import SparseRows


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """The part of one rank: n inner, h halo, e edges, s rows to send (a node once per receiving peer)."""

    rank: int
    world_size: int
    fingerprint: str  # of graph, assignment and world size: equal on all ranks of a partition
    num_nodes: int  # of the whole graph
    num_edges: int
    num_classes: int
    multilabel: bool
    num_train: int  # of the whole graph, like the two below
    num_val: int
    num_test: int
    inner_ids: Tensor  # int64 [n] global ids, ascending
    halo_ids: Tensor  # int64 [h] global ids, grouped by owner, ascending inside a group
    recv_splits: tuple[int, ...]  # halo rows per owner; 0 for the rank itself
    send_index: (
        Tensor  # int64 [s] inner row numbers, grouped by receiving peer, ascending global id inside a group
    )
    send_splits: tuple[int, ...]  # rows per receiving peer; 0 for the rank itself
    src: Tensor  # int32 [e] local row number of the source
    dst: Tensor  # int32 [e] local row number of the (inner) destination
    in_degree: Tensor  # int64 [n + h] in the whole graph, as given (no self-loop added)
    out_degree: Tensor  # int64 [n + h]
    has_self_loop: Tensor  # bool [n + h]
    features: Tensor | SparseRows  # [n, F]
    labels: Tensor  # int64 [n] or float32 [n, C]
    train_mask: Tensor  # bool [n]
    val_mask: Tensor
    test_mask: Tensor

    @property
    def num_inner(self) -> int:
        """Nodes that this rank owns."""
        return int(self.inner_ids.shape[0])

    @property
    def num_halo(self) -> int:
        """Remote in-neighbours of the inner nodes."""
        return int(self.halo_ids.shape[0])

    def on(self, device: torch.device) -> Partition:
        """The same part with what an epoch computes with (edges, degrees, labels, masks) on ``device``; the rest stays."""
        moved = ("src", "dst", "in_degree", "out_degree", "has_self_loop", "labels", "train_mask", "val_mask", "test_mask")
        return replace(self, **{name: getattr(self, name).to(device) for name in moved})


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundaryPool:
    """The union of all ranks' boundary nodes, each once; small, and loaded by every rank."""

    ids: Tensor  # int64 [P] global ids, ascending
    in_degree: Tensor  # int64 [P] in the whole graph
    receivers: Tensor  # int64 [P] number of ranks that receive the node's rows
