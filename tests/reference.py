"""The one-process truth: plain DGL models on the whole graph, trained by a plain loop. No exchange, no partition.

``REFERENCES[name](model, in_width, classes)`` copies the parameters of a built-in model into dgl.nn layers (or, where DGL has no
such layer, into the formula written out on the whole graph). ``train`` gives losses and parameter gradients of every epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.data.graph import GraphData


def whole_graph(data: GraphData, *, self_loops: bool = False) -> Any:
    """The DGLGraph; with ``self_loops``, one at every node that has none."""
    src, dst = data.src, data.dst
    if self_loops:
        has = torch.zeros(data.num_nodes, dtype=torch.bool)
        has[src[src == dst]] = True
        missing = torch.nonzero(~has).flatten()
        src, dst = torch.cat([src, missing]), torch.cat([dst, missing])
    return dgl.graph((src, dst), num_nodes=data.num_nodes)


class ReferenceSage(nn.Module):
    """dgl.nn.SAGEConv(mean) layers; parameters are shared with the model given."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.norms = whole_graph(data), model.norms
        self.layers = nn.ModuleList()
        for layer in model.layers:
            conv = dgl.nn.SAGEConv(layer.own.in_features, layer.own.out_features, "mean")
            conv.fc_self.weight, conv.fc_self.bias = layer.own.weight, layer.own.bias
            conv.fc_neigh.weight = layer.near.weight
            self.layers.append(conv)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        h = self.layers[0](self.graph, x)
        self.outputs = {}
        for number, (norm, layer) in enumerate(zip(self.norms, self.layers[1:], strict=True), 2):
            h = layer(self.graph, seen(number, F.relu(plain_norm(norm, h))))
            h.retain_grad()
            self.outputs[number] = (h, layer.fc_neigh.weight)
        return h

    def mean_gradients(self) -> dict[int, Tensor]:
        """By layer: gradient of the loss with respect to the neighbourhood means [N, in]."""
        return {number: (out.grad @ weight).detach().clone() for number, (out, weight) in self.outputs.items()}


class ReferenceGcn(nn.Module):
    """dgl.nn.GraphConv(norm='both') layers on the graph with self-loops."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.norms = whole_graph(data, self_loops=True), model.norms
        self.layers = nn.ModuleList()
        for layer in model.layers:
            conv = dgl.nn.GraphConv(layer.linear.in_features, layer.linear.out_features, norm="both", weight=False, bias=False)
            self.layers.append(conv)
        self.linears = nn.ModuleList(layer.linear for layer in model.layers)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        h = self.linears[0](self.layers[0](self.graph, x))
        for number, (norm, layer, linear) in enumerate(zip(self.norms, self.layers[1:], self.linears[1:], strict=True), 2):
            h = linear(layer(self.graph, seen(number, F.relu(plain_norm(norm, h)))))
        return h


def plain_norm(norm: Any, h: Tensor) -> Tensor:
    """What the model's normalisation does when one process holds all rows."""
    kind = type(norm).__name__
    if kind == "Norm":
        return h
    if kind == "RowNorm":
        return F.layer_norm(h, (h.shape[1],), norm.norm.weight, norm.norm.bias)
    return F.batch_norm(h, None, None, norm.weight, norm.bias, training=True)


REFERENCES: dict[str, Callable[[Any, GraphData], nn.Module]] = {"graphsage": ReferenceSage, "gcn": ReferenceGcn}


@dataclass
class Trajectory:
    """Loss and parameter gradients of every epoch; ``rows[epoch][layer]`` the rows that entered a layer, with gradients."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    rows: list[dict[int, Tensor]] = field(default_factory=list)
    mean_gradients: list[dict[int, Tensor]] = field(default_factory=list)


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Clones of all gradients; zeros where there is none."""
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def dense_features(data: GraphData) -> Tensor:
    """The features as a dense tensor."""
    x = data.features
    if isinstance(x, Tensor):
        return x
    return torch.sparse_csr_tensor(x.indptr, x.indices.long(), x.values, x.shape).to_dense()


def train(name: str, model: nn.Module, data: GraphData, epochs: int, lr: float, weight_decay: float = 0.0) -> Trajectory:
    """Train a copy of ``model`` (a built-in one) as plain DGL on the whole graph."""
    ours = copy.deepcopy(model)
    dtype = next(ours.parameters()).dtype
    reference = REFERENCES[name](ours, data)
    optimiser = torch.optim.Adam(ours.parameters(), lr=lr, weight_decay=weight_decay)
    x, found = dense_features(data).to(dtype), Trajectory()
    for _ in range(epochs):
        rows: dict[int, Tensor] = {}

        def seen(layer: int, h: Tensor, rows: dict[int, Tensor] = rows) -> Tensor:
            h.retain_grad()
            rows[layer] = h
            return h

        optimiser.zero_grad()
        logits = reference(x, seen)[data.train_mask]
        labels = data.labels[data.train_mask]
        if data.multilabel:
            loss = F.binary_cross_entropy_with_logits(logits, labels.to(dtype))
        else:
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        found.gradients.append(gradients_of(ours))
        found.losses.append(float(loss.detach()))
        found.rows.append(rows)
        if isinstance(reference, ReferenceSage):
            found.mean_gradients.append(reference.mean_gradients())
        optimiser.step()
    return found
