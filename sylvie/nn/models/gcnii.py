"""GCNII (Chen et al. 2020, arXiv 2007.02133): deep GCN with an initial residual and an identity mapping.

``H_0 = σ(X W_in + b_in)``; for l = 1 … L ``S = (1 − α) P H_{l−1} + α H_0`` and ``H_l = σ((1 − β_l) S + β_l S W_l)`` with
``β_l = log(θ/l + 1)``; logits ``H_L W_out + b_out``. P is GCN's normalised adjacency with self-loops. Dropout as in the
authors' code: on X, on the input of every layer and on that of the output.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop, own_linear
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class Gcn2Layer(nn.Module):
    """One layer, [n, D] -> [n, D]."""

    def __init__(self, width: int, layer: int, alpha: float, theta: float) -> None:
        super().__init__()
        self.layer, self.alpha, self.theta = layer, alpha, theta
        self.beta = math.log(theta / layer + 1)
        self.weight = nn.Parameter(torch.empty(width, width))
        nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def forward(self, graph: RankGraph, h: Tensor, initial: Tensor) -> Tensor:
        """``initial`` is H_0 [n, D]."""
        mixed = (1 - self.alpha) * graph.gcn(h, layer=self.layer) + self.alpha * initial
        return (1 - self.beta) * mixed + self.beta * (mixed @ self.weight)


class GCNII(nn.Module):
    """Input product, ``layers`` Gcn2Layers with norm and ReLU, output product. The input's halo is not needed."""

    NEEDS_INPUT_HALO = False

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        width, self.dropout = options.hidden, options.dropout
        self.input = nn.Linear(in_width, width)
        self.layers = nn.ModuleList(
            Gcn2Layer(width, number, options.alpha, options.theta) for number in range(1, options.layers + 1)
        )
        self.norms = nn.ModuleList(make_norm(options.norm, width) for _ in self.layers)
        self.output = nn.Linear(width, num_classes)

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        initial = h = F.relu(own_linear(self.input, drop(x, self.dropout, self.training)))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = layer(graph, dropout(h, self.dropout, self.training), initial)
            h = F.relu(norm(h, graph))
        logits: Tensor = self.output(dropout(h, self.dropout, self.training))
        return logits
