"""Sums over ranks: of control values, of weight gradients, and a differentiable one for statistics of the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
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

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Begin the same and return at once; calling the result waits. Sums that were started meet in the order of starting."""

    def gather(self, values: Tensor) -> Tensor:
        """Every rank's vector of the host's: [k] -> [N, k]; its bytes are the caller's to count."""

    def close(self) -> None:
        """Give back what it holds."""


class _SumsAtOnce:
    """``start_sum`` for reducers that have nothing to gain from waiting later."""

    def sum_(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Sum now."""
        self.sum_(tensor)
        return lambda: None

    def close(self) -> None:
        """Nothing is held."""


def ring_bytes(tensor: Tensor, world_size: int) -> int:
    """Bytes that one rank sends in a ring all-reduce of ``tensor``."""
    return 2 * (world_size - 1) * tensor.numel() * tensor.element_size() // world_size


class SingleReducer(_SumsAtOnce):
    """One rank: every sum is the value itself."""

    world_size = 1
    control_bytes = 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor."""
        return tensor

    def gather(self, values: Tensor) -> Tensor:
        """[k] -> [1, k]."""
        return values.unsqueeze(0)


class GroupReducer:
    """All-reduces on torch.distributed's default group; those that run behind other work on a group of their own."""

    def __init__(self, timeout_s: float) -> None:
        self.world_size = dist.get_world_size()
        self.control_bytes = 0
        self._behind = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    def sum_(self, tensor: Tensor) -> Tensor:
        """In place."""
        dist.all_reduce(tensor)
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """In place, behind the caller's back until the result is called.

        Two ranks swap their tensors, which are as many bytes as their ring would send, at half of its time and cores.
        """
        if self.world_size == 2:
            return self._start_swap(tensor)
        work = dist.all_reduce(tensor, group=self._behind, async_op=True)
        assert work is not None

        def wait() -> None:
            work.wait()

        return wait

    def _start_swap(self, tensor: Tensor) -> Callable[[], None]:
        both = [torch.empty_like(tensor) for _ in range(2)]
        work = dist.all_gather(both, tensor, group=self._behind, async_op=True)
        assert work is not None

        def wait() -> None:
            work.wait()
            torch.add(both[0], both[1], out=tensor)

        return wait

    def gather(self, values: Tensor) -> Tensor:
        """[k] -> [N, k]."""
        return _gather(values, self.world_size)

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group(self._behind)


class StreamReducer(_SumsAtOnce):
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

    def gather(self, values: Tensor) -> Tensor:
        """[k] -> [N, k], as a sum in which every rank has a row of its own; the host waits for it."""
        rows = torch.zeros(self.world_size, len(values), dtype=values.dtype)
        rows[dist.get_rank()] = values
        return self.sum_(rows)


class StagedReducer(_SumsAtOnce):
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

    def gather(self, values: Tensor) -> Tensor:
        """[k] -> [N, k]."""
        return _gather(values, self.world_size)


def _gather(values: Tensor, world_size: int) -> Tensor:
    """Over gloo an all-gather of a few numbers takes less than half the time of their all-reduce."""
    rows = [torch.empty_like(values) for _ in range(world_size)]
    dist.all_gather(rows, values)
    return torch.stack(rows)


def gather_control(reducer: Reducer, values: Tensor) -> Tensor:
    """Every rank's few numbers [k] -> [N, k], counted as control traffic."""
    reducer.control_bytes += (reducer.world_size - 1) * values.numel() * values.element_size()
    return reducer.gather(values)


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
