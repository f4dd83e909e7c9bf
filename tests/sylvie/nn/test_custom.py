"""Layers of dgl.nn on a part: single-hop ones equal the whole graph in three lines, the others are refused in one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dgl.nn
import pytest
import torch
from torch import Tensor, nn

from sylvie.exchange.exchange import Setting
from sylvie.nn.custom import build_model, check_layers, needs_input_halo
from sylvie.nn.graph import RankGraph
from sylvie.nn.models import ModelOptions
from sylvie.trainer import Trainer
from sylvie_trace.schema import SYNC
from tests import reference
from tests.hard_graphs import hard_graph, random_assignment
from tests.sylvie.graphs import tiny_arrays, write_npz
from tests.sylvie.runs import read_records, train
from tests.thread_world import ThreadWorld, make_config

IN, OUT = 5, 3


@dataclass(frozen=True)
class Case:
    """A layer for parts, the layer of the whole graph where it is another, and how the part's is called."""

    layer: Callable[[], nn.Module]
    whole: Callable[[], nn.Module] | None = None
    self_loops: bool = False
    weights: bool = False


CASES = {
    "SAGEConv": Case(lambda: dgl.nn.SAGEConv(IN, OUT, "mean")),
    "SAGEConv-pool": Case(lambda: dgl.nn.SAGEConv(IN, OUT, "pool")),
    "GINConv": Case(lambda: dgl.nn.GINConv(nn.Linear(IN, OUT), "sum", init_eps=0.5, learn_eps=True)),
    "GraphConv-right": Case(lambda: dgl.nn.GraphConv(IN, OUT, norm="right", allow_zero_in_degree=True)),
    "GraphConv-weights": Case(
        lambda: dgl.nn.GraphConv(IN, OUT, norm="none", allow_zero_in_degree=True),
        whole=lambda: dgl.nn.GraphConv(IN, OUT, norm="both", allow_zero_in_degree=True),
        weights=True,
    ),
    "GraphConv-weights-loops": Case(
        lambda: dgl.nn.GraphConv(IN, OUT, norm="none"),
        whole=lambda: dgl.nn.GraphConv(IN, OUT, norm="both"),
        self_loops=True,
        weights=True,
    ),
    "GATConv": Case(lambda: dgl.nn.GATConv(IN, OUT, 2), self_loops=True),
    "GATv2Conv": Case(lambda: dgl.nn.GATv2Conv(IN, OUT, 2), self_loops=True),
}


def on_a_part(conv: nn.Module, case: Case, graph: RankGraph, h: Tensor) -> Tensor:
    given = {"edge_weight": graph.gcn_edge_weight(self_loops=case.self_loops)} if case.weights else {}
    h = graph.gather(h)
    out: Tensor = conv(graph.block(self_loops=case.self_loops), h, **given)
    return out


@pytest.mark.parametrize(("ranks", "system"), [(1, "vanilla"), (2, "vanilla"), (3, "vanilla"), (3, "sar")])
@pytest.mark.parametrize("name", CASES)
def test_single_hop_layers_equal_the_whole_graph(name: str, ranks: int, system: str, tmp_path: Path) -> None:
    graph, case = hard_graph(), CASES[name]
    torch.manual_seed(0)
    conv = case.layer().double()
    check_layers(conv)
    whole = conv if case.whole is None else case.whole().double()
    whole.load_state_dict(conv.state_dict())
    h = torch.randn(graph.num_nodes, IN, dtype=torch.float64)
    wanted_h = h.clone().requires_grad_()
    wanted = whole(reference.whole_graph(graph, self_loops=case.self_loops), wanted_h)
    probe = torch.randn(wanted.shape, dtype=torch.float64)
    (wanted * probe).sum().backward()

    def use(trainer: Trainer) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        if trainer.exchange is not None:
            trainer.exchange.begin_epoch(Setting(epoch=0, mode=SYNC, base=32))
        mine, own = copy.deepcopy(conv), trainer.partition.inner_ids
        mine.zero_grad()
        rows = h[own].requires_grad_()
        out = on_a_part(mine, case, trainer.graph, rows)
        (out * probe[own]).sum().backward()
        assert rows.grad is not None
        return out.detach(), rows.grad, reference.gradients_of(mine)

    world = ThreadWorld(graph, random_assignment(graph, ranks), ranks, make_config(system=system), tmp_path)
    results = world.run(use)
    for part, (out, grad, _) in zip(world.parts, results, strict=True):
        assert torch.allclose(out, wanted[part.inner_ids], rtol=0, atol=1e-12)
        assert wanted_h.grad is not None
        assert torch.allclose(grad, wanted_h.grad[part.inner_ids], rtol=0, atol=1e-12)
    for key, value in reference.gradients_of(whole).items():
        assert torch.allclose(sum(grads[key] for _, _, grads in results), value, rtol=0, atol=1e-11), key


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (lambda: dgl.nn.GraphConv(IN, OUT, norm="both"), "gcn_edge_weight"),
        (lambda: dgl.nn.GraphConv(IN, OUT, norm="left"), "gcn_edge_weight"),
        (lambda: dgl.nn.EdgeWeightNorm("both"), "gcn_edge_weight"),
        (lambda: dgl.nn.GCN2Conv(IN, layer=1), "gcnii"),
        (lambda: dgl.nn.SGConv(IN, OUT), "sgc"),
        (lambda: dgl.nn.APPNPConv(2, 0.1), "graph.gcn"),
        (lambda: dgl.nn.TAGConv(IN, OUT), "graph.gcn"),
        (lambda: dgl.nn.ChebConv(IN, OUT, 2), "graph.gcn"),
    ],
)
def test_layers_that_would_be_wrong_are_refused(layer: Callable[[], nn.Module], instead: str) -> None:
    inside = layer()
    with pytest.raises(ValueError, match=type(inside).__name__) as refused:
        check_layers(nn.ModuleDict({"convs": nn.ModuleList([nn.Linear(2, 2), inside])}))
    message = str(refused.value)
    assert "convs.1" in message and instead in message and "\n" not in message


class Wrong(nn.Module):
    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        self.conv = dgl.nn.SGConv(in_width, num_classes)


def test_a_users_model_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match=r"layer conv \(SGConv\)"):
        build_model(f"{__name__}:Wrong", 4, 2, ModelOptions())
    assert needs_input_halo(f"{__name__}:Wrong") and needs_input_halo("gat") and not needs_input_halo("dagnn")


def test_the_example_trains(tmp_path: Path) -> None:
    graph = write_npz(tmp_path / "graph.npz", **tiny_arrays(60))
    model = ["--model", "examples.own_model:OwnModel", "--heads", "2", "--hidden", "8", "--dropout", "0"]
    ended = train(tmp_path, "--dataset", graph, *model, "--parts", "2", "--epochs", "6", "--trace")
    assert ended.code == 0, ended.err
    epochs = read_records(ended.run_dir, 0, "epoch")
    assert len(epochs) == 6 and epochs[-1]["loss"] < epochs[0]["loss"]
    messages = [message for message in read_records(ended.run_dir, 0, "message") if message["purpose"] == "train"]
    assert {(m["layer"], m["direction"]) for m in messages} == {(2, "forward"), (2, "backward")}  # layer 1's rows are constant
