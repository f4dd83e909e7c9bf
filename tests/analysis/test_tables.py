"""Tables: means, deviations and paired comparisons, by hand-worked numbers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from analysis.settings import Outcome, Setting
from analysis.tables import Column, build_table, markdown, summarise, value_at, write_table

TIME = Column(title="epoch, ms", path="epoch_time_s.median", scale=1000, digits=0, versus="speedup")
TEST = Column(title="test, %", path="quality.final_test", scale=100, versus="difference")
LINK = Column(title="link, MB/s", path="link.goodput_bytes_per_s", scale=1e-6, digits=1)


def _outcome(label: str, seed: int, time_s: float | None, test: float | None, **more: Any) -> Outcome:
    report = {"epoch_time_s": {"median": time_s}, "quality": {"final_test": test}}
    return Outcome(setting=Setting(label=label, seed=seed), run_dir=Path("r"), report=report, **more)


@pytest.fixture
def outcomes() -> list[Outcome]:
    return [
        _outcome("vanilla", 0, 2.0, 0.80, link={"goodput_bytes_per_s": 24e6}),
        _outcome("sylvie", 0, 0.2, 0.79),
        _outcome("vanilla", 1, 3.0, 0.82),
        _outcome("sylvie", 1, 0.25, 0.83),
        _outcome("sylvie", 2, 0.3, 0.5),  # no vanilla of this seed: enters the mean, not the comparison
        _outcome("sylvie", 3, None, None),
    ]


def test_means_and_pairs(outcomes: list[Outcome]) -> None:
    table = build_table("Speed", outcomes, [TIME, TEST, LINK], baseline="vanilla")
    assert list(table.rows) == ["vanilla", "sylvie"]
    time, test, link = table.rows["sylvie"]
    assert dict(time.values) == pytest.approx({0: 200, 1: 250, 2: 300})
    assert time.summary is not None
    assert (time.summary.mean, time.summary.std, time.summary.n) == pytest.approx((250, 50, 3))
    assert time.versus is not None
    assert (time.versus.mean, time.versus.std, time.versus.n) == pytest.approx((11, math.sqrt(2), 2))
    assert test.versus is not None
    assert (test.versus.mean, test.versus.std) == pytest.approx((0.0, math.sqrt(2)))
    assert (test.versus.low, test.versus.high) == pytest.approx((-12.7062, 12.7062), rel=1e-4)  # t(.975, 1)
    assert link.summary is None
    vanilla = table.rows["vanilla"]
    assert vanilla[0].versus is None
    assert vanilla[2].summary is not None
    assert (vanilla[2].summary.mean, vanilla[2].summary.std) == (24.0, None)


def test_what_is_written(outcomes: list[Outcome], tmp_path: Path) -> None:
    broken = Outcome(setting=Setting(label="sar", seed=0), run_dir=Path("r"), report=None, error="it died")
    table = build_table("Speed", [*outcomes, broken], [TIME, TEST, LINK], baseline="vanilla")
    write_table(table, tmp_path / "new", "speed")
    text = (tmp_path / "new" / "speed.md").read_text()
    assert text == markdown(table)
    lines = text.splitlines()
    assert "| vanilla | 1 to 2 | 2500 ± 707 | 81.00 ± 1.41 | 24.0 |" in lines
    assert "| sylvie | 3 | 250 ± 50 (× 11.00 ± 1.41, [-1.71, 23.71]) " in text
    assert "(Δ +0.00 ± 1.41, [-12.71, +12.71])" in text
    assert "| sar | 0 | not measured | not measured | not measured |" in lines
    assert "it died" in lines[-1]
    read = json.loads((tmp_path / "new" / "speed.json").read_text())
    assert [row["label"] for row in read["rows"]] == ["vanilla", "sylvie", "sar"]
    assert read["rows"][1]["cells"]["test, %"]["values"] == pytest.approx({"0": 79, "1": 83, "2": 50})
    assert read["rows"][2]["cells"]["test, %"]["summary"] is None
    assert len(read["failed"]) == 1


def test_absent_is_never_a_number() -> None:
    outcome = _outcome("a", 0, math.nan, None)
    for path in ("epoch_time_s.median", "quality.final_test", "quality.none", "quality", "link.rate"):
        assert value_at(outcome, path) is None
    assert summarise([]) is None


def test_bad_tables(outcomes: list[Outcome]) -> None:
    with pytest.raises(ValueError, match="baseline 'dgl'"):
        build_table("t", outcomes, [TIME], baseline="dgl")
    with pytest.raises(ValueError, match="seed 0 twice"):
        build_table("t", [outcomes[0], outcomes[0]], [TIME])
