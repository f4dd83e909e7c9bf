"""Raw Planetoid files: cora, citeseer, pubmed as ``ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}``.

``allx`` and ``ally`` hold every node but the test ones, whose rows (``tx``, ``ty``) follow in the order of
``test.index``. Training nodes are the rows of ``y`` (20 a class), the next 500 validate, ``test.index``
tests. citeseer lacks some ids: those nodes are isolated, have no features and no label, and are in no mask.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sylvie.data.arrays import Array, Report
from sylvie.data.checks import build_graph
from sylvie.data.files import require_file
from sylvie.data.graph import GraphData
from sylvie.data.safe_unpickle import read_old_pickle

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_VALIDATION_NODES = 500


def files(name: str) -> tuple[str, ...]:
    """The files expected inside the folder of ``name``."""
    return tuple(f"ind.{name}.{part}" for part in _PARTS)


def read(folder: Path, name: str, report: Report) -> GraphData:
    """Read one dataset; raises ValueError in one line that names the file at fault."""
    paths = dict(zip(_PARTS, (folder / file for file in files(name)), strict=True))
    rows = {part: _matrix(paths[part]) for part in ("tx", "allx")}
    labels = {part: _one_hot(paths[part]) for part in ("y", "ty", "ally")}
    test_ids = _test_ids(paths["test.index"])
    known = rows["allx"].shape[0]
    num_nodes = int(test_ids.max()) + 1
    if rows["tx"].shape[0] != len(test_ids) or len(labels["ty"]) != len(test_ids):
        raise ValueError(
            f"{paths['test.index']}: has {len(test_ids)} ids, but tx has {rows['tx'].shape[0]} rows"
        )
    if (
        int(test_ids.min()) < known
        or len(labels["ally"]) != known
        or rows["tx"].shape[1] != rows["allx"].shape[1]
    ):
        raise ValueError(
            f"{paths['allx']}: its {known} rows do not fit ally, tx or test.index (from {test_ids.min()})"
        )
    spread = sp.csr_matrix(
        (np.ones(len(test_ids)), (test_ids - known, np.arange(len(test_ids)))),
        shape=(num_nodes - known, len(test_ids)),
    )
    y = np.full(num_nodes, -1, dtype=np.int64)
    y[:known] = labels["ally"]
    y[test_ids] = labels["ty"]
    train = len(labels["y"])
    masks = np.zeros((3, num_nodes), dtype=np.bool_)
    masks[0, :train] = True
    masks[1, train : min(train + _VALIDATION_NODES, known)] = True
    masks[2, test_ids] = True
    src, dst = _edges(paths["graph"])
    return build_graph(
        name=name,
        src=src,
        dst=dst,
        features=sp.vstack((rows["allx"], spread @ rows["tx"])).tocsr(),
        labels=y,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        report=report,
        where=str(folder / f"ind.{name}"),
    )


def _matrix(path: Path) -> sp.csr_matrix:
    content = read_old_pickle(path)
    if isinstance(content, dict) or content.ndim != 2:
        raise ValueError(f"{path}: needs a feature matrix")
    return sp.csr_matrix(content)


def _one_hot(path: Path) -> Array:
    """Class of every row, −1 where the row is all zero."""
    content = read_old_pickle(path)
    if not isinstance(content, np.ndarray) or content.ndim != 2 or not content.shape[1]:
        raise ValueError(f"{path}: needs one-hot labels [rows, classes]")
    return np.where(content.any(1), content.argmax(1), -1)


def _test_ids(path: Path) -> Array:
    require_file(path)
    try:
        ids = np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except (ValueError, OverflowError):
        raise ValueError(f"{path}: needs one node id a line") from None
    if not ids.size or ids.min() < 0 or np.unique(ids).size != ids.size:
        raise ValueError(f"{path}: needs distinct node ids, at least one")
    return ids


def _edges(path: Path) -> tuple[Array, Array]:
    """Both directions of every listed edge, each once: the lists repeat some and lack some inverses."""
    graph: Any = read_old_pickle(path)
    if not isinstance(graph, dict) or not all(isinstance(ends, list) for ends in graph.values()):
        raise ValueError(f"{path}: needs a dictionary from node id to a list of node ids")
    try:
        src = np.repeat(np.fromiter(graph, np.int64, len(graph)), [len(ends) for ends in graph.values()])
        dst = np.fromiter((end for ends in graph.values() for end in ends), np.int64, len(src))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{path}: needs a dictionary from node id to a list of node ids") from None
    pairs = np.unique(np.stack((np.concatenate((src, dst)), np.concatenate((dst, src)))), axis=1)
    return pairs[0], pairs[1]
