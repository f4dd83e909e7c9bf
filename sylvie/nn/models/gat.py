"""GAT (Veličković et al. 2018, arXiv 1710.10903), as ``dgl.nn.GATConv`` computes it.

Per head ``z = W h``, ``e_uv = LeakyReLU_0.2(a_l·z_u + a_r·z_v)``, ``α_uv = softmax_u e_uv`` and ``h_v' = σ(Σ_u α_uv z_u + b)``
over in-neighbours and the node itself (a self-loop is added where none exists). As with DGL, ``hidden`` is the width of one
head: hidden layers concatenate ``heads`` of them, the output layer averages its heads. σ is ELU, as in the paper. Dropout acts
on a layer's input and, with ``attention_dropout``, on α. ``residual`` adds the layer's input to the sum, through a weight where
widths differ.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.attention import attend
from sylvie.nn.dropout import dropout
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows, drop
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.norm import make_norm


class GatLayer(nn.Module):
    """One GAT layer, [n, in] -> [n, heads, out]; rows travel at the layer's input width."""

    def __init__(self, in_width: int, out_width: int, layer: int, options: ModelOptions) -> None:
        super().__init__()
        self.layer, self.heads, self.width = layer, options.heads, out_width
        total = options.heads * out_width
        self.attention_dropout = options.attention_dropout
        self.linear = nn.Linear(in_width, total, bias=False)
        self.source, self.target, self.bias = (nn.Parameter(torch.zeros(options.heads, out_width)) for _ in range(3))
        self.residual: nn.Module | None = None
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_normal_(self.linear.weight, gain=gain)
        for vector in (self.source, self.target):
            nn.init.xavier_normal_(vector.unsqueeze(0), gain=gain)  # with the fans of DGL's [1, heads, out]
        if options.residual and in_width == total:
            self.residual = nn.Identity()
        elif options.residual:
            self.residual = nn.Linear(in_width, total, bias=False)
            nn.init.xavier_normal_(self.residual.weight, gain=gain)

    def forward(self, graph: RankGraph, rows: Tensor | InputRows) -> Tensor:
        """[n, heads, out]; known rows (constant inputs) are projected at once, others by every receiver."""
        if isinstance(rows, Tensor):
            near, project, own = graph.visit(rows, layer=self.layer), self._project, None
        else:
            near, project, own = graph.visit(rows.linear(self.linear.weight)), self._by_head, rows
        out = attend(
            near,
            graph.structure.with_self_loops,
            project=project,
            source=self.source,
            target=self.target,
            dropout=self.attention_dropout if self.training else 0.0,
        )
        if self.residual is not None:
            out = out + self._by_head(self._carried(self.residual, near.inner if own is None else own))
        return out + self.bias

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.heads, self.width)

    def _project(self, rows: Tensor) -> Tensor:
        return self._by_head(self.linear(rows))

    @staticmethod
    def _carried(residual: nn.Module, rows: Tensor | InputRows) -> Tensor:
        if isinstance(rows, Tensor):
            carried: Tensor = residual(rows)
            return carried
        return rows.inner_linear(residual.weight) if isinstance(residual, nn.Linear) else rows.dense().inner


class GAT(nn.Module):
    """``layers`` GatLayers with norm, ELU and dropout between them."""

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        hidden = options.heads * options.hidden
        inputs = [in_width, *[hidden] * (options.layers - 1)]
        outputs = [*[options.hidden] * (options.layers - 1), num_classes]
        self.dropout = options.dropout
        self.layers = nn.ModuleList(
            GatLayer(a, b, number, options) for number, (a, b) in enumerate(zip(inputs, outputs, strict=True), 1)
        )
        self.norms = nn.ModuleList(make_norm(options.norm, hidden) for _ in inputs[1:])

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the inner nodes [n, C]."""
        h = self.layers[0](graph, drop(x, self.dropout, self.training))
        for norm, layer in zip(self.norms, self.layers[1:], strict=True):
            h = layer(graph, dropout(F.elu(norm(h.flatten(1), graph)), self.dropout, self.training))
        logits: Tensor = h.mean(1)
        return logits
