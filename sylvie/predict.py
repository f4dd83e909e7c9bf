"""Predict: a finished run's best model on a whole graph, in one process."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from sylvie.build import dtype_of, seeded_model
from sylvie.config import OPTIONS, Config
from sylvie.data import GraphData, find_source, fingerprint
from sylvie.exchange.halo import Halo
from sylvie.exchange.reduce import SingleReducer
from sylvie.exchange.transport import SingleTransport
from sylvie.input_halo import input_rows
from sylvie.nn.custom import needs_input_halo
from sylvie.nn.graph import RankGraph
from sylvie.nn.structure import Structure
from sylvie.partition.build import find_crossings, iter_partitions
from sylvie.partition.partition import Partition
from sylvie_trace.run_dir import RunDir


def run_config(run: Path | str) -> Config:
    """The configuration that ``run.json`` holds. ValueError where there is none."""
    return Config(**_configuration(_run_json(run)))


def predict(run: Path | str, graph: GraphData | None = None) -> Tensor:
    """Logits [N, C] of every node by the run's best model, in the run's arithmetic.

    ``graph``: another graph with the same features and classes; None: the run's own, loaded again. Raises ValueError in one
    line for a run without a model, a graph that has changed since, or one that the model does not fit.
    """
    recorded, config = _run_json(run), run_config(run)
    if graph is None:
        graph = _own_graph(config)
        if fingerprint(graph) != recorded["dataset"]["fingerprint"]:
            raise ValueError(f"{config.dataset} is not the graph that {run} was trained on; give the graph itself")
    trained = recorded["dataset"]["features"], recorded["dataset"]["classes"]
    if (graph.num_features, graph.num_classes) != trained:
        raise ValueError(
            f"the model of {run} takes {trained[0]} features and {trained[1]} classes, "
            f"the graph has {graph.num_features} and {graph.num_classes}"
        )
    partition = _whole(graph)
    model = seeded_model(config, partition)
    _load_state(model, RunDir(run).model)
    return _logits(model.eval(), partition, config)


def _run_json(run: Path | str) -> dict[str, Any]:
    path = RunDir(run).run_json
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); name a run directory of sylvie-train") from None
    if not isinstance(content, dict) or not {"config", "dataset"} <= content.keys():
        raise ValueError(f"{path}: holds no configuration; name a run directory of sylvie-train")
    return content


def _configuration(recorded: dict[str, Any]) -> dict[str, Any]:
    """Options as Config takes them; what this version does not know is left out."""
    hints = typing.get_type_hints(Config)
    options = {name: value for name, value in recorded["config"].items() if name in OPTIONS}
    return {
        name: Path(value) if isinstance(value, str) and Path in (hints[name], *typing.get_args(hints[name])) else value
        for name, value in options.items()
    }


def _own_graph(config: Config) -> GraphData:
    source = find_source(config.dataset, data_root=config.data_root, seed=config.partition_seed)
    if config.input_projection:
        source = source.projected(config.input_projection, config.partition_seed)
    return source.load()


def _whole(graph: GraphData) -> Partition:
    """The graph as the only part of one."""
    owners = np.zeros(graph.num_nodes, dtype=np.int64)
    return next(iter_partitions(graph, owners, 1, find_crossings(graph, owners), fingerprint(graph)))


def _load_state(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except FileNotFoundError:
        raise ValueError(f"{path}: no model; the run ended before its first evaluation") from None
    except (RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: does not fit the model that run.json describes ({' '.join(str(error).split())})") from None


@torch.no_grad()
def _logits(model: nn.Module, partition: Partition, config: Config) -> Tensor:
    dtype = dtype_of(config)
    graph = RankGraph(Structure(partition, ((),), dtype), Halo(None), SingleReducer())
    x, _ = input_rows(partition, SingleTransport(), dtype, needs_halo=needs_input_halo(config.model), cache_halo=True)
    prepare = getattr(model, "prepare", None)
    if prepare is not None:
        x = prepare(graph, x)
    logits: Tensor = model(graph, x)
    return logits
