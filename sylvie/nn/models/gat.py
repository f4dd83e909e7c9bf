"""GAT (Veličković et al. 2018, arXiv 1710.10903), as ``dgl.nn.GATConv`` computes it.

Per head ``z = W h``, ``e_uv = LeakyReLU_0.2(a_l·z_u + a_r·z_v)``, ``α_uv = softmax_u e_uv``, ``h_v' = σ(Σ_u α_uv z_u [+ W_r h_v] + b)``
over in-neighbours and the node itself (a self-loop is added where none exists). As with DGL, ``hidden`` is the width of one head:
hidden layers concatenate ``heads`` of them, the output layer averages its heads. σ is ELU, as in the paper. Dropout acts on a
layer's input and, with ``attention_dropout``, on α. ``residual`` adds the layer's input (through W_r where widths differ).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.attention import attend
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class GatLayer(nn.Module):
    """One GAT layer, [n, in] -> [n, heads, out]; rows travel at the layer's input width."""

    def __init__(self, in_width: int, out_width: int, layer: int, options: ModelOptions) -> None:
        super().__init__()
        self.layer, self.heads, self.width = layer, options.heads, out_width
        self.attention_dropout = options.attention_dropout
        self.linear = nn.Linear(in_width, options.heads * out_width, bias=False)
        self.source = nn.Parameter(torch.empty(options.heads, out_width))
        self.target = nn.Parameter(torch.empty(options.heads, out_width))
        self.bias = nn.Parameter(torch.zeros(options.heads, out_width))
        self.residual: nn.Linear | None = None
        self.adds_input = options.residual
        if options.residual and in_width != options.heads * out_width:
            self.residual = nn.Linear(in_width, options.heads * out_width, bias=False)
        gain = nn.init.calculate_gain("relu")
        for weight in (self.linear, self.residual):
            if weight is not None:
                nn.init.xavier_normal_(weight.weight, gain=gain)
        for vector in (self.source, self.target):
            nn.init.xavier_normal_(vector.unsqueeze(0), gain=gain)  # DGL's fan, that of [1, H, D]

    def forward(self, graph: RankGraph, rows: Tensor | InputRows) -> Tensor:
        """[n, heads, out]; known rows (constant inputs) are projected at once, others by their receivers."""
        if isinstance(rows, Tensor):
            near = graph.visit(rows, layer=self.layer)
            out = self._attend(graph, near, self._project)
            return out + self._carried(near.inner) if self.adds_input else out
        out = self._attend(graph, graph.visit(rows.linear(self.linear.weight)), self._by_head)
        if not self.adds_input:
            return out
        if self.residual is not None:
            return out + self._by_head(rows.inner_linear(self.residual.weight))
        return out + self._by_head(rows.dense().inner)
