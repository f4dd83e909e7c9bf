"""Run many training settings, each once: what is complete on disk is not run again.

Below one output directory, a setting whose name is NAME leaves

    runs/NAME/        the run directory that sylvie-train writes, with the report.json of sylvie-report
    runs/NAME.json    the setting, and what its emulated link carried
    logs/NAME.log     the program's output

NAME holds a hash of the options, so that a changed setting never meets an old result. Settings on local ranks run in
batches, the same processes for all (`analysis.batch`); those in an emulated network start one by one.
"""

import fcntl
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from analysis.jobs import Job, run_watched, write_jobs
from analysis.netlab import NetLab
from analysis.run_files import is_complete, read_json, says_complete, write_atomically
from analysis.settings import Outcome, Setting
from sylvie_trace.reader import read_run
from sylvie_trace.report import build, json_

_TRAIN = (sys.executable, "-m", "sylvie")
_BATCH = (sys.executable, "-m", "analysis.batch")


class Driver:
    """Runs settings below `out` and collects their reports.

    train, report   the two programs; a report program gets RUN_DIR --json and prints one JSON object (None: the report
                    is computed in this process)
    batch           the program that runs a batch file; None: every setting starts by itself (always so with another train)
    timeout_s       for one run; a run that takes longer has failed
    keep_going      a failed run becomes an Outcome with an `error`; otherwise it raises RuntimeError
    """

    def __init__(
        self,
        out: Path,
        *,
        train: Sequence[str] = _TRAIN,
        report: Sequence[str] | None = None,
        batch: Sequence[str] | None = _BATCH,
        timeout_s: float | None = None,
        keep_going: bool = False,
    ) -> None:
        self.out = out.resolve()
        self._train = tuple(train)
        self._report = None if report is None else tuple(report)
        self._batch = tuple(batch) if batch is not None and self._train == _TRAIN else None
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
            fresh = self._in_batches(settings)
            for number, setting in enumerate(settings, 1):
                known = fresh.get(setting.name) or self._known(setting)
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
        run_dir = self._run_dir(setting)
        record = read_json(run_dir.with_name(f"{setting.name}.json"))
        if record is None or not is_complete(run_dir):
            return None
        report, error = self._collect(run_dir)
        return Outcome(setting=setting, run_dir=run_dir, report=report, link=record["link"], error=error, reused=True)

    def _in_batches(self, settings: Sequence[Setting]) -> dict[str, Outcome]:
        """Run what needs no network in batches of equal ranks, until each setting is done or has failed."""
        outcomes: dict[str, Outcome] = {}
        waiting: dict[int, dict[str, Setting]] = {}
        for setting in settings:
            if self._batch is not None and setting.rate is None and self._known(setting) is None:
                waiting.setdefault(setting.hosts, {})[setting.name] = setting
        for parts, group in waiting.items():
            while group:
                if len(group) == 1 and all(each.session is None for each in group.values()):
                    break  # a start by itself tells its errors best
                done = self._run_batch(parts, list(group.values()))
                outcomes |= done
                group = {name: each for name, each in group.items() if name not in done}
                if any(outcome.error for outcome in done.values()) and not self._keep_going:
                    return outcomes
        return outcomes

    def _run_batch(self, parts: int, settings: Sequence[Setting]) -> dict[str, Outcome]:
        """One start of the ranks for many settings; the outcomes up to the first that failed."""
        jobs = [
            Job(
                arguments=tuple(each.arguments(self._run_dir(each))),
                run_dir=self._run_dir(each),
                log=self._log(each),
                session=each.session,
            )
            for each in settings
        ]
        file = self.out / "batches" / f"{settings[0].name}.json"
        write_jobs(file, parts, jobs)
        log = file.with_suffix(".log")
        assert self._batch is not None
        with log.open("wb") as stream:
            rc = run_watched([*self._batch, str(file)], stream, timeout_s=self._timeout_s, jobs=jobs)
        outcomes: dict[str, Outcome] = {}
        for setting, job in zip(settings, jobs, strict=True):
            if not job.complete:
                outcomes[setting.name] = _failed(setting, job.run_dir, rc, log)
                break
            outcomes[setting.name] = self._finished(setting, [*_TRAIN, *job.arguments], None)
        return outcomes

    def _run_dir(self, setting: Setting) -> Path:
        return self.out / "runs" / setting.name

    def _log(self, setting: Setting) -> Path:
        return self.out / "logs" / f"{setting.name}.log"

    def _fresh(self, setting: Setting, lab: NetLab | None) -> Outcome:
        """Run a setting; a half-finished attempt is removed, because a used run directory is refused."""
        run_dir, log = self._run_dir(setting), self._log(setting)
        if setting.session is not None:
            raise ValueError(f"setting {setting.label!r}: a session of its own needs local ranks and sylvie-train")
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self._train, *setting.arguments(run_dir)]
        rc, link = self._execute(command, log, lab)
        if rc != 0 or not is_complete(run_dir):
            return _failed(setting, run_dir, rc, log)
        return self._finished(setting, command, link)

    def _finished(self, setting: Setting, command: Sequence[str], link: dict[str, Any] | None) -> Outcome:
        """Note how a complete run came about, and collect its report."""
        run_dir = self._run_dir(setting)
        record = {"command": shlex.join(command), "label": setting.label, "seed": setting.seed, "link": link}
        write_atomically(run_dir.with_name(f"{setting.name}.json"), json.dumps(record, indent=1) + "\n")
        report, error = self._collect(run_dir)
        return Outcome(setting=setting, run_dir=run_dir, report=report, link=link, error=error)

    def _execute(self, command: list[str], log: Path, lab: NetLab | None) -> tuple[int, dict[str, Any] | None]:
        with log.open("wb") as stream:
            if lab is not None:
                result = lab.run(command, timeout_s=self._timeout_s, log=stream, prefix=True)
                return result.rc, result.as_dict()
            return run_watched(command, stream, timeout_s=self._timeout_s), None

    def _collect(self, run_dir: Path) -> tuple[dict[str, Any] | None, str | None]:
        """The report of a complete run, from its report.json or made now; else one line that says why not."""
        report = read_json(run_dir / "report.json")
        if report is not None and says_complete(report):
            return report, None
        if self._report is None:
            return _report_of(run_dir)
        done = subprocess.run([*self._report, str(run_dir), "--json"], capture_output=True, text=True, check=False)
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
            raise RuntimeError(f"{out} is in use by another driver: wait for it, or give another directory") from None
        yield


def _report_of(run_dir: Path) -> tuple[dict[str, Any] | None, str | None]:
    """Compute and write the report of a run; None and one line where it cannot be read."""
    try:
        json_.write(build(read_run(run_dir)), run_dir / "report.json")
    except ValueError as error:
        return None, f"no report: {' '.join(str(error).split())}"
    return read_json(run_dir / "report.json"), None


def _failed(setting: Setting, run_dir: Path, rc: int, log: Path) -> Outcome:
    why = f"exit code {rc}" if rc else "it left no complete run"
    return Outcome(setting=setting, run_dir=run_dir, report=None, error=f"{why}: {_last_line(log)}")


def _fits(lab: NetLab | None, setting: Setting) -> bool:
    return lab is not None and (lab.hosts, lab.rate.text) == (setting.hosts, setting.rate)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1]} ({log})" if lines else f"no output ({log})"
