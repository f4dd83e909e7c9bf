"""The lab: build the network, measure it, run a command on it, count what crossed it, take it down."""

import itertools
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from analysis.netlab import namespaces, probe
from analysis.netlab.namespaces import HostCounters
from analysis.netlab.ranks import BASE_PORT, Ranks, inside, share_cores
from analysis.netlab.rate import parse_rate

MAX_HOSTS = 250
_MEASURE_S = 1.25
_WARMUP_S = 0.6
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_serial = itertools.count()  # two labs of one process need two names


@dataclass(frozen=True, kw_only=True)
class LabResult:
    """One COMMAND on the lab: `rc` as in `Ranks.wait`; counters are eth0's differences over COMMAND alone.

    `goodput_bytes_per_s` is None for a single host, which has no peer to measure against.
    """

    rate: str
    goodput_bytes_per_s: float | None
    rc: int
    hosts: tuple[HostCounters, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form that `--json` prints."""
        return {
            "rate": self.rate,
            "goodput_bytes_per_s": self.goodput_bytes_per_s,
            "rc": self.rc,
            "hosts": [host.as_dict() for host in self.hosts],
        }


class NetLab:
    """`hosts` emulated machines, each on a link of `rate` to one switch.

        with NetLab(2, "200mbit") as lab:
            result = lab.run([sys.executable, "-m", "sylvie", "quickstart"])

    On entry it removes what dead labs left, builds its own network, and turns SIGTERM and SIGHUP into
    SystemExit (in the main thread) until it is closed, so that every way out but SIGKILL passes its clean-up.
    What SIGKILL leaves: no COMMAND, but namespaces, which the next lab removes.

    Raises ValueError for a bad `hosts` or `rate`, without root, or without the tools; RuntimeError when the
    kernel refuses a part of the network.
    """

    def __init__(self, hosts: int, rate: str, *, pin_cores: bool = True) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"--hosts {hosts} is out of range: give 1 to {MAX_HOSTS}")
        self.rate = parse_rate(rate)
        if (reason := namespaces.why_unavailable()) is not None:
            raise ValueError(reason)
        self.hosts = hosts
        self.pin_cores = pin_cores
        self.prefix = namespaces.own_prefix(next(_serial))
        self.goodput_bytes_per_s: float | None = None
        self._names: tuple[str, ...] = ()
        self._old_handlers: dict[signal.Signals, Any] = {}
        self._ports = itertools.count(BASE_PORT)  # a new one each run: the last one's port may linger

    def __enter__(self) -> "NetLab":
        namespaces.remove_stale()
        self._catch_signals()
        try:
            self._names = namespaces.create(self.prefix, self.hosts, self.rate)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the lab's processes and namespaces; a signal that arrives meanwhile waits until then."""
        with _signals_held():
            namespaces.remove(self.prefix)
            self._names = ()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers = {}

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._old_handlers[number] = signal.signal(number, _leave)

    def measure_goodput(self) -> float | None:
        """TCP payload bytes per second of the slower direction between hosts 0 and 1, both used at once.

        About 2 s; also kept as `goodput_bytes_per_s`. None with a single host. An exchange ends when both its
        directions have ended, hence the slower one.
        """
        if self.hosts == 1:
            return None
        warmup = _WARMUP_S + 2 * self.rate.drain_s
        cores, _ = share_cores(self.hosts, self.pin_cores)
        # A slow link delivers in lumps: a stretch of the probe must hold several.
        measure = max(_MEASURE_S, 40 * self.rate.segment_s)
        times = (str(warmup), str(measure))
        with Ranks(self._names) as guard:
            ends = []
            for host, role in enumerate(("listen", "connect")):
                words = [sys.executable, "-I", probe.__file__, role, namespaces.address(0), *times]
                ends.append(guard.popen(inside(self._names[host], words, cores[host])))
            # One line each, or none from an end that failed: it gives up by itself when nothing arrives.
            speeds = [end.stdout.readline() for end in ends if end.stdout is not None]
        errors = [end.communicate()[1].decode(errors="replace").strip() for end in ends]
        if not all(speeds):
            reason = errors[0 if not speeds[0] else 1].splitlines() or ["it ended without a word"]
            raise RuntimeError(f"the goodput probe failed on the {self.rate.text} link: {reason[-1]}")
        self.goodput_bytes_per_s = min(map(float, speeds))
        return self.goodput_bytes_per_s

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float | None = None,
        grace_s: float = 90.0,
        env: Mapping[str, str] | None = None,
        prefix: bool = False,
        log: IO[bytes] | None = None,
        cwd: str | Path | None = None,
    ) -> LabResult:
        """Run one copy of `command` a host to its end, with torchrun's environment and a share of the cores.

        The first call measures the goodput before. Output of both kinds goes to `log` or, without one, to
        stderr. Raises ValueError if there is no such program.
        """
        check_command(command)
        assert self._names, "run() inside `with NetLab(...)`"
        if self.goodput_bytes_per_s is None:
            self.measure_goodput()
        before = namespaces.settled_counters(self._names, self.rate.segment_s)
        with Ranks(self._names) as ranks:
            ranks.start(
                command,
                port=next(self._ports),
                pin=self.pin_cores,
                env=env or {},
                prefix=prefix,
                log=log,
                cwd=None if cwd is None else str(cwd),
            )
            rc = ranks.wait(timeout_s=timeout_s, grace_s=grace_s)
        after = namespaces.settled_counters(self._names, self.rate.segment_s)
        counters = tuple(late.since(early) for late, early in zip(after, before, strict=True))
        return LabResult(
            rate=self.rate.text, goodput_bytes_per_s=self.goodput_bytes_per_s, rc=rc, hosts=counters
        )


def check_command(command: Sequence[str]) -> None:
    """Raises ValueError if there is no command, or no such program."""
    if not command:
        raise ValueError("no COMMAND given: put it after `--`, as in `--hosts 2 --rate 200mbit -- COMMAND`")
    if shutil.which(command[0]) is None:
        raise ValueError(
            f"COMMAND {command[0]!r} is not a program on the PATH: check its spelling or give its path"
        )


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _signals_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
