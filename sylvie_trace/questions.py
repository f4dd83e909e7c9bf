"""The subcommands that answer a question about one or more runs: read, compute elsewhere, print.

compare A B …        settings against each other, over repeats
shuffled-mask RUN …  does it matter which nodes get more bits
diagnose RUN         which link of the causal chain breaks, and why
whatif RUN           an epoch's time on another link, at other bits, under another schedule
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from sylvie_trace.compare import compare
from sylvie_trace.diagnose import diagnose
from sylvie_trace.job import Subject
from sylvie_trace.reader import read_run
from sylvie_trace.report import build, comparison, diagnosis, shuffled_text
from sylvie_trace.shuffled import shuffled_mask
from sylvie_trace.summary import run_parts

PrintJson = Callable[[object], None]


def ask(name: str, arguments: Sequence[str], program: str, kind: type[argparse.ArgumentParser], print_json: PrintJson) -> int:
    """Run the subcommand ``name`` of ``program``; returns the exit code. ``ValueError`` in one line for bad input."""
    description, add, answer = _COMMANDS[name]
    parser = kind(prog=f"{program} {name}", description=description)
    add(parser)
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    return answer(parser.parse_args(list(arguments)), print_json)


def subjects(paths: Sequence[Path]) -> list[Subject]:
    """The named runs, read and summed up, each called by the shortest tail of its path that is its own."""
    names = [path.resolve().parts for path in paths]
    if len(set(names)) < len(names):
        raise ValueError("a run is named twice: name each one once")
    depth = 1
    while len({parts[-depth:] for parts in names}) < len(names):
        depth += 1
    found = []
    for path, parts in zip(paths, names, strict=True):
        run = read_run(path)
        found.append(Subject("/".join(parts[-depth:]), run, build(run)))
    return found


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run directories")


def _compare(options: argparse.Namespace, print_json: PrintJson) -> int:
    found = compare(subjects(options.runs))
    if options.json:
        print_json(found)
    else:
        comparison.render(found, Console())
    return 0


def _shuffled(options: argparse.Namespace, print_json: PrintJson) -> int:
    found = shuffled_mask(subjects(options.runs))
    if options.json:
        print_json(found)
    else:
        shuffled_text.render(found, Console())
    return 0


def _add_diagnose(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--against", metavar="RUN", type=Path, help="a run of an exact system on the same job")


def _diagnose(options: argparse.Namespace, print_json: PrintJson) -> int:
    paths = [options.run] if options.against is None else [options.run, options.against]
    subject, *rest = subjects(paths)
    found = diagnose(subject, run_parts(subject.run), rest[0] if rest else None)
    if options.json:
        print_json(found)
    else:
        diagnosis.render(found, Console())
    return 0


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace, PrintJson], int]]
_COMMANDS: dict[str, _Command] = {
    "compare": (
        "Compare the settings of several runs, in pairs of equal seed; the first run's setting is the baseline.",
        _add_runs,
        _compare,
    ),
    "shuffled-mask": (
        "The degree mask against its shuffles at a fixed base, sync: does it matter which nodes get more bits?",
        _add_runs,
        _shuffled,
    ),
    "diagnose": (
        "Judge the causal chain of a run link by link, and name what breaks it.",
        _add_diagnose,
        _diagnose,
    ),
}
