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
from sylvie_trace.job import Subject
from sylvie_trace.reader import read_run
from sylvie_trace.report import build, comparison

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


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run directories")


def _compare(options: argparse.Namespace, print_json: PrintJson) -> int:
    found = compare(subjects(options.runs))
    if options.json:
        print_json(found)
    else:
        comparison.render(found, Console())
    return 0


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace, PrintJson], int]]
_COMMANDS: dict[str, _Command] = {
    "compare": (
        "Compare the settings of several runs, in pairs of equal seed; the first run's setting is the baseline.",
        _add_runs,
        _compare,
    ),
}
