"""GraphSAGE with mean aggregation (Hamilton et al. 2017, arXiv 1706.02216).

``h_v' = σ(W_own h_v + W_near · mean{h_u : u -> v} + b)``; no self-loop is added, an isolated node's mean is 0.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, SparseInput, drop
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class SageLayer(nn.Module):
    """One GraphSAGE layer, [n, in] -> [n, out]."""

    def __init__(self, in_width: int, out_width: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.own = nn.Linear(in_width, out_width)
        self.near = nn.Linear(in_width, out_width, bias=False)

    def forward(self, graph: RankGraph, rows: Tensor | InputRows) -> Tensor:
        """Rows travel at the layer's input width; constant inputs are multiplied first where that is narrower."""
        if isinstance(rows, SparseInput) or (not isinstance(rows, Tensor) and rows.width > self.near.out_features):
            near = graph.visit(rows.linear(self.near.weight))
            return rows.inner_linear(self.own.weight) + self.own.bias + near.mean()
        near = graph.visit(rows, layer=self.layer)
        own: Tensor = self.own(near.inner)
        return torch.addmm(own, near.mean(), self.near.weight.t())


class GraphSAGE(nn.Module):
    """``layers`` SageLayers with norm, ReLU and dropout between them."""

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        widths = [in_width, *[options.hidden] * (options.layers - 1), num_classes]
        self.dropout = options.dropout
        self.layers = nn.ModuleList(SageLayer(a, b, number) for number, (a, b) in enumerate(itertools.pairwise(widths), 1))
        self.norms = nn.ModuleList(make_norm(options.norm, width) for width in widths[1:-1])

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        h = self.layers[0](graph, drop(x, self.dropout, self.training))
        for norm, layer in zip(self.norms, self.layers[1:], strict=True):
            h = layer(graph, dropout(F.relu(norm(h, graph)), self.dropout, self.training))
        logits: Tensor = h
        return logits
