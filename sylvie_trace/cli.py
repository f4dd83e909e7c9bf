"""``sylvie-report``: reads a run, prints, writes; the analyses are elsewhere.

    sylvie-report RUN             summary on the terminal; report.html and report.json in the run directory
    sylvie-report validate RUN    schema, conservation, ages, causality: exit 0, or 1 with the first violation
    sylvie-report replay RUN      the controllers replayed from the log
    sylvie-report compare A B …, shuffled-mask RUN…, diagnose RUN, whatif RUN --link RATE   (``questions``)
    sylvie-report export RUN --to perfetto, import-nsys RUN FILE.sqlite   (``conversions``)

Each takes ``--json``. Exit codes: 0 done, 2 bad arguments or input with one line, 1 anything else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from sylvie_trace.audit import validate
from sylvie_trace.decision import RULES
from sylvie_trace.reader import TraceError, read_run
from sylvie_trace.replay import Replay, first_mismatch, replay
from sylvie_trace.report import build, json_, terminal
from sylvie_trace.run_dir import RunDir
from sylvie_trace.summary import run_parts

PROGRAM = "sylvie-report"
CONVERSIONS = ("export", "import-nsys")
QUESTIONS = ("compare", "shuffled-mask", "diagnose", "whatif")


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(arguments)
    except ValueError as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that was given, or the run's own, cannot be read or written
        if error.filename is None:
            raise
        print(f"{PROGRAM}: {error.filename}: {error.strerror}; choose a place that exists and is yours", file=sys.stderr)
        return 2


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {"validate": _validate, "replay": _replay}
    commands |= {name: partial(_question, name) for name in QUESTIONS}
    commands |= {name: partial(_conversion, name) for name in CONVERSIONS}
    words = [word for word in arguments if not word.startswith("-")]
    if words and words[0] in commands:
        arguments.remove(words[0])
        return commands[words[0]](arguments)
    if words and not Path(words[0]).exists():
        near = get_close_matches(words[0], commands, n=1)
        hint = f", did you mean {near[0]}?" if near else f": commands are {', '.join(commands)}"
        raise ValueError(f"{words[0]!r} is neither a run directory nor a command{hint}")
    return _report(arguments)


def _parser(command: str, description: str) -> _Parser:
    parser = _Parser(prog=f"{PROGRAM}{command}", description=description)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    return parser


def _question(name: str, arguments: list[str]) -> int:
    # Imported here: a summary must not wait for the statistics that only the questions use.
    from sylvie_trace.questions import ask

    return ask(name, arguments, PROGRAM, _Parser, _print_json)


def _conversion(name: str, arguments: list[str]) -> int:
    from sylvie_trace.conversions import convert

    return convert(name, arguments, PROGRAM, _Parser, _print_json)


def _print_json(document: object) -> None:
    sys.stdout.write(json_.dumps(document).decode())
    sys.stdout.flush()


def _report(arguments: list[str]) -> int:
    parser = _parser("", "Summarise a run and write report.html and report.json into its directory.")
    names = ("validate", "replay", *QUESTIONS, *CONVERSIONS)
    parser.epilog = f"Commands: {', '.join(names)}; each has its own --help."
    options = parser.parse_args(arguments)
    # Imported here: the other commands must not wait for the plotting library.
    from sylvie_trace.details import details
    from sylvie_trace.diagnose import diagnose
    from sylvie_trace.job import Subject
    from sylvie_trace.report import html

    run = read_run(options.run)
    parts = run_parts(run)
    report = build(run, parts)
    json_.write(report, RunDir(options.run).report_json)
    found = diagnose(Subject(options.run.resolve().name, run, report), parts)
    html.write(run, report, details(run, parts), RunDir(options.run).report_html, found)
    if options.json:
        _print_json(report)
    else:
        terminal.render(report, Console())
    return 0


def _validate(arguments: list[str]) -> int:
    options = _parser(" validate", "Check a run's records: exit 0, or 1 with the first violation.").parse_args(arguments)
    try:
        run = read_run(options.run)
    except TraceError as error:
        if not RunDir(options.run).trace.is_dir():
            raise
        violation: str | None = str(error)
        ranks = records = 0
    else:
        violation = next(validate(run), None)
        ranks, records = len(run.ranks), sum(trace.records for trace in run.ranks)
    if options.json:
        _print_json({"valid": violation is None, "violation": violation, "ranks": ranks, "records": records})
    else:
        print(violation if violation is not None else f"valid: {ranks} ranks, {records} records")
    return 0 if violation is None else 1


def _replay(arguments: list[str]) -> int:
    parser = _parser(" replay", "Replay the controllers from a run's log, as they were or changed.")
    parser.add_argument("--rule", choices=RULES, help="another rule")
    parser.add_argument("--delta", type=int, help="another δ, epochs")
    parser.add_argument("--lambda", dest="smoothing", type=float, help="another λ")
    parser.add_argument("--max-base", type=int, choices=(2, 4, 8), help="another end of the doubling")
    parser.add_argument("--constant-clock", action="store_true", help="every epoch takes as long as another")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the replay beside the log as one page of pictures")
    options = parser.parse_args(arguments)
    run = read_run(options.run)
    result = replay(
        run,
        rule=options.rule,
        delta=options.delta,
        smoothing=options.smoothing,
        max_base=options.max_base,
        constant_clock=options.constant_clock,
    )
    mismatch = first_mismatch(run)
    constant = replay(run, constant_clock=True)
    if options.html is not None:
        # Imported here: a line of text must not wait for the plotting library.
        from sylvie_trace.report.picture import write_replay

        write_replay(build(run), result, constant, options.html)
    if options.json:
        _print_json(
            {
                "config": result.config,
                "decided": result.decided,
                "differ": result.differ,
                "differs_share": result.differs_share,
                "first_difference": result.first_difference,
                "mean_base": result.mean_base,
                "constant_clock_differs": constant.differs_share,
                "log_follows_rule": mismatch is None,
                "mismatch": mismatch,
                "verdicts": result.verdicts,
            }
        )
    else:
        print(_describe(result, logged=replay(run)))
        print("the log follows its rule" if mismatch is None else f"the log does not follow its rule: {mismatch}")
        print(f"with a constant clock {terminal.percent(constant.differs_share)} of the decisions differ")
    return 0


def _describe(result: Replay, logged: Replay) -> str:
    adapts = result.config.bits is None
    return (
        f"{result.config.description}: {result.differ} of {result.decided} decisions differ from the log"
        + (f", first in epoch {result.first_difference}" if result.first_difference is not None else "")
        + (f"; mean base {result.mean_base:.2f} bits (log: {logged.mean_base:.2f})" if adapts and result.mean_base else "")
    )
