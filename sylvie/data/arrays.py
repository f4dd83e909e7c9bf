"""Names shared by the readers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Report = Callable[[str], None]
"""Receives one line about something legal that the user should know."""


def log_notice(line: str) -> None:
    """Default receiver of notices: the standard logger ``sylvie.data``, which prints warnings to stderr."""
    logging.getLogger("sylvie.data").warning(line)


def sorted_unique(keys: Array) -> Array:
    """The distinct integers of ``keys``, ascending; sorting beats ``np.unique``'s hash table at 10^7 keys."""
    ordered = np.sort(keys)
    first = np.ones(ordered.size, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
