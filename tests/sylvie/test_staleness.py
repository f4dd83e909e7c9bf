"""Stale and quantized runs equal their one-process simulation: losses and gradients of 20 epochs, within 1e-9 in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sylvie.build import seeded_model
from sylvie.extractor import extract
from sylvie.nn.models import MODELS
from sylvie.trainer import Trainer
from sylvie_trace.decision import Controller, Verdict
from tests import reference, simulation
from tests.hard_graphs import hard_graph, lopsided, random_assignment
from tests.thread_world import ThreadWorld, make_config

EPOCHS = 20
#: Every change of mode and of base, in both modes: sync to async and back, with the width rising and falling meanwhile.
MODES = ["sync", "async", "async", "sync", "sync", "async", "sync", "async", "async", "async"] * 2
BASES = [1, 1, 2, 4, 8, 8, 4, 2, 1, 8] * 2


class Scripted(Controller):
    """A controller that follows a script instead of a rule."""

    def __init__(self, plain: Controller, script: simulation.Script) -> None:
        super().__init__(plain.config)
        self._script, self._epoch = script, 0

    @property
    def base(self) -> int:
        return self._script.bases[min(self._epoch, len(self._script.bases) - 1)]

    @property
    def mode(self) -> str:
        return self._script.modes[min(self._epoch, len(self._script.modes) - 1)]

    def step(self, epoch: int, loss: float, et_s: float) -> Verdict:
        self._epoch = epoch + 1
        return super().step(epoch, loss, et_s)


def distributed(world: ThreadWorld, script: simulation.Script) -> list[Any]:
    """Run all ranks by the script; (losses, gradients) of each."""

    def follow(trainer: Trainer) -> tuple[list[float], list[Any], Any]:
        losses: list[float] = []
        gradients: list[Any] = []

        def keep(epoch: int, closed: Any, metrics: Any, seconds: float) -> None:
            losses.append(closed.loss)
            gradients.append(reference.gradients_of(trainer.model))

        trainer.coordinator.controller = Scripted(trainer.coordinator.controller, script)
        trainer.on_epoch = keep
        trainer.train(len(script.modes))
        return losses, gradients, trainer.ledger

    return world.run(follow)


def check(world: ThreadWorld, graph: Any, script: simulation.Script, tolerance: float = 1e-9, **sim: Any) -> None:
    config = world.config
    levels = extract(
        world.pool,
        mask=config.mask,
        thresholds=config.mask_thresholds,
        importance_kind=config.importance,
        seed=config.mask_seed,
    )
    model = seeded_model(config, world.parts[0])
    wanted = simulation.simulate(model, graph, world.parts, levels, config, script, **sim)
    exact = reference.train(config.model, model, graph, len(script.modes), config.lr)
    drift = max(abs(a - b) for a, b in zip(wanted.losses, exact.losses, strict=True))
    assert drift > 1e-6, "the simulation is no different from exact training: the case shows nothing"
    for losses, gradients, _ in distributed(world, script):
        for epoch, loss in enumerate(losses):
            assert abs(loss - wanted.losses[epoch]) <= tolerance, f"loss of epoch {epoch}"
            for name, grad in gradients[epoch].items():
                difference = float((grad - wanted.gradients[epoch][name]).abs().max())
                assert difference <= tolerance, f"gradient of {name} in epoch {epoch}: {difference}"


def world_of(
    tmp_path: Path, ranks: int = 3, *, bare: bool = False, spare_core: bool = True, **given: Any
) -> tuple[ThreadWorld, Any]:
    graph, owners = hard_graph(), None
    if bare:
        graph, owners = lopsided(graph, ranks)
    owners = random_assignment(graph, ranks) if owners is None else owners
    return ThreadWorld(graph, owners, ranks, make_config(epochs=EPOCHS, **given), tmp_path, spare_core=spare_core), graph


@pytest.mark.parametrize("model", MODELS)
def test_one_epoch_stale(model: str, tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, model=model, system="sylvie", bits="32", schedule="async")
    check(world, graph, simulation.Script(["sync"] + ["async"] * 19, [32] * EPOCHS))


@pytest.mark.parametrize("model", MODELS)
def test_switches_of_mode_and_base(model: str, tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, model=model, system="sylvie")
    check(world, graph, simulation.Script(MODES, BASES))


@pytest.mark.parametrize("model", ["graphsage", "gat", "dagnn"])
def test_a_rank_without_a_spare_core_computes_the_same(model: str, tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, model=model, system="sylvie", spare_core=False, trace=True)
    check(world, graph, simulation.Script(MODES, BASES))
    messages = [line for file in tmp_path.glob("rank-*.jsonl") for line in file.read_text().splitlines() if '"message"' in line]
    asynchronous = [line for line in messages if '"mode":"async"' in line.replace(" ", "")]
    assert asynchronous and not any('"background"' in line for line in asynchronous), "the codec ran where there is no core"


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_quantized_synchronous(bits: int, tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, 4, system="sylvie", bits=str(bits), schedule="sync")
    check(world, graph, simulation.Script(["sync"] * EPOCHS, [bits] * EPOCHS))


@pytest.mark.parametrize("metadata", ["fp32", "bf16"])
@pytest.mark.parametrize("mask", ["degree", "shuffled", "shuffled-rows"])
def test_masks_and_metadata(mask: str, metadata: str, tmp_path: Path) -> None:
    world, graph = world_of(
        tmp_path, 2, system="sylvie", mask=mask, metadata=metadata, mask_thresholds="quartile", importance="distinct"
    )
    check(world, graph, simulation.Script(MODES, BASES))


@pytest.mark.parametrize("given", [{"overlap": False}, {"bare": True}, {"norm": "batch"}])
def test_options_and_bare_ranks(given: dict[str, Any], tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, 4, system="sylvie", **given)
    check(world, graph, simulation.Script(MODES, BASES))


@pytest.mark.parametrize("smooth", ["none", "features", "gradients", "both"])
def test_pipegcn(smooth: str, tmp_path: Path) -> None:
    given = {} if smooth == "none" else {"pipegcn_momentum": 0.7}
    world, graph = world_of(tmp_path, system="pipegcn", pipegcn_smooth=smooth, **given)
    sides = {"none": (), "features": ("forward",), "gradients": ("backward",), "both": ("forward", "backward")}
    script = simulation.Script(["sync"] + ["async"] * 19, [32] * EPOCHS)
    check(world, graph, script, smoothed=frozenset(sides[smooth]))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_bns_gcn(model: str, share: float, tmp_path: Path) -> None:
    world, graph = world_of(tmp_path, model=model, system="bns-gcn", bns_p=share)
    check(world, graph, simulation.Script(["sync"] * EPOCHS, [32] * EPOCHS), share=share)


def test_noise_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    """An embedding row restored on 2 ranks equals the same row restored on 4."""
    restored: list[dict[int, torch.Tensor]] = []
    for ranks in (2, 4):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        graph = hard_graph()
        owners = random_assignment(graph, 4) % ranks
        world = ThreadWorld(graph, owners, ranks, make_config(system="sylvie", bits="2", schedule="sync"), folder)

        def first_rows(trainer: Trainer) -> dict[int, torch.Tensor]:
            found: dict[int, torch.Tensor] = {}
            exchange = trainer.exchange
            assert exchange is not None
            plain_take = exchange.take

            def take(site: Any) -> torch.Tensor:
                rows = plain_take(site)
                if site.direction == "forward" and site.layer == 2 and exchange.setting.epoch == 0:
                    found.update(zip(trainer.partition.halo_ids.tolist(), rows.clone(), strict=True))
                return rows

            exchange.take = take  # type: ignore[method-assign]
            trainer.train(1)
            return found

        merged: dict[int, torch.Tensor] = {}
        for found in world.run(first_rows):
            merged |= found
        restored.append(merged)
    common = restored[0].keys() & restored[1].keys()
    assert len(common) > 20
    assert all(torch.equal(restored[0][node], restored[1][node]) for node in common)
