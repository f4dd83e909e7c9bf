"""Graphs in memory (DGL's, PyG's) and the fixed projection of features."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from sylvie.data import SparseRows, from_dgl, from_pyg, project_features
from tests.sylvie.graphs import graph_of, tiny_arrays

ARRAYS = tiny_arrays()


def tensors() -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(value)) for name, value in ARRAYS.items()}


def pyg_data(**changes: Any) -> Any:
    given = tensors() | changes
    return SimpleNamespace(**given)


class DglLike:
    """The part of a DGLGraph's interface that is used."""

    def __init__(self, **ndata: Tensor) -> None:
        given = tensors()
        self.ntypes, self.etypes = ["_N"], ["_E"]
        self.ndata = {"feat": given["x"], "label": given["y"]} | ndata
        self.ndata |= {key: given[key] for key in ("train_mask", "val_mask", "test_mask")}

    def edges(self) -> tuple[Tensor, Tensor]:
        src, dst = tensors()["edge_index"]
        return src, dst

    def num_nodes(self) -> int:
        return 12


def test_pyg() -> None:
    graph = from_pyg(pyg_data())
    assert graph.src.tolist() == ARRAYS["edge_index"][0].tolist()
    assert graph.dst.tolist() == ARRAYS["edge_index"][1].tolist()
    assert graph.labels.tolist() == ARRAYS["y"].tolist()
    assert graph.test_mask.tolist() == ARRAYS["test_mask"].tolist()


def test_pyg_sparse_features() -> None:
    dense = torch.relu(tensors()["x"])
    features = from_pyg(pyg_data(x=dense.to_sparse())).features
    assert isinstance(features, SparseRows)
    assert int(features.indptr[-1]) == int((dense > 0).sum())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": None}, "has no 'y'"),
        ({"train_mask": torch.ones(12, 10, dtype=torch.bool)}, "holds 10 splits"),
        ({"edge_index": torch.zeros(4, 2, dtype=torch.int64)}, "edge_index has shape"),
        ({"y": torch.full((12,), -5)}, "label -5"),
    ],
)
def test_pyg_bad_input(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_pyg(pyg_data(**changes))


def test_dgl_usual_keys_and_given_tensors() -> None:
    graph = from_dgl(DglLike())
    assert graph.dst.tolist() == ARRAYS["edge_index"][1].tolist()
    other = torch.ones(12, 1)
    replaced = from_dgl(DglLike(alternative=other), features="alternative", labels=torch.arange(12) % 2)
    assert isinstance(replaced.features, Tensor)
    assert torch.equal(replaced.features, other)
    assert replaced.num_classes == 2


def test_dgl_result_does_not_follow_the_callers_tensor() -> None:
    source = DglLike()
    graph = from_dgl(source)
    source.ndata["feat"].zero_()
    assert isinstance(graph.features, Tensor)
    assert torch.equal(graph.features, torch.from_numpy(ARRAYS["x"]))


def test_dgl_bad_input() -> None:
    with pytest.raises(ValueError, match=r"g\.ndata has no 'colour'; it has feat"):
        from_dgl(DglLike(), features="colour")
    typed = DglLike()
    typed.etypes = ["a", "b"]
    with pytest.raises(ValueError, match="to_homogeneous"):
        from_dgl(typed)
    with pytest.raises(ValueError, match="3 feature rows for 12 nodes"):
        from_dgl(DglLike(), features=torch.zeros(3, 2))


def test_real_dgl_graph() -> None:
    dgl = pytest.importorskip("dgl", exc_type=ImportError)
    given = tensors()
    src, dst = given["edge_index"]
    g = dgl.graph((src, dst), num_nodes=12)
    g.ndata.update({"feat": given["x"], "label": given["y"]})
    g.ndata.update({key: given[key] for key in ("train_mask", "val_mask", "test_mask")})
    graph = from_dgl(g)
    assert torch.equal(graph.in_degrees(), g.in_degrees())
    assert torch.equal(graph.out_degrees(), g.out_degrees())


@pytest.mark.parametrize("sparse", [False, True])
def test_projection_is_the_seeded_product(sparse: bool) -> None:
    graph = graph_of(9, [(0, 1)], sparse=sparse)
    projected = project_features(graph, 5, seed=4).features
    assert isinstance(projected, Tensor)
    matrix = np.random.default_rng(4).standard_normal((3, 5), dtype=np.float32) / np.sqrt(5)
    features = graph.features
    dense = (
        sp.csr_matrix((features.values, features.indices, features.indptr), features.shape).toarray()
        if isinstance(features, SparseRows)
        else features.numpy()
    )
    assert projected.dtype == torch.float32
    assert np.allclose(projected.numpy(), dense @ matrix, atol=1e-6)
    again = project_features(graph, 5, seed=4).features
    assert isinstance(again, Tensor)
    assert torch.equal(projected, again)


def test_projection_keeps_lengths_on_average() -> None:
    graph = graph_of(400, [(0, 1)])
    projected = project_features(graph, 256, seed=0).features
    assert isinstance(projected, Tensor)
    assert isinstance(graph.features, Tensor)
    ratio = projected.square().sum(1) / graph.features.square().sum(1)
    assert abs(float(ratio.mean()) - 1) < 0.15


def test_projection_refuses_no_columns() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        project_features(graph_of(3, []), 0, seed=0)
