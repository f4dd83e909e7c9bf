"""SGC (Wu et al. 2019, arXiv 1902.07153): ``P^K X W + b`` with P GCN's normalised adjacency and K = ``layers``.

The product is associative, hence two readings. ``transform``: X W first, then K hops of C-wide rows in every epoch, as steps
0 … K − 1 of one layer. ``precompute``: P^K X once before training, which then sends nothing at all. ``norm`` acts between the
two stages; dropout on what is multiplied by W.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop, own_linear, own_rows
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class SGC(nn.Module):
    """One weight and K hops, in either order. The input's halo is not needed."""

    NEEDS_INPUT_HALO = False

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        self.hops, self.dropout = options.layers, options.dropout
        self.precomputes = options.sgc == "precompute"
        self.linear = nn.Linear(in_width, num_classes, bias=False)
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.norm = make_norm(options.norm, in_width if self.precomputes else num_classes)

    def prepare(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor | InputRows:
        """P^K X [n, F] where features are propagated once, else X itself; called once, before the first epoch."""
        return self._propagate(graph, own_rows(x)) if self.precomputes else x

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]; ``x`` as ``prepare`` returned it."""
        if self.precomputes:
            rows = dropout(self.norm(own_rows(x), graph), self.dropout, self.training)
            return own_linear(self.linear, rows) + self.bias
        rows = own_linear(self.linear, drop(x, self.dropout, self.training))
        return self._propagate(graph, self.norm(rows, graph)) + self.bias

    def _propagate(self, graph: RankGraph, rows: Tensor) -> Tensor:
        for step in range(self.hops):
            rows = graph.gcn(rows, layer=1, step=step)
        return rows
