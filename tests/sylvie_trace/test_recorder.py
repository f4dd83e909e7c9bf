"""The writer: every recorded line is on disk at once, and what tracing off leaves out."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import Bits, Epoch, Fault, Footer, Header, Message, Reuse, Span

ROOT = Path(__file__).resolve().parents[2]


def header(**changes: Any) -> Header:
    values: dict[str, Any] = {
        "schema": 1,
        "run_id": "r",
        "rank": 0,
        "world_size": 2,
        "pid": 1,
        "host": "h",
        "wall_ns": 0,
        "clock_ns": 0,
        "offset_ns": 0,
        "offset_bound_ns": 0,
        "trace": True,
    }
    return Header(**{**values, **changes})


def message(epoch: int, purpose: str = "train") -> Message:
    counts: dict[str, Any] = {
        f"{side}{name}": 1
        for side in ("", "recv_")
        for name in ("rows", "main_bytes", "meta_bytes", "header_bytes")
    }
    return Message(
        purpose=purpose,
        epoch=epoch,
        layer=1,
        step=0,
        direction="forward",
        peer=1,
        mode="sync",
        width=4,
        recv_epoch=None,
        consumed_epoch=None,
        age=None,
        unused=False,
        sent_ns=None,
        fused=True,
        **counts,
    )


def epoch(number: int, **changes: Any) -> Epoch:
    counts: dict[str, Any] = dict.fromkeys(
        ("rows", "main_bytes", "meta_bytes", "header_bytes", "gradient_allreduce_bytes"), 0
    )
    values: dict[str, Any] = {
        "mode": "sync",
        "base_bits": 1,
        "start_ns": 0,
        "end_ns": 1,
        "epoch_time_ns": 1,
        "loss": 1.0,
        "smoothed_loss": 1.0,
        "ldr": None,
        "descent_rate": None,
        "et_wall_s": 1.0,
        "et_s": 1.0,
    }
    return Epoch(epoch=number, **counts, **{**values, **changes})


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def test_each_record_is_a_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace" / "rank-00000.jsonl"
    recorder = Recorder(path, header())
    assert recorder.trace and kinds(path) == ["header"]
    recorder.record(Span(name="forward", epoch=0, start_ns=1, end_ns=2))
    assert kinds(path) == ["header", "span"]  # before any close
    recorder.close()
    recorder.close()
    with pytest.raises(ValueError, match="is closed"):
        recorder.record(message(0))


def test_without_tracing_only_the_details_of_epochs_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, header(trace=False))
    assert not recorder.trace
    dropped = [
        message(0),
        message(7, "evaluate"),
        Span(name="forward", epoch=0, start_ns=1, end_ns=2),
        Reuse(epoch=3, layer=1, step=0, direction="forward", peer=1, recv_epoch=2, age=1),
    ]
    kept = [
        Span(name="partition", epoch=-1, start_ns=1, end_ns=2),
        Span(name="evaluate", epoch=3, start_ns=1, end_ns=2),
        message(-1, "input_halo"),
        epoch(0),
        Bits(epoch=0, base_bits=1, histogram={"1": 3}),
        Fault(epoch=0, error="E", message="m"),
        Footer(complete=True, end_ns=1, bytes={}, peak_memory_mb=None, device_peak_mb=None),
    ]
    for record in (*dropped, *kept):
        recorder.record(record)
    assert kinds(path) == ["header", "span", "span", "message", "epoch", "bits", "fault", "footer"]


def test_no_nan_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, header())
    recorder.record(epoch(0, loss=math.nan, ldr=math.inf, metrics={"val": math.nan}))
    written = json.loads(path.read_text().splitlines()[1], parse_constant=pytest.fail)
    assert (written["loss"], written["ldr"], written["metrics"]) == (None, None, {"val": None})
    with pytest.raises(ValueError, match="epoch 1: et nan s"):
        recorder.record(epoch(1, et_s=math.nan))
    assert len(path.read_text().splitlines()) == 2


def test_many_details_are_whole_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, header())
    recorder.record_details([message(n) for n in range(5)])
    recorder.record_details([])
    one_by_one = [json.dumps(json.loads(line)) for line in path.read_text().splitlines()[1:]]
    for n in range(5):
        recorder.record(message(n))
    lines = [json.dumps(json.loads(line)) for line in path.read_text().splitlines()[1:]]
    assert len(one_by_one) == 5 and lines == one_by_one * 2
    silent = Recorder(tmp_path / "off.jsonl", header(trace=False))
    silent.record_details([message(0), Span(name="load", epoch=-1, start_ns=0, end_ns=1)])
    assert kinds(tmp_path / "off.jsonl") == ["header", "span"]


def test_a_used_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    Recorder(path, header()).close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="already holds a trace"):
        Recorder(path, header())
    assert path.read_bytes() == before


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, header())

    def work(number: int) -> None:
        for _ in range(200):
            recorder.record(message(number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = [json.loads(line)["epoch"] for line in path.read_text().splitlines()[1:]]
    assert sorted(epochs) == sorted(list(range(4)) * 200)


def test_every_line_survives_a_kill(tmp_path: Path) -> None:
    """A child records for ever and says how far it is; after SIGKILL all it said is on disk, whole."""
    path = tmp_path / "t.jsonl"
    code = (
        "import sys\n"
        "from sylvie_trace.recorder import Recorder\n"
        "from sylvie_trace.schema import Header, Span\n"
        "h = Header(schema=1, run_id='r', rank=0, world_size=1, pid=1, host='h', wall_ns=0, clock_ns=0,"
        " offset_ns=0, offset_bound_ns=0, trace=True)\n"
        "r = Recorder(sys.argv[1], h)\n"
        "n = 0\n"
        "while True:\n"
        "    r.record(Span(name='forward', epoch=n, start_ns=n, end_ns=n + 1))\n"
        "    n += 1\n"
        "    if n % 100 == 0: print(n, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said = [int(child.stdout.readline()) for _ in range(5)][-1]
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split()
    child.stdout.close()
    assert child.wait(timeout=30) == -signal.SIGKILL
    said = int(rest[-1]) if rest else said
    lines = path.read_text().splitlines()[1:]
    assert len(lines) >= said >= 500
    assert [json.loads(line)["epoch"] for line in lines] == list(range(len(lines)))
