"""Graphs already in memory: DGLGraph and PyG ``Data``, recognised by what they offer, not by their class."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sylvie.data.arrays import Array, Report, log_notice
from sylvie.data.checks import build_graph
from sylvie.data.graph import GraphData


def from_dgl(
    g: Any,
    *,
    features: Tensor | str = "feat",
    labels: Tensor | str = "label",
    train_mask: Tensor | str = "train_mask",
    val_mask: Tensor | str = "val_mask",
    test_mask: Tensor | str = "test_mask",
    num_classes: int | None = None,
    name: str = "dgl",
    report: Report = log_notice,
) -> GraphData:
    """GraphData of a homogeneous DGLGraph; each part is a tensor or the key of ``g.ndata`` that holds it.

    Edges keep their direction. Raises ValueError in one line for a heterogeneous graph, a missing key or
    bad values.
    """
    if len(getattr(g, "ntypes", ("_N",))) > 1 or len(getattr(g, "etypes", ("_E",))) > 1:
        raise ValueError(f"{name}: the graph has several node or edge types; use dgl.to_homogeneous first")

    def part(given: Tensor | str) -> Any:
        if not isinstance(given, str):
            return _array(given)
        if given not in g.ndata:
            raise ValueError(
                f"{name}: g.ndata has no {given!r}; it has {', '.join(map(str, g.ndata)) or 'nothing'}"
            )
        return _array(g.ndata[given])

    src, dst = g.edges()
    return _whole(
        name,
        int(g.num_nodes()),
        (_array(src), _array(dst)),
        [part(given) for given in (features, labels, train_mask, val_mask, test_mask)],
        num_classes,
        report,
    )


def from_pyg(
    data: Any, *, num_classes: int | None = None, name: str = "pyg", report: Report = log_notice
) -> GraphData:
    """GraphData of a PyG ``Data`` with x, edge_index, y, train_mask, val_mask, test_mask.

    Raises ValueError in one line when one is missing, when the masks hold several splits, or on bad values.
    """
    parts = []
    for key in ("edge_index", "x", "y", "train_mask", "val_mask", "test_mask"):
        value = getattr(data, key, None)
        if value is None:
            raise ValueError(f"{name}: the data object has no {key!r}")
        array = _array(value)
        if key.endswith("mask") and array.ndim == 2:
            raise ValueError(
                f"{name}: {key} holds {array.shape[1]} splits; choose one, data.{key} = data.{key}[:, 0]"
            )
        parts.append(array)
    edges = parts[0]
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"{name}: edge_index has shape {tuple(edges.shape)}; (2, number of edges) is needed")
    return _whole(name, int(parts[1].shape[0]), (edges[0], edges[1]), parts[1:], num_classes, report)


def _whole(
    name: str,
    num_nodes: int,
    edges: tuple[Array, Array],
    parts: list[Any],
    num_classes: int | None,
    report: Report,
) -> GraphData:
    features, labels, train, val, test = parts
    if features.shape[0] != num_nodes:
        raise ValueError(f"{name}: there are {features.shape[0]} feature rows for {num_nodes} nodes")
    return build_graph(
        name=name,
        src=edges[0],
        dst=edges[1],
        features=features,
        labels=labels,
        train_mask=train,
        val_mask=val,
        test_mask=test,
        num_classes=num_classes,
        report=report,
    )


def _array(value: Any) -> Any:
    """A numpy copy (the caller's tensor may change later), or a CSR matrix for a sparse tensor."""
    if not isinstance(value, Tensor):
        return np.array(value)
    tensor = value.detach().cpu()
    if tensor.layout == torch.strided:
        return tensor.numpy().copy()
    coo = tensor.to_sparse(layout=torch.sparse_coo).coalesce()
    row, column = coo.indices().numpy()
    return sp.csr_matrix((coo.values().numpy(), (row, column)), shape=(int(coo.shape[0]), int(coo.shape[1])))
