"""The timeline's structure: valid JSON, nested tracks, pairs on a track a peer, nothing lost, times kept."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sylvie_trace.cli import main
from sylvie_trace.export.perfetto import Slice, export, nested_lanes
from sylvie_trace.reader import read_run
from sylvie_trace.schema import Message
from tests.sylvie_trace.conftest import MS, SyntheticRun

Make = Callable[..., SyntheticRun]


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["traceEvents"]
    return found


def exported(made: SyntheticRun, tmp_path: Path) -> list[dict[str, Any]]:
    return events(export(read_run(made.path), tmp_path / "timeline.json").path)


def tracks(found: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(start, end) in ns of the complete events of every thread, in the file's order."""
    result: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in found:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            result.setdefault((event["pid"], event["tid"]), []).append((start, start + round(event["dur"] * 1000)))
    return result


def assert_nested(intervals: list[tuple[int, int]]) -> None:
    stack: list[tuple[int, int]] = []
    for start, end in intervals:
        while stack and stack[-1][1] <= start:
            stack.pop()
        assert not stack or (stack[-1][0] <= start and end <= stack[-1][1])
        stack.append((start, end))


def test_every_span_site_and_message_is_there_once(synthetic: Make, tmp_path: Path) -> None:
    made = synthetic(world_size=3, epochs=12)
    run = read_run(made.path)
    found = exported(made, tmp_path)
    slices = Counter(event["cat"] for event in found if event["ph"] == "X")
    assert slices["span"] == sum(len(trace.spans) for trace in run.ranks)
    assert slices["epoch"] == 36
    assert slices["encode"] == slices["wire"] == slices["decode"] == 36  # once for both peers
    assert slices["wait"] == 3 * sum(record.mode == "sync" for record in run.ranks[0].epochs)
    begun = [event for event in found if event["ph"] == "b"]
    assert len(begun) == len([e for e in found if e["ph"] == "e"]) == sum(len(trace.messages) for trace in run.ranks)
    first = next(e for e in begun if e["pid"] == 1)
    assert first["name"] == "L2.0 fwd to rank 1" and first["args"]["main_bytes"] == 20 and first["args"]["age"] == 0
    encode = next(e for e in found if e.get("cat") == "encode")
    assert encode["name"] == "L2.0 fwd encode" and encode["args"]["bytes"] == 2 * (20 + 80 + 32)


def test_tracks_are_nested_and_pairs_close_in_order(synthetic: Make, tmp_path: Path) -> None:
    found = exported(synthetic(world_size=3, epochs=12, late_ms=(0, 3, 8, 0)), tmp_path)
    assert len(tracks(found)) == 6
    for intervals in tracks(found).values():
        assert_nested(intervals)
    open_pairs: dict[tuple[int, str], dict[str, Any]] = {}
    for event in found:
        if event["ph"] in "be":
            key = (event["pid"], event["id2"]["local"])
            if event["ph"] == "b":
                assert key not in open_pairs
                open_pairs[key] = event
            else:
                begun = open_pairs.pop(key)
                assert begun["name"] == event["name"] and begun["ts"] <= event["ts"]
    assert not open_pairs


def test_times_are_on_the_first_ranks_clock(synthetic: Make, tmp_path: Path) -> None:
    """The ranks' clocks differ by seconds; their epochs start together all the same."""
    found = exported(synthetic(world_size=3, epochs=3, offsets_ms=(0, 5000, -700, 0)), tmp_path)
    starts = {event["pid"]: event["ts"] for event in found if event["ph"] == "X" and event["name"] == "epoch 1"}
    assert len(starts) == 3 and len(set(starts.values())) == 1
    earliest = min(event["ts"] for event in found if "ts" in event)
    assert earliest == 0
    lengths = {event["dur"] for event in found if event["ph"] == "X" and event["name"] == "optimiser"}
    assert lengths == {2000.0}


def test_messages_in_flight_together_get_lanes_of_one_name(synthetic: Make, tmp_path: Path) -> None:
    def longer(rank: int, record: Any) -> Any:
        if isinstance(record, Message) and record.epoch % 2 == 0:
            record.wire_end_ns += 45 * MS  # still under way when the next epoch's message leaves
        return record

    found = exported(synthetic(epochs=6, change=longer), tmp_path)
    lanes = [event for event in found if event["ph"] == "n" and event["pid"] == 1]
    assert [event["name"] for event in lanes] == ["messages to rank 1"] * 2
    assert {event["id2"]["local"] for event in lanes} == {"1.0", "1.1"}
    assert sum(event["ph"] == "b" for event in found) == 12
    wires = [intervals for (pid, tid), intervals in tracks(found).items() if pid == 1]
    assert len(wires) > 2  # main, background, and a track for what overlaps there
    for intervals in wires:
        assert_nested(intervals)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=30))
def test_lanes_keep_every_slice_and_nest(pairs: list[tuple[int, int]]) -> None:
    slices = sorted((Slice(a, a + b, "", "", {}) for a, b in pairs), key=lambda item: (item.start, -item.end))
    lanes = nested_lanes(slices)
    assert sorted((s.start, s.end) for lane in lanes for s in lane) == sorted((s.start, s.end) for s in slices)
    for lane in lanes:
        assert_nested([(item.start, item.end) for item in lane])


def test_names_survive(synthetic: Make, tmp_path: Path) -> None:
    hostile = "</script> \"quotes\" 'single' \\ \x07 \u2028 žluť \U0001f600"
    made = synthetic(epochs=3)
    lines = made.directory.trace_file(0).read_text().splitlines(keepends=True)
    header, span = json.loads(lines[0]) | {"host": hostile}, json.loads(lines[1]) | {"name": hostile}
    made.rewrite(0, "".join([json.dumps(header) + "\n", json.dumps(span) + "\n", *lines[2:]]))
    found = exported(made, tmp_path)
    assert found[0]["args"]["name"] == f"rank 0 ({hostile})"
    assert hostile in {event["name"] for event in found if event["ph"] == "X"}


def test_messages_without_times_are_counted(synthetic: Make, tmp_path: Path) -> None:
    def forget(rank: int, record: Any) -> Any:
        if isinstance(record, Message) and record.epoch == 1:
            record.wire_start_ns = record.wire_end_ns = None
        return record

    made = synthetic(epochs=3, change=forget)
    done = export(read_run(made.path), tmp_path / "timeline.json")
    assert (done.messages, done.untimed_messages) == (4, 2)


def test_the_command(synthetic: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = synthetic(epochs=6)
    assert main(["export", str(made.path), "--to", "perfetto"]) == 0
    assert "12 messages" in capsys.readouterr().out
    assert (made.path / "perfetto.json").is_file()
    target = tmp_path / "part.json.gz"
    assert main(["export", str(made.path), "--epochs", "2:4", "--output", str(target), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["messages"] == 4 and answer["path"] == str(target)
    found = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    assert {e["name"] for e in found if e.get("cat") == "epoch"} == {"epoch 2", "epoch 3"}
    assert {e["args"]["epoch"] for e in found if e["ph"] == "X" and "epoch" in e["args"]} == {2, 3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "4:2"], "is no range"),
        (["--epochs", "x"], "is no range"),
        (["--epochs", "90:99"], "no event to export"),
        (["--to", "chrome"], "invalid choice"),
        (["--output", "/nowhere/x.json"], "is not a directory"),
    ],
)
def test_bad_arguments_are_one_line(
    synthetic: Make, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["export", str(synthetic(epochs=3).path), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_an_untraced_run_shows_its_epochs(synthetic: Make, tmp_path: Path) -> None:
    found = exported(synthetic(epochs=3, trace=False), tmp_path)
    assert {e["name"] for e in found if e.get("cat") == "epoch"} == {"epoch 0", "epoch 1", "epoch 2"}
