"""The graphs that studies train on, and how they are split.

A *case that counts* loses at least 5 points of its test metric when halo rows are zeroed: there alone can a study of messages
see anything. Under METIS most small graphs need their halo little, so these cases split the nodes at random.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from analysis.run_files import write_atomically
from analysis.settings import Option
from sylvie.data import find_source

Options = dict[str, Option]

#: Small, sparse features, the official split of 60 training nodes: scores vary much over seeds.
PUBMED: Options = {"dataset": "pubmed", "layers": 2, "hidden": 64, "dropout": 0.5, "lr": 0.01, "weight-decay": 5e-4}
#: Where the graph matters most; features projected, else the first weight's gradient outweighs the messages.
WORDNET: Options = {
    "dataset": "wordnet30_lexname",
    "input-projection": 128,
    "layers": 2,
    "hidden": 64,
    "dropout": 0.5,
    "lr": 0.01,
}
DEBIAN: Options = WORDNET | {"dataset": "debian13_section"}
DEBTAGS: Options = WORDNET | {"dataset": "debian13_debtags_ml"}


def random_assignment(dataset: str, parts: int, out: Path, seed: int = 0) -> str:
    """The path of a file that puts every node of a dataset into one of `parts` parts at random, the same for a seed.

    Raises ValueError in one line for an unknown or absent dataset.
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "-", dataset)
    path = out / "assignments" / f"{name}-{parts}-random-{seed}.txt"
    if not path.exists():
        nodes = find_source(dataset, data_root=None, seed=0).load().num_nodes
        owners = np.random.default_rng(seed).integers(0, parts, nodes)
        write_atomically(path, "\n".join(map(str, owners.tolist())) + "\n")
    return str(path.resolve())
