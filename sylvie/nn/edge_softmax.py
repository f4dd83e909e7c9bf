"""The edge softmax of one block of edges, unfinished, so that blocks can be folded: maximum, sum of weights, weighted sum.

For every head h and destination v of the block, with e_uv = LeakyReLU(l_u + r_v):

    top_v = max_u e_uv,   w_uv = exp(e_uv − top_v),   weight_v = Σ_u w_uv,   total_v = Σ_u drop(w_uv) · z_u

A softmax does not change when its exponents are shifted, so ``top`` is a constant for autograd and the gradient is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sylvie.sparse import Adjacency, EdgeOrder


def edge_softmax_block(
    adjacency: Adjacency, z: Tensor, from_src: Tensor, to_dst: Tensor, *, slope: float, keep: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(top [n, H], weight [n, H], total [n, H, D]) of a block; −inf, 0, 0 where a destination has no edge in it.

    ``z`` [s, H, D] source rows; ``from_src`` [s, H] = l, −inf for a source that takes no part; ``to_dst`` [n, H] = r; ``keep``
    [H, E] factors of the edges' terms in ``total`` (attention dropout), edges in order of their destinations. Nothing of size
    E·D is made, and of what has size E only ``keep`` is kept for backward.
    """
    found: tuple[Tensor, Tensor, Tensor] = _EdgeSoftmax.apply(  # type: ignore[no-untyped-call]
        z, from_src, to_dst, keep, adjacency.edge_order, slope
    )
    return found


class _EdgeSoftmax(torch.autograd.Function):
    """One head after the other: torch's products take one value an edge."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, from_src: Tensor, to_dst: Tensor, keep: Tensor | None, edges: EdgeOrder, slope: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        heads, tops, weights = z.shape[1], [], []
        total = z.new_empty(edges.shape[0], heads, z.shape[2])
        for h in range(heads):
            scores = _scores(edges, from_src[:, h], to_dst[:, h], slope)
            top = edges.max_by_dst(scores)
            w = _weights(edges, scores, top)
            tops.append(top)
            weights.append(edges.sum_by_dst(w))
            total[:, h] = edges.matmul(w if keep is None else w * keep[h], z[:, h].contiguous())
        top = torch.stack(tops, 1)
        ctx.save_for_backward(z, from_src, to_dst, top, keep)
        ctx.edges, ctx.slope = edges, slope
        ctx.mark_non_differentiable(top)
        return top, torch.stack(weights, 1), total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, from_src, to_dst, top, keep = ctx.saved_tensors
        edges, (_, to_weight, to_total) = ctx.edges, grads
        dz = torch.empty_like(z)
        d_src, d_dst = torch.empty_like(from_src), torch.empty_like(to_dst)
        for h in range(z.shape[1]):
            scores = _scores(edges, from_src[:, h], to_dst[:, h], ctx.slope)
            w = _weights(edges, scores, top[:, h])
            above = to_total[:, h].contiguous()
            dz[:, h] = edges.matmul_t(w if keep is None else w * keep[h], above)
            dw = edges.dots(above, z[:, h].contiguous())
            if keep is not None:
                dw = dw * keep[h]
            dw += to_weight[:, h][edges.dst]
            dw *= w
            ds = torch.where(scores > 0, dw, ctx.slope * dw)
            d_src[:, h], d_dst[:, h] = edges.sum_by_src(ds), edges.sum_by_dst(ds)
        return dz, d_src, d_dst, None, None, None


def _scores(edges: EdgeOrder, from_src: Tensor, to_dst: Tensor, slope: float) -> Tensor:
    """LeakyReLU(l_u + r_v) of every edge [E]; −inf stays −inf."""
    return torch.nn.functional.leaky_relu(from_src[edges.src] + to_dst[edges.dst], slope, inplace=True)


def _weights(edges: EdgeOrder, scores: Tensor, top: Tensor) -> Tensor:
    """exp(e − top) of every edge [E]; 0 where even the maximum is −inf."""
    return torch.exp_(scores - top.masked_fill(top == -torch.inf, 0)[edges.dst])
