"""Mirrors a run to Weights & Biases, from a process of its own that reads rank 0's trace.

The trace is the record, this a copy of it: whatever fails here becomes a line on stdout, and training neither waits nor
notices. ``python -m sylvie_trace.export.wandb_ RUN --mode offline --follow`` mirrors a run while it trains and ends with it
(stdin is closed when whoever started it is done or dead); without ``--follow`` it sends a finished run.

Every value is logged with its ``epoch``, which is the axis; W&B's own step is never given.
"""

from __future__ import annotations

import argparse
import contextlib
import netrc
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import msgspec

from sylvie_trace.export.tail import EpochRecord, follow
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import ASYNC, Bits, Decision, Epoch, Fault, Footer

MODES = ("offline", "online")
#: Seconds to look for the server, to begin a run there, and to end one once training is over.
PROBE_S, BEGIN_S, END_S = 3.0, 20.0, {"offline": 90.0, "online": 90.0}
_SERVER = "https://api.wandb.ai"
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_WIDTHS = (1, 2, 4, 8, 32, 64)
#: Edges of the histogram's bins: each holds one width.
_EDGES = (0.5, 1.5, 3.0, 6.0, 16.0, 48.0, 80.0)

Say = Callable[[str], None]


def check_mode(mode: str, environment: Mapping[str, str] = os.environ, home: Path | None = None) -> None:
    """``ValueError`` when ``mode`` is online and there is no key to log in with."""
    if mode != "online" or environment.get("WANDB_API_KEY"):
        return
    host = urlsplit(environment.get("WANDB_BASE_URL", _SERVER)).hostname or ""
    file = Path(environment["NETRC"]) if "NETRC" in environment else (home or Path.home()) / ".netrc"
    try:
        known = netrc.netrc(str(file)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        known = False
    if not known:
        raise ValueError(f"--wandb online needs a key for {host}: run wandb login, or use --wandb offline")


def reachable(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the server takes a connection; taken for granted behind a proxy."""
    if any(environment.get(name) for name in _PROXIES):
        return True
    url = urlsplit(environment.get("WANDB_BASE_URL", _SERVER))
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        with socket.create_connection((url.hostname or "", port), timeout=PROBE_S):
            return True
    except OSError:
        return False


def epoch_values(epoch: Epoch, bits: Bits | None, decision: Decision | None, forced: bool) -> dict[str, Any]:
    """What is logged of an epoch, by W&B's names; bytes and widths are rank 0's. Unknown values are left out."""
    values: dict[str, float | int | None] = {
        "epoch": epoch.epoch,
        "train/loss": epoch.loss,
        "train/smoothed_loss": epoch.smoothed_loss,
        "train/ldr": epoch.ldr,
        "train/descent_rate": epoch.descent_rate,
        "time/epoch_s": epoch.et_wall_s,
        "time/rule_s": epoch.et_s,
        "controller/base_bits": epoch.base_bits,
        "controller/async": int(epoch.mode == ASYNC),
        "controller/forced_sync": int(forced),
        "bytes_rank0/main": epoch.main_bytes,
        "bytes_rank0/metadata": epoch.meta_bytes,
        "bytes_rank0/headers": epoch.header_bytes,
        "bytes_rank0/gradient_allreduce": epoch.gradient_allreduce_bytes,
        "bytes_rank0/fp32_equivalent": epoch.fp32_equivalent_bytes,
        **{f"quality/{split}": value for split, value in epoch.metrics.items()},
    }
    if decision is not None:
        values["controller/next_base_bits"] = decision.base_after
    if bits is not None:
        rows = sum(bits.histogram.values())
        mean = sum(int(width) * number for width, number in bits.histogram.items())
        values["bits_rank0/mean"] = mean / rows if rows else None
    return {name: value for name, value in values.items() if value is not None}


def bit_counts(bits: Bits) -> list[int]:
    """Rows by width, in the histogram's order of bins."""
    return [bits.histogram.get(str(width), 0) for width in _WIDTHS]


class _Job:
    """One W&B run; begun with the first epoch, so that a refused run leaves nothing behind."""

    def __init__(self, run_dir: RunDir, mode: str, say: Say) -> None:
        self._run_dir, self._mode, self._say = run_dir, mode, say
        self._run: Any = None
        self._epoch: Epoch | None = None
        self._bits: Bits | None = None
        self._decision: Decision | None = None
        self._forced = False
        self.complete = False
        self.epochs = 0

    def take(self, record: EpochRecord) -> None:
        """One record of the trace. An epoch is sent when its bits and its decision are there, at the latest with the next."""
        if isinstance(record, Epoch):
            self._flush()
            self._epoch = record
        elif isinstance(record, Bits):
            self._bits = record
        elif isinstance(record, Decision):
            self._decision = record
        elif isinstance(record, Fault):
            self._say(f"the run failed in epoch {record.epoch}: its mirror ends there")
        elif isinstance(record, Footer):
            self.complete = record.complete
        if self._bits is not None and self._decision is not None:
            self._flush()

    def _flush(self) -> None:
        epoch, bits, decision = self._epoch, self._bits, self._decision
        self._epoch = self._bits = self._decision = None
        if epoch is None:
            return
        values = epoch_values(epoch, bits, decision, self._forced)
        if bits is not None:
            values["bits_rank0/histogram"] = self._wandb().Histogram(np_histogram=(bit_counts(bits), list(_EDGES)))
        self._begun().log(values)
        self.epochs += 1
        self._forced = decision is not None and decision.forced_sync

    def _wandb(self) -> Any:
        import wandb

        return wandb

    def _begun(self) -> Any:
        """The W&B run; online falls back to offline when the server refuses or does not answer."""
        if self._run is None:
            try:
                self._run = self._begin(self._mode)
            except Exception as error:
                if self._mode == "offline":
                    raise
                self._say(f"the server cannot be used ({_line(error)}): mirrored offline, send it later with wandb sync")
                self._run = self._begin("offline")
        return self._run

    def _begin(self, mode: str) -> Any:
        wandb, target = self._wandb(), Path(os.environ.get("WANDB_DIR", str(self._run_dir.path)))
        _check_writable(target)
        info = msgspec.json.decode(self._run_dir.run_json.read_bytes())
        config = {key: info[key] for key in ("config", "describes", "dataset", "partition", "boundary", "git") if key in info}
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            init_timeout=BEGIN_S,
            login_timeout=BEGIN_S,
        )
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "sylvie"),
            name=self._run_dir.path.resolve().name,
            dir=str(target),
            mode=mode,
            config=config,
            settings=settings,
        )
        run.define_metric("epoch")
        run.define_metric("*", step_metric="epoch")
        return run

    def close(self) -> None:
        """Tables, figures and the report of the whole run, then the end."""
        self._flush()
        if self._run is None:
            return
        try:
            self._attach()
        except Exception as error:
            self._say(f"its report could not be attached: {_line(error)}")
        where = self._run.settings.sync_dir if self._run.settings.mode == "offline" else self._run.url
        self._run.finish(exit_code=0 if self.complete else 1)
        self._say(f"{self.epochs} epochs mirrored: {where}")

    def _attach(self) -> None:
        # Imported here: reading whole runs and drawing is needed at the end only.
        from sylvie_trace.export.wandb_tables import attach

        attach(self._run, self._run_dir)


def _check_writable(directory: Path) -> None:
    """W&B would take another directory and say so to nobody."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(f"{directory} cannot be written ({error.strerror}): set WANDB_DIR to another directory") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def mirror(run_path: Path, mode: str, say: Say, ended: Callable[[], bool]) -> int:
    """Mirror a run until it ends; 0, or 1 after saying why it stopped."""
    run_dir = RunDir(run_path)
    if mode == "online" and not reachable():
        say("the server does not answer: mirrored offline, send it later with wandb sync")
        mode = "offline"
    job = _Job(run_dir, mode, say)
    try:
        for record in follow(run_dir.trace_file(0), ended):
            job.take(record)
        job.close()
    except Exception as error:
        say(f"the mirror stopped: {_line(error)}")
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The mirroring process."""
    parser = argparse.ArgumentParser(prog="python -m sylvie_trace.export.wandb_", description="Mirror a run to W&B.")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument("--mode", choices=MODES, default="offline", help="offline or online (offline)")
    parser.add_argument("--follow", action="store_true", help="follow a run in training until stdin is closed")
    options = parser.parse_args(arguments)
    said = os.fdopen(os.dup(1), "w", buffering=1)
    if not options.follow:
        return mirror(options.run, options.mode, lambda text: _tell(said, text), lambda: True)
    os.nice(5)  # behind the ranks, yet not starved by a busy host
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ends with the run, not before it
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what W&B prints is not for the run's terminal
    ended = threading.Event()
    threading.Thread(target=_watch, args=(ended, END_S[options.mode]), daemon=True).start()
    return mirror(options.run, options.mode, lambda text: _tell(said, text), ended.is_set)


def _watch(ended: threading.Event, patience_s: float) -> None:
    """Wait for the end of stdin; some time after it this process ends, whatever it hangs in."""
    while os.read(0, 4096):
        pass
    ended.set()
    time.sleep(patience_s)
    os._exit(1)


def _tell(target: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody need be listening any more
        target.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
