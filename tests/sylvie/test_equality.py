"""Exact systems follow the single-process trajectory: losses, gradients, halo rows and returned gradients, 1 to 4 ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sylvie.trainer import Trainer
from tests import reference
from tests.follow import check, initial_model
from tests.hard_graphs import hard_graph, lopsided, random_assignment
from tests.thread_world import ThreadWorld, make_config

EXACT = ("vanilla", "sar")
MODELS = tuple(reference.REFERENCES)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("system", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_follows_one_process(model: str, system: str, ranks: int, tmp_path: Path) -> None:
    graph = hard_graph()
    check(graph, random_assignment(graph, ranks), ranks, tmp_path, model=model, system=system)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("system", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_bare_and_unlabelled_ranks(model: str, system: str, ranks: int, tmp_path: Path) -> None:
    graph, owners = lopsided(hard_graph(), ranks)
    check(graph, owners, ranks, tmp_path, model=model, system=system, layers=2, epochs=10)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("model", ["graphsage", "gcn"])
def test_norms_look_at_the_whole_graph(model: str, norm: str, tmp_path: Path) -> None:
    graph = hard_graph()
    check(graph, random_assignment(graph, 3), 3, tmp_path, model=model, norm=norm, system="vanilla")


@pytest.mark.parametrize("model", ["graphsage", "gcn"])
@pytest.mark.parametrize("given", [{"overlap": False}, {"cache_input_halo": False}, {"weight_decay": 0.01}])
@pytest.mark.parametrize("system", EXACT)
def test_options_change_nothing_but_themselves(model: str, given: dict[str, Any], system: str, tmp_path: Path) -> None:
    graph = hard_graph(multilabel=True)
    check(graph, random_assignment(graph, 3), 3, tmp_path, model=model, system=system, **given)


@pytest.mark.parametrize("model", MODELS)
def test_single_precision(model: str, tmp_path: Path) -> None:
    graph = hard_graph()
    check(graph, random_assignment(graph, 3), 3, tmp_path, tolerance=5e-6, model=model, system="vanilla", dtype="float32")
    (tmp_path / "again").mkdir()
    check(
        graph,
        random_assignment(graph, 3),
        3,
        tmp_path / "again",
        tolerance=5e-6,
        model=model,
        system="sylvie",
        bits="32",
        schedule="sync",
        dtype="float32",
    )


@pytest.mark.parametrize("system", EXACT)
def test_halo_rows_and_returned_gradients_row_by_row(system: str, tmp_path: Path) -> None:
    graph = hard_graph()
    owners = random_assignment(graph, 4)
    world = ThreadWorld(graph, owners, 4, make_config(model="graphsage", system=system), tmp_path)
    wanted = reference.train("graphsage", initial_model(world), graph, 2, world.config.lr)
    degree = graph.in_degrees().clamp(min=1)

    def spy(trainer: Trainer) -> dict[Any, torch.Tensor]:
        taken: dict[Any, torch.Tensor] = {}
        exchange = trainer.exchange
        assert exchange is not None
        plain_take = exchange.take

        def take(site: Any) -> torch.Tensor:
            rows = plain_take(site)
            taken[(exchange.setting.epoch, site)] = rows.clone()
            return rows

        exchange.take = take  # type: ignore[method-assign]
        trainer.train(2)
        return taken

    for part, taken in zip(world.parts, world.run(spy), strict=True):
        assert taken
        plan_start = [0, *torch.tensor(part.recv_splits).cumsum(0).tolist()]
        for (epoch, site), rows in taken.items():
            h = wanted.rows[epoch][site.layer]
            peers = range(4) if system == "vanilla" else [(part.rank - site.round - 1) % 4]
            if site.direction == "forward":
                ids = torch.cat([part.halo_ids[plan_start[q] : plan_start[q + 1]] for q in peers])
                assert torch.allclose(rows, h[ids], rtol=0, atol=1e-9)
                continue
            back = range(4) if system == "vanilla" else [(part.rank + site.round + 1) % 4]
            out_start = [0, *torch.tensor(part.send_splits).cumsum(0).tolist()]
            expected = []
            for peer in back:
                sent = part.inner_ids[part.send_index[out_start[peer] : out_start[peer + 1]]]
                grad = wanted.mean_gradients[epoch][site.layer] / degree.unsqueeze(1)
                there = owners[graph.dst] == peer
                through = torch.zeros_like(grad).index_add(0, graph.src[there], grad[graph.dst[there]])
                expected.append(through[sent])
            assert torch.allclose(rows, torch.cat(expected), rtol=0, atol=1e-9)
