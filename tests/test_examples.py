"""The examples do what they say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sylvie.cli import main
from sylvie.data import fingerprint, load, save_npz
from sylvie.predict import predict
from tests.sylvie.graphs import graph_of, write_npz

ROOT = Path(__file__).parents[1]


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_train_on_a_dgl_graph_then_predict(capsys: pytest.CaptureFixture[str]) -> None:
    """The graph learns; the prediction of all nodes gives the very accuracy that the run recorded."""
    pytest.importorskip("dgl")
    assert example("from_dgl").main(["--parts", "1", "--epochs", "15", "--eval-every", "1", "--run-dir", "run"]) == 0
    graph = load("my_graph.npz")
    right = predict("run").argmax(1) == graph.labels
    footer = [json.loads(line) for line in Path("run/trace/rank-00000.jsonl").read_text().splitlines()][-1]
    assert float(right[graph.val_mask].double().mean()) == pytest.approx(footer["quality"]["best_val"], abs=1e-12)
    assert float(right[graph.test_mask].double().mean()) == pytest.approx(footer["quality"]["test_at_best_val"], abs=1e-12)
    assert footer["quality"]["best_val"] > 0.7  # a guess has 0.33, a node's own features less than 0.55
    capsys.readouterr()
    example("predict").main("run", [0, 7])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["node 0", "node 7"]
    assert f"class {int(predict('run')[7].argmax())} " in lines[1]


def test_predicting_refuses_what_does_not_fit(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "graph.npz")
    assert main(["--dataset", str(data), "--parts", "1", "--epochs", "2", "--run-dir", "run"]) == 0
    whole = predict("run")
    assert torch.equal(whole, predict("run", load(str(data))))
    with pytest.raises(ValueError, match="takes 4 features and 3 classes, the graph has 3 and 2"):
        predict("run", graph_of(5, [(0, 1)]))
    write_npz(data, x=None)
    with pytest.raises(ValueError, match="features"):
        predict("run")
    write_npz(data, edge_index=[[0], [1]])
    with pytest.raises(ValueError, match="not the graph"):
        predict("run")
    with pytest.raises(ValueError, match="name a run directory"):
        predict("elsewhere")
    Path("run/model.safetensors").unlink()
    with pytest.raises(ValueError, match="no model"):
        predict("run", load(str(write_npz(data))))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_saved_graph_comes_back_whole(tmp_path: Path, sparse: bool) -> None:
    graph = graph_of(9, [(0, 1), (1, 1), (8, 2)], sparse=sparse)
    path = save_npz(graph, tmp_path / "saved.npz")
    again = load(str(path))
    assert fingerprint(again) == fingerprint(graph)
    assert again.num_classes == graph.num_classes == 2
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".npz"] == ["saved.npz"]
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        save_npz(graph, tmp_path / "saved")
    with pytest.raises(ValueError, match="cannot be written"):
        save_npz(graph, tmp_path / "none" / "saved.npz")
