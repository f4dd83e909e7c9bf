"""The edge softmax, block by block: equal to DGL's on whole edges, exact gradients, no NaN where there is no edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dgl
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sylvie.nn.attention import Attended, attend
from sylvie.nn.edge_softmax import edge_softmax_block
from sylvie.nn.structure import Edges
from sylvie.sparse import Adjacency

HEADS, WIDTH = 3, 4


def edges(draw: torch.Generator, num_src: int, num_dst: int, count: int) -> Adjacency:
    src, dst = (torch.randint(n, (count,), generator=draw) for n in (num_src, num_dst))
    return Adjacency(src, dst, num_src=num_src, num_dst=num_dst)


def rows(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()


class Pieces:
    """Stands where a Neighbourhood stands: inner rows, then halo rows in rounds, kept or computed again for backward."""

    def __init__(self, inner: Tensor, halo: list[Tensor], *, again: bool = False, left_out: Tensor | None = None) -> None:
        self.inner, self._halo, self._again, self._left_out = inner, halo, again, left_out

    def left_out(self) -> Tensor | None:
        return self._left_out

    def remote(self, use: Callable[..., Any], edges: Edges, *, keeps_rows: bool) -> Iterator[Any]:
        assert keeps_rows
        for adjacency, piece in zip(edges.remote, self._halo, strict=True):
            yield checkpoint(use, adjacency, piece, use_reentrant=False) if self._again else use(adjacency, piece)


def by_head(z: Tensor) -> Tensor:
    return z.view(-1, HEADS, WIDTH)


def whole(block: Edges, inner: Tensor, halo: list[Tensor], source: Tensor, target: Tensor) -> Tensor:
    """DGL's own edge softmax over all edges at once."""
    z, starts = by_head(torch.cat([inner, *halo])), [0]
    for piece in (inner, *halo):
        starts.append(starts[-1] + len(piece))
    parts = [block.local, *block.remote]
    src = torch.cat([adjacency.src + first for adjacency, first in zip(parts, starts[:-1], strict=True)])
    dst = torch.cat([adjacency.dst for adjacency in parts])
    graph = dgl.create_block((src, dst), num_src_nodes=len(z), num_dst_nodes=len(inner))
    scores = dgl.ops.u_add_v(graph, (z * source).sum(-1, keepdim=True), (z[: len(inner)] * target).sum(-1, keepdim=True))
    alpha = dgl.nn.functional.edge_softmax(graph, torch.nn.functional.leaky_relu(scores, 0.2))
    out: Tensor = dgl.ops.u_mul_e_sum(graph, z, alpha)
    return out


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e3])  # at 1e3 exp overflows without the running maximum
def test_folded_blocks_equal_the_whole(scale: float, again: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    counts = [8, 5, 0, 4]
    inner, *halo = [rows(draw, count, HEADS * WIDTH) for count in counts]
    local = edges(draw, 8, 7, 20)  # the last node has no edge anywhere
    few, fewer = edges(draw, 5, 6, 9), edges(draw, 4, 3, 5)
    remote = tuple(Adjacency(e.src, e.dst, num_src=e.num_src, num_dst=8) for e in (few, fewer))
    empty = Adjacency(torch.empty(0), torch.empty(0), num_src=0, num_dst=8)
    block = Edges(Adjacency(local.src, local.dst, num_src=8, num_dst=8), (remote[0], empty, remote[1]))
    source, target = ((scale * rows(draw, HEADS, WIDTH)).detach().requires_grad_() for _ in range(2))
    leaves = [inner, halo[0], halo[2], source, target]
    probe = torch.randn(8, HEADS, WIDTH, generator=draw, dtype=torch.float64)

    mine = attend(Pieces(inner, halo, again=again), block, project=by_head, source=source, target=target)  # type: ignore[arg-type]
    wanted = whole(block, inner, halo, source, target)
    assert torch.allclose(mine, wanted, rtol=1e-12, atol=1e-12)
    assert not mine[7].any()
    got = torch.autograd.grad((mine * probe).sum(), leaves)
    for grad, other in zip(got, torch.autograd.grad((wanted * probe).sum(), leaves), strict=True):
        assert torch.isfinite(grad).all()
        assert torch.allclose(grad, other, rtol=1e-9, atol=1e-10)


def test_dropped_coefficients_are_the_same_when_rows_are_fetched_again() -> None:
    draw = torch.Generator().manual_seed(4)
    inner, halo = rows(draw, 8, HEADS * WIDTH), rows(draw, 5, HEADS * WIDTH)
    block = Edges(edges(draw, 8, 8, 20), (edges(draw, 5, 8, 30),))
    source, target = rows(draw, HEADS, WIDTH), rows(draw, HEADS, WIDTH)
    found = []
    for again in (False, True):
        torch.manual_seed(1)
        near: Any = Pieces(inner, [halo], again=again)
        out = attend(near, block, project=by_head, source=source, target=target, dropout=0.5)
        found.append((out, *torch.autograd.grad(out.square().sum(), [inner, halo, source])))
    for kept, fetched in zip(*found, strict=True):
        assert torch.equal(kept, fetched)
    plain = attend(near, block, project=by_head, source=source, target=target)
    assert not torch.allclose(found[0][0], plain)


def test_rows_left_out_take_no_part() -> None:
    draw = torch.Generator().manual_seed(5)
    inner, halo = rows(draw, 6, HEADS * WIDTH), rows(draw, 4, HEADS * WIDTH)
    source, target = rows(draw, HEADS, WIDTH), rows(draw, HEADS, WIDTH)
    local, remote = edges(draw, 6, 6, 10), edges(draw, 4, 6, 12)
    out = torch.tensor([[False], [True], [True], [False]])
    kept = ~out[remote.src.long(), 0]
    fewer = Adjacency(remote.src[kept], remote.dst[kept], num_src=4, num_dst=6)
    pieces: Any = Pieces(inner, [halo], left_out=out)
    mine = attend(pieces, Edges(local, (remote,)), project=by_head, source=source, target=target)
    wanted = whole(Edges(local, (fewer,)), inner, [halo], source, target)
    assert torch.allclose(mine, wanted, rtol=1e-12, atol=1e-12)
    leaves = [inner, halo, source, target]
    grads = torch.autograd.grad(mine.square().sum(), leaves)
    for grad, other in zip(grads, torch.autograd.grad(wanted.square().sum(), leaves), strict=True):
        assert torch.allclose(grad, other, rtol=1e-9, atol=1e-10)
    assert not grads[1][out[:, 0]].any()


def test_gradients_of_a_block_with_dropped_terms() -> None:
    draw = torch.Generator().manual_seed(6)
    block = edges(draw, 4, 3, 7)
    keep = torch.bernoulli(torch.full((2, 7), 0.5, dtype=torch.float64), generator=draw) * 2

    def mean(z: Tensor, from_src: Tensor, to_dst: Tensor) -> Tensor:
        top, weight, total = edge_softmax_block(block, z, from_src, to_dst, slope=0.2, keep=keep)
        return Attended(top=top, weight=weight, total=total).result()

    assert torch.autograd.gradcheck(mean, (rows(draw, 4, 2, 3), rows(draw, 4, 2), rows(draw, 3, 2)))


def test_no_edge_at_all() -> None:
    empty = Adjacency(torch.empty(0), torch.empty(0), num_src=2, num_dst=3)
    z = torch.randn(2, HEADS, WIDTH, requires_grad=True)
    scores = torch.randn(2, HEADS), torch.randn(3, HEADS)
    top, weight, total = edge_softmax_block(empty, z, *scores, slope=0.2)
    nothing = Attended(top=top, weight=weight, total=total)
    assert (top == -torch.inf).all() and not weight.any()
    merged = nothing.merge(nothing).result()
    assert torch.equal(merged, torch.zeros(3, HEADS, WIDTH))
    merged.sum().backward()
    assert z.grad is not None and not z.grad.any()  # attached: every rank's backward pass takes the same steps
