"""What single models read — heads, residual, joins, readings, depth, norms, sparse rows — against the same reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sylvie.config import Config, resolve
from sylvie.data.graph import GraphData, SparseRows
from sylvie.nn.models import MODELS
from sylvie.trainer import Trainer
from tests.follow import check
from tests.hard_graphs import hard_graph, lopsided, random_assignment
from tests.thread_world import ThreadWorld, make_config

VARIANTS: list[dict[str, Any]] = [
    {"model": "gat", "heads": 3, "residual": True, "norm": "batch"},
    {"model": "gat", "heads": 2, "hidden": 3, "residual": True},
    {"model": "gat", "heads": 2, "layers": 1},
    {"model": "gat", "layers": 8, "hidden": 4},
    {"model": "gcnii", "alpha": 0.4, "theta": 1.5, "norm": "batch"},
    {"model": "gcnii", "layers": 8, "norm": "layer"},
    {"model": "gcnii", "layers": 1},
    {"model": "dagnn", "layers": 8, "norm": "batch"},
    {"model": "dagnn", "layers": 1, "norm": "layer"},
    {"model": "sgc", "layers": 8},
    {"model": "sgc", "layers": 1, "norm": "batch"},
    {"model": "sgc", "sgc": "precompute", "layers": 8},
    {"model": "sgc", "sgc": "precompute", "layers": 1, "norm": "layer"},
    {"model": "sgc", "sgc": "precompute", "layers": 2, "norm": "batch"},
    {"model": "jknet", "jk": "max", "norm": "batch"},
    {"model": "jknet", "jk": "max", "layers": 1},
    {"model": "jknet", "layers": 8, "norm": "layer"},
    {"model": "graphsage", "layers": 1},
    {"model": "graphsage", "layers": 8},
    {"model": "gcn", "layers": 1},
    {"model": "gcn", "layers": 8},
    {"model": "gat", "cache_input_halo": False, "heads": 2, "residual": True},
    {"model": "jknet", "cache_input_halo": False},
]


def named(variant: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" if key != "model" else str(value) for key, value in variant.items())


@pytest.mark.parametrize("given", VARIANTS, ids=named)
def test_variants_follow_one_process(given: dict[str, Any], tmp_path: Path) -> None:
    graph = hard_graph()
    system = "sar" if given["model"] == "gat" else "vanilla"
    check(graph, random_assignment(graph, 3), 3, tmp_path, system=system, epochs=5, **given)


@pytest.mark.parametrize("reading", ["transform", "precompute"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_features_propagated_once_or_every_epoch(reading: str, ranks: int, tmp_path: Path) -> None:
    graph, owners = lopsided(hard_graph(), ranks) if ranks == 4 else (hard_graph(), random_assignment(hard_graph(), ranks))
    for system in ("vanilla", "sar"):
        folder = tmp_path / system
        folder.mkdir()
        check(graph, owners, ranks, folder, model="sgc", sgc=reading, system=system, epochs=10, norm="none")


def sparse(graph: GraphData) -> GraphData:
    """The graph with its features, half of them zero, in CSR form."""
    assert isinstance(graph.features, torch.Tensor)
    dense = graph.features * (graph.features > 0)
    rows, columns = torch.nonzero(dense, as_tuple=True)
    indptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows, minlength=graph.num_nodes).cumsum(0)
    values = SparseRows(indptr=indptr, indices=columns, values=dense[rows, columns], shape=(graph.num_nodes, dense.shape[1]))
    return replace(graph, features=values)


@pytest.mark.parametrize("model", [*MODELS, "sgc-precompute", "gat-residual"])
def test_sparse_features(model: str, tmp_path: Path) -> None:
    graph = sparse(hard_graph())
    given: dict[str, Any] = {"model": model.split("-")[0]}
    if "-" in model:
        given |= {"sgc": "precompute"} if model.startswith("sgc") else {"residual": True, "heads": 2, "hidden": 3}
    check(graph, random_assignment(graph, 2), 2, tmp_path, system="vanilla", epochs=3, **given)


def traffic(trainer: Trainer) -> tuple[int, int, int, dict[str, float | None]]:
    trainer.train(trainer.coordinator.controller.config.delta)
    assert trainer.last is not None
    return trainer.ledger.sent_bytes, trainer.eval_ledger.sent_bytes, trainer.input_ledger.sent_bytes, trainer.last.values


def test_precomputed_features_travel_before_training_alone(tmp_path: Path) -> None:
    graph, hops = hard_graph(), 4
    owners = random_assignment(graph, 3)
    found = {}
    for reading in ("transform", "precompute"):
        config = make_config(model="sgc", sgc=reading, layers=hops, system="vanilla")
        world = ThreadWorld(graph, owners, 3, config, tmp_path / reading)
        found[reading] = world.run(traffic)
    halo = [sum(part.send_splits) for part in world.parts]
    messages = [sum(map(bool, part.send_splits)) for part in world.parts]
    width = graph.num_features
    wanted = [hops * (rows * width * 8 + 32 * count) for rows, count in zip(halo, messages, strict=True)]
    assert [(train, evaluate) for train, evaluate, _, _ in found["precompute"]] == [(0, 0)] * 3
    assert [before for _, _, before, _ in found["precompute"]] == wanted
    assert all(train > 0 and evaluate > 0 and before == 0 for train, evaluate, before, _ in found["transform"])
    assert found["precompute"][0][3] == found["transform"][0][3]  # evaluation sees the same rows


def test_attention_fetches_rows_again_only_where_the_system_says_so(tmp_path: Path) -> None:
    graph = hard_graph()
    owners, sent = random_assignment(graph, 3), {}
    for model in ("gat", "gcn"):
        for system in ("vanilla", "sar"):
            world = ThreadWorld(graph, owners, 3, make_config(model=model, system=system, hidden=8), tmp_path / model / system)
            sent[model, system] = world.run(lambda trainer: (trainer.train(2), trainer.ledger.sent_bytes)[1])
    assert sent["gcn", "sar"] == sent["gcn", "vanilla"]  # sums need no row in backward
    # Forward rows go twice, gradients once; over all ranks both are equally many.
    assert 2 * sum(sent["gat", "sar"]) == 3 * sum(sent["gat", "vanilla"]) > 0


@pytest.mark.parametrize("model", MODELS)
def test_dropout_trains_and_evaluation_draws_nothing(model: str, tmp_path: Path) -> None:
    graph = hard_graph()
    given = {"attention_dropout": 0.5} if model == "gat" else {}
    config = make_config(model=model, system="sylvie", dropout=0.5, epochs=3, **given)
    world = ThreadWorld(graph, random_assignment(graph, 2), 2, config, tmp_path)

    def use(trainer: Trainer) -> tuple[list[float], Any, Any]:
        losses: list[float] = []
        trainer.on_epoch = lambda epoch, closed, metrics, seconds: losses.append(closed.loss)
        trainer.train(3)
        return losses, trainer._evaluate(3), trainer._evaluate(4)

    for losses, first, second in world.run(use):
        assert all(torch.isfinite(torch.tensor(losses)))
        assert first == second


@pytest.mark.parametrize(
    ("model", "option", "value"),
    [
        ("gcn", "heads", 2),
        ("gcn", "residual", True),
        ("gcn", "attention_dropout", 0.1),
        ("gat", "alpha", 0.2),
        ("gat", "theta", 0.2),
        ("gat", "jk", "max"),
        ("gat", "sgc", "precompute"),
        ("sgc", "hidden", 32),
        ("sgc", "cache_input_halo", False),
        ("gcnii", "cache_input_halo", False),
        ("dagnn", "cache_input_halo", False),
    ],
)
def test_an_option_that_a_model_does_not_read_is_refused(model: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match="has no effect with --model") as refused:
        resolve(Config(), {"model": model, option: value})
    assert "\n" not in str(refused.value)
    assert getattr(resolve(Config(), {"model": "some.module:Model", option: value}), option) == value


@pytest.mark.parametrize(("option", "value"), [("alpha", 1.0), ("theta", 0.0), ("attention_dropout", -0.1), ("heads", 0)])
def test_impossible_values(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"--{option.replace('_', '-')} {value}"):
        Config(**{option: value})
