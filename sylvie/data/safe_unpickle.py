"""Reading the numbers out of old pickles without running anything they ask for.

Planetoid's files are Python 2 pickles of numpy arrays, scipy CSR matrices and a dictionary of lists. A
pickle is a program, so the general loader is never used: here every name it may ask for is replaced by a
stand-in of this module, which only collects plain data, and any other name is refused. numpy and scipy are
called afterwards, on checked parts.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sylvie.data.arrays import Array
from sylvie.data.files import one_line, require_file
from sylvie.data.npz import checked_csr

_NUMERIC = frozenset("bifu")


class _Dtype:
    """Stands in for ``numpy.dtype``: a kind, a size and a byte order."""

    def __init__(self, code: str = "", *_: object) -> None:
        self.code = code
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "<"

    def build(self) -> np.dtype[Any]:
        """The numpy type; raises ValueError unless it is a plain number."""
        if not (
            isinstance(self.code, str) and self.code[:1] in _NUMERIC and self.code[1:] in {"1", "2", "4", "8"}
        ):
            raise ValueError(f"it holds values of type {self.code!r}, not numbers")
        return np.dtype(self.order + self.code)


class _Array:
    """Stands in for ``numpy.ndarray``: shape, type and raw bytes."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def build(self) -> Array:
        """The array; raises ValueError when the parts do not fit."""
        try:
            _, shape, dtype, fortran, raw = self.state
            data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
            flat = np.frombuffer(data, dtype=dtype.build())
            return flat.reshape(tuple(int(n) for n in shape), order="F" if fortran else "C").copy()
        except (TypeError, AttributeError, UnicodeEncodeError) as error:
            raise ValueError("it holds a broken array") from error


class _Csr:
    """Stands in for ``scipy.sparse.csr_matrix``: its attributes."""

    def build(self) -> sp.csr_matrix:
        """The matrix; raises ValueError when the parts do not fit."""
        parts = self.__dict__
        shape = parts.get("_shape", parts.get("shape"))
        arrays = [parts.get(name) for name in ("data", "indices", "indptr")]
        if not (
            isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)
        ):
            raise ValueError("it holds a matrix without a shape")
        if not all(isinstance(array, _Array) for array in arrays):
            raise ValueError("it holds a matrix without its parts")
        data, indices, indptr = (array.build() for array in arrays if isinstance(array, _Array))
        return checked_csr(data, indices, indptr, shape, "matrix")


def _empty_array(*_: object) -> _Array:
    return _Array()


def _empty_csr(*_: object) -> _Csr:
    return _Csr()


def _new_object(cls: object, *_: object) -> _Csr:
    if cls is not _Csr:
        raise ValueError("it builds an object other than a matrix")
    return _Csr()


def _empty_dict(*_: object) -> dict[Any, Any]:
    return {}


def _latin1(text: object, *_: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("it holds broken bytes")
    return text.encode("latin1")


def _scalar(dtype: _Dtype, raw: object = b"") -> Any:
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    if not (isinstance(dtype, _Dtype) and isinstance(data, bytes)):
        raise ValueError("it holds a broken number")
    values = np.frombuffer(data, dtype=dtype.build())
    if values.size != 1:
        raise ValueError("it holds a broken number")
    return values[0].item()


_ADMITTED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty_array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Csr for module in ("csr", "_csr")},
    ("collections", "defaultdict"): _empty_dict,
    **{(module, "list"): list for module in ("__builtin__", "builtins")},
    **{(module, "object"): object for module in ("__builtin__", "builtins")},
    **{(module, "_reconstructor"): _new_object for module in ("copy_reg", "copyreg")},
    ("_codecs", "encode"): _latin1,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for an admitted name; everything else is refused before anything can call it."""
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise ValueError(f"it asks for {module}.{name}, which no dataset needs") from None


def read_old_pickle(path: Path) -> Array | sp.csr_matrix | dict[Any, Any]:
    """The array, CSR matrix or dictionary of a Planetoid file; raises ValueError in one line otherwise."""
    require_file(path)
    try:
        content = _Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        if isinstance(content, _Array | _Csr):
            return content.build()
        if type(content) is dict:
            return content
        raise ValueError(f"it holds a {type(content).__name__}, not an array, a matrix or a dictionary")
    except Exception as error:  # a broken pickle may raise almost anything
        raise ValueError(f"{path}: refused as a Planetoid file: {one_line(error)}") from error
