"""Models of the user's own: ``package.module:Class``, built like the built-in ones and checked before the first epoch.

``Class(in_width, num_classes, options)`` must return a module with ``forward(graph, x) -> logits`` of the inner nodes. It may
have ``prepare(graph, x) -> x``, called once before the first epoch without gradients: its result is the ``x`` of every
forward pass. A class whose ``NEEDS_INPUT_HALO`` is false is given the rank's own input rows only.
"""

from __future__ import annotations

import importlib
import inspect

from torch import nn

from sylvie.config import nearest
from sylvie.nn.models import MODELS, ModelOptions

_SEVERAL_HOPS = {
    "GCN2Conv": "the built-in gcnii",
    "SGConv": "the built-in sgc",
    "APPNPConv": "graph.gcn(h, step=k) once a hop",
    "TAGConv": "graph.gcn(h, step=k) once a hop",
    "ChebConv": "graph.gcn(h, step=k) once a hop",
    "TWIRLSConv": "graph.gcn(h, step=k) once a hop",
    "GatedGraphConv": "a single-hop layer called once a hop",
    "DenseChebConv": "graph.gcn(h, step=k) once a hop",
}
_LOCAL_DEGREES = "GraphConv(norm='none', allow_zero_in_degree=True) with edge_weight=graph.gcn_edge_weight()"


def build_model(name: str, in_width: int, num_classes: int, options: ModelOptions) -> nn.Module:
    """A built-in model by name, or the user's class; ValueError in one line where that cannot work."""
    if name in MODELS:
        return MODELS[name](in_width, num_classes, options)
    model = _load_class(name)(in_width, num_classes, options)
    if not isinstance(model, nn.Module):
        raise ValueError(f"--model {name} made a {type(model).__name__}; it must be a torch.nn.Module")
    check_layers(model)
    return model


def needs_input_halo(name: str) -> bool:
    """Whether the model called ``name`` uses input rows of remote neighbours, so that they are worth fetching."""
    kind = MODELS[name] if name in MODELS else _load_class(name)
    return bool(getattr(kind, "NEEDS_INPUT_HALO", True))


def _load_class(name: str) -> type:
    if ":" not in name:
        raise ValueError(f"--model {name!r} is unknown{nearest(name, tuple(MODELS))}")
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"--model {name}: cannot import {module_name} ({error}); is it on PYTHONPATH?") from None
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        known = tuple(n for n, value in vars(module).items() if inspect.isclass(value))
        raise ValueError(f"--model {name}: no class {class_name!r} in {module_name}{nearest(class_name, known)}")
    return found


def check_layers(model: nn.Module) -> None:
    """Refuse ``dgl.nn`` layers that would be wrong on a part: several hops inside, or degrees read from the block.

    Raises ValueError that names the layer and what to use instead.
    """
    for path, layer in model.named_modules():
        kind = type(layer)
        if not kind.__module__.startswith("dgl."):
            continue
        where = f"layer {path or '(the model)'} ({kind.__name__})"
        if kind.__name__ in _SEVERAL_HOPS:
            raise ValueError(
                f"{where} hops several times inside and needs rows that no part has; use {_SEVERAL_HOPS[kind.__name__]}"
            )
        if kind.__name__ == "GraphConv" and getattr(layer, "_norm", None) in ("both", "left"):
            raise ValueError(f"{where} would read the part's own degrees; use {_LOCAL_DEGREES}")
        if kind.__name__ == "EdgeWeightNorm":
            raise ValueError(f"{where} would read the part's own degrees; use graph.gcn_edge_weight()")
