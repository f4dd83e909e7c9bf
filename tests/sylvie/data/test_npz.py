"""The npz form: what is read, what is legal, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sylvie.data import SparseRows, fingerprint, load
from tests.sylvie.graphs import tiny_arrays, write_npz


def with_change(name: str, index: Any, value: Any, dtype: Any = None) -> Any:
    array = tiny_arrays()[name]
    array = array.astype(dtype) if dtype is not None else array.copy()
    array[index] = value
    return array


def test_reads_every_array(tmp_path: Path) -> None:
    arrays = tiny_arrays()
    graph = load(str(write_npz(tmp_path / "small.npz", extra=np.arange(3), meta=np.array('{"a": 1}'))))
    assert (graph.name, graph.num_nodes, graph.num_classes, graph.multilabel) == ("small", 12, 3, False)
    assert torch.equal(torch.stack((graph.src, graph.dst)), torch.from_numpy(arrays["edge_index"]).long())
    assert isinstance(graph.features, torch.Tensor)
    assert torch.equal(graph.features, torch.from_numpy(arrays["x"]))
    assert graph.labels.tolist() == arrays["y"].tolist()
    for part in ("train_mask", "val_mask", "test_mask"):
        assert getattr(graph, part).tolist() == arrays[part].tolist()
    assert graph.in_degrees().tolist() == np.bincount(arrays["edge_index"][1], minlength=12).tolist()


def test_sparse_features_stay_sparse(tmp_path: Path) -> None:
    x = sp.random(12, 50, density=0.1, random_state=0, format="csr", dtype=np.float32)
    x.indices = x.indices[::-1].copy()  # unsorted columns inside rows are legal
    parts = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    features = load(str(write_npz(tmp_path / "s.npz", x=None, **parts))).features
    assert isinstance(features, SparseRows)
    again = sp.csr_matrix((features.values, features.indices, features.indptr), features.shape)
    assert again.has_sorted_indices
    assert np.array_equal(again.toarray(), x.toarray())


def test_stated_classes_are_used(tmp_path: Path) -> None:
    notices: list[str] = []
    path = write_npz(tmp_path / "c.npz", meta=np.array('{"classes": ["a", "b", "c", "d", "e"]}'))
    assert load(str(path), report=notices.append).num_classes == 5
    assert any("2 of 5 classes have no labelled node" in line for line in notices)


@pytest.mark.parametrize(
    "changes",
    [
        {"train_mask": tiny_arrays()["train_mask"].astype(np.uint8)},
        {"y": with_change("y", 0, -1), "train_mask": with_change("train_mask", 0, False)},
        {"y": with_change("y", 0, np.nan, float), "train_mask": with_change("train_mask", 0, False)},
        {"edge_index": np.array([[0, 1], [0, 2]])},  # self-loop, isolated nodes, directed
        {"edge_index": np.empty((2, 0), dtype=np.int64)},
        {"x": tiny_arrays()["x"][:, :1]},
        {"x": tiny_arrays()["x"][:, 0]},
        {"y": tiny_arrays()["y"][:, None]},
        {"y": tiny_arrays()["y"].astype(np.uint8)},
    ],
    ids=[
        "uint8-mask",
        "minus-one",
        "nan-label",
        "odd-graph",
        "no-edge",
        "one-column",
        "flat",
        "column-y",
        "u8",
    ],
)
def test_legal_input_loads(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = load(str(write_npz(tmp_path / "legal.npz", **changes)))
    assert graph.num_nodes == 12
    assert graph.labels.dtype == torch.int64
    assert int(graph.labels[graph.train_mask].min()) >= 0


def test_multilabel_with_unlabelled_rows(tmp_path: Path) -> None:
    y = (np.arange(36).reshape(12, 3) % 2).astype(np.float64)
    y[0] = np.nan
    graph = load(str(write_npz(tmp_path / "m.npz", y=y, train_mask=with_change("train_mask", 0, False))))
    assert graph.multilabel
    assert graph.num_classes == 3
    assert graph.labels.dtype == torch.float32
    assert graph.labels[0].tolist() == [0, 0, 0]


def test_parallel_edges_are_merged_with_a_notice(tmp_path: Path) -> None:
    notices: list[str] = []
    edges = np.array([[3, 0, 3, 3], [1, 2, 1, 1]])
    graph = load(str(write_npz(tmp_path / "p.npz", edge_index=edges)), report=notices.append)
    assert sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) == [(0, 2), (3, 1)]
    assert any("2 of 4 edges are repeated" in line for line in notices)


def test_overlapping_masks_are_noticed(tmp_path: Path) -> None:
    notices: list[str] = []
    load(str(write_npz(tmp_path / "o.npz", val_mask=np.ones(12, bool))), report=notices.append)
    assert any("4 node(s) are in both the train and the val mask" in line for line in notices)


BAD = {
    "edge-range": ({"edge_index": with_change("edge_index", (0, 0), 12)}, "names node 12"),
    "edge-negative": ({"edge_index": with_change("edge_index", (1, 3), -2)}, "names node -2"),
    "edge-shape": ({"edge_index": np.zeros((3, 4), int)}, "edge_index has shape"),
    "edge-float": ({"edge_index": tiny_arrays()["edge_index"].astype(float)}, "integers are needed"),
    "x-nan": ({"x": with_change("x", (5, 2), np.nan)}, "in row 5"),
    "x-inf": ({"x": with_change("x", (5, 2), np.inf)}, "in row 5"),
    "x-too-large": ({"x": with_change("x", (7, 0), 1e300, float)}, "in row 7"),
    "x-text": ({"x": np.full((12, 2), "a")}, "numbers are needed"),
    "x-3d": ({"x": np.zeros((12, 2, 2))}, "two dimensions"),
    "x-no-column": ({"x": np.zeros((12, 0))}, "one row and column"),
    "x-missing": ({"x": None}, "has no features"),
    "y-rows": ({"y": np.zeros(11, int)}, "the labels have shape (11,)"),
    "y-negative": ({"y": with_change("y", 2, -2)}, "label -2 of node 2"),
    "y-huge": ({"y": with_change("y", 2, 99)}, "label 99 of node 2"),
    "y-fraction": ({"y": with_change("y", 2, 0.5, float)}, "not a whole number"),
    "y-unlabelled": ({"y": with_change("y", 3, -1)}, "node 3 is in a mask but has no label"),
    "y-nan": ({"y": with_change("y", 3, np.nan, float)}, "node 3 is in a mask but has no label"),
    "y-multi": ({"y": np.full((12, 2), 2)}, "is not 0 or 1"),
    "y-multi-nan": ({"y": np.full((12, 2), np.nan)}, "is not 0 or 1"),
    "mask-empty": ({"val_mask": np.zeros(12, bool)}, "val_mask selects no node"),
    "mask-shape": ({"test_mask": np.ones(11, bool)}, "test_mask has shape (11,)"),
    "mask-values": ({"test_mask": np.full(12, 2, np.uint8)}, "other than 0 and 1"),
    "mask-missing": ({"test_mask": None}, "has no array 'test_mask'"),
    "pickled": ({"y": np.array([{}] * 12, dtype=object)}, "cannot be read as .npz"),
}


@pytest.mark.parametrize(("changes", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_that_names_the_file(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    path = write_npz(tmp_path / "bad.npz", **changes)
    with pytest.raises(ValueError) as caught:
        load(str(path))
    message = str(caught.value)
    assert words in message
    assert "bad.npz" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("x_indptr", np.array([0, 2, 1, 3])),
        ("x_indptr", np.array([0, 1, 3])),
        ("x_indices", np.array([0, 1, 9])),
        ("x_data", np.array([1.0, np.nan, 1.0], np.float32)),
        ("x_shape", np.array([3, -2])),
        ("x_shape", np.array([3])),
    ],
)
def test_broken_csr_is_refused(tmp_path: Path, part: str, value: Any) -> None:
    good = {
        "x_data": np.ones(3, np.float32),
        "x_indices": np.array([0, 1, 1]),
        "x_indptr": np.array([0, 1, 2, 3]),
        "x_shape": np.array([3, 2]),
    }
    nodes = {"y": np.array([0, 1, 0]), "edge_index": np.array([[0], [1]])}
    nodes |= {f"{mask}_mask": np.ones(3, bool) for mask in ("train", "val", "test")}
    load(str(write_npz(tmp_path / "good.npz", x=None, **nodes, **good)), report=lambda _: None)
    with pytest.raises(ValueError, match=r"bad\.npz"):
        load(str(write_npz(tmp_path / "bad.npz", x=None, **nodes, **{**good, part: value})))


@pytest.mark.parametrize("keep", [0, 10, 400, -1])
def test_truncated_file_is_one_line(tmp_path: Path, keep: int) -> None:
    path = write_npz(tmp_path / "cut.npz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"cut\.npz: cannot be read as \.npz"):
        load(str(path))


def test_fingerprint_sees_every_array(tmp_path: Path) -> None:
    base = fingerprint(load(str(write_npz(tmp_path / "a.npz"))))
    assert base == fingerprint(load(str(write_npz(tmp_path / "b.npz"))))  # a name is no content
    changed = [
        {"edge_index": with_change("edge_index", (0, 0), 7)},
        {"x": with_change("x", (0, 0), 7)},
        {"y": with_change("y", 0, 2)},
        {"train_mask": with_change("train_mask", 1, True)},
        {"val_mask": with_change("val_mask", 2, True)},
        {"test_mask": with_change("test_mask", 0, True)},
    ]
    prints = {
        fingerprint(load(str(write_npz(tmp_path / "c.npz", **change)), report=lambda _: None))
        for change in changed
    }
    assert len(prints | {base}) == len(changed) + 1
    assert len(base) == 16
