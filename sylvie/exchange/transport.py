"""Transport: the only place that calls a collective on message bytes.

One fused ``all_to_all_single`` of bytes moves an exchange. The transport of one process moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Transport(Protocol):
    """Moves bytes between ranks; a call returns when the received bytes may be read."""

    rank: int
    world_size: int

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """Exchange consecutive pieces of uint8 buffers; sizes in bytes per peer."""

    def all_gather_int64(self, values: Tensor) -> Tensor:
        """Stack every rank's int64 vector: [k] -> [N, k]."""

    def close(self) -> None:
        """Give back threads and sockets; the transport is not used again."""


class SingleTransport:
    """One rank: there is nobody to exchange with."""

    rank = 0
    world_size = 1

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """Nothing arrives; nothing may be sent."""
        assert recv.numel() == 0 and send.numel() == 0

    def all_gather_int64(self, values: Tensor) -> Tensor:
        """[k] -> [1, k]."""
        return values.unsqueeze(0)

    def close(self) -> None:
        """Nothing is held."""


class DefaultGroupTransport:
    """torch.distributed's default group. Device bytes go through its NCCL, on the current stream, without the host."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.group: dist.ProcessGroup | None = None

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """One fused exchange; what the current stream (or the host) does next finds the bytes there."""
        dist.all_to_all_single(recv, send, recv_splits, send_splits, group=self.group)

    def all_gather_int64(self, values: Tensor) -> Tensor:
        """[k] -> [N, k]."""
        everyone = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(everyone, values, group=self.group)
        return torch.stack(everyone)

    def close(self) -> None:
        """The group is not this object's."""


class GroupTransport(DefaultGroupTransport):
    """A gloo group of its own, so that boundary bytes never wait behind weight gradients."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    def close(self) -> None:
        """Leave the group: a process that runs many sessions would collect their threads and sockets."""
        dist.destroy_process_group(self.group)


class PairwiseTransport(GroupTransport):
    """The same group, every pair by itself: both directions of every link are busy at once.

    Between hosts. Over a link of limited rate gloo's fused all-to-all fills one direction at a time (7.9 of 15.5 MB/s at
    129 Mbit/s, 72 of 119 at 1 Gbit/s; pairwise 14.6 and 110). On one host the fused call is the faster one.
    """

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """Post every receive, then every send, then wait for all."""
        works = []
        for peer, piece in enumerate(torch.split(recv, recv_splits)):
            if piece.numel() and peer != self.rank:
                works.append(dist.irecv(piece, peer, group=self.group))
        for peer, piece in self._by_distance(torch.split(send, send_splits)):
            if piece.numel() and peer != self.rank:
                works.append(dist.isend(piece, peer, group=self.group))
        for work in works:
            if work is not None:
                work.wait()

    def _by_distance(self, pieces: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
        """Nearest following rank first, so that not all ranks begin with the same receiver."""
        order = [(self.rank + k) % self.world_size for k in range(1, self.world_size)]
        return [(peer, pieces[peer]) for peer in order]
