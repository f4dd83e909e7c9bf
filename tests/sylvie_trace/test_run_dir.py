"""The run directory: names, refusals, and writes that leave nothing half-done."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from sylvie_trace.run_dir import RunDir, finite, write_atomically


def test_a_new_directory_has_its_names(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "a" / "b")
    assert run_dir.trace.is_dir()
    assert run_dir.trace_file(3) == tmp_path / "a" / "b" / "trace" / "rank-00003.jsonl"
    assert run_dir.model.name == "model.safetensors" and run_dir.report_html.name == "report.html"
    RunDir.create(tmp_path / "empty")
    (tmp_path / "bare").mkdir()
    assert RunDir.create(tmp_path / "bare").trace.is_dir()


def test_a_used_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="is not empty: name a new directory"):
        RunDir.create(tmp_path)
    with pytest.raises(ValueError, match="is a file"):
        RunDir.create(tmp_path / "run.json")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_run_json_holds_the_schema_and_no_nan(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "r")
    run_dir.write_run_json({"links": [{"rtt_s": math.inf, "bytes_per_s": 1.5}], "shape": (1, 2)})
    read = json.loads(run_dir.run_json.read_text(), parse_constant=pytest.fail)
    assert read == {"schema": 1, "links": [{"rtt_s": None, "bytes_per_s": 1.5}], "shape": [1, 2]}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.json"
    write_atomically(target, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_finite_goes_into_nested_values() -> None:
    assert finite({"a": [math.nan, 1.0, {"b": -math.inf}], 2: "x"}) == {
        "a": [None, 1.0, {"b": None}],
        "2": "x",
    }
