"""The subcommands that answer a question about one or more runs: read, compute elsewhere, print.

compare A B …        settings against each other, over repeats
shuffled-mask RUN …  does it matter which nodes get more bits
diagnose RUN         which link of the causal chain breaks, and why
whatif RUN           an epoch's time on another link, at other bits, under another schedule
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from sylvie_trace.compare import compare
from sylvie_trace.diagnose import diagnose
from sylvie_trace.job import Subject
from sylvie_trace.reader import read_run
from sylvie_trace.report import build, comparison, diagnosis, prediction, shuffled_text
from sylvie_trace.shuffled import shuffled_mask
from sylvie_trace.summary import run_parts
from sylvie_trace.whatif import GOODPUT_SHARE, Scenario, own_goodput, parse_rate, whatif

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


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_runs(parser)
    parser.add_argument("--html", metavar="FILE", type=Path, help="write curves and the Pareto plot as one page")


def _compare(options: argparse.Namespace, print_json: PrintJson) -> int:
    found = compare(subjects(options.runs))
    if options.html is not None:
        # Imported here: a table must not wait for the plotting library.
        from sylvie_trace.report.picture import write_comparison

        write_comparison(found, options.html)
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


def _add_whatif(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--link", metavar="RATE", help="nominal rate of every link, such as 200mbit (the run's own)")
    parser.add_argument("--latency", metavar="S", type=float, help="one-way latency in seconds (the run's own)")
    parser.add_argument("--burst", metavar="BYTES", type=int, default=0, help="burst of a shaped link (0)")
    parser.add_argument("--bits", metavar="B", type=int, help="width of every row: 1, 2, 4, 8 or 32 (as in the run)")
    parser.add_argument("--schedule", choices=("sync", "async"), help="mode of every epoch (as in the run)")
    parser.add_argument("--ranks", metavar="N", type=int, help="number of ranks, a rough guess (as in the run)")


def _whatif(options: argparse.Namespace, print_json: PrintJson) -> int:
    run = read_run(options.run)
    scenario = Scenario(
        goodput=own_goodput(run) if options.link is None else parse_rate(options.link) * GOODPUT_SHARE,
        latency_s=options.latency,
        burst_bytes=options.burst,
        bits=options.bits,
        schedule=options.schedule,
        ranks=options.ranks,
    )
    found = whatif(run, scenario)
    if options.json:
        print_json({"scenario": asdict(scenario), **asdict(found)})
    else:
        prediction.render(found, scenario, Console())
    return 0


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace, PrintJson], int]]
_COMMANDS: dict[str, _Command] = {
    "compare": (
        "Compare the settings of several runs, in pairs of equal seed; the first run's setting is the baseline.",
        _add_compare,
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
    "whatif": (
        "Predict an epoch's time on another link, at other widths, under another schedule, from one traced run.",
        _add_whatif,
        _whatif,
    ),
}
