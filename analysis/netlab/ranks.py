"""One COMMAND per host: its environment, its cores, its output, its end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from analysis.netlab import namespaces

_POLL_S = 0.02
_TERM_TO_KILL_S = 3.0
TIMEOUT_RC = 124
BASE_PORT = 29500


def share_cores(hosts: int, pin: bool) -> tuple[list[str], int]:
    """Per host its taskset list ("" = not pinned), and the cores (threads) each host may use.

    Every host gets the same number of neighbouring cores, so that no rank is slower by construction; with
    more hosts than cores they take turns.
    """
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // hosts)
    if not pin:
        return [""] * hosts, each
    if hosts > len(cores):
        return [str(cores[host % len(cores)]) for host in range(hosts)], each
    return [",".join(map(str, cores[host * each : (host + 1) * each])) for host in range(hosts)], each


def rank_environment(host: int, hosts: int, port: int, threads: int) -> dict[str, str]:
    """What torchrun would set for one process a host, with gloo and NCCL held to the emulated link."""
    return {
        "RANK": str(host),
        "WORLD_SIZE": str(hosts),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": namespaces.address(0),
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": str(threads),
    }


def inside(name: str, command: Sequence[str], cores: str = "") -> list[str]:
    """The words that run a command in a namespace, on some cores, and never longer than the lab's process."""
    pin = ["taskset", "-c", cores] if cores else []
    return ["ip", "netns", "exec", name, *pin, "setpriv", "--pdeathsig", "KILL", *command]


class Ranks:
    """The running copies of one COMMAND; a context manager that leaves no process behind."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def popen(self, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start one helper whose output is captured; it ends with the others."""
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def start(
        self,
        command: Sequence[str],
        *,
        port: int,
        pin: bool,
        env: Mapping[str, str],
        prefix: bool,
        log: IO[bytes] | None,
        cwd: str | None,
    ) -> None:
        """Start every copy. Its output goes to `log`, else to stderr, prefixed with the host or plain."""
        hosts = len(self._names)
        cores, threads = share_cores(hosts, pin)
        target = log.fileno() if log is not None else 2
        for host, name in enumerate(self._names):
            process = subprocess.Popen(
                inside(name, command, cores[host]),
                env={**os.environ, **rank_environment(host, hosts, port, threads), **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if prefix else target,
                stderr=subprocess.STDOUT if prefix else target,
                start_new_session=True,  # a Ctrl-C is the lab's to pass on, not the terminal's
                cwd=cwd,
            )
            self._processes.append(process)
            if prefix:
                reader = threading.Thread(target=_copy_lines, args=(process, host, target), daemon=True)
                reader.start()
                self._readers.append(reader)

    def wait(self, *, timeout_s: float | None, grace_s: float) -> int:
        """Wait for all; returns 0 or the code of the copy that failed first (128 + n: signal n; 124:
        timeout).

        Once a copy has failed the others have `grace_s` to notice, before they are stopped.
        """
        start = time.monotonic()
        deadline = None if timeout_s is None else start + timeout_s
        failed = 0
        while True:
            codes = [process.poll() for process in self._processes]
            if None not in codes:
                return failed or _first_failure(codes)
            now = time.monotonic()
            if not failed and (failed := _first_failure(codes)):
                deadline = min(now + grace_s, deadline if deadline is not None else now + grace_s)
            if deadline is not None and now >= deadline:
                what = f"a rank failed with code {failed}" if failed else f"COMMAND ran for {timeout_s:g} s"
                print(f"netlab: {what}: stopping the others", file=sys.stderr, flush=True)
                self.stop()
                return failed or TIMEOUT_RC
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End every process in the hosts' namespaces, whoever started it: SIGTERM, a while later SIGKILL."""
        if self._alive():
            self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _TERM_TO_KILL_S
        while self._alive():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(_POLL_S)
        for reader in self._readers:
            reader.join()

    def _alive(self) -> bool:
        own = [process.poll() for process in self._processes]  # poll also reaps
        return any(code is None for code in own) or any(namespaces.pids(name) for name in self._names)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)
        for name in self._names:
            for pid in namespaces.pids(name):
                namespaces.signal_pid(pid, number)


def _first_failure(codes: Sequence[int | None]) -> int:
    """The first non-zero code of those that ended, as a shell would give it; 0 if none."""
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _copy_lines(process: "subprocess.Popen[bytes]", host: int, target: int) -> None:
    """Copy one host's output with its name before every line; a line is one write, so hosts do not mix."""
    assert process.stdout is not None
    for line in process.stdout:
        os.write(target, b"[host %d] " % host + line.rstrip(b"\n") + b"\n")
    process.stdout.close()
