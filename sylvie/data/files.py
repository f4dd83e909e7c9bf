"""Reading arrays from files without pickles; every failure is one line that names the file."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sylvie.data.arrays import Array

READ_ERRORS = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError)


def read_npz(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Array]:
    """The arrays ``names`` of an ``.npz`` and those of ``optional`` that it has; no other is read.

    Raises ValueError when the file is missing, truncated, not an npz, holds pickled objects, or lacks a
    name.
    """
    require_file(path)
    found: dict[str, Array] = {}
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise ValueError("it is a single array, not an .npz archive")
            present = set(archive.files)
            missing = [name for name in names if name not in present]
            if not missing:
                for name in [*names, *(n for n in optional if n in present)]:
                    found[name] = archive[name]
    except READ_ERRORS as error:
        raise ValueError(
            f"{path}: cannot be read as .npz ({one_line(error)}); fetch or write it again"
        ) from error
    if missing:
        raise ValueError(
            f"{path}: has no array {', '.join(map(repr, missing))}; "
            f"it has {', '.join(sorted(present)) or 'none'}"
        )
    return found


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file; raises ValueError when it is missing, truncated or pickled."""
    require_file(path)
    try:
        with open(path, "rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except READ_ERRORS as error:
        raise ValueError(
            f"{path}: cannot be read as .npy ({one_line(error)}); fetch or write it again"
        ) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: holds an archive, not one array")
    return array


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises ValueError when it is missing or broken."""
    require_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: cannot be read as JSON ({one_line(error)}); fetch or write it again"
        ) from error


def read_csv_gz(path: Path, dtype: type[np.generic]) -> Array:
    """The numbers of a gzipped, comma separated file without header, [lines, columns]."""
    require_file(path)
    try:
        with gzip.open(path, "rt", encoding="ascii") as stream:
            return np.loadtxt(stream, delimiter=",", dtype=dtype, ndmin=2)
    except READ_ERRORS as error:
        raise ValueError(
            f"{path}: cannot be read as gzipped csv ({one_line(error)}); fetch or write it again"
        ) from error


def require_file(path: Path) -> None:
    """Raise ValueError in one line unless ``path`` is a file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")


def one_line(error: BaseException) -> str:
    """The message of an error, on one line and not empty."""
    return " ".join(str(error).split()) or type(error).__name__
