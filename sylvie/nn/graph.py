"""RankGraph: what a model computes with — a rank's edges, degrees and halo, whatever the system behind them.

A model of the user's own needs three lines to run a single-hop ``dgl.nn`` layer on the part:

    h = graph.gather(h)                         # [n + h, D]: own rows, then the halo's
    h = conv(graph.block(), h)                  # [n, K]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sylvie.exchange.halo import Arrival, Halo
from sylvie.exchange.reduce import Reducer, differentiable_sum
from sylvie.nn.inputs import InputRows, KnownRows
from sylvie.nn.structure import Edges, Structure
from sylvie.sparse import Adjacency


class RankGraph:
    """A part's structure bound to the exchanges of one purpose (training or evaluation)."""

    def __init__(self, structure: Structure, halo: Halo, reducer: Reducer) -> None:
        self.structure, self.halo, self._reducer = structure, halo, reducer

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole graph."""
        return self.structure.num_nodes

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """Differentiable sum over ranks of a small tensor (statistics of the whole graph)."""
        return differentiable_sum(value, self._reducer)

    @property
    def num_inner(self) -> int:
        """Nodes that the rank owns: the rows of every result."""
        return self.structure.num_inner

    @property
    def num_halo(self) -> int:
        """Remote in-neighbours."""
        return self.structure.num_halo

    def visit(self, rows: Tensor | KnownRows, *, layer: int | None = None, step: int = 0) -> Neighbourhood:
        """Make rows visible to the ranks that need them and return what can be aggregated.

        A tensor [n, D] is exchanged; KnownRows are not. ``step`` tells several exchanges of a layer apart.
        """
        if isinstance(rows, KnownRows):
            return Neighbourhood(self.structure, rows, None)
        return Neighbourhood(self.structure, None, self.halo.start(rows, layer=layer, step=step))

    def gcn(self, rows: Tensor | KnownRows, *, layer: int | None = None, step: int = 0) -> Tensor:
        """``D_in^-1/2 (A + I) D_out^-1/2 · rows`` [n, D], I only where no self-loop exists."""
        scale = self.structure.gcn_source_scale
        if isinstance(rows, KnownRows):
            scaled: Tensor | KnownRows = KnownRows(rows.all_rows * scale, rows.num_inner)
        else:
            scaled = rows * scale[: self.num_inner]
        summed = self.visit(scaled, layer=layer, step=step).sum(self.structure.with_self_loops)
        return summed * self.structure.gcn_target_scale

    def gather(self, h: Tensor | InputRows, *, layer: int | None = None, step: int = 0) -> Tensor:
        """Own rows, then halo rows [n + h, D], differentiable: for layers that take a block.

        Given the model's own input, cached halo rows are used and nothing is sent.
        """
        if not isinstance(h, Tensor):
            return h.dense().all_rows
        arrival = self.halo.start(h, layer=layer, step=step)
        return torch.cat([arrival.inner, arrival.finish()])

    def block(self, *, self_loops: bool = False) -> Any:
        """DGL block whose sources are the rows of ``gather`` and whose destinations are the inner rows."""
        return self.structure.block(self_loops=self_loops)

    def gcn_edge_weight(self, *, self_loops: bool = False) -> Tensor:
        """Weights [E] of ``block(self_loops=…)`` that make GraphConv(norm='none') the whole graph's GraphConv(norm='both')."""
        return self.structure.gcn_edge_weight(self_loops=self_loops)


class Neighbourhood:
    """Rows that can be aggregated over in-edges: the own ones at once, the halo's when they arrive."""

    def __init__(self, structure: Structure, rows: KnownRows | None, arrival: Arrival | None) -> None:
        self._structure, self._known, self._arrival = structure, rows, arrival

    @property
    def inner(self) -> Tensor:
        """The rank's own rows [n, D], to be used from here on instead of those that were handed over."""
        if self._known is not None:
            return self._known.inner
        assert self._arrival is not None
        return self._arrival.inner

    def sum(self, edges: Edges | None = None) -> Tensor:
        """Sum over in-neighbours [n, D]: local edges while remote rows travel, then remote edges, round by round."""
        edges = edges or self._structure.plain
        total = edges.local.sum(self.inner)
        weight = self._arrival.weight(total.dtype) if self._arrival is not None else None

        def add(adjacency: Adjacency, rows: Tensor) -> None:  # in here no variable keeps a round's rows while later ones come
            nonlocal total
            total = adjacency.add_sum(total, rows if weight is None else rows * weight)

        for _ in self.remote(add, edges, keeps_rows=False):
            pass
        return total

    def mean(self) -> Tensor:
        """Mean over in-neighbours [n, D]; 0 for a node without any."""
        return self.sum() * self._structure.mean_scale

    def left_out(self) -> Tensor | None:
        """Halo rows [h, 1] that did not travel this epoch and must not be attended to; None where all did."""
        weight = self._arrival.weight(torch.float32) if self._arrival is not None else None
        return None if weight is None else weight == 0

    def remote(self, use: Any, edges: Edges, *, keeps_rows: bool) -> Iterator[Any]:
        """``use(adjacency, halo rows)`` of every round in turn; ``keeps_rows`` as in ``Arrival.map``."""
        if self._known is not None:
            yield from self._known_rounds(use, edges)
            return
        assert self._arrival is not None

        def one(index: int, rows: Tensor) -> Any:
            return use(edges.remote[index], rows)

        yield from self._arrival.map(one, keeps_rows=keeps_rows)

    def _known_rounds(self, use: Any, edges: Edges) -> Iterator[Any]:
        assert self._known is not None
        for (first, count), adjacency in zip(self._structure.round_rows(), edges.remote, strict=True):
            yield use(adjacency, self._known.halo[first : first + count])
