"""Run many training settings, each once: what is complete on disk is not run again.

Below one output directory, a setting whose name is NAME leaves

    runs/NAME/        the run directory that sylvie-train writes, with the report.json of sylvie-report
    runs/NAME.json    the setting, and what its emulated link carried
    logs/NAME.log     the program's output

NAME holds a hash of the options, so that a changed setting never meets an old result.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from analysis.netlab import NetLab
from analysis.netlab.ranks import TIMEOUT_RC
from analysis.run_files import is_complete, read_json, says_complete, write_atomically
from analysis.settings import Outcome, Setting

_TERM_TO_KILL_S = 5.0


class Driver:
    """Runs settings below `out` and collects their reports.

    train, report   the two programs; a report program gets RUN_DIR --json and prints one JSON object
    timeout_s       for one run; a run that takes longer has failed
    keep_going      a failed run becomes an Outcome with an `error`; otherwise it raises RuntimeError
    """

    def __init__(
        self,
        out: Path,
        *,
        train: Sequence[str] = (sys.executable, "-m", "sylvie"),
        report: Sequence[str] = (sys.executable, "-m", "sylvie_trace"),
        timeout_s: float | None = None,
        keep_going: bool = False,
    ) -> None:
        self.out = out.resolve()
        self._train = tuple(train)
        self._report = tuple(report)
        self._timeout_s = timeout_s
        self._keep_going = keep_going

    def run(self, settings: Sequence[Setting]) -> list[Outcome]:
        """One Outcome a setting, in their order.

        A network is opened when the first setting that must run needs it, and kept while the next ones need
        the same: a resumed study that has all its runs needs neither root nor a network. Raises ValueError
        where a network is needed and cannot be made, RuntimeError for a failed run,
        or when another driver is at work in the same directory.
        """
        outcomes = []
        with _sole_user(self.out), ExitStack() as stack:
            lab: NetLab | None = None
            for number, setting in enumerate(settings, 1):
                known = self._known(setting)
                if known is None and setting.rate is not None and not _fits(lab, setting):
                    stack.close()
                    lab = stack.enter_context(NetLab(setting.hosts, setting.rate))
                outcome = known or self._fresh(setting, lab if setting.rate is not None else None)
                outcomes.append(outcome)
                state = outcome.error or ("already complete" if outcome.reused else "done")
                print(f"[{number}/{len(settings)}] {setting.name}: {state}", file=sys.stderr, flush=True)
                if outcome.error and not self._keep_going:
                    raise RuntimeError(f"run {setting.name} failed: {outcome.error}")
        return outcomes

    def _known(self, setting: Setting) -> Outcome | None:
        """The outcome on disk of a complete run."""
        run_dir = self.out / "runs" / setting.name
        record = read_json(run_dir.with_name(f"{setting.name}.json"))
        if record is None or not is_complete(run_dir):
            return None
        report, error = self._collect(run_dir)
        return Outcome(
            setting=setting, run_dir=run_dir, report=report, link=record["link"], error=error, reused=True
        )

    def _fresh(self, setting: Setting, lab: NetLab | None) -> Outcome:
        """Run a setting; a half-finished attempt is removed, because a used run directory is refused."""
        run_dir = self.out / "runs" / setting.name
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        log = self.out / "logs" / f"{setting.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self._train, *setting.arguments(run_dir)]
        rc, link = self._execute(command, log, lab)
        if rc != 0 or not is_complete(run_dir):
            why = f"exit code {rc}" if rc else "it left no complete run"
            return Outcome(setting=setting, run_dir=run_dir, report=None, error=f"{why}: {_last_line(log)}")
        record = {"command": shlex.join(command), "label": setting.label, "seed": setting.seed, "link": link}
        write_atomically(run_dir.with_name(f"{setting.name}.json"), json.dumps(record, indent=1) + "\n")
        report, error = self._collect(run_dir)
        return Outcome(setting=setting, run_dir=run_dir, report=report, link=link, error=error)

    def _execute(
        self, command: list[str], log: Path, lab: NetLab | None
    ) -> tuple[int, dict[str, Any] | None]:
        with log.open("wb") as stream:
            if lab is not None:
                result = lab.run(command, timeout_s=self._timeout_s, log=stream, prefix=True)
                return result.rc, result.as_dict()
            return _run_locally(command, stream, self._timeout_s), None

    def _collect(self, run_dir: Path) -> tuple[dict[str, Any] | None, str | None]:
        """The report of a complete run, from its report.json or made now; else one line that says why not."""
        report = read_json(run_dir / "report.json")
        if report is not None and says_complete(report):
            return report, None
        done = subprocess.run(
            [*self._report, str(run_dir), "--json"], capture_output=True, text=True, check=False
        )
        try:
            report = json.loads(done.stdout)
        except ValueError:
            lines = done.stderr.strip().splitlines() or ["it printed no JSON"]
            return None, f"no report (exit code {done.returncode}): {lines[-1]}"
        write_atomically(run_dir / "report.json", json.dumps(report) + "\n")
        return report, None


@contextmanager
def _sole_user(out: Path) -> Iterator[None]:
    """Hold the directory: two drivers would remove each other's half-finished runs."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"{out} is in use by another driver: wait for it, or give another directory"
            ) from None
        yield


def _run_locally(command: Sequence[str], log: IO[bytes], timeout_s: float | None) -> int:
    """The exit code of a local run, 124 after `timeout_s`; however it ends, the ranks it started end too."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return TIMEOUT_RC
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # the whole session: a launcher's ranks as well
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TERM_TO_KILL_S)


def _fits(lab: NetLab | None, setting: Setting) -> bool:
    return lab is not None and (lab.hosts, lab.rate.text) == (setting.hosts, setting.rate)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1]} ({log})" if lines else f"no output ({log})"
