"""The generated graph: deterministic, power-law, and useless without its edges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sylvie.data import GraphData, fingerprint, load


def mean_of_neighbours(graph: GraphData, rows: Tensor) -> Tensor:
    total = torch.zeros_like(rows).index_add_(0, graph.dst, rows[graph.src])
    return total / graph.in_degrees().clamp(min=1)[:, None]


def score(graph: GraphData, *, edges: bool, epochs: int = 60) -> float:
    """Best-epoch test accuracy of two GraphSAGE layers; without edges every neighbourhood is empty."""
    torch.manual_seed(0)
    assert isinstance(graph.features, Tensor)

    def gather(rows: Tensor) -> Tensor:
        return mean_of_neighbours(graph, rows) if edges else torch.zeros_like(rows)

    first = torch.nn.Linear(2 * graph.num_features, 32)
    second = torch.nn.Linear(64, graph.num_classes)
    optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    neighbourhood = gather(graph.features)
    best = (0.0, 0.0)
    for _ in range(epochs):
        hidden = torch.relu(first(torch.cat((graph.features, neighbourhood), 1)))
        scores = second(torch.cat((hidden, gather(hidden)), 1))
        loss = torch.nn.functional.cross_entropy(scores[graph.train_mask], graph.labels[graph.train_mask])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        right = (scores.argmax(1) == graph.labels).float()
        best = max(best, (float(right[graph.val_mask].mean()), float(right[graph.test_mask].mean())))
    return best[1]


def test_features_need_the_neighbourhood() -> None:
    graph = load("generator:nodes=3000,degree=20")
    with_edges, without = score(graph, edges=True), score(graph, edges=False)
    assert with_edges - without >= 0.15, (with_edges, without)
    assert with_edges > 0.6


def test_default_size() -> None:
    graph = load("generator")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (8000, 64, 8)
    assert 140_000 <= graph.src.shape[0] <= 160_000
    for mask, share in ((graph.train_mask, 0.6), (graph.val_mask, 0.2), (graph.test_mask, 0.2)):
        assert int(mask.sum()) == round(share * 8000)
    assert not bool((graph.train_mask & graph.val_mask | graph.train_mask & graph.test_mask).any())


def test_degrees_have_a_heavy_tail_and_edges_both_directions() -> None:
    graph = load("generator")
    degrees = graph.in_degrees().float()
    assert float(degrees.max()) > 15 * float(degrees.mean())
    # Hill estimate over the largest 5 %: the planted exponent of the tail is 1.6.
    tail = degrees.sort(descending=True).values[:400]
    assert 1.0 < 1 / float((tail / tail[-1]).log().mean()) < 2.5
    forward = graph.src * graph.num_nodes + graph.dst
    backward = graph.dst * graph.num_nodes + graph.src
    assert torch.equal(forward.sort().values, backward.sort().values)
    assert not bool((graph.src == graph.dst).any())


def test_seed_decides_everything() -> None:
    assert fingerprint(load("generator", seed=3)) == fingerprint(load("generator:seed=3", seed=8))
    assert fingerprint(load("generator", seed=3)) != fingerprint(load("generator", seed=4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("generator:size=3", "unknown setting 'size'"),
        ("generator:nodes=many", "not a whole number"),
        ("generator:nodes=3", "too small"),
        ("generator:degree=0", "too small"),
        ("generator:nodes=60,degree=40", "too small"),
    ],
)
def test_bad_settings_are_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(text)


def test_small_and_odd_settings_work() -> None:
    graph = load("generator:nodes=40,degree=3,classes=2,features=1")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (40, 1, 2)
