"""Reads an offline file of W&B: blocks of 32 KiB of framed chunks (LevelDB's log format) that hold protobuf records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _FRAME, _START = 32768, 7, 7
_WHOLE, _LAST = 1, 4


@dataclass
class OfflineRun:
    """What stands in an offline file."""

    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, list[str]] = field(default_factory=dict)
    runs: int = 0
    exit_code: int | None = None


def read_offline(directory: Path) -> OfflineRun:
    """The only offline run under ``directory``."""
    from wandb.proto import wandb_internal_pb2

    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    found = OfflineRun()
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            found.history.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            found.summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "run":
            found.runs += 1
            found.config |= {_key(item): json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "metric":
            name = record.metric.name or record.metric.glob_name
            found.axes[name] = record.metric.step_metric or str(record.metric.step_metric_index)
        elif kind == "artifact":
            found.artifacts[record.artifact.type] = [entry.path for entry in record.artifact.manifest.contents]
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _records(data: bytes) -> Iterator[bytes]:
    at, pending = _START, b""
    while at + _FRAME <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _FRAME:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        pending += data[at + _FRAME : at + _FRAME + length]
        at += _FRAME + length
        if kind in (_WHOLE, _LAST):
            yield pending
            pending = b""
