"""What a run leaves on disk, as far as a driver must know it: is it complete, and whole files or none."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def is_complete(run_dir: Path) -> bool:
    """Whether a run ended well: its report says so, or the trace of every rank ends in a complete footer."""
    report = read_json(run_dir / "report.json")
    if report is not None and says_complete(report):
        return True
    traces = sorted((run_dir / "trace").glob("rank-*.jsonl"))
    return bool(traces) and all(_ends_complete(trace, len(traces)) for trace in traces)


def says_complete(report: Mapping[str, Any]) -> bool:
    """Whether a report is that of a run that ended well."""
    run = report.get("run")
    return isinstance(run, Mapping) and run.get("complete") is True


def _ends_complete(trace: Path, ranks: int) -> bool:
    with trace.open("rb") as stream:
        first = stream.readline()
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - 65536))  # a footer is far shorter
        last = stream.read().rstrip(b"\n").rpartition(b"\n")[2]
    try:
        header, footer = json.loads(first), json.loads(last)
    except ValueError:  # torn by a kill
        return False
    return (
        header.get("world_size") == ranks
        and footer.get("kind") == "footer"
        and footer.get("complete") is True
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is none, or a torn one."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text)
    os.replace(scratch, path)
