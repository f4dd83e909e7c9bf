"""Normalisation between layers: none, layer, or batch — the last over all ranks, forward and backward."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from sylvie.nn.graph import RankGraph


class Norm(nn.Module):
    """A normalisation that may look at all ranks' rows; this one changes nothing."""

    def forward(self, h: Tensor, graph: RankGraph) -> Tensor:
        """[n, D] -> [n, D]."""
        return h


class RowNorm(Norm):
    """Layer normalisation of every row (Ba et al. 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, h: Tensor, graph: RankGraph) -> Tensor:
        """[n, D] -> [n, D]."""
        return cast(Tensor, self.norm(h))


class WholeGraphBatchNorm(Norm):
    """Batch normalisation (Ioffe & Szegedy 2015) whose batch is the whole graph: mean and variance over all ranks' rows."""

    def __init__(self, width: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, h: Tensor, graph: RankGraph) -> Tensor:
        """[n, D] -> [n, D]; running statistics in evaluation."""
        if self.training:
            count = graph.num_nodes
            mean = graph.sum_over_ranks(h.sum(0)) / count
            centred = h - mean
            var = graph.sum_over_ranks((centred * centred).sum(0)) / count
            with torch.no_grad():
                self.running_mean.lerp_(mean.detach(), self.momentum)
                self.running_var.lerp_(var.detach() * count / max(count - 1, 1), self.momentum)
        else:
            centred, var = h - self.running_mean, self.running_var
        return centred * torch.rsqrt(var + self.eps) * self.weight + self.bias


def make_norm(kind: str, width: int) -> Norm:
    """``none``, ``layer`` or ``batch``; ValueError on another name."""
    if kind == "none":
        return Norm()
    if kind == "layer":
        return RowNorm(width)
    if kind == "batch":
        return WholeGraphBatchNorm(width)
    raise ValueError(f"norm {kind!r} is unknown; use none, layer or batch")
