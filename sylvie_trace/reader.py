"""Reads a run from disk: ``run.json`` and every rank's trace, line by line, in bounded memory.

A torn last line (a kill in the middle of a write) is tolerated and noted; anything else that cannot be
understood is a ``TraceError`` that names file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sylvie_trace.columns import ColumnError, Table, TableBuilder
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import (
    SCHEMA_VERSION,
    AnyRecord,
    Bits,
    Decision,
    Epoch,
    Fault,
    Footer,
    Header,
    Message,
    Reuse,
    Span,
)

_FILE_NAME = re.compile(r"rank-(\d{5,})\.jsonl")


class TraceError(ValueError):
    """A run that cannot be read; the message is one line that names the file and what to do."""


@dataclass(frozen=True)
class RankTrace:
    """One rank's records in the order of writing; the many kinds as tables of columns."""

    path: Path
    header: Header
    epochs: tuple[Epoch, ...]
    decisions: tuple[Decision, ...]
    bits: tuple[Bits, ...]
    messages: Table
    reuses: Table
    spans: Table
    faults: tuple[Fault, ...]
    footer: Footer | None
    footer_is_last: bool
    torn: bool
    records: int

    @property
    def rank(self) -> int:
        """The rank that wrote this trace."""
        return self.header.rank


@dataclass(frozen=True)
class Run:
    """A run as read: ``info`` is run.json, ``ranks`` the traces found, in rank order.

    ``span_names`` maps a span's name to its code in the ``spans`` tables; ``missing_ranks`` left no trace.
    """

    path: Path
    info: dict[str, Any]
    ranks: tuple[RankTrace, ...]
    world_size: int
    span_names: dict[str, int]
    missing_ranks: tuple[int, ...]

    def section(self, name: str) -> dict[str, Any]:
        """A section of run.json, empty when it is absent or of another form."""
        section = self.info.get(name)
        return section if isinstance(section, dict) else {}

    @property
    def complete(self) -> bool:
        """Whether every rank wrote its footer and said that training ended as planned."""
        return not self.missing_ranks and all(r.footer is not None and r.footer.complete for r in self.ranks)

    @property
    def traced(self) -> bool:
        """Whether message and span records of the epochs were written."""
        return all(rank.header.trace for rank in self.ranks)

    def rank(self, number: int) -> RankTrace | None:
        """The trace of a rank, None when there is none."""
        return next((rank for rank in self.ranks if rank.rank == number), None)


def read_run(path: Path | str) -> Run:
    """Read a run directory. ``TraceError`` for anything that is not a run of this schema or an older one."""
    run_dir = RunDir(path)
    if not run_dir.path.is_dir():
        raise TraceError(f"{run_dir.path} is not a directory: name the run directory that sylvie-train wrote")
    info = _read_run_json(run_dir)
    names: dict[str, int] = {}
    found: list[RankTrace] = []
    for file in sorted(run_dir.trace.glob("*.jsonl")) if run_dir.trace.is_dir() else []:
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            raise TraceError(f"{file} is not a rank's trace: move it out of the run directory")
        trace = read_trace(file, names)
        if trace is None:
            continue
        if trace.rank != int(match[1]):
            raise TraceError(f"{file}: its header says rank {trace.rank}: restore the file's own name")
        found.append(trace)
    if not found:
        raise TraceError(f"{run_dir.trace} holds no readable trace: the run ended before its first record")
    found.sort(key=lambda trace: trace.rank)
    first = found[0].header
    for trace in found[1:]:
        if (trace.header.run_id, trace.header.world_size) != (first.run_id, first.world_size):
            raise TraceError(f"{trace.path} belongs to another run ({trace.header.run_id}): move it out")
    missing = sorted(set(range(first.world_size)) - {trace.rank for trace in found})
    return Run(run_dir.path, info, tuple(found), first.world_size, names, tuple(missing))


def _read_run_json(run_dir: RunDir) -> dict[str, Any]:
    path = run_dir.run_json
    try:
        info = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise TraceError(f"{run_dir.path} has no run.json: name a run directory of sylvie-train") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    if not isinstance(info, dict):
        raise TraceError(f"{path} is not a run description: it must hold one JSON object")
    _check_schema(path, info.get("schema"))
    return info


def _check_schema(path: Path, schema: object) -> None:
    if not isinstance(schema, int):
        raise TraceError(f"{path} names no schema version: it is not a file of sylvie-train")
    if schema > SCHEMA_VERSION:
        raise TraceError(
            f"{path} has schema {schema}, this program knows up to {SCHEMA_VERSION}: install a newer sylvie"
        )


def read_trace(path: Path, names: dict[str, int]) -> RankTrace | None:
    """Read one trace file; None when a kill left it without its first line. ``names`` collects span names."""
    reader = _TraceReader(path, names)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            reader.take(number, line)
    return reader.finish()


class _TraceReader:
    """The records of one file, sorted by kind while they are read."""

    def __init__(self, path: Path, names: dict[str, int]) -> None:
        self.path = path
        self.header: Header | None = None
        self.small: dict[type, list[Any]] = {kind: [] for kind in (Epoch, Decision, Bits, Fault, Footer)}
        self.messages = TableBuilder(Message, names)
        self.reuses = TableBuilder(Reuse, names)
        self.spans = TableBuilder(Span, names)
        self.records = 0
        self.torn = False
        self.last: type | None = None
        self._decode = msgspec.json.Decoder(AnyRecord).decode

    def take(self, number: int, line: bytes) -> None:
        if self.header is None:
            self._take_header(number, line)
            return
        try:
            record: Any = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not line.endswith(b"\n"):  # only the last line can lack its end
                self.torn = True
                return
            raise TraceError(
                f"{self.path}:{number}: not a record of schema {SCHEMA_VERSION}: {error}"
            ) from None
        kind = type(record)
        try:
            if kind is Message or kind is Reuse:
                if not 0 <= record.peer < self.header.world_size:
                    raise ValueError(f"peer {record.peer} of {self.header.world_size} ranks")
                (self.messages if kind is Message else self.reuses).add(record, number)
            elif kind is Span:
                self.spans.add(record, number)
            elif kind is Header:
                raise ValueError("a second header: two runs share this file")
            else:
                self.small[kind].append(record)
        except ColumnError as error:
            raise TraceError(f"{self.path}:{error.line}: {error}") from None
        except ValueError as error:
            raise TraceError(f"{self.path}:{number}: {error}") from None
        self.last = kind
        self.records += 1

    def _take_header(self, number: int, line: bytes) -> None:
        try:
            raw = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if line.endswith(b"\n"):
                raise TraceError(f"{self.path}:{number}: not JSON: this is not a trace of sylvie") from None
            self.torn = True
            return
        if not isinstance(raw, dict) or raw.get("kind") != "header":
            raise TraceError(f"{self.path}:{number}: no header: this is not a trace of sylvie")
        _check_schema(self.path, raw.get("schema"))
        try:
            self.header = msgspec.convert(raw, Header)
        except msgspec.ValidationError as error:
            raise TraceError(f"{self.path}:{number}: not a header: {error}") from None
        self.records, self.last = 1, Header

    def finish(self) -> RankTrace | None:
        if self.header is None:
            return None
        try:
            tables = [table.finish() for table in (self.messages, self.reuses, self.spans)]
        except ColumnError as error:
            raise TraceError(f"{self.path}:{error.line}: {error}") from None
        footers = self.small[Footer]
        return RankTrace(
            path=self.path,
            header=self.header,
            epochs=tuple(self.small[Epoch]),
            decisions=tuple(self.small[Decision]),
            bits=tuple(self.small[Bits]),
            messages=tables[0],
            reuses=tables[1],
            spans=tables[2],
            faults=tuple(self.small[Fault]),
            footer=footers[-1] if footers else None,
            footer_is_last=self.last is Footer and len(footers) == 1,
            torn=self.torn,
            records=self.records,
        )
