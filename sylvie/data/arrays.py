"""Names shared by the readers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Report = Callable[[str], None]
"""Receives one line about something legal that the user should know."""


def log_notice(line: str) -> None:
    """Default receiver of notices: the standard logger ``sylvie.data``, which prints warnings to stderr."""
    logging.getLogger("sylvie.data").warning(line)
