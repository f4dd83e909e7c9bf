"""The built-in models by name."""

from __future__ import annotations

from torch import nn

from sylvie.nn.models.dagnn import DAGNN
from sylvie.nn.models.gat import GAT
from sylvie.nn.models.gcn import GCN
from sylvie.nn.models.gcnii import GCNII
from sylvie.nn.models.graphsage import GraphSAGE
from sylvie.nn.models.jknet import JKNet
from sylvie.nn.models.options import ModelOptions
from sylvie.nn.models.sgc import SGC

MODELS: dict[str, type[nn.Module]] = {
    "graphsage": GraphSAGE,
    "gcn": GCN,
    "gat": GAT,
    "gcnii": GCNII,
    "dagnn": DAGNN,
    "sgc": SGC,
    "jknet": JKNet,
}

__all__ = ["MODELS", "ModelOptions"]
