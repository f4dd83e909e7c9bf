"""GraphSAINT folders: Flickr, Reddit, Yelp, AmazonProducts.

``adj_full.npz`` (a scipy CSR matrix), ``feats.npy`` [N, F], ``role.json`` {"tr", "va", "te": node ids},
``class_map.json`` {"id": class, or a list of zeros and ones}. ``adj_train.npz`` holds the edges among
training nodes and is not needed. Features are standardised with mean and deviation of the training rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sylvie.data.arrays import Array, Report
from sylvie.data.checks import build_graph
from sylvie.data.files import read_json, read_npy, read_npz
from sylvie.data.graph import GraphData
from sylvie.data.npz import checked_csr

FILES = ("adj_full.npz", "feats.npy", "role.json", "class_map.json")


def read(folder: Path, name: str, report: Report) -> GraphData:
    """Read one folder; raises ValueError in one line that names the file at fault."""
    features = read_npy(folder / "feats.npy")
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise ValueError(
            f"{folder / 'feats.npy'}: has shape {features.shape} of {features.dtype}, not numbers [N, F]"
        )
    num_nodes = features.shape[0]
    adj = read_npz(folder / "adj_full.npz", ("indices", "indptr", "shape", "data"))
    if tuple(adj["shape"].tolist()) != (num_nodes, num_nodes):
        raise ValueError(
            f"{folder / 'adj_full.npz'}: has shape {adj['shape'].tolist()}; feats.npy has {num_nodes} rows"
        )
    checked_csr(
        adj["data"], adj["indices"], adj["indptr"], (num_nodes, num_nodes), str(folder / "adj_full.npz")
    )
    masks = _masks(read_json(folder / "role.json"), num_nodes, folder / "role.json")
    return build_graph(
        name=name,
        # Row i of the matrix gathers its columns: messages flow from column to row.
        src=adj["indices"],
        dst=np.repeat(np.arange(num_nodes), np.diff(adj["indptr"])),
        features=_standardised(features, masks["tr"]),
        labels=_labels(read_json(folder / "class_map.json"), num_nodes, folder / "class_map.json"),
        train_mask=masks["tr"],
        val_mask=masks["va"],
        test_mask=masks["te"],
        report=report,
        where=str(folder),
    )


def _masks(role: Any, num_nodes: int, path: Path) -> dict[str, Array]:
    masks = {}
    for part in ("tr", "va", "te"):
        try:
            ids = np.asarray(role[part], dtype=np.int64)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError(f"{path}: needs a list of node ids under {part!r}") from None
        if ids.ndim != 1 or (ids.size and (ids.min() < 0 or ids.max() >= num_nodes)):
            raise ValueError(f"{path}: a node id under {part!r} lies outside 0 to {num_nodes - 1}")
        masks[part] = np.zeros(num_nodes, dtype=np.bool_)
        masks[part][ids] = True
    return masks


def _labels(class_map: Any, num_nodes: int, path: Path) -> Array:
    """Labels by node id: the keys are ids, and their order in the file means nothing."""
    try:
        by_id = {int(key): value for key, value in class_map.items()}
    except (AttributeError, ValueError):
        raise ValueError(f"{path}: needs an object from node id to class") from None
    outside = [key for key in by_id if not 0 <= key < num_nodes]
    if outside or not by_id:
        raise ValueError(
            f"{path}: node id {outside[0] if outside else 'none'} lies outside 0 to {num_nodes - 1}"
        )
    ids = np.fromiter(by_id, dtype=np.int64, count=len(by_id))
    try:
        values = np.asarray(list(by_id.values()), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{path}: every value must be a class, or every value an equally long list of 0 and 1"
        ) from None
    labels = np.full((num_nodes, *values.shape[1:]), np.nan)
    labels[ids] = values
    return labels


def _standardised(features: Array, train: Array) -> Array:
    rows = features[train].astype(np.float64)
    if not rows.size:
        return features
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # non-finite features are refused, with their row, later
        mean, deviation = rows.mean(0), rows.std(0)
        deviation[deviation == 0] = 1.0
        standardised: Array = ((features - mean) / deviation).astype(np.float32)
        return standardised
