"""What a run is on disk: the names of its files, and how they are written without a half-written state."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sylvie_trace.schema import SCHEMA_VERSION


def finite(value: Any) -> Any:
    """``value`` with every NaN and infinity replaced by ``None``, in nested mappings and sequences too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside ``path``, renamed to it at the end: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` in one step."""
    with replacing(path) as file:
        file.write(data)


class RunDir:
    """The files of one run. Constructing it touches nothing; ``create`` makes the directory."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.run_json = self.path / "run.json"
        self.trace = self.path / "trace"
        self.model = self.path / "model.safetensors"
        self.report_json = self.path / "report.json"
        self.report_html = self.path / "report.html"

    @classmethod
    def create(cls, path: Path | str) -> RunDir:
        """Make the directory. ``ValueError`` when it is in use (not empty) or is not a directory."""
        run_dir = cls(path)
        if run_dir.path.exists() and not run_dir.path.is_dir():
            raise ValueError(f"{run_dir.path} is a file: name a new directory for the run")
        if run_dir.path.is_dir() and any(run_dir.path.iterdir()):
            raise ValueError(f"{run_dir.path} is not empty: name a new directory for the run")
        run_dir.trace.mkdir(parents=True, exist_ok=True)
        return run_dir

    def trace_file(self, rank: int) -> Path:
        """The trace of ``rank``: ``trace/rank-00003.jsonl``."""
        return self.trace / f"rank-{rank:05d}.jsonl"

    def write_run_json(self, content: Mapping[str, Any]) -> None:
        """Write ``run.json`` in one step; ``schema`` is added, NaN and infinities become null."""
        document = finite({"schema": SCHEMA_VERSION, **content})
        write_atomically(self.run_json, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
