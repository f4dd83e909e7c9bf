"""The project's own file form: one ``.npz`` a graph, numbers only.

``edge_index`` integer [2, E] (source, destination); ``y`` integer or float [N] (−1 or NaN = unlabelled) or
zeros and ones [N, C]; features ``x`` [N, F] or CSR parts ``x_data``, ``x_indices``, ``x_indptr``,
``x_shape``; ``train_mask``, ``val_mask``, ``test_mask`` bool [N]; optional ``meta``, a JSON string whose
``name`` and ``classes`` are used. Other arrays are ignored.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from sylvie.data.arrays import Array, Report, log_notice
from sylvie.data.checks import build_graph
from sylvie.data.files import read_npz
from sylvie.data.graph import GraphData, SparseRows

_CSR = ("x_data", "x_indices", "x_indptr", "x_shape")
_MASKS = ("train_mask", "val_mask", "test_mask")


def read(path: Path, *, name: str | None = None, report: Report = log_notice) -> GraphData:
    """Read one graph; raises ValueError in one line on anything missing, truncated or out of range."""
    arrays = read_npz(path, ("edge_index", "y", *_MASKS), optional=("x", *_CSR, "meta"))
    edges = arrays["edge_index"]
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"{path}: edge_index has shape {edges.shape}; (2, number of edges) is needed")
    meta = _meta(arrays.get("meta"))
    classes = meta.get("classes")
    return build_graph(
        name=name or path.stem,
        src=edges[0],
        dst=edges[1],
        features=_features(arrays, path),
        labels=arrays["y"],
        train_mask=arrays["train_mask"],
        val_mask=arrays["val_mask"],
        test_mask=arrays["test_mask"],
        num_classes=len(classes) if isinstance(classes, list) and classes else None,
        report=report,
        where=str(path),
    )


def save(graph: GraphData, path: Path | str) -> Path:
    """Write a graph in this form, for ``sylvie-train --dataset PATH``; returns the path, which must end in ``.npz``.

    An interrupted write leaves no file of that name. Raises ValueError for another ending or an unwritable place.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: the name must end in .npz")
    arrays: dict[str, Any] = {
        "edge_index": torch.stack((graph.src, graph.dst)).numpy(),
        "y": graph.labels.to(torch.uint8).numpy() if graph.multilabel else graph.labels.numpy(),
        "train_mask": graph.train_mask.numpy(),
        "val_mask": graph.val_mask.numpy(),
        "test_mask": graph.test_mask.numpy(),
        "meta": np.array(json.dumps({"name": graph.name, "classes": [str(c) for c in range(graph.num_classes)]})),
    }
    if isinstance(graph.features, SparseRows):
        csr = graph.features
        parts = (csr.values.numpy(), csr.indices.numpy(), csr.indptr.numpy(), np.array(csr.shape, dtype=np.int64))
        arrays.update(zip(_CSR, parts, strict=True))
    else:
        arrays["x"] = graph.features.numpy()
    temporary = path.with_name(f".{path.stem}-{os.getpid()}.npz")
    try:
        np.savez_compressed(temporary, **arrays)
        temporary.replace(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _meta(raw: Array | None) -> dict[str, Any]:
    """The free text beside the arrays; it may be anything, so nothing in it is required."""
    if raw is None or raw.ndim != 0 or raw.dtype.kind != "U":
        return {}
    try:
        meta = json.loads(str(raw))
    except ValueError:
        return {}
    return meta if isinstance(meta, dict) else {}


def _features(arrays: dict[str, Array], path: Path) -> Array | sp.csr_matrix:
    if "x" in arrays:
        return arrays["x"]
    missing = [part for part in _CSR if part not in arrays]
    if missing:
        raise ValueError(f"{path}: has no features; 'x' or all of {', '.join(_CSR)} are needed")
    shape = arrays["x_shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or int(shape.min()) < 0:
        raise ValueError(f"{path}: x_shape must be two counts, not {shape.tolist()}")
    return checked_csr(
        arrays["x_data"],
        arrays["x_indices"],
        arrays["x_indptr"],
        (int(shape[0]), int(shape[1])),
        f"{path}: x",
    )


def checked_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int], label: str) -> sp.csr_matrix:
    """A CSR matrix of parts read from a file; raises ValueError where they do not fit each other."""
    if data.ndim != 1 or indices.shape != data.shape or indptr.shape != (shape[0] + 1,):
        raise ValueError(
            f"{label}: CSR parts do not fit: data {data.shape}, indices {indices.shape}, indptr {indptr.shape}, rows {shape[0]}"
        )
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu" or data.dtype.kind not in "fiub":
        raise ValueError(f"{label}: CSR parts have types {data.dtype}, {indices.dtype}, {indptr.dtype}; numbers are needed")
    pointers = indptr.astype(np.int64)
    if pointers[0] != 0 or pointers[-1] != data.size or (np.diff(pointers) < 0).any():
        raise ValueError(f"{label}: indptr must rise from 0 to {data.size}, the number of stored values")
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= shape[1]):
        raise ValueError(f"{label}: a column index lies outside 0 to {shape[1] - 1}")
    return sp.csr_matrix((data, indices.astype(np.int64), pointers), shape=shape)
