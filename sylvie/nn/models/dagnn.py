"""DAGNN (Liu et al. 2020, arXiv 2007.09296): transform first, then weigh every hop of the propagation by a learned gate.

``Z = MLP(X)`` [n, C], ``H_k = P^k Z`` for k = 0 … K, ``S_k = sigmoid(H_k s + b)`` [n, 1], logits ``Σ_k S_k · H_k``; P is GCN's
normalised adjacency with self-loops, K = ``layers``. The hops are steps 0 … K − 1 of one layer; rows travel C wide.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop, own_linear
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class DAGNN(nn.Module):
    """An MLP with one hidden layer (norm, ReLU, dropout), then K hops. The input's halo is not needed."""

    NEEDS_INPUT_HALO = False

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        self.hops, self.dropout = options.layers, options.dropout
        self.input = nn.Linear(in_width, options.hidden)
        self.norm = make_norm(options.norm, options.hidden)
        self.transform = nn.Linear(options.hidden, num_classes)
        self.gate = nn.Linear(num_classes, 1)

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        h = F.relu(self.norm(own_linear(self.input, drop(x, self.dropout, self.training)), graph))
        hop: Tensor = self.transform(dropout(h, self.dropout, self.training))
        logits = torch.sigmoid(self.gate(hop)) * hop
        for step in range(self.hops):
            hop = graph.gcn(hop, layer=1, step=step)
            logits = logits + torch.sigmoid(self.gate(hop)) * hop
        return logits
