"""`python -m analysis.batch FILE.json`: many runs of sylvie-train, one after the other, in the same processes.

A start costs seconds of imports, and a small run often less. FILE holds {"parts": N, "jobs": [JOB, …]}, see `analysis.jobs`.
The ranks are started once (or are torchrun's), and every job is what `sylvie-train ARGUMENTS` is: resolve, start a session,
run it into its own run directory. Losses are those of a single start, bit for bit; peak memory is that of the process so far.
A session makes and closes its own group for boundary rows.

A job whose run is complete on disk is passed over. A job that fails ends the batch, because the state of the process group
is unknown then: the first job without a complete run is the one that failed, and whoever started the batch may start the
rest again. Exit codes are those of sylvie-train.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path

import torch
import torch.distributed as dist

from analysis.jobs import Job, read_jobs
from sylvie.cli import end_failed
from sylvie.config import Config, resolve
from sylvie.launch import SINGLE, World, die_with_parent, join, launch_local, leave
from sylvie.options import OneLineParser, add_options
from sylvie.placement import count_gpus, place
from sylvie.recipes import find_recipe
from sylvie.session import Session
from sylvie.start import start_session

_TIMEOUT_S = 300.0  # of the shared group, whose ranks may start far apart; a session's own group takes its --timeout


def main(argv: Sequence[str] | None = None) -> int:
    """Start the ranks, or be one of them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.batch", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path, help="the jobs")
    options = parser.parse_args(argv)
    world = World.from_environment()
    try:
        parts, jobs = read_jobs(options.file)
        if world is None and parts > 1:
            return launch_local(parts, [str(options.file)], lambda: _under_way(jobs), module="analysis.batch")
        if world is not None and world.world_size != parts:
            raise ValueError(f"{options.file} is for {parts} ranks, and WORLD_SIZE is {world.world_size}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _rank(world or SINGLE, jobs)


def _under_way(jobs: Sequence[Job]) -> Path:
    """The run directory of the first job that is not done."""
    return next((job.run_dir for job in jobs if not job.complete), Path())


def _rank(world: World, jobs: Sequence[Job]) -> int:
    die_with_parent()
    session: Session | None = None
    try:
        join(world, place("auto", "auto", world, count_gpus()).group_backend, _TIMEOUT_S)
        for job in jobs:
            session = None
            if not _is_due(job, world):
                continue
            with _output_to(job.log):
                session = _start(job, world)
                session.run()
            gc.collect()
            _give_back_memory()
        leave(world)
    except Exception as error:
        return end_failed(error, training=session is not None and session.training)
    return 0


def _is_due(job: Job, world: World) -> bool:
    """Whether a job must run: rank 0 looks, clears away what an earlier attempt left, and tells the others."""
    answer = torch.zeros(1, dtype=torch.int64)
    if world.rank == 0 and not job.complete:
        answer[0] = 1
        shutil.rmtree(job.run_dir, ignore_errors=True)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_bytes(b"")
    if world.world_size > 1:
        dist.broadcast(answer, 0)
    return bool(answer)


def _start(job: Job, world: World) -> Session:
    config, recipe = configuration(job.arguments)
    if config.parts != world.world_size:
        raise ValueError(f"--parts {config.parts} in a batch of {world.world_size} ranks: put it into another batch")
    if config.wandb != "off":
        raise ValueError("--wandb does not act in a batch; leave it out")
    session = start_session(config, recipe, world, config.run_dir, time.monotonic_ns())
    if job.session is None:
        return session
    kind = _session_class(job.session)
    return kind(**{item.name: getattr(session, item.name) for item in fields(session)})


def configuration(words: Sequence[str]) -> tuple[Config, str]:
    """The resolved configuration and the recipe that sylvie-train's arguments mean."""
    parser = OneLineParser(prog="sylvie-train", allow_abbrev=False)
    parser.add_argument("recipe", nargs="?", default="quickstart")
    add_options(parser)
    given = vars(parser.parse_args(list(words)))
    recipe = given.pop("recipe")
    return resolve(find_recipe(recipe).config(), given), recipe


def _session_class(name: str) -> type[Session]:
    module, _, attribute = name.partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    if not (isinstance(kind, type) and issubclass(kind, Session)):
        raise ValueError(f"{name} is not a class of sessions")
    return kind


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send this process's output to a job's log, also what libraries write past Python."""
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        for stream in (1, 2):
            os.dup2(target, stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, old in zip((1, 2), kept, strict=True):
            os.dup2(old, stream)
            os.close(old)
        os.close(target)


def _give_back_memory() -> None:
    """Hand freed memory back to the kernel (glibc): what one run has kept for its epochs fits the next one badly."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    sys.exit(main())
