"""A fixed random projection of the features, for graphs whose sparse features are wide."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp
import torch

from sylvie.data.graph import GraphData, SparseRows


def project_features(graph: GraphData, k: int, seed: int) -> GraphData:
    """Replace X [N, F] by X·R [N, k], R [F, k] Gaussian of variance 1/k drawn from ``seed``; float32.

    Distances are kept on average (Johnson–Lindenstrauss). CSR features are multiplied as they are, never
    made dense. Raises ValueError when k < 1.
    """
    if k < 1:
        raise ValueError(f"input projection to {k} columns is impossible; at least 1 is needed")
    drawn = np.random.default_rng(seed).standard_normal((graph.num_features, k), dtype=np.float32)
    matrix = drawn * np.float32(1 / np.sqrt(k))
    features = graph.features
    if isinstance(features, SparseRows):
        rows = sp.csr_matrix(
            (features.values.numpy(), features.indices.numpy(), features.indptr.numpy()), features.shape
        )
        projected = torch.from_numpy(np.ascontiguousarray(rows @ matrix))
    else:
        projected = features @ torch.from_numpy(matrix)
    return dataclasses.replace(graph, features=projected)
