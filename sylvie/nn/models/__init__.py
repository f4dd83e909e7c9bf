"""The built-in models by name."""

from __future__ import annotations

from torch import nn

from sylvie.nn.models.gcn import GCN
from sylvie.nn.models.graphsage import GraphSAGE
from sylvie.nn.models.options import ModelOptions

MODELS: dict[str, type[nn.Module]] = {"graphsage": GraphSAGE, "gcn": GCN}

__all__ = ["MODELS", "ModelOptions"]
