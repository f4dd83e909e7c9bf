"""OGB's raw folders of ogbn-products, ogbn-arxiv and ogbn-papers100M, read without the ``ogb`` package.

The small ones are gzipped csv: ``raw/edge.csv.gz``, ``raw/node-feat.csv.gz``, ``raw/node-label.csv.gz``,
``raw/num-node-list.csv.gz``, ``raw/num-edge-list.csv.gz``. papers100M is ``raw/data.npz`` and
``raw/node-label.npz``, whose labels are float with NaN = unlabelled. Splits are
``split/<kind>/{train,valid,test}.csv.gz`` with one node id a line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sylvie.data.arrays import Array, Report
from sylvie.data.checks import build_graph
from sylvie.data.files import read_csv_gz, read_npz, require_file
from sylvie.data.graph import GraphData

_RAW = tuple(
    f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
)
_PARTS = ("train", "valid", "test")
PAPERS_FILES = ("raw/data.npz", "raw/node-label.npz", *(f"split/time/{part}.csv.gz" for part in _PARTS))
_SPLITS = {"products": "sales_ranking", "arxiv": "time"}
_CLASSES = {"products": 47, "arxiv": 40}
_PAPERS_CLASSES = 172


def files(name: str) -> tuple[str, ...]:
    """The files expected inside the folder of ``name``."""
    return (*_RAW, *(f"split/{_SPLITS[_short(name)]}/{part}.csv.gz" for part in _PARTS))


def _short(name: str) -> str:
    """The dataset a folder name speaks of; an unknown one is read like arxiv, as it is."""
    return "products" if "products" in name.lower() else "arxiv"


def read(folder: Path, name: str, report: Report) -> GraphData:
    """Read a csv folder; products stores each edge once, so its inverse is added; arxiv stays directed."""
    edges = read_csv_gz(folder / "raw/edge.csv.gz", np.int64)
    features = read_csv_gz(folder / "raw/node-feat.csv.gz", np.float32)
    _check_counts(folder, len(features), len(edges))
    if edges.shape[1] != 2:
        raise ValueError(
            f"{folder / 'raw/edge.csv.gz'}: has {edges.shape[1]} columns; source and destination are needed"
        )
    src, dst = edges[:, 0], edges[:, 1]
    short = _short(name)
    if short == "products":
        src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
    labels = read_csv_gz(folder / "raw/node-label.csv.gz", np.float64)
    return _build(folder, name, src, dst, features, labels, _SPLITS[short], _CLASSES[short], report)


def read_papers(folder: Path, name: str, report: Report) -> GraphData:
    """Read papers100M (directed, most nodes unlabelled); the features alone take 57 GB of memory."""
    data = read_npz(folder / "raw/data.npz", ("edge_index", "node_feat"))
    labels = read_npz(folder / "raw/node-label.npz", ("node_label",))["node_label"]
    edges = data["edge_index"]
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(
            f"{folder / 'raw/data.npz'}: edge_index has shape {edges.shape}; (2, number of edges) is needed"
        )
    return _build(
        folder, name, edges[0], edges[1], data["node_feat"], labels, "time", _PAPERS_CLASSES, report
    )


def _build(
    folder: Path,
    name: str,
    src: Array,
    dst: Array,
    features: Array,
    labels: Array,
    split: str,
    num_classes: int,
    report: Report,
) -> GraphData:
    masks = [_split_mask(folder / f"split/{split}/{part}.csv.gz", len(features)) for part in _PARTS]
    return build_graph(
        name=name,
        src=src,
        dst=dst,
        features=features,
        labels=labels,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        num_classes=num_classes,
        report=report,
        where=str(folder),
    )


def _check_counts(folder: Path, nodes: int, edges: int) -> None:
    """The two count files tell a file cut short at a line end, which gzip cannot."""
    for file, found, what in (("num-node-list", nodes, "node-feat"), ("num-edge-list", edges, "edge")):
        stated = int(read_csv_gz(folder / f"raw/{file}.csv.gz", np.int64).sum())
        if stated != found:
            raise ValueError(
                f"{folder / f'raw/{what}.csv.gz'}: has {found} lines, but {file}.csv.gz says {stated}"
            )


def _split_mask(path: Path, num_nodes: int) -> Array:
    require_file(path)
    ids = read_csv_gz(path, np.int64).reshape(-1)
    if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
        raise ValueError(f"{path}: a node id lies outside 0 to {num_nodes - 1}")
    mask = np.zeros(num_nodes, dtype=np.bool_)
    mask[ids] = True
    return mask
