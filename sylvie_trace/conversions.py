"""The subcommands that carry a run to other tools and back.

export RUN --to perfetto     the timeline, for ui.perfetto.dev or chrome://tracing
export RUN --to wandb        the series, tables and the report, as --wandb mirrors them while a run trains
import-nsys RUN FILE.sqlite  an Nsight Systems export, laid beside our records
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from sylvie_trace.export import perfetto
from sylvie_trace.export.wandb_ import MODES, check_mode, mirror
from sylvie_trace.importers.align import align
from sylvie_trace.importers.nsys import read_export
from sylvie_trace.reader import read_run
from sylvie_trace.run_dir import write_atomically

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
    parser.add_argument("--to", choices=("perfetto", "wandb"), default="perfetto", help="the format (perfetto)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where to write (RUN/perfetto.json); .gz is compressed")
    parser.add_argument("--epochs", metavar="A:B", help="epochs A to B - 1 only (all)")
    parser.add_argument("--mode", choices=MODES, help="of --to wandb (offline)")


def _export(options: argparse.Namespace, print_json: PrintJson) -> int:
    if options.to == "wandb":
        return _export_to_wandb(options, print_json)
    if options.mode is not None:
        raise ValueError(f"--mode {options.mode} belongs to --to wandb: leave it out")
    epochs = None if options.epochs is None else _epochs(options.epochs)
    run = read_run(options.run)
    path = _target(options.output, run.path / "perfetto.json")
    done = perfetto.export(run, path, epochs)
    if options.json:
        print_json({**asdict(done), "path": str(done.path)})
        return 0
    further = f", {done.further_tracks} further tracks for what overlaps" if done.further_tracks else ""
    print(f"{done.path}: {done.slices} slices, {done.messages} messages{further}")
    if done.untimed_messages:
        print(f"{done.untimed_messages} messages are left out: their times on the wire are not recorded")
    return 0


def _export_to_wandb(options: argparse.Namespace, print_json: PrintJson) -> int:
    for name in ("output", "epochs"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} belongs to --to perfetto: leave it out")
    mode = options.mode or "offline"
    check_mode(mode)
    read_run(options.run)  # refuses what is no run
    said: list[str] = []
    code = mirror(options.run, mode, said.append, lambda: True)
    if options.json:
        print_json({"mode": mode, "notes": said, "mirrored": code == 0})
    else:
        print("\n".join(said))
    return code


def _epochs(text: str) -> range:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"--epochs {text!r} is no range: give A:B with A below B, such as 10:20")
    return range(int(match[1]), int(match[2]))


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sqlite", type=Path, help="an export of nsys (nsys export --type sqlite)")
    parser.add_argument("--ranks", metavar="R,R…", help="the ranks of the profiled host, where two had one process id (all)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where to write (RUN/nsys-FILE.json)")


def _import(options: argparse.Namespace, print_json: PrintJson) -> int:
    run = read_run(options.run)
    imported = align(run, read_export(options.file), None if options.ranks is None else _ranks(options.ranks, run.world_size))
    path = _target(options.output, run.path / f"nsys-{options.file.stem}.json")
    document = msgspec.to_builtins(imported)
    write_atomically(path, msgspec.json.encode(document) + b"\n")
    if options.json:
        print_json({**document, "path": str(path)})
        return 0
    for each in imported.ranks:
        fit = "" if each.median_difference_ns is None else f", {each.median_difference_ns / 1e3:.1f} µs from their records"
        print(
            f"rank {each.rank}: {each.matched} of {each.ranges} ranges matched{fit}"
            + (f", clock corrected by {each.shift_ns / 1e6:.3f} ms" if each.shift_ns is not None else "")
            + (f", {each.open} open" if each.open else "")
            + (f", {each.payload_differs} with other bytes than recorded" if each.payload_differs else "")
        )
    print(f"{path}: schema {imported.schema_version}, {imported.foreign} ranges of other domains, {imported.strange} of others")
    return 0


def _ranks(text: str, world_size: int) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) < world_size for part in parts):
        raise ValueError(f"--ranks {text!r} must name ranks below {world_size}, such as 0,1")
    return [int(part) for part in parts]


def _target(given: Path | None, default: Path) -> Path:
    path = default if given is None else given
    if not path.parent.is_dir():
        raise ValueError(f"--output {path}: {path.parent} is not a directory: make it first")
    return path


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace, PrintJson], int]]
_COMMANDS: dict[str, _Command] = {
    "export": ("Write a run's timeline for another tool.", _add_export, _export),
    "import-nsys": ("Lay the NVTX ranges of an Nsight Systems export beside a run's records.", _add_import, _import),
}
