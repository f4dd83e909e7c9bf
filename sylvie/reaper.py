"""Reaper: ends a local rank that was told to end and does not, because it is stopped or stuck.

torchrun's launcher waits half a minute for such a process; a pending SIGTERM tells it apart from one that is still working.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

_PERIOD_S = 0.5
_PATIENCE = 4  # looks at a pending SIGTERM before SIGKILL


class Reaper:
    """A thread that watches this process's children while it is entered; Linux only, elsewhere it sees none.

    ``ended`` holds the processes that it had to kill.
    """

    def __init__(self, children: int) -> None:
        self._wanted, self._pids, self._seen = children, set[int](), dict[int, int]()
        self.ended = set[int]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reaper", daemon=True)

    def __enter__(self) -> Reaper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            if len(self._pids) < self._wanted:
                self._pids |= _children(os.getpid())
            for pid in self._pids:
                self._seen[pid] = self._seen.get(pid, 0) + 1 if _told_to_end(pid) else 0
                if self._seen[pid] >= _PATIENCE:
                    self.ended.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def _children(parent: int) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        if _status(int(entry.name)).get("PPid") == str(parent):
            found.add(int(entry.name))
    return found


def _told_to_end(pid: int) -> bool:
    """Whether a SIGTERM waits for a child of ours."""
    status = _status(pid)
    return status.get("PPid") == str(os.getpid()) and bool(int(status.get("ShdPnd", "0"), 16) >> (signal.SIGTERM - 1) & 1)


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
