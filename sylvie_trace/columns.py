"""Message and span records as numpy structured arrays: a million of them fit in a few hundred MB.

``None`` becomes ``MISSING``; the few strings become small codes, listed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from sylvie_trace.schema import (
    ASYNC,
    BACKGROUND,
    BACKWARD,
    EVALUATE,
    FORWARD,
    INPUT_HALO,
    MAIN,
    SYNC,
    TRAIN,
    Message,
    Span,
)

#: Stands for None in the integer columns.
MISSING = int(np.iinfo(np.int64).min)

Table = npt.NDArray[np.void]
"""A structured array with the fields of one record kind."""

PURPOSES = {TRAIN: 0, EVALUATE: 1, INPUT_HALO: 2}
DIRECTIONS = {FORWARD: 0, BACKWARD: 1}
MODES = {SYNC: 0, ASYNC: 1}
THREADS = {MAIN: 0, BACKGROUND: 1}

_CODED: dict[str, dict[str, int]] = {
    "purpose": PURPOSES,
    "direction": DIRECTIONS,
    "mode": MODES,
    "encode_thread": THREADS,
    "decode_thread": THREADS,
    "thread": THREADS,
}
_SMALL = frozenset(("unused", "fused"))


def _dtype(record: type[msgspec.Struct]) -> np.dtype[np.void]:
    coded = (*_CODED, *_SMALL)
    small = {name: np.int16 if name == "name" else np.int8 for name in (*coded, "name")}
    return np.dtype([(name, small.get(name, np.int64)) for name in record.__struct_fields__])


MESSAGE_DTYPE = _dtype(Message)
SPAN_DTYPE = _dtype(Span)


class TableBuilder:
    """Collects records of one kind and packs them into a structured array chunk by chunk.

    ``names`` numbers the span names met so far and is shared by all ranks of a run.
    """

    CHUNK = 1 << 15

    def __init__(self, dtype: np.dtype[np.void], names: dict[str, int]) -> None:
        self._dtype, self._names = dtype, names
        self._coded = [(name, codes) for name, codes in _CODED.items() if name in (dtype.names or ())]
        self._pending: list[Any] = []
        self._chunks: list[Table] = []

    def add(self, record: Message | Span) -> None:
        """Append a record. ``ValueError`` when one of its words is not the schema's."""
        for name, codes in self._coded:
            if getattr(record, name) not in codes:
                raise ValueError(f"{name} {getattr(record, name)!r} is unknown: known are {', '.join(codes)}")
        self._pending.append(record)
        if len(self._pending) >= self.CHUNK:
            self._pack()

    def finish(self) -> Table:
        """The table of everything added."""
        self._pack()
        return np.concatenate(self._chunks) if self._chunks else np.empty(0, dtype=self._dtype)

    def _pack(self) -> None:
        if not self._pending:
            return
        chunk: Table = np.empty(len(self._pending), dtype=self._dtype)
        rows = map(msgspec.structs.astuple, self._pending)
        for name, values in zip(self._dtype.names or (), zip(*rows, strict=True), strict=True):
            chunk[name] = self._column(name, values)
        self._chunks.append(chunk)
        self._pending.clear()

    def _column(self, name: str, values: tuple[Any, ...]) -> npt.NDArray[Any]:
        if name == "name":
            for value in dict.fromkeys(values):  # numbered as they appear: the same file, the same codes
                self._names.setdefault(value, len(self._names))
            return np.array([self._names[value] for value in values], dtype=np.int16)
        if name in _CODED:
            codes = _CODED[name]
            return np.array([codes[value] for value in values], dtype=np.int8)
        if name not in _SMALL and None in values:
            return np.array([MISSING if value is None else value for value in values], dtype=np.int64)
        return np.array(values, dtype=self._dtype[name])


def group_codes(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """One integer a row, equal for rows equal in all ``columns`` (each of shape (n,)), ordered as they are.

    Sorting these is many times faster than sorting structured rows.
    """
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    if not codes.size:
        return codes
    span = 1
    for column in columns:
        values = column.astype(np.int64) - int(column.min())
        size = int(values.max()) + 1
        if span * size >= 1 << 62:  # make both dense: at most n values each
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            values = np.unique(values, return_inverse=True)[1].reshape(-1)
            span, size = int(codes.max()) + 1, int(values.max()) + 1
        codes = codes * size + values
        span *= size
    return codes
