"""Start: the offline stage once per host, a run directory and a name agreed by all ranks, and the session on top of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch.distributed as dist

from sylvie.config import Config
from sylvie.data import find_source
from sylvie.launch import World
from sylvie.partition.prepare import PreparedPartition, prepare
from sylvie.probe import gather_text
from sylvie.session import Offline, Session
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import SPAN_LOAD, SPAN_PARTITION


def prepare_offline(
    config: Config, parts: int, report: Callable[[str], None] = lambda _: None
) -> PreparedPartition:
    """Partition the configured graph into ``parts``, or find the partition made before. ValueError on bad input."""
    source = find_source(config.dataset, data_root=config.data_root, seed=config.partition_seed)
    if config.input_projection:
        source = source.projected(config.input_projection, config.partition_seed)
    return prepare(
        lambda: source.load(report),
        parts=parts,
        seed=config.partition_seed,
        assignment_file=config.partition,
        cache_dir=config.cache_dir,
        identity=source.identity(),
        report=report,
    )


def start_session(config: Config, recipe: str, world: World, run_dir: Path | None, started_ns: int) -> Session:
    """Everything before the rank builds: partition at hand on every host, run directory made."""
    begun = time.monotonic_ns()
    prepared = prepare_offline(config, world.world_size) if world.local_rank == 0 else None
    _barrier(world)
    if prepared is None:
        prepared = prepare_offline(config, world.world_size)
    loaded = begun + int(prepared.seconds.get("load", 0.0) * 1e9)
    partitioned = loaded + int(prepared.seconds.get("partition", 0.0) * 1e9)
    name = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}-{recipe}"
    path = Path(gather_text(world, str(run_dir) if run_dir else str(Path("runs") / name), width=1024)[0])
    run_id = gather_text(world, uuid.uuid4().hex[:12])[0]
    made = RunDir.create(path) if world.rank == 0 else RunDir(path)
    _barrier(world)
    made.trace.mkdir(parents=True, exist_ok=True)
    return Session(
        world=world,
        config=config,
        offline=Offline(
            store=prepared.path,
            manifest=prepared.manifest,
            cached=prepared.cached,
            spans=((SPAN_LOAD, begun, loaded), (SPAN_PARTITION, loaded, partitioned)),
        ),
        run_dir=made,
        run_id=run_id,
        recipe=recipe,
        started_ns=started_ns,
    )


def _barrier(world: World) -> None:
    if world.world_size > 1:
        dist.barrier()
