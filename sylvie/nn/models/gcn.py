"""GCN (Kipf & Welling 2017, arXiv 1609.02907).

``H' = σ(D_in^-1/2 (A + I) D_out^-1/2 H W + b)`` with whole-graph degrees; I only where a node has no self-loop.
"""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, SparseInput, drop
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class GcnLayer(nn.Module):
    """One GCN layer, [n, in] -> [n, out]."""

    def __init__(self, in_width: int, out_width: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.linear = nn.Linear(in_width, out_width)

    def forward(self, graph: RankGraph, rows: Tensor | InputRows) -> Tensor:
        """Rows travel at the layer's input width; constant inputs are multiplied first where that is narrower."""
        if isinstance(rows, SparseInput) or (not isinstance(rows, Tensor) and rows.width > self.linear.out_features):
            return graph.gcn(rows.linear(self.linear.weight)) + self.linear.bias
        out: Tensor = self.linear(graph.gcn(rows, layer=self.layer))
        return out


class GCN(nn.Module):
    """``layers`` GcnLayers with norm, ReLU and dropout between them."""

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        widths = [in_width, *[options.hidden] * (options.layers - 1), num_classes]
        self.dropout = options.dropout
        self.layers = nn.ModuleList(GcnLayer(a, b, number) for number, (a, b) in enumerate(itertools.pairwise(widths), 1))
        self.norms = nn.ModuleList(make_norm(options.norm, width) for width in widths[1:-1])

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        h = self.layers[0](graph, drop(x, self.dropout, self.training))
        for norm, layer in zip(self.norms, self.layers[1:], strict=True):
            h = layer(graph, dropout(F.relu(norm(h, graph)), self.dropout, self.training))
        logits: Tensor = h
        return logits
