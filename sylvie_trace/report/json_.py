"""The report as JSON: float64 read back exactly, no NaN, keys as in ``Report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sylvie_trace.report_types import Report, to_builtins
from sylvie_trace.run_dir import finite, write_atomically


def dumps(document: Any) -> bytes:
    """Any plain document or record as indented JSON with a final newline; non-finite numbers are null."""
    plain = finite(msgspec.to_builtins(document))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def write(report: Report, path: Path) -> None:
    """Write ``report.json`` in one step."""
    write_atomically(path, dumps(to_builtins(report)))
