"""What every reader hands its arrays to: normalise, validate, and say in one line what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch

from sylvie.data.arrays import Array, Report, log_notice, sorted_unique
from sylvie.data.graph import GraphData, SparseRows
from sylvie.data.labels import check_labels


def build_graph(
    *,
    name: str,
    src: Array,
    dst: Array,
    features: Array | sp.csr_matrix,
    labels: Array,
    train_mask: Array,
    val_mask: Array,
    test_mask: Array,
    num_classes: int | None = None,
    report: Report = log_notice,
    where: str | None = None,
) -> GraphData:
    """Turn raw arrays into a GraphData; raises ValueError in one line that starts with ``where`` or ``name``.

    src, dst [E] integers; features [N, F] (or [N], one column) or CSR; labels [N] or [N, 1] classes, −1 or
    NaN = unlabelled, or [N, C] zeros and ones; masks [N] bool or zeros and ones. ``num_classes`` is stated
    by formats that know it, else taken from the labels. Parallel edges are merged, with a notice.
    """
    label = where or name
    rows = _feature_rows(features, label)
    num_nodes = int(rows.shape[0])
    if num_nodes == 0 or int(rows.shape[1]) == 0:
        raise ValueError(
            f"{label}: the features have shape {tuple(rows.shape)}; one row and column at least are needed"
        )
    src, dst = _edges(src, dst, num_nodes, label, report)
    masks = {
        part: _mask(mask, num_nodes, f"{label}: {part}_mask")
        for part, mask in (("train", train_mask), ("val", val_mask), ("test", test_mask))
    }
    _note_overlaps(masks, label, report)
    in_mask = masks["train"] | masks["val"] | masks["test"]
    y, classes, multilabel = check_labels(labels, num_nodes, in_mask, num_classes, label, report)
    return GraphData(
        name=name,
        num_nodes=num_nodes,
        num_classes=classes,
        multilabel=multilabel,
        src=torch.from_numpy(src),
        dst=torch.from_numpy(dst),
        features=rows,
        labels=torch.from_numpy(y),
        train_mask=torch.from_numpy(masks["train"]),
        val_mask=torch.from_numpy(masks["val"]),
        test_mask=torch.from_numpy(masks["test"]),
    )


def _feature_rows(features: Array | sp.csr_matrix, label: str) -> torch.Tensor | SparseRows:
    if sp.issparse(features):
        csr = sp.csr_matrix(features, dtype=np.float32)
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        _refuse_non_finite(csr.data, label, lambda i: int(np.searchsorted(csr.indptr, i, side="right")) - 1)
        return SparseRows(
            indptr=torch.from_numpy(csr.indptr.astype(np.int64)),
            indices=torch.from_numpy(csr.indices.astype(np.int64)),
            values=torch.from_numpy(np.ascontiguousarray(csr.data)),
            shape=(int(csr.shape[0]), int(csr.shape[1])),
        )
    dense = np.asarray(features)
    if dense.ndim == 1:
        dense = dense[:, None]
    if dense.ndim != 2:
        raise ValueError(
            f"{label}: the features have shape {dense.shape}; two dimensions (nodes, columns) are needed"
        )
    if dense.dtype.kind not in "fiub":
        raise ValueError(f"{label}: the features are of type {dense.dtype}; numbers are needed")
    with np.errstate(over="ignore"):
        dense = np.ascontiguousarray(dense, dtype=np.float32)
    columns = dense.shape[1]
    _refuse_non_finite(dense.reshape(-1), label, lambda i: i // columns)
    return torch.from_numpy(dense if dense.flags.writeable else dense.copy())


def _refuse_non_finite(values: Array, label: str, row_of: Callable[[int], int]) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        bad = int(values.size - finite.sum())
        raise ValueError(
            f"{label}: {bad} feature value(s) are NaN, infinite or too large for float32, the first "
            f"({values[first]}) in row {row_of(first)}; clean the features first"
        )


def _edges(src: Array, dst: Array, num_nodes: int, label: str, report: Report) -> tuple[Array, Array]:
    if src.ndim != 1 or src.shape != dst.shape:
        raise ValueError(
            f"{label}: the edge ends have shapes {src.shape} and {dst.shape}; two equal vectors are needed"
        )
    if src.size and (src.dtype.kind not in "iu" or dst.dtype.kind not in "iu"):
        raise ValueError(f"{label}: the edge ends are of type {src.dtype}; integers are needed")
    for ends in (src, dst):
        if ends.size:
            low, high = int(ends.min()), int(ends.max())
            if low < 0 or high >= num_nodes:
                bad = low if low < 0 else high
                raise ValueError(
                    f"{label}: an edge names node {bad}, but the features have rows 0 to {num_nodes - 1} only"
                )
    src, dst = src.astype(np.int64), dst.astype(np.int64)
    key = dst * num_nodes + src
    if not (
        (np.diff(key) > 0).all() or (np.diff(src * num_nodes + dst) > 0).all()
    ):  # sorted: nothing repeated
        unique = sorted_unique(key)
        if unique.size != key.size:
            report(f"{label}: {key.size - unique.size} of {key.size} edges are repeated; each is kept once")
            dst, src = np.divmod(unique, num_nodes)
    return src, dst


def _mask(mask: Array, num_nodes: int, label: str) -> Array:
    values = np.asarray(mask)
    if values.shape != (num_nodes,):
        raise ValueError(
            f"{label} has shape {values.shape}; one entry for each of the {num_nodes} nodes is needed"
        )
    if values.dtype != np.bool_:
        if values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all():
            raise ValueError(
                f"{label} holds {values.dtype} values other than 0 and 1; a boolean mask is needed"
            )
        values = values.astype(np.bool_)
    if not values.any():
        raise ValueError(f"{label} selects no node; mark at least one")
    return values.copy()


def _note_overlaps(masks: dict[str, Array], label: str, report: Report) -> None:
    for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
        shared = int((masks[a] & masks[b]).sum())
        if shared:
            report(f"{label}: {shared} node(s) are in both the {a} and the {b} mask")
