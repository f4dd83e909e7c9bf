"""GraphSAGE as plain DGL in one process on the whole graph: what a user would have without any of this."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.data import find_source
from sylvie.evaluate import metric_name


class PlainSage(nn.Module):
    """dgl.nn.SAGEConv(mean) layers with ReLU and dropout between them, and dropout on the input.

    Weights start as torch's Linear does, as in `sylvie.nn.models.graphsage`; DGL's own start is wider and trains elsewhere.
    """

    def __init__(self, widths: list[int], dropout: float) -> None:
        import dgl

        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(dgl.nn.SAGEConv(a, b, "mean") for a, b in pairwise(widths))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def forward(self, graph: object, x: Tensor) -> Tensor:
        """Logits [N, C]."""
        for number, layer in enumerate(self.layers):
            x = F.dropout(F.relu(x) if number else x, self.dropout, self.training)
            x = layer(graph, x)
        return x


def train_plain(
    dataset: str,
    *,
    seed: int,
    projection: int,
    hidden: int,
    layers: int,
    dropout: float,
    lr: float,
    epochs: int,
    eval_every: int,
) -> dict[str, float | str]:
    """Accuracy on the test nodes at the best validation epoch, with the projection of partition seed 0."""
    import dgl

    source = find_source(dataset, data_root=None, seed=0)
    data = (source.projected(projection, 0) if projection else source).load()
    assert isinstance(data.features, Tensor) and not data.multilabel
    torch.manual_seed(seed)
    graph = dgl.graph((data.src.int(), data.dst.int()), num_nodes=data.num_nodes)
    x, labels = data.features.float(), data.labels
    model = PlainSage([int(x.shape[1]), *[hidden] * (layers - 1), int(data.num_classes)], dropout)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    best, test = -1.0, 0.0
    for epoch in range(epochs):
        model.train()
        optimiser.zero_grad()
        loss = F.cross_entropy(model(graph, x)[data.train_mask], labels[data.train_mask])
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (epoch + 1) % eval_every == 0 or epoch == epochs - 1:
            model.eval()
            with torch.no_grad():
                right = model(graph, x).argmax(1) == labels
            val = float(right[data.val_mask].double().mean())
            if val > best:
                best, test = val, float(right[data.test_mask].double().mean())
    return {"metric": metric_name(False), "best_val": best, "test_at_best_val": test}
