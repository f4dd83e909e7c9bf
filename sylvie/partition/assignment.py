"""A ready assignment from a file: one part id a line, METIS's own ``.part.N`` output."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sylvie.data.arrays import Array


def read_assignment(path: Path, num_nodes: int, parts: int) -> Array:
    """The part of every node, int64 [N]; line i belongs to node i.

    Raises ValueError in one line for a missing file, a line that is no integer, another number of lines
    than nodes, an id outside 0 to parts − 1, or a part without nodes.
    """
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such assignment file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as an assignment ({error})") from None
    if lines and not lines[-1].strip():
        lines.pop()
    ids = _integers(lines, path)
    if ids.size != num_nodes:
        raise ValueError(f"{path}: has {ids.size} lines for {num_nodes} nodes; one part id a node is needed")
    wrong = (ids < 0) | (ids >= parts)
    if wrong.any():
        line = int(np.argmax(wrong))
        raise ValueError(
            f"{path}: line {line + 1} names part {ids[line]}, but with {parts} parts ids are 0 to {parts - 1}"
        )
    empty = np.flatnonzero(np.bincount(ids, minlength=parts) == 0)
    if empty.size:
        raise ValueError(
            f"{path}: part {empty[0]} of {parts} has no node; use {parts - empty.size} parts or another file"
        )
    return ids


def _integers(lines: list[str], path: Path) -> Array:
    try:
        return np.array([int(line) for line in lines], dtype=np.int64)
    except (ValueError, OverflowError):
        for number, line in enumerate(lines, start=1):
            try:
                np.int64(int(line))
            except (ValueError, OverflowError):
                raise ValueError(f"{path}: line {number} is {line[:40]!r}, not a part id") from None
        raise
