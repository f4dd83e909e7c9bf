"""Control numbers of all ranks, also where the communicator can only add: every rank has a row of its own in the sum."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from sylvie.exchange.reduce import SingleReducer, StreamReducer, gather_control
from sylvie.exchange.streams import HostStreams


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_gather_by_a_sum_keeps_every_rank_apart(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everyone = torch.tensor([[0.1, -2.0, 2.0**52], [3.0, 4.0, 5.0], [float("nan"), 0.0, 1.0]], dtype=torch.float64)

    def add_the_others(tensor: torch.Tensor) -> None:
        others = everyone.clone()
        others[rank] = 0.0
        tensor += others

    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    monkeypatch.setattr(dist, "all_reduce", add_the_others)
    reducer = StreamReducer(HostStreams(lambda: 0))
    own = everyone[rank].clone()
    found = gather_control(reducer, own)
    assert torch.equal(found.nan_to_num(-1.0), everyone.nan_to_num(-1.0)), "bit for bit: a hash rides along"
    assert reducer.control_bytes == 2 * own.numel() * 8
    assert torch.equal(own.nan_to_num(-1.0), everyone[rank].nan_to_num(-1.0)), "the rank's own vector is not touched"


def test_a_single_rank_gathers_itself() -> None:
    reducer, own = SingleReducer(), torch.tensor([1.0, 2.0])
    assert torch.equal(gather_control(reducer, own), own.unsqueeze(0)) and reducer.control_bytes == 0
