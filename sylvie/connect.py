"""Connect: what carries a rank's rows and sums, for the place it has been given.

| device | backend | rows | who issues exchanges | sums |
|---|---|---|---|---|
| host | gloo | a group of their own | a background thread | the default group, main thread |
| CUDA, one a rank | nccl | the default group's one communicator | the main thread, communication stream | the same |
| CUDA, shared | gloo | pinned copies, a group of their own | a background thread | pinned copies, default group |
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from sylvie.exchange.carrier import Carrier, DeviceCarrier, HostCarrier, StagedCarrier
from sylvie.exchange.reduce import GroupReducer, Reducer, SingleReducer, StagedReducer, StreamReducer
from sylvie.exchange.streams import CudaStreams, HostStreams, Streams
from sylvie.exchange.transport import (
    DefaultGroupTransport,
    GroupTransport,
    PairwiseTransport,
    SingleTransport,
    Transport,
)
from sylvie.exchange.worker import Issuer, StagedWorker, StreamWorker, Worker
from sylvie.placement import NCCL, Placement

Clock = Callable[[], int]
CarrierType = Callable[[Transport, Streams, Clock], Carrier]


def make_streams(placement: Placement, clock: Clock, *, timed: bool) -> Streams:
    """The rank's device made current for this thread, and its streams; ``timed``: keep the device's own times."""
    if placement.device.type == "cpu":
        return HostStreams(clock)
    torch.cuda.set_device(placement.device)
    return CudaStreams(placement.device, clock, timed=timed)


def connect(
    placement: Placement, streams: Streams, timeout_s: float, *, several_hosts: bool
) -> tuple[Transport, Reducer]:
    """The ways to the other ranks; with NCCL its communicator exists afterwards."""
    if placement.backend is None:
        return SingleTransport(), SingleReducer()
    if placement.backend == NCCL:
        if NCCL not in dist.get_backend_config():
            raise ValueError("--backend nccl: the process group was made without NCCL; use --backend gloo")
        reducer = StreamReducer(streams)
        reducer.sum_(torch.zeros(1, device=placement.device))
        return DefaultGroupTransport(), reducer
    transport = PairwiseTransport(timeout_s) if several_hosts else GroupTransport(timeout_s)
    return transport, GroupReducer(timeout_s) if placement.device.type == "cpu" else StagedReducer(streams)


def make_worker(placement: Placement, streams: Streams, timeout_s: float) -> Issuer:
    """Who issues the rank's exchanges."""
    if placement.backend == NCCL:
        return StreamWorker(streams)
    worker = Worker(timeout_s)
    return worker if placement.device.type == "cpu" else StagedWorker(worker, streams)


def carrier_type(placement: Placement) -> CarrierType:
    """What carries the bytes of an exchange."""
    if placement.device.type == "cpu":
        return HostCarrier
    return DeviceCarrier if placement.backend == NCCL else StagedCarrier
