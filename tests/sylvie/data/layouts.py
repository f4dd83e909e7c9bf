"""Tiny datasets written exactly in the public raw layouts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.sylvie.graphs import tiny_arrays


def raw_adjacency() -> sp.csr_matrix:
    """Both directions of the tiny graph's edges."""
    src, dst = tiny_arrays()["edge_index"]
    matrix = sp.coo_matrix((np.ones(src.size, np.float32), (src, dst)), shape=(12, 12)).tocsr()
    return ((matrix + matrix.T) > 0).astype(np.float32).tocsr()


def write_graphsaint(folder: Path, *, multilabel: bool = False) -> Path:
    """A GraphSAINT folder; the keys of ``class_map.json`` are out of order."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays, adjacency = tiny_arrays(), raw_adjacency()
    sp.save_npz(folder / "adj_full.npz", adjacency)
    train = arrays["train_mask"]
    sp.save_npz(
        folder / "adj_train.npz", sp.diags(train.astype(float)) @ adjacency @ sp.diags(train.astype(float))
    )
    np.save(folder / "feats.npy", arrays["x"].astype(np.float64) * 3 + 5)
    role = {
        short: np.flatnonzero(arrays[f"{part}_mask"]).tolist()
        for short, part in (("tr", "train"), ("va", "val"), ("te", "test"))
    }
    (folder / "role.json").write_text(json.dumps(role))
    labels: dict[str, Any] = {}
    for node in reversed(range(12)):
        y = int(arrays["y"][node])
        labels[str(node)] = [int(y == c or node == 4) for c in range(3)] if multilabel else y
    (folder / "class_map.json").write_text(json.dumps(labels))
    return folder


def write_dgl_reddit(folder: Path) -> Path:
    """``reddit_graph.npz`` as scipy COO and ``reddit_data.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = tiny_arrays()
    sp.save_npz(folder / "reddit_graph.npz", raw_adjacency().tocoo())
    types = arrays["train_mask"] * 1 + arrays["val_mask"] * 2 + arrays["test_mask"] * 3
    np.savez(folder / "reddit_data.npz", feature=arrays["x"], label=arrays["y"], node_types=types)
    return folder


def write_csv_gz(path: Path, array: Any, form: str = "%d") -> None:
    """A gzipped csv without header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        np.savetxt(stream, np.asarray(array), fmt=form, delimiter=",")


def write_ogb(folder: Path, split: str) -> Path:
    """The csv folder of ogbn-products or ogbn-arxiv; edges are the tiny graph's, one direction."""
    arrays = tiny_arrays()
    edges = arrays["edge_index"].T
    write_csv_gz(folder / "raw/edge.csv.gz", edges)
    write_csv_gz(folder / "raw/node-feat.csv.gz", arrays["x"], "%.9g")
    write_csv_gz(folder / "raw/node-label.csv.gz", arrays["y"])
    write_csv_gz(folder / "raw/num-node-list.csv.gz", [12])
    write_csv_gz(folder / "raw/num-edge-list.csv.gz", [len(edges)])
    (folder / "RELEASE_v1.txt").write_text("")
    _write_splits(folder / "split" / split)
    return folder


def write_papers(folder: Path) -> Path:
    """The npz folder of ogbn-papers100M: float labels, NaN = unlabelled, some nodes in no mask."""
    arrays = tiny_arrays()
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "raw/data.npz",
        edge_index=arrays["edge_index"].astype(np.int64),
        num_nodes_list=np.array([12]),
        num_edges_list=np.array([arrays["edge_index"].shape[1]]),
        node_feat=arrays["x"],
        node_year=np.zeros((12, 1), int),
    )
    labels = arrays["y"].astype(np.float32)[:, None]
    labels[9:] = np.nan
    np.savez(folder / "raw/node-label.npz", node_label=labels)
    _write_splits(folder / "split/time", below=9)
    return folder


def _write_splits(folder: Path, below: int = 12) -> None:
    arrays = tiny_arrays()
    for file, part in (("train", "train"), ("valid", "val"), ("test", "test")):
        ids = np.flatnonzero(arrays[f"{part}_mask"])
        write_csv_gz(folder / f"{file}.csv.gz", ids[ids < below])
