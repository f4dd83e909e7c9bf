"""Every built-in model as plain dgl.nn layers on the whole graph, or, where DGL has no such layer, as its formula there.

``REFERENCES[name](model, data)`` shares the parameters of a built-in model; ``forward(x, seen)`` may pass the rows that enter a
layer through ``seen(layer, rows)``.
"""

from __future__ import annotations

from collections.abc import Callable
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


class ReferenceGat(nn.Module):
    """dgl.nn.GATConv layers on the graph with self-loops."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.norms, self.ours = whole_graph(data, self_loops=True), model.norms, model.layers
        self.convs = nn.ModuleList()
        for layer in model.layers:
            inside, residual = layer.linear.in_features, layer.residual is not None
            conv = dgl.nn.GATConv(inside, layer.width, layer.heads, residual=residual)
            conv.fc.weight = layer.linear.weight
            del conv.attn_l, conv.attn_r
            if isinstance(layer.residual, nn.Linear):  # DGL then keeps the bias there
                conv.res_fc.weight = layer.residual.weight
                del conv.res_fc.bias
            else:
                del conv.bias
            self.convs.append(conv)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        h = self._layer(0, x)
        for number, norm in enumerate(self.norms, 1):
            h = self._layer(number, F.elu(plain_norm(norm, h.flatten(1))))
        return h.mean(1)

    def _layer(self, index: int, h: Tensor) -> Tensor:
        conv, ours = self.convs[index], self.ours[index]
        conv.attn_l, conv.attn_r = ours.source.unsqueeze(0), ours.target.unsqueeze(0)
        holder = conv.res_fc if conv.has_linear_res else conv
        holder.bias = ours.bias.view(-1)
        return conv(self.graph, h)


class ReferenceGcnii(nn.Module):
    """dgl.nn.GCN2Conv layers; unit edge weights make them normalise by out- and in-degrees on a directed graph."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.norms, self.inside, self.outside = with_loops(data), model.norms, model.input, model.output
        self.convs = nn.ModuleList()
        for number, layer in enumerate(model.layers, 1):
            conv = dgl.nn.GCN2Conv(layer.weight.shape[0], number, alpha=layer.alpha, lambda_=layer.theta, bias=False)
            conv.weight1 = layer.weight
            self.convs.append(conv)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        initial = h = F.relu(self.inside(x))
        for number, (norm, conv) in enumerate(zip(self.norms, self.convs, strict=True), 1):
            h = F.relu(plain_norm(norm, conv(self.graph, seen(number, h), initial, edge_weight=ones(self.graph, h))))
        return self.outside(h)


class ReferenceDagnn(nn.Module):
    """The formula with dgl.nn.GraphConv(norm='both') as P."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.model = with_loops(data), model
        self.conv = dgl.nn.GraphConv(1, 1, norm="both", weight=False, bias=False)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        h = self.model.input(x)
        hops = [self.model.transform(F.relu(plain_norm(self.model.norm, h)))]
        for _ in range(self.model.hops):
            hops.append(self.conv(self.graph, hops[-1]))
        stacked = torch.stack(hops, 1)  # [N, K + 1, C]
        scores = torch.sigmoid(self.model.gate(stacked)).transpose(1, 2)  # [N, 1, K + 1]
        return (scores @ stacked).squeeze(1)


class ReferenceSgc(nn.Module):
    """dgl.nn.SGConv: propagates K times, then multiplies — both readings equal it unless a norm stands between."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.model = with_loops(data), model
        self.conv = dgl.nn.SGConv(model.linear.in_features, model.linear.out_features, k=model.hops)
        self.conv.fc.weight, self.conv.fc.bias = model.linear.weight, model.bias
        if model.precomputes:
            self.conv.norm = lambda h: plain_norm(model.norm, h)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        if not self.model.precomputes and type(self.model.norm).__name__ != "Norm":
            hops = dgl.nn.SGConv(1, 1, k=self.model.hops)
            hops.fc = nn.Identity()
            rows = plain_norm(self.model.norm, self.model.linear(x))
            return hops(self.graph, rows, edge_weight=ones(self.graph, x)) + self.model.bias
        return self.conv(self.graph, x, edge_weight=ones(self.graph, x))


class ReferenceJknet(nn.Module):
    """dgl.nn.GraphConv layers joined by dgl.nn.JumpingKnowledge."""

    def __init__(self, model: Any, data: GraphData) -> None:
        super().__init__()
        self.graph, self.norms, self.output = with_loops(data), model.norms, model.output
        self.convs, self.linears = nn.ModuleList(), nn.ModuleList(layer.linear for layer in model.layers)
        for _ in model.layers:
            self.convs.append(dgl.nn.GraphConv(1, 1, norm="both", weight=False, bias=False))
        self.join = dgl.nn.JumpingKnowledge(model.join)

    def forward(self, x: Tensor, seen: Callable[[int, Tensor], Tensor]) -> Tensor:
        h, joined = x, []
        for norm, conv, linear in zip(self.norms, self.convs, self.linears, strict=True):
            h = F.relu(plain_norm(norm, linear(conv(self.graph, h))))
            joined.append(h)
        return self.output(self.join(joined))


def with_loops(data: GraphData) -> Any:
    """The DGLGraph with one self-loop at every node."""
    return whole_graph(data, self_loops=True)


def ones(graph: Any, like: Tensor) -> Tensor:
    """Unit weights of all edges."""
    return like.new_ones(graph.num_edges())


def plain_norm(norm: Any, h: Tensor) -> Tensor:
    """What the model's normalisation does when one process holds all rows."""
    kind = type(norm).__name__
    if kind == "Norm":
        return h
    if kind == "RowNorm":
        return F.layer_norm(h, (h.shape[1],), norm.norm.weight, norm.norm.bias)
    return F.batch_norm(h, None, None, norm.weight, norm.bias, training=True)


REFERENCES: dict[str, Callable[[Any, GraphData], nn.Module]] = {
    "graphsage": ReferenceSage,
    "gcn": ReferenceGcn,
    "gat": ReferenceGat,
    "gcnii": ReferenceGcnii,
    "dagnn": ReferenceDagnn,
    "sgc": ReferenceSgc,
    "jknet": ReferenceJknet,
}
