"""DGL's ``RedditDataset`` folder: ``reddit_graph.npz`` (scipy COO) and ``reddit_data.npz``.

``feature`` [N, 602], ``label`` [N], ``node_types`` [N]: 1 train, 2 validation, 3 test.
"""

from __future__ import annotations

from pathlib import Path

from sylvie.data.arrays import Report
from sylvie.data.checks import build_graph
from sylvie.data.files import read_npz
from sylvie.data.graph import GraphData

FILES = ("reddit_data.npz", "reddit_graph.npz")


def read(folder: Path, name: str, report: Report) -> GraphData:
    """Read the two files; raises ValueError in one line that names the file at fault."""
    data = read_npz(folder / "reddit_data.npz", ("feature", "label", "node_types"))
    coo = read_npz(folder / "reddit_graph.npz", ("row", "col", "shape"))
    num_nodes = len(data["feature"])
    if tuple(coo["shape"].tolist()) != (num_nodes, num_nodes):
        raise ValueError(
            f"{folder / 'reddit_graph.npz'}: has shape {coo['shape'].tolist()}, but there are {num_nodes} "
            f"feature rows"
        )
    types = data["node_types"]
    return build_graph(
        name=name,
        src=coo["row"],
        dst=coo["col"],
        features=data["feature"],
        labels=data["label"],
        train_mask=types == 1,
        val_mask=types == 2,
        test_mask=types == 3,
        report=report,
        where=str(folder),
    )
