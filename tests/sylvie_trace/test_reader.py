"""Reading a run back: exact values, torn tails, versions, and errors that name file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sylvie_trace.columns import DIRECTIONS, MISSING, PURPOSES, TableBuilder, group_codes
from sylvie_trace.reader import TraceError, read_run, read_trace
from sylvie_trace.schema import Message

Make = Callable[..., Any]


def test_a_run_reads_back_exactly(synthetic: Make) -> None:
    made = synthetic(epochs=6, world_size=3)
    run = read_run(made.path)
    assert run.complete and run.traced and run.world_size == 3 and run.missing_ranks == ()
    assert [trace.rank for trace in run.ranks] == [0, 1, 2]
    for trace in run.ranks:
        lines = made.lines(trace.rank)
        assert trace.records == len(lines) and trace.footer_is_last and not trace.torn
        written = [line for line in lines if line["kind"] == "epoch"]
        assert [msgspec.to_builtins(record) for record in trace.epochs] == written
        messages = [line for line in lines if line["kind"] == "message"]
        assert len(trace.messages) == len(messages) == 12
        for name in ("epoch", "peer", "main_bytes", "sent_ns", "wire_end_ns", "wait_start_ns", "age"):
            expected = [MISSING if line[name] is None else line[name] for line in messages]
            assert trace.messages[name].tolist() == expected
        assert set(trace.messages["purpose"].tolist()) == {PURPOSES["train"]}
        spans = [line for line in lines if line["kind"] == "span"]
        assert [run.span_names[line["name"]] for line in spans] == trace.spans["name"].tolist()
        assert [line["start_ns"] for line in spans] == trace.spans["start_ns"].tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(cut=st.integers(1, 10_000))
def test_any_torn_tail_is_tolerated(synthetic: Make, cut: int) -> None:
    """However short a kill leaves the file, all whole lines are read."""
    made = synthetic(epochs=2, evaluate_every=0)
    text = made.directory.trace_file(1).read_text()
    kept = text[: max(1, len(text) - cut)]
    made.rewrite(1, kept)
    whole = kept.count("\n")
    run = read_run(made.path)
    trace = run.rank(1)
    if whole == 0:
        assert trace is None and run.missing_ranks == (1,)
        return
    assert trace is not None
    assert run.complete == (cut == 1)  # the newline of the footer alone
    half = kept.rpartition("\n")[2]
    finished = half in {line.strip() for line in text.splitlines()}
    assert trace.torn == (half != "" and not finished)
    assert trace.records == whole + finished


def break_line(made: Any, number: int, line: str) -> Path:
    lines = made.directory.trace_file(0).read_text().splitlines()
    lines[number - 1] = line
    made.rewrite(0, "\n".join(lines) + "\n")
    return Path(made.directory.trace_file(0))


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "epo',
        "",
        '{"kind": "weather"}',
        '{"kind": "span", "name": "x", "epoch": "one", "start_ns": 0, "end_ns": 1}',
        '{"kind": "span", "name": "x", "epoch": 1, "start_ns": 0, "end_ns": 1, "thread": "third"}',
        "\udcff",
    ],
)
def test_a_corrupt_line_is_named(synthetic: Make, line: str) -> None:
    made = synthetic(epochs=2)
    path = made.directory.trace_file(0)
    lines = path.read_bytes().split(b"\n")
    lines[4] = line.encode("utf-8", "surrogateescape")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(TraceError) as caught:
        read_run(made.path)
    assert f"{path}:5: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("direction", "sideways"), ("purpose", "fun"), ("mode", "maybe"), ("peer", 9), ("sent_ns", 2**70)],
)
def test_a_message_outside_the_schema_is_named(synthetic: Make, field: str, value: object) -> None:
    made = synthetic(epochs=1)
    lines = made.lines(0)
    number = next(i for i, line in enumerate(lines) if line["kind"] == "message")
    path = break_line(made, number + 1, json.dumps({**lines[number], field: value}))
    with pytest.raises(TraceError, match=str(path)):
        read_run(made.path)


def test_a_newer_schema_is_refused_in_one_line(synthetic: Make) -> None:
    made = synthetic(epochs=1)
    header = {"kind": "header", "schema": 2, "entirely": "different"}
    break_line(made, 1, json.dumps(header))
    with pytest.raises(TraceError, match=r"has schema 2, this program knows up to 1"):
        read_run(made.path)
    made = synthetic(epochs=1)
    made.directory.run_json.write_text(json.dumps({"schema": 7}))
    with pytest.raises(TraceError, match=r"run\.json has schema 7"):
        read_run(made.path)


def test_missing_ranks_and_footers_are_noted(synthetic: Make) -> None:
    made = synthetic(epochs=3, world_size=3)
    made.directory.trace_file(1).unlink()
    made.rewrite(2, "".join(made.directory.trace_file(2).read_text().splitlines(keepends=True)[:-1]))
    run = read_run(made.path)
    assert run.missing_ranks == (1,) and not run.complete
    assert run.rank(2) is not None and run.rank(2).footer is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content", [b"hello\n", b"[]\n", b'{"kind": "span"}\n', b'{"a": 1}\n', b"\x89PNG\n\x1a"]
)
def test_a_foreign_file_is_one_clear_line(synthetic: Make, content: bytes) -> None:
    made = synthetic(epochs=1)
    made.directory.trace_file(0).write_bytes(content)
    with pytest.raises(TraceError, match=r"rank-00000\.jsonl:1: .*not a trace of sylvie"):
        read_run(made.path)


def test_things_that_are_no_run(synthetic: Make, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not a directory"):
        read_run(tmp_path / "nothing")
    with pytest.raises(TraceError, match=r"has no run\.json"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(TraceError, match="one JSON object"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(TraceError, match="cannot be read"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1}')
    with pytest.raises(TraceError, match="holds no readable trace"):
        read_run(tmp_path)


def test_files_of_other_runs_and_names_are_refused(synthetic: Make) -> None:
    made = synthetic(epochs=1)
    (made.directory.trace / "notes.jsonl").write_text("x")
    with pytest.raises(TraceError, match=r"notes\.jsonl is not a rank's trace"):
        read_run(made.path)
    made = synthetic(epochs=1)
    made.directory.trace_file(1).rename(made.directory.trace_file(4))
    with pytest.raises(TraceError, match="its header says rank 1"):
        read_run(made.path)
    made = synthetic(epochs=1)
    other = {**made.lines(1)[0], "run_id": "elsewhere"}
    lines = [json.dumps(other), *made.directory.trace_file(1).read_text().splitlines()[1:]]
    made.rewrite(1, "\n".join(lines) + "\n")
    with pytest.raises(TraceError, match="belongs to another run"):
        read_run(made.path)


def test_two_headers_in_a_file_are_an_error(synthetic: Make) -> None:
    made = synthetic(epochs=1)
    path = break_line(made, 3, json.dumps(made.lines(0)[0]))
    with pytest.raises(TraceError, match="a second header"):
        read_trace(path, {})


def test_chunks_do_not_show(synthetic: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = synthetic(epochs=9, world_size=3)
    whole = read_run(made.path)
    monkeypatch.setattr(TableBuilder, "CHUNK", 7)
    chunked = read_run(made.path)
    for a, b in zip(whole.ranks, chunked.ranks, strict=True):
        for mine, theirs in ((a.messages, b.messages), (a.spans, b.spans)):
            assert list(mine.rows()) == list(theirs.rows()) != []


def test_every_message_field_has_a_column() -> None:
    assert TableBuilder(Message, {}).finish().names == Message.__struct_fields__
    assert DIRECTIONS == {"forward": 0, "backward": 1}


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-(2**40), 2**40), st.integers(0, 2**40)), max_size=20)
)
def test_group_codes_are_equal_where_rows_are_and_keep_their_order(rows: list[tuple[int, ...]]) -> None:
    columns = [np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)]
    codes = group_codes(columns).tolist()
    assert sorted(range(len(rows)), key=lambda i: codes[i]) == sorted(range(len(rows)), key=lambda i: rows[i])
    assert len(set(codes)) == len(set(rows))
