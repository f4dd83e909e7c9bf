"""The page: self-contained, safe with any name, honest about what it leaves out, drawn by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sylvie_trace.cli import main
from sylvie_trace.details import details
from sylvie_trace.reader import read_run
from sylvie_trace.report.html import page
from sylvie_trace.report.html.advice import advise
from sylvie_trace.report.html.bins import bins, plotted
from sylvie_trace.report_types import Finding
from sylvie_trace.summary import build, run_parts
from tests.sylvie_trace.conftest import SyntheticRun
from tests.sylvie_trace.large_run import write_large_run

Make = Callable[..., SyntheticRun]
ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script>\"'&amp; \x07\x1b[31m\u2028 žluťoučký 图 \U0001f600"


class Page(HTMLParser):
    """What a browser would make of a page: texts, scripts, attributes that fetch something, graph divs."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[str] = []
        self.fetches: list[str] = []
        self.graphs: list[str] = []
        self.words = ""
        self.json: dict[str, str] = {}
        self._in: tuple[str, str | None] = ("", None)
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._in = (tag, attributes.get("id"))
        if tag == "script":
            self.scripts.append("")
        self.fetches += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.fetches += [tag] if tag in ("link", "iframe", "object", "embed", "img", "base") else []
        if "plotly-graph-div" in str(attributes.get("class")):
            self.graphs.append(str(attributes["id"]))

    def handle_endtag(self, tag: str) -> None:
        self._in = ("", None)

    def handle_data(self, data: str) -> None:
        tag, name = self._in
        if tag == "script":
            self.scripts[-1] += data
            if name:
                self.json[name] = self.json.get(name, "") + data
        elif tag != "style":
            self.words += data


def rendered(made: SyntheticRun) -> str:
    run = read_run(made.path)
    parts = run_parts(run)
    return page(run, build(run, parts), details(run, parts))


def figures(parsed: Page) -> dict[str, dict[str, Any]]:
    """Every figure's data and layout by the id of its div."""
    found = {}
    for script in parsed.scripts:
        match = re.match(r'drawn\(figure => Plotly\.newPlot\("([^"]+)", .*?, config\), (.*)\)$', script, re.S)
        if match:
            found[match[1]] = json.loads(match[2])
    return found


def test_one_file_without_a_network(synthetic: Make) -> None:
    text = rendered(synthetic(world_size=3, epochs=12))
    parsed = Page(text)
    assert parsed.fetches == []
    assert "@import" not in text.split("</style>")[0] and "url(" not in text.split("</style>")[0]
    assert "default-src 'none'" in text
    assert len(parsed.graphs) >= 12 and len(set(parsed.graphs)) == len(parsed.graphs)
    assert set(figures(parsed)) == set(parsed.graphs)
    assert sum("Plotly" in script and len(script) > 1_000_000 for script in parsed.scripts) == 1
    assert json.loads(parsed.json["report"])["run"]["world_size"] == 3


def test_the_verdict_and_the_findings_come_first(synthetic: Make) -> None:
    text = rendered(synthetic(epochs=12, late_ms=(0, 40, 0, 0), gap_ms=9))
    places = [text.index(mark) for mark in ('id="verdict"', 'id="findings"', 'id="axes"', 'class="plotly-graph-div"')]
    assert places == sorted(places)
    words = Page(text).words
    assert "an epoch:" in words and "times smaller than fp32" in words
    assert "rank 1 was the last to send" in words and "Look at that rank's host" in words
    assert "Read with care" not in words and re.search(r"\d+ warnings? below", words)


@pytest.mark.parametrize("traced", [True, False])
def test_a_single_rank_and_an_untraced_run_have_six_pictures(synthetic: Make, traced: bool) -> None:
    parsed = Page(rendered(synthetic(world_size=1, epochs=12, trace=traced)))
    assert len(parsed.graphs) >= 5
    assert "One rank sends nothing" in parsed.words
    parsed = Page(rendered(synthetic(world_size=2, epochs=12, trace=traced)))
    assert len(parsed.graphs) >= 6


def test_no_name_escapes(synthetic: Make) -> None:
    """Names from every source stand in the page as they are, and no element comes of them."""
    made = synthetic(epochs=3)
    info = made.info()
    info["config"] |= {"dataset": HOSTILE, "model": HOSTILE, "system": HOSTILE, HOSTILE: HOSTILE}
    info["dataset"] = {"name": HOSTILE, HOSTILE: 1}
    info["versions"] = {HOSTILE: HOSTILE}
    info["devices"] = [{"rank": 0, "host": HOSTILE, HOSTILE: None}]
    made.directory.write_run_json(info)
    for rank in (0, 1):
        lines = made.directory.trace_file(rank).read_text().splitlines(keepends=True)
        header = json.loads(lines[0]) | {"host": HOSTILE, "run_id": HOSTILE}
        fault = {"kind": "fault", "epoch": 2, "error": "ValueError", "message": HOSTILE}
        span = json.loads(next(line for line in lines if '"kind":"span"' in line)) | {"name": HOSTILE}
        extra = [json.dumps(record) + "\n" for record in (header, fault, span)]
        made.rewrite(rank, "".join([extra[0], *extra[1:], *lines[1:]]))
    plain, parsed = Page(rendered(synthetic(epochs=3))), Page(rendered(made))
    assert len(parsed.scripts) == len(plain.scripts) and parsed.graphs == plain.graphs
    assert parsed.words.count(HOSTILE) >= 10
    report = json.loads(parsed.json["report"])
    assert report["run"]["dataset"] == report["run"]["run_id"] == HOSTILE
    assert any(HOSTILE in finding["evidence"] for finding in report["findings"])
    assert set(figures(parsed)) == set(parsed.graphs)


def test_characters_that_html_would_change(synthetic: Make) -> None:
    made = synthetic(epochs=3)
    info = made.info()
    info["config"]["note"] = "a\x00b\rc"
    made.directory.write_run_json(info)
    text = rendered(made)
    assert "a␀b&#13;c" in text and "\x00" not in text


def test_pictures_over_epochs_say_when_they_gather(synthetic: Make) -> None:
    few = Page(rendered(synthetic(epochs=40)))
    assert "stands for" not in few.words
    many = Page(rendered(synthetic(epochs=600)))
    assert "Each point stands for 3 epochs." in many.words
    bars = figures(many)["figure-time-over-epochs"]["data"][0]
    assert bars["type"] == "bar" and len(bars["x"]) == len(bars["y"]) == 200


def test_an_interrupted_run_gives_a_useful_page(synthetic: Make) -> None:
    made = synthetic(epochs=12)
    for rank, keep in ((0, 70), (1, 60)):
        text = made.directory.trace_file(rank).read_text().splitlines(keepends=True)
        made.rewrite(rank, "".join(text[:keep]) + text[keep][:20])
    parsed = Page(rendered(made))
    assert "Read with care: the run is not complete." in parsed.words
    assert "ends in the middle of a record" in parsed.words and len(parsed.graphs) >= 8


def test_a_run_without_a_finished_epoch(synthetic: Make) -> None:
    made = synthetic(epochs=1)
    for rank in (0, 1):
        lines = made.directory.trace_file(rank).read_text().splitlines(keepends=True)
        made.rewrite(rank, "".join(lines[:6]))
    assert "No epoch is left to measure: 0 recorded" in Page(rendered(made)).words


def test_the_same_run_gives_the_same_page(synthetic: Make) -> None:
    made = synthetic(epochs=3)
    assert rendered(made) == rendered(made)


def test_the_program_writes_the_page(synthetic: Make, capsys: pytest.CaptureFixture[str]) -> None:
    made = synthetic(epochs=3)
    assert main([str(made.path)]) == 0
    capsys.readouterr()
    assert made.directory.report_html.read_text("utf-8").startswith("<!doctype html>")


def test_every_finding_has_its_words() -> None:
    source = (ROOT / "sylvie_trace" / "findings.py").read_text()
    checks = set(re.findall(r"_(?:warning|note|graded)\(\s*\"(\w+)\"", source))
    assert {"straggler", "boundary_share", "audit"} <= checks
    for check in checks:
        advised = advise(Finding(check=check, status="warning", evidence="e"))
        assert advised.what != check.replace("_", " ").capitalize() and advised.do, check
    other = advise(Finding(check="new_check", status="note", evidence="e"))
    assert (other.what, other.evidence) == ("New check", "e") and other.do


def test_bins_cover_every_epoch_once() -> None:
    grouped = bins(np.arange(10, 17), 3)
    assert grouped.size == 3 and grouped.x == [11, 14, 16]
    values = [1.0, np.nan, 3.0, 4.0, 5.0, 9.0, np.nan]
    assert grouped.mean(values) == [2, 6, None]
    assert grouped.low(values) == [1, 4, None] and grouped.high(values) == [3, 9, None]
    assert grouped.note and not bins(np.arange(3), 3).note
    assert bins(np.arange(0), 3).mean([]) == []
    assert plotted([1 / 3, np.inf]) == [0.333333, None]


@pytest.mark.slow
@pytest.mark.parametrize("size", [{"ranks": 64, "epochs": 20}, {"ranks": 2, "epochs": 5000}, {"ranks": 1, "epochs": 3}])
def test_a_browser_draws_every_picture(tmp_path: Path, size: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs a Chromium")
    write_large_run(tmp_path / "run", **size)
    assert main([str(tmp_path / "run")]) == 0
    capsys.readouterr()
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run([*command, (tmp_path / "run" / "report.html").as_uri()], capture_output=True, text=True, timeout=600)
    assert "CONSOLE" not in done.stderr, done.stderr
    parsed = Page(done.stdout)
    assert len(parsed.graphs) >= 5
    assert done.stdout.count('class="plot-container') >= len(parsed.graphs)


@pytest.mark.slow
def test_a_million_records_in_bounds(tmp_path: Path) -> None:
    """Memory is held; the time is printed, for a clock is no judge on a shared machine."""
    records = write_large_run(tmp_path / "run", ranks=8, epochs=2050, layers=4)
    assert records >= 1_000_000
    code = (
        "import resource, sys; from sylvie_trace.cli import main; code = main(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True)
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    peak_mb = int(done.stderr.split()[-1]) / 1024
    size_mb = (tmp_path / "run" / "report.html").stat().st_size / 1e6
    print(f"{records} records: {seconds:.1f} s, {peak_mb:.0f} MB, page {size_mb:.1f} MB")
    assert peak_mb < 1500 and size_mb < 12
    report = msgspec.json.decode((tmp_path / "run" / "report.json").read_bytes())
    assert len(report["series"]["L"]) == 2050
