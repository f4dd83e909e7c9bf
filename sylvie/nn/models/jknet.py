"""JKNet (Xu et al. 2018, arXiv 1806.03536): GCN layers whose outputs are all joined before the last product.

``H_l = drop(σ(P H_{l−1} W_l + b_l))`` for l = 1 … L with H_0 = drop(X), logits ``J(H_1, …, H_L) W + b``. J concatenates
(``cat``) or takes the elementwise maximum (``max``); P is GCN's normalised adjacency with self-loops.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop
from sylvie.nn.models.gcn import GcnLayer
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class JKNet(nn.Module):
    """``layers`` GcnLayers with norm, ReLU and dropout after each, and a linear layer over all of them."""

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        width, self.dropout, self.join = options.hidden, options.dropout, options.jk
        inputs = [in_width, *[width] * (options.layers - 1)]
        self.layers = nn.ModuleList(GcnLayer(a, width, number) for number, a in enumerate(inputs, 1))
        self.norms = nn.ModuleList(make_norm(options.norm, width) for _ in self.layers)
        self.output = nn.Linear(width * (options.layers if self.join == "cat" else 1), num_classes)

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        rows, joined = drop(x, self.dropout, self.training), []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            rows = dropout(F.relu(norm(layer(graph, rows), graph)), self.dropout, self.training)
            joined.append(rows)
        together = torch.cat(joined, 1) if self.join == "cat" else torch.stack(joined).max(0).values
        logits: Tensor = self.output(together)
        return logits
