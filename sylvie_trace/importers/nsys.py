"""Reads the NVTX ranges of an Nsight Systems sqlite export (schemas 2 and 3).

Tables exist only when something filled them, columns come and go between versions, the end of a range is NULL when the
profile stopped inside it, names are inline or in ``StringIds``, and a domain's name stands in a row of its own (eventType 75)
of the same process. Times are ns since the session's start, whose UTC time is the anchor.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAGIC = b"SQLite format 3\x00"
_KNOWN_SCHEMAS = (2, 3)
_PUSH_POP, _START_END, _MARK, _DOMAIN = 59, 60, 34, 75
_KINDS = {_PUSH_POP: "push_pop", _START_END: "start_end", _MARK: "mark"}
#: globalTid = … | process id (24 bits) | thread id (24 bits).
_THREAD_BITS, _LOW_24 = 24, (1 << 24) - 1
#: Columns that hold an integer payload, whichever type it was given as.
_PAYLOADS = ("int64Value", "uint64Value", "int32Value", "uint32Value")


@dataclass(frozen=True)
class NvtxRange:
    """One range or mark; ``start_ns`` and ``end_ns`` since the session's start, ``end_ns`` None while open."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int | None
    name: str
    domain: str | None
    kind: str
    payload: int | None


@dataclass(frozen=True)
class Export:
    """An export: its schema, the UTC time of the session's start, and its NVTX ranges by start."""

    path: Path
    schema_version: str
    utc_ns: int
    ranges: tuple[NvtxRange, ...]


def read_export(path: Path) -> Export:
    """Read ``path``. ``ValueError`` in one line for anything that is not such an export."""
    _check_magic(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            version = _schema_version(path, database, tables)
            utc_ns = _session_start(path, database, tables)
            if "NVTX_EVENTS" not in tables:
                raise ValueError(f"{path} holds no NVTX event: profile with --trace=nvtx, and the run with --trace")
            return Export(path, version, utc_ns, tuple(_ranges(database, tables)))
    except sqlite3.Error as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise ValueError(f"{path} is no sqlite file: export the report with nsys export --type sqlite")


def _schema_version(path: Path, database: sqlite3.Connection, tables: set[str]) -> str:
    if "META_DATA_EXPORT" not in tables:
        raise ValueError(f"{path} has no META_DATA_EXPORT: it is not an export of Nsight Systems")
    values = dict(database.execute("SELECT name, value FROM META_DATA_EXPORT"))
    version = str(values.get("EXPORT_SCHEMA_VERSION", ""))
    major = version.split(".")[0]
    if not major.isdigit():
        raise ValueError(f"{path} names no EXPORT_SCHEMA_VERSION: export it with a newer nsys")
    if int(major) not in _KNOWN_SCHEMAS:
        known = " and ".join(map(str, _KNOWN_SCHEMAS))
        raise ValueError(f"{path} has export schema {version}, known are {known}: export it with another nsys")
    return version


def _session_start(path: Path, database: sqlite3.Connection, tables: set[str]) -> int:
    if "TARGET_INFO_SESSION_START_TIME" in tables:
        row = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        if row is not None and isinstance(row[0], int):
            return row[0]
    raise ValueError(f"{path} does not say when its session started (TARGET_INFO_SESSION_START_TIME)")


def _ranges(database: sqlite3.Connection, tables: set[str]) -> Iterator[NvtxRange]:
    columns = {row[1] for row in database.execute("PRAGMA table_info(NVTX_EVENTS)")}
    named = "StringIds" in tables and "textId" in columns
    text = "events.text" if "text" in columns else "NULL"
    name = f"COALESCE({text}, StringIds.value)" if named else text
    payloads = [f"events.{column}" for column in _PAYLOADS if column in columns]
    payload = f"COALESCE({', '.join(payloads)}, NULL)" if payloads else "NULL"
    domain = "events.domainId" if "domainId" in columns else "NULL"
    query = (
        f'SELECT events.start, events."end", events.eventType, events.globalTid, {name}, {domain}, {payload} '
        "FROM NVTX_EVENTS AS events "
        + ("LEFT JOIN StringIds ON StringIds.id = events.textId " if named else "")
        + "ORDER BY events.start"
    )
    rows: list[tuple[Any, ...]] = database.execute(query).fetchall()
    domains = {(row[3] >> _THREAD_BITS, row[5]): row[4] for row in rows if row[2] == _DOMAIN and row[3] is not None}
    for start, end, kind, thread, label, number, value in rows:
        if kind in _KINDS and start is not None and thread is not None:
            process = thread >> _THREAD_BITS
            yield NvtxRange(
                pid=process & _LOW_24,
                tid=thread & _LOW_24,
                start_ns=start,
                end_ns=end,
                name=label or "",
                domain=domains.get((process, number)),
                kind=_KINDS[kind],
                payload=value,
            )
