"""What the memory bench counts."""

from pathlib import Path

import torch

from analysis.bench_memory import _SESSIONS, _run
from analysis.memory_session import storage_bytes, tensors_of


def test_every_storage_counts_once_however_deep_it_lies() -> None:
    class Held:
        def __init__(self) -> None:
            base = torch.zeros(10, 4)
            self.inner = {"rows": [base, base[2:], torch.zeros(3)], "name": "x"}

    found = tensors_of(Held())
    assert len(found) == 3
    assert sorted(storage_bytes(found).values()) == [12, 160]
    assert storage_bytes([torch.eye(3).to_sparse()]) == {}


def test_what_a_deep_model_must_hold_is_at_least_its_layers_outputs(tmp_path: Path) -> None:
    nodes, layers, hidden, features = 400, 8, 128, 128
    for rank in _run(tmp_path, "gcnii", f"generator:nodes={nodes},degree=10,features={features}", _SESSIONS["counted"]):
        one = 4 * nodes * hidden // 2  # a rank's half of the nodes, give or take what METIS leaves out of balance
        assert 0.9 * layers * one < rank["activations"] < 12 * layers * one
        assert rank["features"] >= 0.9 * 4 * nodes * features / 2
        assert rank["parameters"] >= 4 * 4 * layers * hidden * hidden
        assert rank["boundary"] > 0
