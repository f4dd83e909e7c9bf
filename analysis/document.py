"""What a study hands over: a page of markdown and a JSON file, with the machine, the command and the time they come from."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.run_files import write_atomically
from analysis.tables import Table, as_json, markdown
from sylvie import environment


@dataclass(kw_only=True)
class Conditions:
    """Where and when a study ran; made when it starts. `load_before` is the machine's load without the study's own runs."""

    command: str = field(default_factory=lambda: shlex.join(["python", "-m", "analysis", *sys.argv[1:]]))
    started: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def busy(self) -> bool:
        """Whether something else was at work: times are then no property of the code."""
        return self.load_before > 0.5 * self.cores

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; versions and revision are those of now."""
        found = environment.versions()
        return {
            "command": self.command,
            "started": self.started,
            "cpu": environment.cpu_name(),
            "cores": self.cores,
            "load_before": round(self.load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "busy": self.busy,
            "revision": environment.git_revision(),
            "versions": {name: found[name] for name in ("python", "torch", "dgl", "kernel")},
        }


def write_document(
    out: Path,
    name: str,
    *,
    title: str,
    conditions: Conditions,
    parts: Sequence[str | Table],
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write `name`.md, its parts (paragraphs and tables) in order, and `name`.json, the tables' values and `data`."""
    made = conditions.as_dict()
    busy = " The machine was busy: times on local ranks are no property of the code." if conditions.busy else ""
    origin = (
        f"`{made['command']}`, {made['started']}, on {made['cores']} cores of {made['cpu']}, "
        f"torch {made['versions']['torch']}, revision {made['revision']}.{busy}"
    )
    texts = [part if isinstance(part, str) else markdown(part).rstrip("\n") for part in parts]
    write_atomically(out / f"{name}.md", "\n\n".join([f"# {title}", origin, *texts]) + "\n")
    tables = [as_json(part) for part in parts if isinstance(part, Table)]
    content = {"title": title, "made": made, "tables": tables, **(data or {})}
    write_atomically(out / f"{name}.json", json.dumps(content, indent=1, allow_nan=False) + "\n")
