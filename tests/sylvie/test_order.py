"""What goes first: weight gradients before the boundary rows that nobody waits for; one round's rows after the other."""

from __future__ import annotations

import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sylvie.exchange.buffers import RowBuffers
from sylvie.exchange.gradients import GradientSum
from sylvie.trainer import Trainer
from tests.hard_graphs import hard_graph, random_assignment
from tests.thread_world import ThreadWorld, make_config


class Counting:
    """A reducer of two ranks that keeps the sizes of what it was asked to sum."""

    world_size, control_bytes = 2, 0

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def start_sum(self, tensor: Tensor) -> Any:
        self.sizes.append(tensor.numel() * tensor.element_size())
        return lambda: tensor.mul_(2)


def layers(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


@pytest.mark.parametrize(
    ("widths", "sizes"),
    [
        ((64, 128, 256, 256, 16), (279616, 132096, 33280)),  # a whole layer may be one bucket
        ((8, 128, 256, 256, 16), (279616, 132096, 4608)),
        ((3000, 64, 8), (2336, 768000)),  # a parameter is not split
        ((4, 4, 2), (120,)),
        ((32, 32, 32, 32, 32), (16896,)),  # as few bytes as one message is worth
    ],
)
def test_every_parameter_is_summed_once_and_buckets_shrink(widths: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, reducer = layers(*widths), Counting()
    sums = GradientSum(model.parameters(), reducer)  # type: ignore[arg-type]
    sums.begin()
    model(torch.randn(5, widths[0])).square().sum().backward()
    alone = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    sent = sums.finish()
    assert reducer.sizes == sums.bucket_bytes and sent == sum(reducer.sizes)
    assert sum(reducer.sizes) == sum(p.numel() * 4 for p in model.parameters()), "of two ranks each sends the whole once"
    assert tuple(reducer.sizes) == sizes
    for p, own in zip(model.parameters(), alone, strict=True):
        assert p.grad is not None and torch.equal(p.grad, 2 * own)


class Diary:
    """Writes down every exchange and every sum of a rank, in the order in which they begin."""

    def __init__(self, trainer: Trainer) -> None:
        self.lines: list[str] = []
        exchange, reducer = trainer.exchange, trainer.reducer
        assert exchange is not None
        self._follow(exchange.stages, "transfer", lambda flight: f"{flight.epoch} {flight.site}")
        self._follow(reducer, "start_sum", lambda tensor: "gradients")
        self._follow(reducer, "gather", lambda values: "coordination")

    def _follow(self, owner: Any, name: str, line: Any) -> None:
        inner = getattr(owner, name)

        def noting(argument: Any) -> Any:
            self.lines.append(line(argument))
            return inner(argument)

        setattr(owner, name, noting)


@pytest.mark.parametrize("model", ["graphsage", "gat"])
def test_the_last_message_of_an_asynchronous_backward_leaves_behind_gradients_and_coordination(
    model: str, tmp_path: Path
) -> None:
    graph = hard_graph()
    config = make_config(model=model, bits="2", schedule="async", layers=3, parts=2, epochs=4)
    world = ThreadWorld(graph, random_assignment(graph, 2), 2, config, tmp_path)

    def follow(trainer: Trainer) -> list[str]:
        diary = Diary(trainer)
        trainer.train(4)
        return diary.lines

    for lines in world.run(follow):
        closings = [place for place, line in enumerate(lines) if line == "coordination"]
        gradients = [place for place, line in enumerate(lines) if line == "gradients"]
        assert len(closings) == 4 and gradients
        first = lines.index("0 L2.0 bwd")
        assert first < closings[0], "a synchronous backward waits for its rows"
        for epoch in (1, 2, 3):
            left = lines.index(f"{epoch} L2.0 bwd")
            assert closings[epoch] < left, f"epoch {epoch}: its last message stood in the way of the coordination"
            assert max(g for g in gradients if g < closings[epoch]) < left


def test_peer_by_peer_no_more_than_two_rounds_of_rows_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = hard_graph()
    config = make_config(system="sar", layers=3, parts=4, epochs=3)
    world = ThreadWorld(graph, random_assignment(graph, 4), 4, config, tmp_path)
    lent: dict[int, list[Any]] = {}
    most: dict[int, int] = {}
    inner = RowBuffers.rows

    def noting(self: RowBuffers, *arguments: Any) -> Tensor:
        rows = inner(self, *arguments)
        own = lent.setdefault(id(self), [])
        own.append(weakref.ref(rows.untyped_storage()))
        most[id(self)] = max(most.get(id(self), 0), sum(ref() is not None for ref in own))
        return rows

    monkeypatch.setattr(RowBuffers, "rows", noting)
    world.run(lambda trainer: trainer.train(3))
    busy = [most[key] for key, own in lent.items() if len(own) > 6]
    assert busy and max(busy) <= 2, f"rows of {max(busy)} rounds were alive at once"
