"""Session: one rank, from a prepared partition to a trained model. Build, train, close; all parts are made here, handed on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import Tensor

from sylvie import environment
from sylvie.build import build_trainer, plan_for
from sylvie.config import Config
from sylvie.connect import carrier_type, connect, make_streams, make_worker
from sylvie.console import Console
from sylvie.evaluate import metric_name
from sylvie.exchange.exchange import HaloExchange
from sylvie.exchange.plan import ExchangePlan, check_plans
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.streams import HostStreams, Streams
from sylvie.exchange.transport import Transport
from sylvie.extractor import BoundaryLevels, extract
from sylvie.input_halo import input_rows
from sylvie.launch import World, cores_per_rank, host_name
from sylvie.nn.custom import needs_input_halo
from sylvie.nn.inputs import InputRows
from sylvie.partition.manifest import Manifest
from sylvie.partition.partition import Partition
from sylvie.partition.store import load_partition, load_pool
from sylvie.placement import HOST, Placement
from sylvie.probe import gather_text, measure_clock_offset, measure_links
from sylvie.protection import levels_by_degree
from sylvie.trainer import Best, Trainer
from sylvie_trace import schema
from sylvie_trace.recorder import Recorder
from sylvie_trace.run_dir import RunDir, write_atomically

clock = time.monotonic_ns


@dataclass(frozen=True, kw_only=True)
class Offline:
    """What the offline stage left: where the parts are, whether they were there already, and when it worked."""

    store: Path
    manifest: Manifest
    cached: bool
    spans: tuple[tuple[str, int, int], ...] = ()


@dataclass(kw_only=True, eq=False)
class Session:
    """One rank's run; ``spans`` are those of the offline stage and the start, written once the recorder is there."""

    world: World
    config: Config
    offline: Offline
    run_dir: RunDir
    run_id: str
    recipe: str
    started_ns: int
    spans: list[schema.Span] = field(default_factory=list)
    training: bool = False
    probe_bytes: int = 0
    placement: Placement = HOST
    streams: Streams = field(default_factory=lambda: HostStreams(clock))
    exchange_type: ClassVar[type[HaloExchange]] = HaloExchange

    def run(self) -> None:
        """Build, train, close."""
        self.spans += [_span(name, start, end) for name, start, end in self.offline.spans]
        partition = load_partition(self.offline.store, self.world.rank, self.world.world_size)
        dtype = torch.float64 if self.config.dtype == "float64" else torch.float32
        levels = self._extract()
        plan = plan_for(self.config, partition, levels)
        self.streams = make_streams(self.placement, clock, timed=self.config.trace)
        transport, reducer = self._connect()
        check_plans(plan, transport)
        recorder = self._recorder()
        worker = make_worker(self.placement, self.streams, self.config.timeout)
        try:
            with self._timed(schema.SPAN_INPUT_HALO):
                x, halo_bytes = self._inputs(partition, transport, dtype)
            console = Console(rank=self.world.rank, epochs=self.config.epochs, metric=metric_name(partition.multilabel))
            trainer = build_trainer(
                self.config,
                partition=partition,
                plan=plan,
                transport=transport,
                reducer=reducer,
                recorder=recorder,
                worker=worker,
                x=x,
                on_epoch=console.epoch,
                on_best=self._save,
                exchange_type=self.exchange_type,
                streams=self.streams,
                carrier=carrier_type(self.placement),
                spare_core=self.placement.device.type != "cpu" or cores_per_rank(self.world.local_world_size) > 1,
            )
            console.watch(lambda: trainer.ledger.waited_ns)
            with self._timed(schema.SPAN_INPUT_HALO):
                trainer.prepare()
            self._write_run_json(partition, levels, plan, trainer.gradients.bucket_bytes)
            self.spans.append(_span(schema.SPAN_STARTUP, self.started_ns, clock()))
            for span in self.spans:
                recorder.record(span)
            self._train(trainer, recorder, halo_bytes)
        finally:
            recorder.close()
        worker.close()
        transport.close()
        reducer.close()

    def _connect(self) -> tuple[Transport, Reducer]:
        """The ways to the other ranks."""
        return connect(self.placement, self.streams, self.config.timeout, several_hosts=self.world.several_hosts)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = clock()
        yield
        self.spans.append(_span(name, start, clock()))

    def _extract(self) -> BoundaryLevels:
        config = self.config
        with self._timed(schema.SPAN_EXTRACT):
            return extract(
                load_pool(self.offline.store),
                mask=config.mask,
                thresholds=config.mask_thresholds,
                importance_kind=config.importance,
                seed=config.mask_seed,
            )

    def _inputs(self, partition: Partition, transport: Transport, dtype: torch.dtype) -> tuple[Tensor | InputRows, int]:
        return input_rows(
            partition,
            transport,
            dtype,
            needs_halo=needs_input_halo(self.config.model),
            cache_halo=self.config.cache_input_halo,
        )

    def _recorder(self) -> Recorder:
        offset = measure_clock_offset(self.world, clock)
        header = schema.Header(
            schema=schema.SCHEMA_VERSION,
            run_id=self.run_id,
            rank=self.world.rank,
            world_size=self.world.world_size,
            pid=os.getpid(),
            host=host_name(),
            wall_ns=time.time_ns(),
            clock_ns=clock(),
            offset_ns=offset.offset_ns,
            offset_bound_ns=offset.bound_ns,
            trace=self.config.trace,
        )
        return Recorder(self.run_dir.trace_file(self.world.rank), header)

    def _save(self, best: Best) -> None:
        if self.world.rank == 0:
            write_atomically(self.run_dir.model, safetensors.torch.save(best.state))

    def _train(self, trainer: Trainer, recorder: Recorder, halo_bytes: int) -> None:
        start, self.training = clock(), True
        try:
            trainer.train(self.config.epochs)
        except Exception as error:
            site = getattr(error, "site", None)
            recorder.record(
                schema.Fault(
                    epoch=trainer.epoch,
                    error=type(error).__name__,
                    message=str(error),
                    layer=getattr(site, "layer", None),
                    step=getattr(site, "step", None),
                    direction=getattr(site, "direction", None),
                    peer=getattr(error, "peer", None),
                )
            )
            raise
        recorder.record(_span("train", start, clock()))
        if not trainer.best.state:  # nothing to validate on: the last parameters are the model
            trainer.best.state = dict(trainer.model.state_dict())
            self._save(trainer.best)
        recorder.record(self._footer(trainer, halo_bytes))

    def _footer(self, trainer: Trainer, halo_bytes: int) -> schema.Footer:
        best, last = trainer.best, trainer.last
        return schema.Footer(
            complete=True,
            end_ns=clock(),
            bytes={
                "train": trainer.ledger.sent_bytes - trainer.ledger.unused_bytes,
                "evaluate": trainer.eval_ledger.sent_bytes,
                "input_halo": halo_bytes + trainer.input_ledger.sent_bytes,
                "gradient_allreduce": trainer.gradient_bytes,
                "control": trainer.reducer.control_bytes + self.probe_bytes,
                "unused": trainer.ledger.unused_bytes,
            },
            peak_memory_mb=environment.peak_memory_mb(),
            device_peak_mb=environment.device_peak_mb(self.placement.device),
            quality={
                "metric": metric_name(trainer.partition.multilabel),
                "best_val": best.val if best.epoch >= 0 else None,
                "test_at_best_val": best.test,
                "final_test": last.values["test"] if last else None,
                "best_epoch": best.epoch if best.epoch >= 0 else None,
            },
        )

    def _write_run_json(
        self, partition: Partition, levels: BoundaryLevels, plan: ExchangePlan, gradient_buckets: list[int]
    ) -> None:
        hosts = gather_text(self.world, host_name())
        links, self.probe_bytes = measure_links(self.world, hosts, clock)
        facts = environment.device_facts(self.placement.device)
        names = gather_text(self.world, facts["device"])
        devices = [{"rank": rank, "host": host, **facts, "device": names[rank]} for rank, host in enumerate(hosts)]
        if self.world.rank == 0:
            content = describe(self, partition, levels, devices, links)
            content["gradient_bucket_bytes"] = gradient_buckets
            if self.world.world_size > 1:
                content["boundary"]["by_degree"] = levels_by_degree(partition, plan)
            self.run_dir.write_run_json(content)


def _span(name: str, start: int, end: int) -> schema.Span:
    return schema.Span(name=name, epoch=-1, start_ns=start, end_ns=end)


def describe(
    session: Session,
    partition: Partition,
    levels: BoundaryLevels,
    devices: list[dict[str, Any]],
    links: list[dict[str, float | int]],
) -> dict[str, Any]:
    """The content of run.json."""
    config, manifest = session.config, session.offline.manifest
    statistics = manifest.statistics
    return {
        "run_id": session.run_id,
        "recipe": session.recipe,
        "config": config.as_dict() | {"parts": session.world.world_size},
        "describes": {"bits": config.bits, "mask": config.mask, "schedule": config.schedule},
        "versions": environment.versions(),
        "devices": devices,
        "backend": session.placement.backend,
        "several_hosts": session.world.several_hosts,
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "links": links,
        "git": environment.git_revision(),
        "metric": metric_name(partition.multilabel),
        "dataset": {
            "name": manifest.dataset,
            "fingerprint": manifest.origin.graph,
            "nodes": partition.num_nodes,
            "edges": partition.num_edges,
            "features": int(partition.features.shape[1]),
            "classes": partition.num_classes,
            "multilabel": partition.multilabel,
            "train": partition.num_train,
            "val": partition.num_val,
            "test": partition.num_test,
        },
        "partition": {
            "fingerprint": manifest.fingerprint,
            "objective": manifest.origin.method,
            "seed": manifest.origin.seed,
            "inner": [r.inner for r in statistics.ranks],
            "halo": [r.halo for r in statistics.ranks],
            "send_rows": [r.send_rows for r in statistics.ranks],
            "edges": [r.edges for r in statistics.ranks],
            "train": [r.train for r in statistics.ranks],
            "balance": statistics.balance,
            "edge_balance": statistics.edge_balance,
            "boundary_share": statistics.boundary_share,
            "volume": statistics.volume,
            "cut_edges": statistics.cut_edges,
        },
        "boundary": {
            "pool_nodes": statistics.pool_nodes,
            "share_of_nodes": statistics.boundary_share,
            "halo_rows": statistics.volume,
            "level_counts": [int((levels.levels == k).sum()) for k in range(4)],
            "thresholds": list(levels.thresholds),
            "importance": levels.importance,
        },
        "offline_cached": session.offline.cached,
    }
