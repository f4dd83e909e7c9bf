"""A short name for a graph's content, so that a cached partition is never used for another graph."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor

from sylvie.data.graph import GraphData, SparseRows


def fingerprint(graph: GraphData) -> str:
    """First 16 hex digits of a SHA-256 over every array with name, type and shape."""
    digest = hashlib.sha256(f"{graph.num_nodes}|{graph.num_classes}|{graph.multilabel}".encode())
    for name, tensor in _tensors(graph):
        array = np.ascontiguousarray(tensor.numpy())
        digest.update(f"|{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]


def _tensors(graph: GraphData) -> list[tuple[str, Tensor]]:
    features = graph.features
    if isinstance(features, SparseRows):
        rows = [("x_indptr", features.indptr), ("x_indices", features.indices), ("x_values", features.values)]
        rows = [(f"{name}/{features.shape[1]}", tensor) for name, tensor in rows]
    else:
        rows = [("x", features)]
    return [
        ("src", graph.src),
        ("dst", graph.dst),
        *rows,
        ("labels", graph.labels),
        ("train_mask", graph.train_mask),
        ("val_mask", graph.val_mask),
        ("test_mask", graph.test_mask),
    ]
