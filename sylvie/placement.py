"""Placement: on which device a rank computes, and by which collectives it is connected with the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sylvie.launch import World

GLOO, NCCL = "gloo", "nccl"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``backend``: what moves rows and sums, None for one rank. gloo moves host bytes, so a device's are staged for it."""

    device: torch.device
    backend: str | None

    @property
    def group_backend(self) -> str:
        """The default process group's: NCCL serves device tensors alone, and not all that ranks agree on sees a device."""
        return "cpu:gloo,cuda:nccl" if self.backend == NCCL else GLOO

    @property
    def name(self) -> str:
        """What all ranks of a run must have in common."""
        return f"{self.device.type} with {self.backend or 'no backend'}"


HOST = Placement(device=torch.device("cpu"), backend=None)


def count_gpus() -> int:
    """CUDA devices that this process may use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def place(device: str, backend: str, world: World, gpus: int) -> Placement:
    """The place of a rank on a host with ``gpus`` CUDA devices; ``device`` and ``backend`` as on the command line.

    auto: CUDA where there is a device; NCCL where every rank has one of its own, else gloo. Ranks take the devices in turn.
    Raises ValueError in one line for what cannot work.
    """
    if device == "cuda" and not gpus:
        raise ValueError("--device cuda: this torch sees no CUDA device; use --device cpu")
    kind = "cuda" if device != "cpu" and gpus else "cpu"
    if backend == NCCL and kind == "cpu":
        raise ValueError("--backend nccl needs a CUDA device; use --backend gloo")
    own_device = world.local_world_size <= gpus
    if backend == NCCL and not own_device:
        raise ValueError(
            f"--backend nccl needs a device per rank, and {world.local_world_size} ranks share {gpus} here; use --backend gloo"
        )
    chosen = torch.device("cpu") if kind == "cpu" else torch.device("cuda", world.local_rank % gpus)
    if world.world_size == 1:
        return Placement(device=chosen, backend=None)
    if backend == "auto":
        backend = NCCL if kind == "cuda" and own_device else GLOO
    return Placement(device=chosen, backend=backend)
