"""A model of your own: two single-hop dgl.nn layers, run on every system by

python -m sylvie --model examples.own_model:OwnModel --parts 2 --epochs 20

``graph.gather`` adds the rows of remote neighbours to the rank's own, ``graph.block`` has the edges from all of them to the
rank's own nodes. Where features are constant, ``x`` already holds its remote rows and layer 1 sends nothing.
"""

from __future__ import annotations

import dgl.nn
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows
from sylvie.nn.models import ModelOptions


class OwnModel(nn.Module):
    """A GraphSAGE layer, then an attention layer."""

    def __init__(self, in_width: int, num_classes: int, options: ModelOptions) -> None:
        super().__init__()
        self.dropout = options.dropout
        self.first = dgl.nn.SAGEConv(in_width, options.hidden, "mean")
        self.second = dgl.nn.GATv2Conv(options.hidden, num_classes, options.heads, allow_zero_in_degree=True)

    def forward(self, graph: RankGraph, x: Tensor | InputRows) -> Tensor:
        """Logits of the rank's own nodes [n, C]."""
        h = F.relu(self.first(graph.block(), graph.gather(x, layer=1)))
        h = graph.gather(F.dropout(h, self.dropout, self.training), layer=2)
        logits: Tensor = self.second(graph.block(self_loops=True), h).mean(1)
        return logits
