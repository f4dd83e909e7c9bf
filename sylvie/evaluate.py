"""Evaluation: fresh fp32 rows, synchronous, no random draws; metrics over inner nodes, summed over ranks before dividing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sylvie.exchange.reduce import Reducer, sum_control
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows
from sylvie.partition.partition import Partition

ACCURACY, F1_MICRO = "accuracy", "f1_micro"
SPLITS = ("train", "val", "test")


def metric_name(multilabel: bool) -> str:
    """Accuracy for one label a node, F1-micro for several."""
    return F1_MICRO if multilabel else ACCURACY


def count_outcomes(logits: Tensor, labels: Tensor, mask: Tensor, multilabel: bool) -> Tensor:
    """What can be added up over ranks, float64 [3]: numerator, denominator, nodes.

    Accuracy = hits / nodes; F1-micro = 2·TP / (2·TP + FP + FN). ``logits`` [n, C]; ``mask`` bool [n].
    """
    chosen, truth = logits[mask], labels[mask]
    nodes = float(chosen.shape[0])
    if multilabel:
        predicted, actual = chosen > 0, truth > 0.5
        hits = float((predicted & actual).sum())
        misses = float((predicted ^ actual).sum())
        return torch.tensor([2 * hits, 2 * hits + misses, nodes], dtype=torch.float64)
    hits = float((chosen.argmax(1) == truth).sum()) if nodes else 0.0
    return torch.tensor([hits, nodes, nodes], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Metric per split, and the number of nodes that entered it; None where a split is empty or F1 has no positives."""

    values: dict[str, float | None]
    nodes: dict[str, int]


def evaluate(
    model: nn.Module, graph: RankGraph, x: Tensor | InputRows, partition: Partition, reducer: Reducer
) -> Scores:
    """Score all splits of the whole graph; leaves the model in the mode it was in."""
    was_training = model.training
    model.eval()
    graph.halo.begin_forward()
    with torch.no_grad():
        logits = model(graph, x)
    model.train(was_training)
    masks = (partition.train_mask, partition.val_mask, partition.test_mask)
    counts = torch.stack([count_outcomes(logits, partition.labels, m, partition.multilabel) for m in masks])
    sum_control(reducer, counts)
    values = {
        split: (float(counts[i, 0] / counts[i, 1]) if counts[i, 1] > 0 else None) for i, split in enumerate(SPLITS)
    }
    nodes = {split: int(counts[i, 2]) for i, split in enumerate(SPLITS)}
    wanted = (partition.num_train, partition.num_val, partition.num_test)
    assert tuple(nodes.values()) == wanted, f"scored {nodes}, the masks hold {wanted}"
    return Scores(values=values, nodes=nodes)
