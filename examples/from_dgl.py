"""Train on a DGLGraph of your own: put your graph in the place of ``make_graph``, then ``python examples/from_dgl.py``.

For a PyG ``Data`` object take ``from_pyg(data)`` in the place of ``from_dgl(g)``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

os.environ.setdefault("DGLBACKEND", "pytorch")
import dgl

from sylvie.cli import main as sylvie_train
from sylvie.data import from_dgl, save_npz


def make_graph(nodes: int = 1000, classes: int = 3) -> Any:
    """A graph in which a node's class shows in its neighbours' features, not in its own."""
    draw = torch.Generator().manual_seed(0)
    label = torch.randint(classes, (nodes,), generator=draw)
    same = torch.stack([torch.nonzero(label == c).flatten()[torch.randint(200, (8,), generator=draw)] for c in label])
    g = dgl.graph((same.flatten(), torch.arange(nodes).repeat_interleave(8)), num_nodes=nodes)
    g.ndata["feat"] = torch.nn.functional.one_hot(label, classes) + 2 * torch.randn(nodes, classes, generator=draw)
    g.ndata["label"] = label
    split = torch.rand(nodes, generator=draw)
    g.ndata["train_mask"], g.ndata["val_mask"], g.ndata["test_mask"] = split < 0.6, (split >= 0.6) & (split < 0.8), split >= 0.8
    return g


def main(options: list[str]) -> int:
    """Write the graph to a file once, then train on it like on any other dataset."""
    path = save_npz(from_dgl(make_graph()), "my_graph.npz")
    return sylvie_train(["--dataset", str(path), *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
