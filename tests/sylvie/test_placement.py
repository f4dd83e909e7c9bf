"""Which device a rank gets and by what it is connected."""

from __future__ import annotations

import pytest
import torch

from sylvie.launch import SINGLE, World
from sylvie.placement import place


def world(ranks: int, *, hosts: int = 1, local: int = 0) -> World:
    here = ranks // hosts
    return World(rank=local, world_size=ranks, local_rank=local, local_world_size=here)


@pytest.mark.parametrize(
    ("device", "backend", "ranks", "hosts", "gpus", "kind", "chosen"),
    [
        ("auto", "auto", 2, 1, 0, "cpu", "gloo"),
        ("auto", "auto", 2, 1, 2, "cuda", "nccl"),
        ("auto", "auto", 2, 1, 1, "cuda", "gloo"),
        ("auto", "auto", 8, 4, 2, "cuda", "nccl"),
        ("auto", "auto", 16, 4, 2, "cuda", "gloo"),
        ("cpu", "auto", 2, 1, 2, "cpu", "gloo"),
        ("cuda", "gloo", 2, 1, 2, "cuda", "gloo"),
        ("cuda", "nccl", 2, 1, 4, "cuda", "nccl"),
        ("auto", "nccl", 2, 1, 2, "cuda", "nccl"),
    ],
)
def test_place(device: str, backend: str, ranks: int, hosts: int, gpus: int, kind: str, chosen: str) -> None:
    found = place(device, backend, world(ranks, hosts=hosts), gpus)
    assert (found.device.type, found.backend) == (kind, chosen)
    assert found.group_backend == ("cpu:gloo,cuda:nccl" if chosen == "nccl" else "gloo")


def test_ranks_take_devices_in_turn() -> None:
    found = [place("cuda", "auto", world(5, local=local), 2).device for local in range(5)]
    assert found == [torch.device("cuda", i) for i in (0, 1, 0, 1, 0)]


def test_one_rank_needs_no_backend() -> None:
    assert place("auto", "auto", SINGLE, 1).backend is None
    assert place("auto", "auto", SINGLE, 1).device == torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("device", "backend", "ranks", "gpus", "said"),
    [
        ("cuda", "auto", 2, 0, "--device cuda: this torch sees no CUDA device"),
        ("auto", "nccl", 2, 0, "--backend nccl needs a CUDA device"),
        ("cpu", "nccl", 2, 2, "--backend nccl needs a CUDA device"),
        ("cuda", "nccl", 4, 1, "--backend nccl needs a device per rank, and 4 ranks share 1"),
    ],
)
def test_what_cannot_work_is_refused(device: str, backend: str, ranks: int, gpus: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        place(device, backend, world(ranks), gpus)
