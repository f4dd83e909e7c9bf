"""A whole world in one process: ranks are threads, collectives are rendezvous. Fast enough to run every model on every system.

The transport and the reducer keep torch.distributed's contracts, so the code under test is the one that runs over gloo.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sylvie.build import build_trainer, dtype_of, plan_for
from sylvie.config import Config, resolve
from sylvie.data.graph import GraphData
from sylvie.exchange.carrier import HostCarrier
from sylvie.exchange.plan import check_plans
from sylvie.exchange.streams import HostStreams
from sylvie.exchange.worker import Worker
from sylvie.extractor import extract
from sylvie.input_halo import input_rows
from sylvie.nn.custom import needs_input_halo
from sylvie.partition.build import boundary_pool, find_crossings, iter_partitions
from sylvie.trainer import Trainer
from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import SCHEMA_VERSION, Header

TIMEOUT_S = 60.0


class Meeting:
    """Where all ranks put a value and read everybody's; a rank that failed breaks it for the others."""

    def __init__(self, world_size: int) -> None:
        self._slots: list[Any] = [None] * world_size
        self.barrier = threading.Barrier(world_size)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self._slots[rank] = value
        self.barrier.wait(TIMEOUT_S)
        everyone = list(self._slots)
        self.barrier.wait(TIMEOUT_S)
        return everyone


class ThreadTransport:
    """all_to_all of bytes between threads; checks that the splits are a transpose, as a real one would crash."""

    def __init__(self, meeting: Meeting, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._meeting = meeting
        self.calls = 0

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        self.calls += 1
        pieces = [piece.clone() for piece in send.split(send_splits)]
        everyone = self._meeting.exchange(self.rank, pieces)
        for place, row in zip(recv.split(recv_splits), everyone, strict=True):
            assert place.numel() == row[self.rank].numel(), "splits are not a transpose"
            place.copy_(row[self.rank])

    def all_gather_int64(self, values: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchange(self.rank, values.clone()))


class ThreadReducer:
    """Sum over threads, in rank order on every rank."""

    def __init__(self, meeting: Meeting, rank: int, world_size: int) -> None:
        self.world_size, self.control_bytes = world_size, 0
        self._meeting, self._rank = meeting, rank

    def sum_(self, tensor: Tensor) -> Tensor:
        everyone = self._meeting.exchange(self._rank, tensor.clone())
        total = everyone[0].clone()
        for other in everyone[1:]:
            total += other
        return tensor.copy_(total)

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        self.sum_(tensor)
        return lambda: None

    def gather(self, values: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchange(self._rank, values.clone()))

    def close(self) -> None: ...


def run_threads(world_size: int, work: Callable[[int], Any], meetings: list[Meeting], deadline_s: float) -> list[Any]:
    """``work(rank)`` on every rank at once; returns their results or raises the first rank's failure."""
    results: list[Any] = [None] * world_size
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors.append(error)
            for meeting in meetings:
                meeting.barrier.abort()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline_s)
    causes = [e for e in errors if not isinstance(e, threading.BrokenBarrierError) and "broke off" not in str(e)]
    if errors:
        raise (causes or errors)[0]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def make_config(**given: Any) -> Config:
    """A small, deterministic run: float64, no dropout, 20 epochs, unless told otherwise."""
    base = Config(dropout=0.0, epochs=20, dtype="float64", hidden=8, layers=3, eval_every=0)
    return resolve(base, given)


class ThreadWorld:
    """All ranks of one run. ``device(rank)`` gives a rank's streams, worker and type of carrier; the host's, as a rule."""

    def __init__(
        self,
        graph: GraphData,
        assignment: Tensor,
        world_size: int,
        config: Config,
        folder: Path,
        *,
        transport: Callable[[Any], Any] = lambda inner: inner,
        device: Callable[[int], tuple[Any, Any, Any]] = lambda rank: (
            HostStreams(time.monotonic_ns),
            Worker(TIMEOUT_S),
            HostCarrier,
        ),
        spare_core: bool = True,
    ) -> None:
        self.config, self.world_size = config, world_size
        owners = assignment.numpy()
        crossings = find_crossings(graph, owners)
        self.parts = list(iter_partitions(graph, owners, world_size, crossings, "test"))
        self.pool = boundary_pool(graph, crossings)
        self.folder = folder
        self._wrap, self._device, self._spare_core = transport, device, spare_core

    def run(self, use: Callable[[Trainer], Any], *, deadline_s: float = 2 * TIMEOUT_S) -> list[Any]:
        """Build every rank's trainer and call ``use`` on it; a rank that is not done at the deadline hangs."""
        rows, sums = Meeting(self.world_size), Meeting(self.world_size)

        def rank_body(rank: int) -> Any:
            part = self.parts[rank]
            config = self.config
            levels = extract(
                self.pool,
                mask=config.mask,
                thresholds=config.mask_thresholds,
                importance_kind=config.importance,
                seed=config.mask_seed,
            )
            plan = plan_for(config, part, levels)
            transport = self._wrap(ThreadTransport(rows, rank, self.world_size))
            check_plans(plan, transport)
            recorder = Recorder(self.folder / f"rank-{rank:05d}.jsonl", header(rank, self.world_size, trace=config.trace))
            streams, worker, carrier = self._device(rank)
            x, _ = input_rows(
                part,
                transport,
                dtype_of(config),
                needs_halo=needs_input_halo(config.model),
                cache_halo=config.cache_input_halo,
            )
            with _BUILD:  # the seeded construction of a model uses torch's one global generator
                trainer = build_trainer(
                    config,
                    partition=part,
                    plan=plan,
                    transport=transport,
                    reducer=ThreadReducer(sums, rank, self.world_size),
                    recorder=recorder,
                    worker=worker,
                    x=x,
                    streams=streams,
                    carrier=carrier,
                    spare_core=self._spare_core,
                )
            try:
                result = use(trainer)
            finally:
                recorder.close()
            worker.close()
            return result

        return run_threads(self.world_size, rank_body, [rows, sums], deadline_s)


_BUILD = threading.Lock()


def header(rank: int, world_size: int, *, trace: bool) -> Header:
    """A trace header of this process."""
    return Header(
        schema=SCHEMA_VERSION,
        run_id="test",
        rank=rank,
        world_size=world_size,
        pid=1,
        host="here",
        wall_ns=time.time_ns(),
        clock_ns=time.monotonic_ns(),
        offset_ns=0,
        offset_bound_ns=0,
        trace=trace,
    )
