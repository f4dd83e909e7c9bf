"""Structure: the fixed edges, degrees and kernels of a rank's part, built once and shared by training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sylvie.partition.partition import Partition
from sylvie.sparse import Adjacency, dgl_serves, load_dgl


@dataclass(frozen=True, eq=False)
class Edges:
    """Local edges (inner to inner) and, for every round, the edges from the halo rows that arrive in it."""

    local: Adjacency
    remote: tuple[Adjacency, ...]


class Structure:
    """Edges and whole-graph degrees of one part.

    ``halo_rounds``: the owners whose halo rows arrive together, round by round (all owners in one, as a rule).
    """

    def __init__(self, partition: Partition, halo_rounds: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> None:
        load_dgl()  # takes a second: now, not in the first epoch
        self._partition, self._rounds, self._dtype = partition, halo_rounds, dtype
        self.num_nodes = partition.num_nodes
        self.num_inner, self.num_halo = partition.num_inner, partition.num_halo

    @cached_property
    def plain(self) -> Edges:
        """The edges as given."""
        return self._edges(self._partition.src, self._partition.dst)

    @cached_property
    def with_self_loops(self) -> Edges:
        """One self-loop added to every inner node that has none."""
        src, dst = self._looped
        return self._edges(src, dst)

    @cached_property
    def _looped(self) -> tuple[Tensor, Tensor]:
        part = self._partition
        missing = torch.nonzero(~part.has_self_loop[: part.num_inner]).flatten().to(torch.int32)
        return torch.cat([part.src, missing]), torch.cat([part.dst, missing])

    def _edges(self, src: Tensor, dst: Tensor) -> Edges:
        n = self.num_inner
        inside = src < n
        local = Adjacency(src[inside], dst[inside], num_src=n, num_dst=n)
        remote = []
        for first, count in self.round_rows():
            chosen = (src >= n + first) & (src < n + first + count)
            remote.append(Adjacency(src[chosen] - n - first, dst[chosen], num_src=count, num_dst=n))
        return Edges(local, tuple(remote))

    def round_rows(self) -> list[tuple[int, int]]:
        """(first halo row, number of halo rows) of every round; the owners of a round are neighbours in halo order."""
        splits = self._partition.recv_splits
        return [(sum(splits[: min(owners, default=0)]), sum(splits[o] for o in owners)) for owners in self._rounds]

    @cached_property
    def mean_scale(self) -> Tensor:
        """1 / in-degree of inner nodes [n, 1]; an isolated node's sum is 0 whatever its scale."""
        degree = self._partition.in_degree[: self.num_inner].clamp(min=1)
        return (1.0 / degree.to(torch.float64)).to(self._dtype).unsqueeze(1)

    @cached_property
    def gcn_source_scale(self) -> Tensor:
        """1/√d_out over inner then halo nodes [n + h, 1], self-loop counted."""
        part = self._partition
        degree = part.out_degree + (~part.has_self_loop).long()
        return degree.to(torch.float64).rsqrt().to(self._dtype).unsqueeze(1)

    @cached_property
    def gcn_target_scale(self) -> Tensor:
        """1/√d_in of inner nodes [n, 1], self-loop counted."""
        part = self._partition
        degree = (part.in_degree + (~part.has_self_loop).long())[: self.num_inner]
        return degree.to(torch.float64).rsqrt().to(self._dtype).unsqueeze(1)

    def block(self, *, self_loops: bool = False) -> Any:
        """DGL block of the part: sources are inner then halo rows, destinations the inner rows. Needs DGL."""
        return self._looped_block if self_loops else self._plain_block

    @cached_property
    def _plain_block(self) -> Any:
        return self._make_block(self._partition.src, self._partition.dst)

    @cached_property
    def _looped_block(self) -> Any:
        return self._make_block(*self._looped)

    def _make_block(self, src: Tensor, dst: Tensor) -> Any:
        dgl = load_dgl()
        if dgl is None:
            raise ValueError("a DGL block needs DGL; install dgl, or use this package's own layers")
        if not dgl_serves(src.device.type):
            raise ValueError("a DGL block on this device needs DGL built for CUDA; use --device cpu")
        total = self.num_inner + self.num_halo
        return dgl.create_block((src, dst), num_src_nodes=total, num_dst_nodes=self.num_inner, idtype=torch.int32)

    def gcn_edge_weight(self, *, self_loops: bool = False) -> Tensor:
        """1/√(d_out(u)·d_in(v)) of every edge of ``block(self_loops=…)`` [E]: whole-graph degrees, those self-loops counted."""
        part = self._partition
        src, dst = self._looped if self_loops else (part.src, part.dst)
        added = (~part.has_self_loop).long() * self_loops
        source, target = ((degree + added).to(torch.float64).rsqrt() for degree in (part.out_degree, part.in_degree))
        return (source[src.long()] * target[dst.long()]).to(self._dtype)
