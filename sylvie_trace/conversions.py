"""The subcommands that carry a run to other tools and back.

export RUN --to perfetto     the timeline, for ui.perfetto.dev or chrome://tracing
import-nsys RUN FILE.sqlite  an Nsight Systems export, laid beside our records
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from sylvie_trace.export import perfetto
from sylvie_trace.reader import read_run
from sylvie_trace.run_dir import RunDir

PrintJson = Callable[[object], None]


def convert(
    name: str, arguments: Sequence[str], program: str, kind: type[argparse.ArgumentParser], print_json: PrintJson
) -> int:
    """Run the subcommand ``name`` of ``program``; returns the exit code. ``ValueError`` in one line for bad input."""
    description, add, run = _COMMANDS[name]
    parser = kind(prog=f"{program} {name}", description=description)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    add(parser)
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    return run(parser.parse_args(list(arguments)), print_json)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", choices=("perfetto",), default="perfetto", help="the format (perfetto)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where to write (RUN/perfetto.json); .gz is compressed")
    parser.add_argument("--epochs", metavar="A:B", help="epochs A to B - 1 only (all)")


def _export(options: argparse.Namespace, print_json: PrintJson) -> int:
    epochs = None if options.epochs is None else _epochs(options.epochs)
    run = read_run(options.run)
    path = options.output or RunDir(options.run).path / "perfetto.json"
    if not path.parent.is_dir():
        raise ValueError(f"--output {path}: {path.parent} is not a directory: make it first")
    done = perfetto.export(run, path, epochs)
    if options.json:
        print_json({**asdict(done), "path": str(done.path)})
        return 0
    further = f", {done.further_tracks} further tracks for what overlaps" if done.further_tracks else ""
    print(f"{done.path}: {done.slices} slices, {done.messages} messages{further}")
    if done.untimed_messages:
        print(f"{done.untimed_messages} messages are left out: their times on the wire are not recorded")
    return 0


def _epochs(text: str) -> range:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"--epochs {text!r} is no range: give A:B with A below B, such as 10:20")
    return range(int(match[1]), int(match[2]))


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace, PrintJson], int]]
_COMMANDS: dict[str, _Command] = {
    "export": ("Write a run's timeline for another tool.", _add_export, _export),
}
