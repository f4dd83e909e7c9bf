"""Launch: local ranks through torchrun's own launcher, or a place in a world that torchrun made.

The launching process validates, starts one process a rank and waits; when a rank dies the others are stopped and the last
line on stderr names it. No rank survives its launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from sylvie.reaper import Reaper

#: Set for ranks that this program's own launcher started: it reports their errors, they stay silent.
LAUNCHED = "SYLVIE_LAUNCHED"
_PR_SET_PDEATHSIG = 1
_ARRIVAL = timedelta(minutes=10)
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@dataclass(frozen=True, kw_only=True)
class World:
    """A rank's place: its number, how many there are, and the same on its host."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def several_hosts(self) -> bool:
        """Whether ranks are on other hosts, too."""
        return self.local_world_size < self.world_size

    @staticmethod
    def from_environment() -> World | None:
        """The world that torchrun describes in the environment; None where there is none."""
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return World(
            rank=rank,
            world_size=world,
            local_rank=int(os.environ.get("LOCAL_RANK", rank)),
            local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", world)),
        )


SINGLE = World(rank=0, world_size=1, local_rank=0, local_world_size=1)


def threads_per_rank(local_world_size: int) -> int:
    """Cores of this host shared among its ranks, at least one each; OMP_NUM_THREADS, where set, rules."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return cores_per_rank(local_world_size)


def cores_per_rank(local_world_size: int) -> int:
    """A rank's share of this host's cores, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // local_world_size)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory for the next epoch instead of handing it back to the kernel.

    An epoch allocates the same large tensors again and again; page faults on fresh pages took half of its processor time.
    Elsewhere (another libc) nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def join(world: World, backend: str, timeout_s: float) -> None:
    """Enter the process group (nothing to do for one rank) and settle the number of threads."""
    keep_freed_memory()
    torch.set_num_threads(threads_per_rank(world.local_world_size))
    if world.world_size > 1:
        dist.init_process_group(
            backend, store=_all_here(world), rank=world.rank, world_size=world.world_size, timeout=timedelta(seconds=timeout_s)
        )


def _all_here(world: World) -> Any:
    """torchrun's store, once every rank has come: some start later than others, and ``--timeout`` is not meant for that."""
    store, _, _ = next(rendezvous("env://", world.rank, world.world_size, timeout=_ARRIVAL))
    store.set(f"sylvie/here/{world.rank}", "")
    store.wait([f"sylvie/here/{rank}" for rank in range(world.world_size)], _ARRIVAL)
    return store


def leave(world: World) -> None:
    """Leave the process group."""
    if world.world_size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it is gone, however it went (Linux)."""
    if sys.platform != "linux" or LAUNCHED not in os.environ:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHED]):  # it died before the call
        os._exit(1)


def tell(text: str) -> None:
    """A line on stderr; nobody need be listening any more."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def report_error(message: str) -> None:
    """Hand a rank's last error to its launcher, or print it where torchrun started the rank."""
    target = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if LAUNCHED in os.environ and target:
        Path(target).write_text(json.dumps({"message": message, "timestamp": int(time.time())}))
        return
    tell(message)


def launch_local(parts: int, arguments: list[str], run_dir: Path | Callable[[], Path], *, module: str = "sylvie") -> int:
    """Run ``python -m MODULE ARGUMENTS`` as ``parts`` local ranks; returns the exit code of the whole.

    ``run_dir`` is where the ranks leave their traces; a function is asked for it after a rank died. 0 when all ranks end
    well, 2 when a rank refused its input, 1 otherwise; what happened goes to stderr.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence_torchrun()
    environment = {
        LAUNCHED: str(os.getpid()),
        "OMP_NUM_THREADS": str(threads_per_rank(parts)),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
    }
    os.environ.update(environment)
    with tempfile.TemporaryDirectory(prefix="sylvie-") as logs, Reaper(parts) as reaper:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=parts,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.1,
            local_addr="localhost",
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        return _supervise(lambda: elastic_launch(config, sys.executable)("-m", module, *arguments), run_dir, reaper)


def _silence_torchrun() -> None:
    """Its launcher tells of signals and failures at length, on every module's own logger; this one tells it in a line."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(("torch.distributed.elastic", "torch.distributed.launcher")):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _supervise(launch: Callable[[], object], run_dir: Path | Callable[[], Path], reaper: Reaper) -> int:
    """Wait for the ranks; the exit code of the whole, its reason told."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        launch()
    except ChildFailedError as error:
        left = run_dir() if callable(run_dir) else run_dir
        code = _explain(error, left, reaper.ended)
        if code == 2:
            discard(left)
        return code
    except SignalException as error:
        tell(f"stopped by {signal.Signals(error.sigval).name}")
        return 1
    return 0


def discard(run_dir: Path) -> None:
    """Take back the run directory of ranks that refused their input before they trained."""
    if (run_dir / "model.safetensors").exists() or _epoch_under_way(run_dir, 0) > 0:
        return
    with contextlib.suppress(OSError):  # what is not ours stays, and so does the directory
        for file in (*run_dir.glob("trace/rank-*.jsonl"), run_dir / "run.json"):
            file.unlink(missing_ok=True)
        (run_dir / "trace").rmdir()
        run_dir.rmdir()


def _explain(error: object, run_dir: Path, silent: set[int]) -> int:
    """Tell which rank ended the run and how; ``silent``: processes that did not react to SIGTERM."""
    failures = list(getattr(error, "failures", {}).values())
    # A rank that was killed is the cause, whatever others noticed of it; then the earliest error. SIGTERM is the launcher's.
    killed = [f for f in failures if f.exitcode < 0 and f.exitcode != -signal.SIGTERM]
    first = min(killed or failures, key=lambda f: (f.exitcode == -signal.SIGTERM, f.timestamp, f.local_rank))
    told = [f for f in failures if f.exitcode > 0 and Path(f.error_file).is_file() and isinstance(f.message, str)]
    for failure in told:
        if failure is first or first.pid in silent:
            tell(failure.message)
            break
    if first.exitcode == 2:
        return 2
    if first.pid in silent:
        tell(f"rank {first.local_rank} did not react and was ended")
    how = f"signal {-first.exitcode}" if first.exitcode < 0 else f"exit code {first.exitcode}"
    tell(f"rank {first.local_rank} died ({how}) in epoch {_epoch_under_way(run_dir, first.local_rank)}")
    return 1


def _epoch_under_way(run_dir: Path, rank: int) -> int:
    """One more than the last epoch whose record the rank wrote; 0 when it wrote none."""
    path = run_dir / "trace" / f"rank-{rank:05d}.jsonl"
    last = -1
    try:
        with path.open("rb") as file:
            for line in file:
                if b'"kind":"epoch"' in line[:40]:
                    last = int(json.loads(line)["epoch"])
    except (OSError, ValueError):
        pass
    return last + 1


def host_name() -> str:
    """This host's name, for headers."""
    return socket.gethostname()
