"""The append-only writer of a rank's trace: one system call a record, so a kill loses no finished line."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sylvie_trace.schema import SPAN_CHECKPOINT, SPAN_EVALUATE, Epoch, Header, Message, Record, Reuse, Span

#: Spans kept with tracing off: an epoch's time is stated without them, so their extent must be known.
_ALWAYS = frozenset((SPAN_EVALUATE, SPAN_CHECKPOINT))


class Recorder:
    """Writes ``header`` at once and then every record as one line of JSON.

    Each line is a single ``write`` on an ``O_APPEND`` descriptor: nothing is buffered in the process, so
    every recorded line survives SIGKILL. May be called from any thread.

    ``trace`` false drops ``message``, ``reuse`` and ``span`` records of epochs >= 0, but keeps evaluations and
    checkpoints.
    Raises ``ValueError`` when ``path`` already holds records.
    """

    def __init__(self, path: Path | str, header: Header, *, trace: bool | None = None) -> None:
        self.path = Path(path)
        self.trace = header.trace if trace is None else trace
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if os.fstat(self._descriptor).st_size:
            os.close(self._descriptor)
            self._descriptor = -1
            raise ValueError(f"{self.path} already holds a trace: choose another run directory")
        self.record(header)

    def record(self, record: Record) -> None:
        """Append one record; dropped unseen when tracing is off and the record is a detail of an epoch.

        Raises ``ValueError`` for a NaN or infinite time in an epoch record (its optional numbers become null)
        and for a recorder that is closed.
        """
        if not self.trace and self._is_detail(record):
            return
        if type(record) is Epoch and not (math.isfinite(record.et_s) and math.isfinite(record.et_wall_s)):
            raise ValueError(
                f"epoch {record.epoch}: et {record.et_s} s is not finite: check the rule's clock"
            )
        self._write(self._encoder.encode(record) + b"\n")

    def record_details(self, records: Sequence[Message | Reuse | Span]) -> None:
        """Append many messages, reuses and spans in order with one write, cheaper than one by one."""
        kept = records if self.trace else [record for record in records if not self._is_detail(record)]
        if kept:
            self._write(self._encoder.encode_lines(kept))

    def _write(self, lines: bytes) -> None:
        with self._lock:
            if self._descriptor < 0:
                raise ValueError(f"{self.path} is closed: nothing can be recorded any more")
            written = os.write(self._descriptor, lines)
            while written < len(lines):  # a full disk or a signal can cut a write short
                lines = lines[written:]
                written = os.write(self._descriptor, lines)

    @staticmethod
    def _is_detail(record: Record) -> bool:
        kind = type(record)
        if kind is Message or kind is Reuse:
            return record.epoch >= 0  # type: ignore[attr-defined, no-any-return]
        if kind is Span:
            return record.epoch >= 0 and record.name not in _ALWAYS  # type: ignore[attr-defined]
        return False

    def close(self) -> None:
        """Close the file; further records are refused. Harmless when repeated."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
