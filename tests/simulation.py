"""Staleness and quantization simulated in one process: epoch-tagged copies of the boundary, no thread, no wire, no bytes.

The whole graph becomes one part whose inner rows are all nodes and whose halo rows are every rank's halo, side by side. A model
then computes exactly what the ranks together compute, given the right halo values; those come from ``SimulatedHalo``: for each
ordered pair of ranks the rows are put through the reference codec with the same counters, kept by epoch, and used one
epoch late where the script says so. Gradients likewise, backward.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.codec.layout import NoiseKey, body_layout
from sylvie.codec.reference import ReferenceCodec
from sylvie.config import Config
from sylvie.data.graph import GraphData
from sylvie.exchange.reduce import SingleReducer
from sylvie.extractor import BoundaryLevels, row_bits
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import KnownRows
from sylvie.nn.structure import Structure
from sylvie.partition.partition import Partition
from tests.reference import Trajectory, dense_features, gradients_of


@dataclass(frozen=True)
class Pair:
    """The rows that ``owner`` sends ``receiver``: their global ids, and where they stand among all halo rows."""

    owner: int
    receiver: int
    ids: Tensor
    rows: slice


@dataclass
class Script:
    """Mode and base of every epoch."""

    modes: Sequence[str]
    bases: Sequence[int]


@dataclass
class SimulatedHalo:
    """Stands where ``Halo`` stands; ``copies[site]`` maps an epoch to the rows that were sent in it."""

    pairs: list[Pair]
    total: int
    levels: BoundaryLevels
    config: Config
    script: Script
    smoothed: frozenset[str] = frozenset()
    share: float | None = None
    epoch: int = 0
    copies: dict[Any, dict[int, Tensor]] = field(default_factory=dict)
    averages: dict[Any, Tensor] = field(default_factory=dict)
    rounds: int = 1

    def begin_forward(self) -> None: ...

    def start(self, h: Tensor, *, layer: int, step: int = 0) -> SimulatedArrival:
        return SimulatedArrival(self, h, layer, step)

    def drawn(self, pair: Pair) -> Tensor:
        """Places of the rows that are sent this epoch."""
        if self.share is None:
            return torch.arange(len(pair.ids))
        rng = np.random.default_rng([self.config.seed, self.epoch, pair.owner, pair.receiver])
        count = max(1, round(self.share * len(pair.ids)))
        return torch.from_numpy(np.sort(rng.choice(len(pair.ids), count, replace=False)))

    def weight(self, dtype: torch.dtype) -> Tensor | None:
        if self.share is None:
            return None
        weight = torch.zeros(self.total, 1, dtype=dtype)
        for pair in self.pairs:
            places = self.drawn(pair)
            weight[pair.rows.start + places] = len(pair.ids) / len(places)
        return weight

    def through_codec(self, pair: Pair, rows: Tensor, layer: int, step: int, direction: int) -> Tensor:
        """What the receiver of ``rows`` of a pair restores."""
        base = self.script.bases[self.epoch]
        if base == 32 or not len(rows):
            return rows.clone()
        bits = row_bits(self.levels.levels_of(pair.ids), base)
        layout = body_layout(pair.ids, bits, rows.shape[1], self.config.metadata)
        sender = pair.receiver if direction else 0  # gradients travel from the receiver of the rows to their owner
        key = NoiseKey(seed=self.config.seed, epoch=self.epoch, layer=layer, step=step, direction=direction, sender=sender)
        body, restored = torch.empty(layout.nbytes, dtype=torch.uint8), torch.empty(rows.shape)
        codec = ReferenceCodec()
        codec.encode(rows.to(torch.float32).contiguous(), torch.arange(len(rows)), layout, key, body)
        codec.decode(body, layout, restored)
        return restored.to(rows.dtype)

    def due(self, site: Any, sent: Tensor) -> Tensor:
        """Keep what this epoch sent; give what it uses."""
        kept = self.copies.setdefault(site, {})
        kept[self.epoch] = sent
        used = kept[self.epoch if self.script.modes[self.epoch] == "sync" else self.epoch - 1]
        if site[2] not in self.smoothed:
            return used
        before, momentum = self.averages.get(site), self.config.pipegcn_momentum
        self.averages[site] = used if before is None else momentum * before + (1 - momentum) * used
        return self.averages[site]

    def embeddings(self, h: Tensor, layer: int, step: int) -> Tensor:
        sent = h.new_zeros(self.total, h.shape[1])
        for pair in self.pairs:
            places = self.drawn(pair)
            rows = self.through_codec(pair, h[pair.ids], layer, step, 0)
            sent[pair.rows.start + places] = rows[places]
        return self.due((layer, step, "forward"), sent)

    def gradients(self, grad: Tensor, layer: int, step: int, nodes: int) -> Tensor:
        sent = torch.zeros_like(grad)
        for pair in self.pairs:
            places = self.drawn(pair)
            rows = self.through_codec(pair, grad[pair.rows], layer, step, 1)
            sent[pair.rows.start + places] = rows[places]
        used = self.due((layer, step, "backward"), sent)
        total = grad.new_zeros(nodes, grad.shape[1])
        for pair in self.pairs:
            total.index_add_(0, pair.ids, used[pair.rows])
        return total


class SimulatedArrival:
    """Stands where ``Arrival`` stands."""

    def __init__(self, halo: SimulatedHalo, h: Tensor, layer: int, step: int) -> None:
        self.inner, self._halo = h, halo
        self._rows = _Boundary.apply(h, halo, layer, step)

    def weight(self, dtype: torch.dtype) -> Tensor | None:
        return self._halo.weight(dtype)

    def finish(self) -> Tensor:
        return self._rows

    def map(self, use: Callable[[int, Tensor], Any], *, keeps_rows: bool) -> Iterator[Any]:
        yield use(0, self._rows)


class _Boundary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, halo: SimulatedHalo, layer: int, step: int) -> Tensor:
        ctx.halo, ctx.site, ctx.nodes = halo, (layer, step), h.shape[0]
        return halo.embeddings(h, layer, step)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.halo.gradients(grad, *ctx.site, ctx.nodes), None, None, None


def as_one_part(graph: GraphData, parts: Sequence[Partition]) -> tuple[Partition, list[Pair]]:
    """All ranks' parts as one whose halo is every rank's halo."""
    pairs, src, dst, halo_ids, offset = [], [], [], [], 0
    for part in parts:
        begin = 0
        for owner, count in enumerate(part.recv_splits):
            ids = part.halo_ids[begin : begin + count]
            rows = slice(offset + begin, offset + begin + count)
            if count:
                pairs.append(Pair(owner, part.rank, ids, rows))
            begin += count
        local = part.src.long()
        inside = local < part.num_inner
        source = torch.where(
            inside,
            part.inner_ids[local.clamp(max=part.num_inner - 1)],
            graph.num_nodes + offset + local - part.num_inner,
        )
        src.append(source)
        dst.append(part.inner_ids[part.dst.long()])
        halo_ids.append(part.halo_ids)
        offset += part.num_halo
    everyone = torch.cat([torch.arange(graph.num_nodes), *halo_ids])
    loops = torch.zeros(graph.num_nodes, dtype=torch.bool)
    loops[graph.src[graph.src == graph.dst]] = True
    whole = replace(
        parts[0],
        rank=0,
        world_size=1,
        inner_ids=torch.arange(graph.num_nodes),
        halo_ids=torch.cat(halo_ids),
        recv_splits=(offset,),
        send_index=torch.empty(0, dtype=torch.int64),
        send_splits=(0,),
        src=torch.cat(src).int(),
        dst=torch.cat(dst).int(),
        in_degree=graph.in_degrees()[everyone],
        out_degree=graph.out_degrees()[everyone],
        has_self_loop=loops[everyone],
        features=graph.features,
        labels=graph.labels,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )
    return whole, pairs


def simulate(
    model: nn.Module,
    graph: GraphData,
    parts: Sequence[Partition],
    levels: BoundaryLevels,
    config: Config,
    script: Script,
    *,
    smoothed: frozenset[str] = frozenset(),
    share: float | None = None,
) -> Trajectory:
    """Train a copy of ``model`` through ``len(script.modes)`` epochs."""
    ours, found = copy.deepcopy(model), Trajectory()
    dtype = next(ours.parameters()).dtype
    whole, pairs = as_one_part(graph, parts)
    halo = SimulatedHalo(pairs, whole.num_halo, levels, config, script, smoothed=smoothed, share=share)
    place: Any = RankGraph(Structure(whole, ((0,),), dtype), halo, SingleReducer())  # type: ignore[arg-type]
    features = dense_features(graph).to(dtype)
    x = KnownRows(torch.cat([features, features[whole.halo_ids]]), graph.num_nodes)
    optimiser = torch.optim.Adam(ours.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    for epoch in range(len(script.modes)):
        halo.epoch = epoch
        optimiser.zero_grad()
        loss = F.cross_entropy(ours(place, x)[graph.train_mask], graph.labels[graph.train_mask])
        loss.backward()
        found.losses.append(float(loss.detach()))
        found.gradients.append(gradients_of(ours))
        optimiser.step()
    return found
