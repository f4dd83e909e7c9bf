"""GraphData: one whole graph in memory, before it is split."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """Feature rows in CSR form; ``shape`` = (rows, columns). They stay CSR up to the first product."""

    indptr: Tensor  # int64 [rows + 1]
    indices: Tensor  # int64 [nnz], ascending inside a row
    values: Tensor  # floating [nnz]
    shape: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphData:
    """A whole graph with features, labels and masks.

    Edges run ``src[i] -> dst[i]``; messages flow along them, so the in-neighbours of v are the sources of
    its edges. ``labels`` is int64 [N] (−1 = unlabelled) or float32 [N, C] of zeros and ones when
    ``multilabel``.
    """

    name: str
    num_nodes: int
    num_classes: int
    multilabel: bool
    src: Tensor  # int64 [E]
    dst: Tensor  # int64 [E]
    features: Tensor | SparseRows  # float32 [N, F]
    labels: Tensor
    train_mask: Tensor  # bool [N]
    val_mask: Tensor
    test_mask: Tensor

    @property
    def num_features(self) -> int:
        """Width F of the feature rows."""
        return int(self.features.shape[1])

    def in_degrees(self) -> Tensor:
        """In-degree of every node in the whole graph, int64 [N]."""
        return torch.bincount(self.dst, minlength=self.num_nodes)

    def out_degrees(self) -> Tensor:
        """Out-degree of every node in the whole graph, int64 [N]."""
        return torch.bincount(self.src, minlength=self.num_nodes)
