"""Sessions that weigh a rank's memory: one counts what training must hold, the other what the process really took.

Must hold, bytes: input rows, own and halo; what autograd saves in one forward pass (every storage once, parameters and
features apart); parameters, their gradients and Adam's two moments; two copies of every site's halo rows. The counting
keeps hold of saved tensors in its own way, so it is no run to take the peak of. Each writes ``memory-RANK.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from analysis.run_files import write_atomically
from sylvie import environment
from sylvie.nn.inputs import InputRows
from sylvie.session import Session
from sylvie.sparse import load_dgl
from sylvie.trainer import Trainer
from sylvie_trace.recorder import Recorder


def result_file(run_dir: Path, rank: int) -> Path:
    """Where a rank writes."""
    return run_dir / f"memory-{rank}.json"


def tensors_of(value: Any, depth: int = 6) -> list[Tensor]:
    """Tensors in an object's fields, as deep as the project nests them."""
    if isinstance(value, Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    else:
        inner = list(getattr(value, "__dict__", {}).values())
    return [tensor for each in inner for tensor in tensors_of(each, depth - 1)]


def storage_bytes(tensors: list[Tensor]) -> dict[int, int]:
    """Bytes by address, every storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


class CountingSession(Session):
    """Counts what the forward pass of an epoch leaves for backward."""

    def _train(self, trainer: Trainer, recorder: Recorder, halo_bytes: int) -> None:
        inputs = trainer.x.__dict__ if isinstance(trainer.x, InputRows) else trainer.x
        features = storage_bytes(tensors_of(inputs))
        parameters = storage_bytes(list(trainer.model.parameters()))
        saved: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.layout == torch.strided:
                saved.update(storage_bytes([tensor]))
            return tensor.detach()

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            super()._train(trainer, recorder, halo_bytes)
        assert trainer.exchange is not None
        boundary = storage_bytes(tensors_of(trainer.exchange._buffers.__dict__))
        constant = storage_bytes(tensors_of(trainer.graph.structure))
        apart = features.keys() | parameters.keys() | boundary.keys() | constant.keys()
        counts = {
            "features": sum(features.values()),
            "activations": sum(size for address, size in saved.items() if address not in apart),
            "parameters": 4 * sum(parameters.values()),
            "boundary": sum(boundary.values()),
        }
        write_atomically(result_file(self.run_dir.path, self.world.rank), json.dumps(counts) + "\n")


class WeighingSession(Session):
    """Compares the process's peak with what it held after its imports."""

    def run(self) -> None:
        """Import what a run imports late, then run."""
        load_dgl()
        before = environment.peak_memory_mb()
        super().run()
        grown = {"above_imports": 1e6 * (environment.peak_memory_mb() - before), "imports": 1e6 * before}
        write_atomically(result_file(self.run_dir.path, self.world.rank), json.dumps(grown) + "\n")
