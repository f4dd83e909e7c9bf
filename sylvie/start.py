"""Start: the offline stage once per host, a run directory and a name agreed by all ranks, and the session on top of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import torch.distributed as dist

from sylvie.config import Config
from sylvie.data import find_source
from sylvie.launch import World, tell
from sylvie.partition.prepare import PreparedPartition, prepare
from sylvie.placement import GLOO, NCCL, Placement, count_gpus, place
from sylvie.probe import gather_text
from sylvie.session import Offline, Session
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import SPAN_LOAD, SPAN_PARTITION

_OFFLINE_LIMIT = timedelta(days=7)
_ERROR_BYTES = 2048


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What the launching process did before there were ranks: when it began (run clock of the host), and its offline stage."""

    started_ns: int
    cached: bool
    spans: tuple[tuple[str, int, int], ...]

    @staticmethod
    def of(started_ns: int, prepared: PreparedPartition, offline_ns: int) -> Begun:
        """An offline stage that began at ``offline_ns`` and has ended."""
        loaded = offline_ns + int(prepared.seconds.get("load", 0.0) * 1e9)
        partitioned = loaded + int(prepared.seconds.get("partition", 0.0) * 1e9)
        spans = (SPAN_LOAD, offline_ns, loaded), (SPAN_PARTITION, loaded, partitioned)
        return Begun(started_ns=started_ns, cached=prepared.cached, spans=spans)

    def encode(self) -> str:
        """For the environment of the ranks."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> Begun:
        """Read what ``encode`` wrote."""
        return msgspec.json.decode(text, type=Begun)


def prepare_offline(config: Config, parts: int, report: Callable[[str], None] = lambda _: None) -> PreparedPartition:
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


def start_session(
    config: Config, recipe: str, world: World, run_dir: Path | None, started_ns: int, before: Begun | None = None
) -> Session:
    """Everything before the rank builds: partition at hand on every host, run directory made. ValueError on bad input.

    ``started_ns``: when the program began; ``before``: what its launching process did, where there was one.
    """
    placement = _place_together(config, world)
    offline_ns = time.monotonic_ns()
    prepared = _prepare_together(config, world, done=before is not None)
    begun = before or Begun.of(started_ns, prepared, offline_ns)
    name = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}-{recipe}"
    path = Path(gather_text(world, str(run_dir) if run_dir else str(Path("runs") / name), width=1024)[0])
    run_id = gather_text(world, uuid.uuid4().hex[:12])[0]
    refusal, made = "", RunDir(path)
    if world.rank == 0:
        try:
            made = RunDir.create(path)
        except (ValueError, OSError) as error:
            refusal = f"--run-dir {path}: {error}"
    _raise_first(gather_text(world, refusal, width=_ERROR_BYTES))
    made.trace.mkdir(parents=True, exist_ok=True)
    return Session(
        world=world,
        config=config,
        offline=Offline(store=prepared.path, manifest=prepared.manifest, cached=begun.cached, spans=begun.spans),
        run_dir=made,
        run_id=run_id,
        recipe=recipe,
        started_ns=begun.started_ns,
        placement=placement,
    )


def _place_together(config: Config, world: World) -> Placement:
    """This rank's place; ValueError where ranks would differ, or want NCCL from a process group that has none."""
    mine = place(config.device, config.backend, world, count_gpus())
    if mine.backend == NCCL and NCCL not in dist.get_backend_config() and config.backend == "auto":
        mine = replace(mine, backend=GLOO)
    names = gather_text(world, mine.name)
    for rank, name in enumerate(names):
        if name != names[0]:
            raise ValueError(f"rank 0 would run on {names[0]}, rank {rank} on {name}; name --device and --backend")
    return mine


def _prepare_together(config: Config, world: World, *, done: bool) -> PreparedPartition:
    """The first rank of every host prepares while the others wait, however long it takes; a refusal reaches them all."""
    prepared, refusal = None, ""
    if world.local_rank == 0:
        try:
            prepared = prepare_offline(config, world.world_size, (lambda _: None) if done else tell)
        except ValueError as error:
            refusal = str(error)
    if world.world_size > 1 and not done:
        patient = dist.new_group(timeout=_OFFLINE_LIMIT, backend="gloo")
        dist.barrier(group=patient)
        dist.destroy_process_group(patient)
    _raise_first(gather_text(world, refusal, width=_ERROR_BYTES))
    return prepared if prepared is not None else prepare_offline(config, world.world_size)


def _raise_first(refusals: list[str]) -> None:
    """The first refusal of any rank, on all of them."""
    for refusal in refusals:
        if refusal:
            raise ValueError(refusal)
