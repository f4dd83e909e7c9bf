"""The one-process truth: plain DGL models on the whole graph, trained by a plain loop. No exchange, no partition.

``train`` gives losses and parameter gradients of every epoch; the models are those of ``tests.reference_models``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.data.graph import GraphData
from tests.reference_models import REFERENCES, ReferenceSage, plain_norm, whole_graph

__all__ = ["REFERENCES", "Trajectory", "dense_features", "gradients_of", "plain_norm", "train", "whole_graph"]


@dataclass
class Trajectory:
    """Loss and parameter gradients of every epoch; ``rows[epoch][layer]`` the rows that entered a layer, with gradients."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    rows: list[dict[int, Tensor]] = field(default_factory=list)
    mean_gradients: list[dict[int, Tensor]] = field(default_factory=list)


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Clones of all gradients; zeros where there is none."""
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def dense_features(data: GraphData) -> Tensor:
    """The features as a dense tensor."""
    x = data.features
    if isinstance(x, Tensor):
        return x
    rows = torch.repeat_interleave(torch.arange(x.shape[0]), x.indptr.diff())
    return torch.zeros(x.shape, dtype=x.values.dtype).index_put((rows, x.indices.long()), x.values)


def train(name: str, model: nn.Module, data: GraphData, epochs: int, lr: float, weight_decay: float = 0.0) -> Trajectory:
    """Train a copy of ``model`` (a built-in one) as plain DGL on the whole graph."""
    ours = copy.deepcopy(model)
    dtype = next(ours.parameters()).dtype
    reference = REFERENCES[name](ours, data)
    optimiser = torch.optim.Adam(ours.parameters(), lr=lr, weight_decay=weight_decay)
    x, found = dense_features(data).to(dtype), Trajectory()
    for _ in range(epochs):
        rows: dict[int, Tensor] = {}

        def seen(layer: int, h: Tensor, rows: dict[int, Tensor] = rows) -> Tensor:
            h.retain_grad()
            rows[layer] = h
            return h

        optimiser.zero_grad()
        logits = reference(x, seen)[data.train_mask]
        labels = data.labels[data.train_mask]
        if data.multilabel:
            loss = F.binary_cross_entropy_with_logits(logits, labels.to(dtype))
        else:
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        found.gradients.append(gradients_of(ours))
        found.losses.append(float(loss.detach()))
        found.rows.append(rows)
        if isinstance(reference, ReferenceSage):
            found.mean_gradients.append(reference.mean_gradients())
        optimiser.step()
    return found
