"""Raw Planetoid files, and pickles that try to be more than data."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sylvie.data import SparseRows, load
from sylvie.data.safe_unpickle import read_old_pickle

CLASSES = 2
FEATURES = 5


def write_planetoid(folder: Path, name: str = "cora", protocol: int = 2) -> np.ndarray[Any, Any]:
    """Ten nodes: 0–1 train, 2–5 validate, 6, 8, 9 test in shuffled order; 7 is in no file, as in citeseer."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (10, FEATURES)).astype(np.float32)
    x[7] = 0
    y = np.eye(CLASSES, dtype=np.int32)[np.arange(10) % CLASSES]
    order = [9, 6, 8]
    graph: defaultdict[int, list[int]] = defaultdict(list)
    for a, b in ((0, 1), (1, 0), (1, 2), (1, 2), (3, 6), (8, 9), (9, 9)):
        graph[a].append(b)
    parts = {
        "x": sp.csr_matrix(x[:2]),
        "allx": sp.csr_matrix(x[:6]),
        "tx": sp.csr_matrix(x[order]),
        "y": y[:2],
        "ally": y[:6],
        "ty": y[order],
        "graph": graph,
    }
    for part, content in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(content, protocol=protocol))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in order))
    return x


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
@pytest.mark.parametrize(
    ("name", "folder"), [("cora", "cora"), ("citeseer", "citeseer/raw"), ("pubmed", ".")]
)
def test_reads_the_eight_files(tmp_path: Path, name: str, folder: str, protocol: int) -> None:
    x = write_planetoid(tmp_path / folder, name, protocol)
    graph = load(name, data_root=tmp_path)
    assert graph.num_nodes == 10
    features = graph.features
    assert isinstance(features, SparseRows)
    dense = sp.csr_matrix((features.values, features.indices, features.indptr), features.shape).toarray()
    assert np.array_equal(dense, x)
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, -1, 0, 1]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 1]
    assert np.flatnonzero(graph.val_mask).tolist() == [2, 3, 4, 5]
    assert np.flatnonzero(graph.test_mask).tolist() == [6, 8, 9]
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert edges == {(0, 1), (1, 0), (1, 2), (2, 1), (3, 6), (6, 3), (8, 9), (9, 8), (9, 9)}


def test_a_folder_can_be_named_directly(tmp_path: Path) -> None:
    write_planetoid(tmp_path, "mygraph")
    assert load(str(tmp_path)).name == "mygraph"


def test_python_2_pickle_by_hand(tmp_path: Path) -> None:
    """What Python 2 wrote: old module names, raw bytes as a str."""
    raw = np.array([[1, -2], [3, 400]], dtype="<i4").tobytes()
    quoted = "'" + "".join(f"\\x{byte:02x}" for byte in raw) + "'"
    text = (
        "cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\np1\n(I0\ntp2\nS'b'\np3\ntp4\nRp5\n"
        "(I1\n(I2\nI2\ntp6\ncnumpy\ndtype\np7\n(S'i4'\np8\nI0\nI1\ntp9\nRp10\n"
        "(I3\nS'<'\np11\nNNNI-1\nI-1\nI0\ntp12\nbI00\nS" + quoted + "\np13\ntp14\nb."
    )
    path = tmp_path / "array"
    path.write_bytes(text.encode("latin1"))
    array = read_old_pickle(path)
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [[1, -2], [3, 400]]


class Malicious:
    """Unpickled the usual way, this creates a file."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call = (call, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("part", ["x", "allx", "graph", "ty"])
def test_malicious_pickle_is_refused_and_runs_nothing(tmp_path: Path, part: str) -> None:
    write_planetoid(tmp_path)
    trace = tmp_path / "was-here"
    payload = pickle.dumps(Malicious(os.mkdir, str(trace)), protocol=2)
    pickle.loads(payload)  # the payload works where it is let in …
    assert trace.is_dir()
    trace.rmdir()
    target = tmp_path / f"ind.cora.{part}"
    target.write_bytes(payload)
    if part == "x":  # … but x repeats rows of allx, and is not read at all
        load("cora", data_root=tmp_path)
    else:
        with pytest.raises(ValueError, match=rf"ind\.cora\.{part}: refused as a Planetoid file: it asks for"):
            load("cora", data_root=tmp_path)
    assert not trace.exists()


def array_state(**changes: Any) -> Any:
    """A pickled array whose parts do not fit each other."""
    parts = {"shape": (2,), "dtype": np.dtype("<f4"), "raw": b"\0" * 8} | changes
    reconstruct: Any = np.zeros(0).__reduce__()[0]

    class Forged:
        def __reduce__(self) -> Any:
            return (
                reconstruct,
                (np.ndarray, (0,), b"b"),
                (1, parts["shape"], parts["dtype"], False, parts["raw"]),
            )

    return Forged()


@pytest.mark.parametrize(
    "content",
    [
        Malicious(eval, "1"),
        Malicious(getattr, [], "append"),
        Malicious(np.load, "x"),
        Malicious(list, "abc"),
        "text",
        7,
        np.array([{"a": 1}], dtype=object),
        np.array(["a"]),
        array_state(shape=(3,)),
        array_state(shape=(-2, -1)),
        array_state(raw=b"\0" * 7),
        array_state(dtype=np.dtype("M8[s]")),
        array_state(dtype=None),
        sp.coo_matrix(np.eye(2)),
    ],
)
def test_anything_but_plain_data_is_one_line(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "odd"
    path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match="odd: refused as a Planetoid file") as caught:
        read_old_pickle(path)
    assert "\n" not in str(caught.value)


def test_matrix_with_wild_indices_never_reaches_scipy(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(np.eye(3, dtype=np.float32))
    matrix.indices = np.array([0, 1, 10**6], dtype=np.int32)
    path = tmp_path / "wild"
    path.write_bytes(pickle.dumps(matrix, protocol=2))
    with pytest.raises(ValueError, match="a column index lies outside 0 to 2"):
        read_old_pickle(path)


@pytest.mark.parametrize("keep", [0, 1, 20, -3])
def test_truncated_pickle_is_one_line(tmp_path: Path, keep: int) -> None:
    write_planetoid(tmp_path)
    path = tmp_path / "ind.cora.allx"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"ind\.cora\.allx: refused"):
        load("cora", data_root=tmp_path)


@pytest.mark.parametrize(
    ("part", "content", "words"),
    [
        ("test.index", "8\n6\n", "has 2 ids, but tx has 3 rows"),
        ("test.index", "8\n6\n2\n", "do not fit"),
        ("test.index", "8\n6\nx\n", "one node id a line"),
        ("test.index", "8\n8\n9\n", "distinct node ids"),
        ("graph", pickle.dumps({0: [99]}), "names node 99"),
        ("graph", pickle.dumps({0: 3}), "a dictionary from node id to a list"),
        ("graph", pickle.dumps({0: ["a"]}), "a dictionary from node id to a list"),
        ("graph", pickle.dumps(np.zeros(2), 2), "a dictionary from node id to a list"),
        ("ally", pickle.dumps(np.zeros(6), 2), "one-hot labels"),
        ("allx", pickle.dumps({}), "needs a feature matrix"),
    ],
)
def test_files_that_do_not_fit_are_one_line(tmp_path: Path, part: str, content: Any, words: str) -> None:
    write_planetoid(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as caught:
        load("cora", data_root=tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
