"""The jobs of a batch: what its file holds, and the batch watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from analysis.netlab.ranks import TIMEOUT_RC
from analysis.run_files import is_complete, read_json, write_atomically

_POLL_S = 0.2
_START_S = 120.0  # a batch's own start: imports, on a busy machine
_TERM_TO_KILL_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: sylvie-train's arguments (the run directory among them), and the file for its output.

    `session` names the class that takes the place of `sylvie.session.Session`, as module:Class; None for that class itself.
    """

    arguments: tuple[str, ...]
    run_dir: Path
    log: Path
    session: str | None = None

    @property
    def complete(self) -> bool:
        """Whether its run has ended well."""
        return is_complete(self.run_dir)


def write_jobs(path: Path, parts: int, jobs: Sequence[Job]) -> None:
    """Write a batch file."""
    rows = [asdict(job) | {"run_dir": str(job.run_dir), "log": str(job.log)} for job in jobs]
    write_atomically(path, json.dumps({"parts": parts, "jobs": rows}, indent=1) + "\n")


def read_jobs(path: Path) -> tuple[int, list[Job]]:
    """Ranks and jobs of a batch file; ValueError in one line."""
    content = read_json(path)
    if content is None:
        raise ValueError(f"{path}: no batch file, or a torn one")
    try:
        jobs = [
            Job(
                arguments=tuple(row["arguments"]),
                run_dir=Path(row["run_dir"]),
                log=Path(row["log"]),
                session=row.get("session"),
            )
            for row in content["jobs"]
        ]
        return int(content["parts"]), jobs
    except (KeyError, TypeError) as error:
        raise ValueError(f'{path}: not {{"parts": N, "jobs": [{{"arguments", "run_dir", "log"}}]}} ({error})') from None


def run_watched(command: Sequence[str], log: IO[bytes], *, timeout_s: float | None, jobs: Sequence[Job] = ()) -> int:
    """Run a command to its end; however it ends, what it started ends too.

    Returns its exit code, 124 when it made no step for `timeout_s`: for a batch a step is a job's complete run.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    waiting = [job for job in jobs if not job.complete]
    spare = _START_S if jobs else 0.0
    deadline = None if timeout_s is None else time.monotonic() + timeout_s + spare
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_S)
            if deadline is None or timeout_s is None:
                continue
            while waiting and waiting[0].complete:
                waiting.pop(0)
                deadline = time.monotonic() + timeout_s
            if time.monotonic() >= deadline:
                return TIMEOUT_RC
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # the whole session: a launcher's ranks as well
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TERM_TO_KILL_S)
