"""Sums over ranks: the flat all-reduce of weight gradients, and a differentiable sum for statistics of the whole graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from sylvie.exchange.buffers import PinnedPool
from sylvie.exchange.streams import Streams


class Reducer(Protocol):
    """Adds tensors up over ranks and counts the bytes of a ring: 2(N − 1)/N of the size, per rank."""

    world_size: int
    control_bytes: int

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace ``tensor`` by its sum over ranks; its bytes are the caller's to count."""


def ring_bytes(tensor: Tensor, world_size: int) -> int:
    """Bytes that one rank sends in a ring all-reduce of ``tensor``."""
    return 2 * (world_size - 1) * tensor.numel() * tensor.element_size() // world_size


class SingleReducer:
    """One rank: every sum is the value itself."""

    world_size = 1
    control_bytes = 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor."""
        return tensor


class GroupReducer:
    """All-reduces on torch.distributed's default group; called from the main thread only."""

    def __init__(self) -> None:
        self.world_size = dist.get_world_size()
        self.control_bytes = 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """In place."""
        dist.all_reduce(tensor)
        return tensor


class StreamReducer:
    """Sums on a device that NCCL connects, all on the communication stream: one order with the exchanges, one communicator.

    A tensor of the host's goes to the device and comes back; the host waits for it.
    """

    def __init__(self, streams: Streams) -> None:
        self.world_size = dist.get_world_size()
        self.control_bytes = 0
        self._streams = streams

    def sum_(self, tensor: Tensor) -> Tensor:
        """In place; the current stream goes on with the sum, the host does not wait (except as above)."""
        if tensor.device.type != self._streams.device.type:
            return tensor.copy_(self.sum_(tensor.to(self._streams.device)))
        ready = self._streams.mark()
        with self._streams.communication():
            self._streams.follow(ready)
            self._streams.keep(tensor)
            dist.all_reduce(tensor)
            done = self._streams.mark()
        self._streams.follow(done)
        return tensor


class StagedReducer:
    """Sums of device tensors over a group that moves host bytes (gloo, when ranks share a device), through pinned memory.

    The host waits for what it sums; the device goes on by itself when the sum is back.
    """

    def __init__(self, streams: Streams) -> None:
        self.world_size = dist.get_world_size()
        self.control_bytes = 0
        self._streams, self._pinned = streams, PinnedPool(streams)

    def sum_(self, tensor: Tensor) -> Tensor:
        """In place."""
        if tensor.device.type == "cpu":
            dist.all_reduce(tensor)
            return tensor
        lent = self._pinned.lend(tensor.numel() * tensor.element_size())
        staged = lent.view(tensor.dtype).view(tensor.shape)
        staged.copy_(tensor, non_blocking=True)
        self._streams.mark().synchronize()
        dist.all_reduce(staged)
        tensor.copy_(staged, non_blocking=True)
        self._pinned.give_back(lent)
        return tensor


def sum_control(reducer: Reducer, tensor: Tensor) -> Tensor:
    """Sum a small tensor (losses, metrics, statistics) in place and count it as control traffic."""
    reducer.control_bytes += ring_bytes(tensor, reducer.world_size)
    return reducer.sum_(tensor)


class _DifferentiableSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, reducer: Reducer) -> Tensor:
        ctx.reducer = reducer
        return sum_control(reducer, value.clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return sum_control(ctx.reducer, grads[0].clone()), None


def differentiable_sum(value: Tensor, reducer: Reducer) -> Tensor:
    """Sum over ranks; each rank's result feeds a loss that is itself summed over ranks, so gradients are summed too."""
    if reducer.world_size == 1:
        return value
    total: Tensor = _DifferentiableSum.apply(value, reducer)  # type: ignore[no-untyped-call]
    return total


def all_reduce_gradients(parameters: Iterable[Tensor], reducer: Reducer) -> int:
    """Sum all gradients over ranks in one flat buffer; returns the bytes that this rank sends.

    A parameter without a gradient on this rank contributes zeros: another rank may have one.
    """
    held = [p for p in parameters if p.requires_grad]
    for p in held:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if reducer.world_size == 1 or not held:
        return 0
    flat = torch.cat([p.grad.reshape(-1) for p in held if p.grad is not None])
    reducer.sum_(flat)
    offset = 0
    for p in held:
        assert p.grad is not None
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()
    return ring_bytes(flat, reducer.world_size)
