"""Datasets: a name, a path, a DGLGraph or a PyG ``Data`` becomes one validated GraphData."""

from __future__ import annotations

from pathlib import Path

from sylvie.data.arrays import Report, log_notice
from sylvie.data.convert import from_dgl, from_pyg
from sylvie.data.fingerprint import fingerprint
from sylvie.data.graph import GraphData, SparseRows
from sylvie.data.npz import save as save_npz
from sylvie.data.project import project_features
from sylvie.data.source import Source, default_data_root, find_source, registered_names

__all__ = [
    "GraphData",
    "Source",
    "SparseRows",
    "default_data_root",
    "find_source",
    "fingerprint",
    "from_dgl",
    "from_pyg",
    "load",
    "project_features",
    "registered_names",
    "save_npz",
]


def load(name_or_path: str, *, data_root: Path | None = None, seed: int = 0, report: Report = log_notice) -> GraphData:
    """Load a registered dataset, an ``.npz``, a folder in a known layout, or ``generator[:KEY=VALUE,…]``.

    ``data_root`` defaults to ``$SYLVIE_DATA`` or ``~/.cache/sylvie/data``; ``seed`` matters to the
    generator alone. Notices (parallel edges merged, overlapping masks, …) go to ``report``. Raises
    ValueError in one line on bad input.
    """
    return find_source(name_or_path, data_root=data_root, seed=seed).load(report)
