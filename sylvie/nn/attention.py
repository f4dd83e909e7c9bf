"""Attention over in-neighbours that arrive in pieces: a fold over blocks of edges, the same for every system.

1. The block of local edges is computed while remote rows travel.
2. Every round's remote block is computed on arrival; its rows need not be held afterwards (they are fetched again for
   backward where the system says so).
3. Blocks are merged by the running maximum, which only keeps the exponents small: with m = max(m_a, m_b),
   weight = weight_a · exp(m_a − m) + weight_b · exp(m_b − m), the weighted sums alike (as in online softmax, arXiv 1805.02867).
4. At the end the weighted sum is divided by the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sylvie.nn.dropout import dropout as drop
from sylvie.nn.edge_softmax import edge_softmax_block
from sylvie.nn.graph import Neighbourhood
from sylvie.nn.structure import Edges
from sylvie.sparse import Adjacency


@dataclass(frozen=True, kw_only=True, eq=False)
class Attended:
    """What the blocks so far add up to; ``top`` is the largest score seen, −inf where there was no edge yet."""

    top: Tensor  # [n, H], constant for autograd
    weight: Tensor  # [n, H]
    total: Tensor  # [n, H, D]

    def merge(self, other: Attended) -> Attended:
        """Both together, exponents relative to the larger maximum."""
        top = torch.maximum(self.top, other.top)
        floor = top.masked_fill(top == -torch.inf, 0)  # −inf − (−inf) would be NaN
        mine, theirs = torch.exp(self.top - floor), torch.exp(other.top - floor)
        return Attended(
            top=top,
            weight=self.weight * mine + other.weight * theirs,
            total=self.total * mine.unsqueeze(-1) + other.total * theirs.unsqueeze(-1),
        )

    def result(self) -> Tensor:
        """The weighted mean [n, H, D]; 0 for a node without any edge."""
        return self.total / self.weight.masked_fill(self.weight == 0, 1).unsqueeze(-1)


def attend(
    near: Neighbourhood,
    edges: Edges,
    *,
    project: Callable[[Tensor], Tensor],
    source: Tensor,
    target: Tensor,
    slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """Σ_u α_uv z_u over in-neighbours [n, H, D], α the softmax over u of LeakyReLU(source·z_u + target·z_v).

    ``project`` turns rows [·, D_in] into z [·, H, D]: halo rows travel unprojected and every receiver multiplies them itself.
    ``source``, ``target`` [H, D]; ``dropout``: probability with which a coefficient α is dropped (0 in evaluation).
    """
    own = project(near.inner)
    to_dst = _dot(own, target)
    left_out = near.left_out()

    def block(adjacency: Adjacency, z: Tensor, from_src: Tensor) -> Attended:
        keep = None
        if dropout:
            keep = drop(z.new_ones(z.shape[1], adjacency.num_edges), dropout, True)
        top, weight, total = edge_softmax_block(adjacency, z, from_src, to_dst, slope=slope, keep=keep)
        return Attended(top=top, weight=weight, total=total)

    def remote_block(adjacency: Adjacency, rows: Tensor) -> Attended:
        z = project(rows)
        from_src = _dot(z, source)
        if left_out is not None:
            from_src = from_src.masked_fill(left_out, -torch.inf)
        return block(adjacency, z, from_src)

    found = block(edges.local, own, _dot(own, source))
    for part in near.remote(remote_block, edges, keeps_rows=True):
        found = found.merge(part)
    return found.result()


def _dot(z: Tensor, vector: Tensor) -> Tensor:
    """[·, H, D], [H, D] -> [·, H]."""
    return torch.einsum("nhd,hd->nh", z, vector)
