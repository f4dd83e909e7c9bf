"""Every public raw layout, on tiny files in exactly that layout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sylvie.data import GraphData, load
from tests.sylvie.data.layouts import (
    raw_adjacency,
    write_csv_gz,
    write_dgl_reddit,
    write_graphsaint,
    write_ogb,
    write_papers,
)
from tests.sylvie.graphs import tiny_arrays

ARRAYS = tiny_arrays()


def quiet(_: str) -> None:
    """Takes notices that a tiny file with many stated classes must cause."""


def edge_set(graph: GraphData) -> set[tuple[int, int]]:
    return set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def directed_edges() -> set[tuple[int, int]]:
    return set(map(tuple, ARRAYS["edge_index"].T.tolist()))


def both_directions() -> set[tuple[int, int]]:
    row, column = raw_adjacency().nonzero()
    return set(zip(row.tolist(), column.tolist(), strict=True))


def assert_masks(graph: GraphData) -> None:
    for part in ("train_mask", "val_mask", "test_mask"):
        assert getattr(graph, part).tolist() == ARRAYS[part].tolist()


@pytest.mark.parametrize(
    ("name", "folder"),
    [("flickr", "flickr"), ("yelp", "Yelp"), ("amazon", "AmazonProducts"), ("reddit", "Reddit")],
)
def test_graphsaint(tmp_path: Path, name: str, folder: str) -> None:
    write_graphsaint(tmp_path / folder)
    graph = load(name, data_root=tmp_path)
    assert edge_set(graph) == both_directions()
    assert graph.labels.tolist() == ARRAYS["y"].tolist()  # by key, not by place in the file
    assert_masks(graph)
    assert isinstance(graph.features, Tensor)
    train = graph.features[graph.train_mask].double()
    assert torch.allclose(train.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(train.std(0, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-6)


def test_graphsaint_gathers_rows(tmp_path: Path) -> None:
    """Row i of the matrix lists whom node i gathers from."""
    import scipy.sparse as sp

    folder = write_graphsaint(tmp_path / "flickr")
    sp.save_npz(folder / "adj_full.npz", sp.csr_matrix((np.ones(1), ([3], [7])), shape=(12, 12)))
    assert edge_set(load(str(folder))) == {(7, 3)}


def test_graphsaint_multilabel(tmp_path: Path) -> None:
    graph = load(str(write_graphsaint(tmp_path / "yelp", multilabel=True)))
    assert graph.multilabel
    assert graph.labels[4].tolist() == [1, 1, 1]
    assert graph.labels[5].tolist() == [0, 0, 1]


def test_dgl_reddit(tmp_path: Path) -> None:
    write_dgl_reddit(tmp_path / "reddit_0a1b2c3d")
    graph = load("reddit", data_root=tmp_path)
    assert edge_set(graph) == both_directions()
    assert graph.labels.tolist() == ARRAYS["y"].tolist()
    assert_masks(graph)
    assert isinstance(graph.features, Tensor)
    assert torch.equal(graph.features, torch.from_numpy(ARRAYS["x"]))


def test_ogbn_products_adds_the_inverse(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_products", "sales_ranking")
    graph = load("ogbn-products", data_root=tmp_path, report=quiet)
    assert edge_set(graph) == both_directions()
    assert graph.num_classes == 47
    assert graph.labels.tolist() == ARRAYS["y"].tolist()
    assert_masks(graph)
    assert isinstance(graph.features, Tensor)
    assert torch.equal(graph.features, torch.from_numpy(ARRAYS["x"]))


def test_ogbn_arxiv_stays_directed(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv", "time")
    graph = load("ogbn-arxiv", data_root=tmp_path, report=quiet)
    assert edge_set(graph) == directed_edges()
    assert graph.num_classes == 40
    assert_masks(graph)


def test_ogbn_papers_casts_nan_labels_safely(tmp_path: Path) -> None:
    write_papers(tmp_path / "ogbn_papers100M")
    graph = load("ogbn-papers100m", data_root=tmp_path, report=quiet)
    assert edge_set(graph) == directed_edges()
    assert graph.num_classes == 172
    assert graph.labels.tolist() == [*ARRAYS["y"].tolist()[:9], -1, -1, -1]
    assert not bool(graph.train_mask[9:].any())


def refused(folder: Path, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        load(str(folder), report=quiet)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ogb_mask_on_an_unlabelled_node_is_refused(tmp_path: Path) -> None:
    folder = write_papers(tmp_path / "ogbn_papers100M")
    write_csv_gz(folder / "split/time/test.csv.gz", [10])
    refused(folder, "node 10 is in a mask but has no label")


@pytest.mark.parametrize(
    ("break_file", "words"),
    [
        (
            lambda f: (f / "role.json").write_text('{"tr": [0]}'),
            "role.json: needs a list of node ids under 'va'",
        ),
        (
            lambda f: (f / "role.json").write_text('{"tr": [99], "va": [1], "te": [2]}'),
            "role.json: a node id",
        ),
        (lambda f: (f / "role.json").write_text('{"tr": ['), "role.json: cannot be read as JSON"),
        (lambda f: (f / "class_map.json").write_text('{"0": 1, "77": 0}'), "class_map.json: node id 77"),
        (
            lambda f: (f / "class_map.json").write_text('{"0": [1, 0], "1": [1]}'),
            "class_map.json: every value",
        ),
        (lambda f: (f / "class_map.json").write_text("[1]"), "class_map.json: needs an object"),
        (lambda f: (f / "class_map.json").write_text('{"0": 1}'), "is in a mask but has no label"),
        (lambda f: np.save(f / "feats.npy", np.zeros((11, 2))), "adj_full.npz: has shape [12, 12]"),
        (lambda f: np.save(f / "feats.npy", np.full((12, 2), np.nan)), "in row 0"),
        (lambda f: (f / "feats.npy").write_bytes(b"\x93NUMPY"), "feats.npy: cannot be read"),
        (lambda f: (f / "adj_full.npz").write_bytes(b"PK"), "adj_full.npz: cannot be read"),
    ],
)
def test_broken_graphsaint_is_one_line(
    tmp_path: Path, break_file: Callable[[Path], object], words: str
) -> None:
    folder = write_graphsaint(tmp_path / "flickr")
    break_file(folder)
    refused(folder, words)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("break_file", "words"),
    [
        (lambda f: write_csv_gz(f / "raw/num-edge-list.csv.gz", [99]), "edge.csv.gz: has 16 lines"),
        (lambda f: write_csv_gz(f / "raw/edge.csv.gz", np.zeros((16, 3), int)), "edge.csv.gz: has 3 columns"),
        (lambda f: write_csv_gz(f / "split/time/train.csv.gz", [12]), "train.csv.gz: a node id"),
        (lambda f: cut_in_half(f / "raw/node-feat.csv.gz"), "node-feat.csv.gz: cannot be read"),
        (
            lambda f: (f / "raw/node-label.csv.gz").write_bytes(gzip.compress(b"a\nb\n")),
            "node-label.csv.gz: cannot be read",
        ),
    ],
)
def test_broken_ogb_is_one_line(tmp_path: Path, break_file: Callable[[Path], object], words: str) -> None:
    folder = write_ogb(tmp_path / "ogbn_arxiv", "time")
    break_file(folder)
    refused(folder, words)


def test_broken_dgl_reddit_is_one_line(tmp_path: Path) -> None:
    folder = write_dgl_reddit(tmp_path / "reddit")
    np.savez(folder / "reddit_data.npz", feature=np.zeros((5, 2)), label=np.zeros(5), node_types=np.ones(5))
    refused(folder, "but there are 5 feature rows")


def test_class_map_of_unequal_kinds(tmp_path: Path) -> None:
    folder = write_graphsaint(tmp_path / "flickr")
    (folder / "class_map.json").write_text(json.dumps({"0": 1, "1": [0, 1]}))
    refused(folder, "every value must be a class")
