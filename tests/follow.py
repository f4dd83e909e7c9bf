"""Following one process: train a world of threads, compare every epoch's loss and gradients with the reference's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sylvie.build import seeded_model
from sylvie.data.graph import GraphData
from sylvie.trainer import Trainer
from tests import reference
from tests.thread_world import ThreadWorld, make_config

Followed = tuple[list[float], list[dict[str, torch.Tensor]]]


def initial_model(world: ThreadWorld) -> torch.nn.Module:
    """The model as every rank starts from it."""
    return seeded_model(world.config, world.parts[0])


def follow(trainer: Trainer, epochs: int) -> Followed:
    """Train and keep every epoch's loss and gradients."""
    losses: list[float] = []
    gradients: list[dict[str, torch.Tensor]] = []

    def keep(epoch: int, closed: Any, metrics: Any, seconds: float) -> None:
        losses.append(closed.loss)
        gradients.append(reference.gradients_of(trainer.model))

    trainer.on_epoch = keep
    trainer.train(epochs)
    return losses, gradients


def check(graph: GraphData, owners: torch.Tensor, ranks: int, tmp_path: Path, tolerance: float = 1e-9, **given: Any) -> None:
    """Every rank's losses and parameter gradients are those of one process, epoch by epoch."""
    config = make_config(**given)
    world = ThreadWorld(graph, owners, ranks, config, tmp_path)
    wanted = reference.train(config.model, initial_model(world), graph, config.epochs, config.lr, config.weight_decay)
    for losses, gradients in world.run(lambda trainer: follow(trainer, config.epochs)):
        assert len(losses) == config.epochs
        for epoch, (loss, grads) in enumerate(zip(losses, gradients, strict=True)):
            assert abs(loss - wanted.losses[epoch]) <= tolerance, f"loss of epoch {epoch}"
            assert grads.keys() == wanted.gradients[epoch].keys()
            for name, grad in grads.items():
                difference = float((grad - wanted.gradients[epoch][name]).abs().max())
                assert difference <= tolerance, f"gradient of {name} in epoch {epoch}: {difference}"
