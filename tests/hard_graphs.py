"""Graphs on which partitioned training goes wrong first: isolated nodes, loops, directed edges, bare and unlabelled ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from sylvie.data.graph import GraphData


def hard_graph(nodes: int = 60, *, seed: int = 0, features: int = 6, classes: int = 4, multilabel: bool = False) -> GraphData:
    """A random directed graph with isolated nodes, two self-loops and a few nodes of high degree."""
    draw = torch.Generator().manual_seed(seed)
    connected = nodes - 4  # the last four are isolated
    src = torch.randint(connected, (nodes * 4,), generator=draw)
    dst = torch.randint(connected, (nodes * 4,), generator=draw)
    hubs = torch.arange(connected)
    src, dst = torch.cat([src, hubs, hubs.new_tensor([3, 7])]), torch.cat([dst, hubs * 0, hubs.new_tensor([3, 7])])
    src, dst = torch.unique(torch.stack([src, dst]), dim=1)
    order = torch.argsort(dst, stable=True)
    labels = torch.randint(classes, (nodes,), generator=draw)
    split = torch.rand(nodes, generator=draw)
    if multilabel:
        labels = (torch.rand(nodes, classes, generator=draw) < 0.4).float()
    return GraphData(
        name="hard",
        num_nodes=nodes,
        num_classes=classes,
        multilabel=multilabel,
        src=src[order],
        dst=dst[order],
        features=torch.randn(nodes, features, generator=draw),
        labels=labels,
        train_mask=split < 0.5,
        val_mask=(split >= 0.5) & (split < 0.75),
        test_mask=split >= 0.75,
    )


def random_assignment(graph: GraphData, parts: int, seed: int = 1) -> Tensor:
    """A random owner for every node, no part empty."""
    draw = torch.Generator().manual_seed(seed)
    owners = torch.randint(parts, (graph.num_nodes,), generator=draw)
    owners[:parts] = torch.arange(parts)
    return owners


def lopsided(graph: GraphData, parts: int) -> tuple[GraphData, Tensor]:
    """The last rank owns only isolated nodes (no edge, no peer) and no rank but the first has training nodes."""
    from dataclasses import replace

    owners = random_assignment(graph, max(parts - 1, 1))
    if parts > 1:
        owners[-4:] = parts - 1
    train = graph.train_mask & (owners == 0)
    return replace(graph, train_mask=train, val_mask=graph.val_mask & ~train), owners
