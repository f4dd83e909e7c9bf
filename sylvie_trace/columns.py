"""Message, reuse and span records as numpy columns: a million of them fit in a few hundred MB.

``None`` becomes ``MISSING``; the few strings become small codes, listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

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
    Reuse,
    Span,
)

#: Stands for None in the integer columns.
MISSING = int(np.iinfo(np.int64).min)
MAXIMUM = int(np.iinfo(np.int64).max)

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


Column = npt.NDArray[Any]
Index = npt.NDArray[np.bool_] | npt.NDArray[np.int64]


class Table:
    """Records of one kind as columns of equal length, named as the record's fields.

    ``table["epoch"]`` is a column; ``table[chosen]`` the rows of a mask or of indices, whose columns are gathered
    when they are first asked for.
    """

    def __init__(self, columns: Mapping[str, Column], index: npt.NDArray[np.int64] | None = None) -> None:
        self._columns = columns
        self._index = index
        self._gathered: dict[str, Column] = {}
        self._length = len(next(iter(columns.values()))) if index is None else len(index)

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self._columns)

    @overload
    def __getitem__(self, key: str) -> Column: ...
    @overload
    def __getitem__(self, key: Index) -> Table: ...
    def __getitem__(self, key: str | Index) -> Column | Table:
        if isinstance(key, str):
            if self._index is None:
                return self._columns[key]
            if key not in self._gathered:
                self._gathered[key] = self._columns[key][self._index]
            return self._gathered[key]
        chosen = np.nonzero(key)[0] if key.dtype == np.bool_ else key.astype(np.int64)
        return Table(self._columns, chosen if self._index is None else self._index[chosen])

    def rows(self, limit: int | None = None) -> Iterator[dict[str, int]]:
        """The first ``limit`` rows, or all, as dictionaries of codes and numbers."""
        for place in range(len(self) if limit is None else min(limit, len(self))):
            yield {name: int(self[name][place]) for name in self.names}


def _layout(record: type[msgspec.Struct]) -> dict[str, type[np.generic]]:
    """The columns of a record kind with their types."""
    small: dict[str, type[np.generic]] = dict.fromkeys((*_CODED, *_SMALL), np.int8)
    return {name: {**small, "name": np.int16}.get(name, np.int64) for name in record.__struct_fields__}


class ColumnError(ValueError):
    """A value that the schema does not know, and the ``line`` it came from."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class TableBuilder:
    """Collects records of one kind and packs them into columns chunk by chunk.

    ``names`` numbers the span names met so far and is shared by all ranks of a run.
    """

    CHUNK = 1 << 15

    def __init__(self, record: type[msgspec.Struct], names: dict[str, int]) -> None:
        self._layout, self._names = _layout(record), names
        self._pending: list[Any] = []
        self._lines: list[int] = []
        self._chunks: dict[str, list[Column]] = {
            name: [np.empty(0, dtype=kind)] for name, kind in self._layout.items()
        }

    def add(self, record: Message | Reuse | Span, line: int = 0) -> None:
        """Append the record of a line; a full chunk is packed, and raises ``ColumnError`` as ``finish`` does."""
        self._pending.append(record)
        self._lines.append(line)
        if len(self._pending) >= self.CHUNK:
            self._pack()

    def finish(self) -> Table:
        """The table of everything added. ``ColumnError`` for a word or a number outside the schema."""
        self._pack()
        return Table({name: np.concatenate(chunks) for name, chunks in self._chunks.items()})

    def _pack(self) -> None:
        if not self._pending:
            return
        rows = map(msgspec.structs.astuple, self._pending)
        for name, values in zip(self._layout, zip(*rows, strict=True), strict=True):
            try:
                self._chunks[name].append(self._column(name, values))
            except (KeyError, OverflowError):
                raise self._error(name, values) from None
        self._pending.clear()
        self._lines.clear()

    def _error(self, name: str, values: tuple[Any, ...]) -> ColumnError:
        """The first value that has no place in the column, with its line."""
        codes = _CODED.get(name)
        for line, value in zip(self._lines, values, strict=True):
            if codes is not None and value not in codes:
                return ColumnError(line, f"{name} {value!r} is unknown: known are {', '.join(codes)}")
            if codes is None and value is not None and abs(value) > MAXIMUM:
                return ColumnError(line, f"{name} {value} needs more than 64 bits")
        raise AssertionError(name)

    def _column(self, name: str, values: tuple[Any, ...]) -> Column:
        if name == "name":
            for value in dict.fromkeys(values):  # numbered as they appear: the same file, the same codes
                self._names.setdefault(value, len(self._names))
            return np.fromiter(map(self._names.__getitem__, values), np.int16, len(values))
        if name in _CODED:
            return np.fromiter(map(_CODED[name].__getitem__, values), np.int8, len(values))
        if name not in _SMALL and None in values:
            values = tuple(MISSING if value is None else value for value in values)
        return np.fromiter(values, self._layout[name], len(values))


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
