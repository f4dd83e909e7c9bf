"""``sylvie-partition`` from outside: exit codes, what it prints, one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from sylvie.partition import load_partition
from sylvie.partition.cli import main
from tests.sylvie.graphs import write_npz

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("SYLVIE_DATA", str(tmp_path / "data"))


def test_partitions_and_prints_the_numbers(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    arguments = ["generator:nodes=300,degree=6", "--parts", "3", "--seed", "2", "--out", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "balance" in printed.out
    assert "boundary share" in printed.out
    assert "volume" in printed.out
    assert f"kept in {out}" in printed.out
    assert "load: generator, 300 nodes" in printed.err
    assert load_partition(out, 2, 3).world_size == 3
    assert main(arguments) == 0
    assert f"found in {out}" in capsys.readouterr().out


def test_default_cache_and_data_root(tmp_path: Path, capsys: Capture) -> None:
    write_npz(tmp_path / "named.npz")
    assert main(["named", "--data-root", str(tmp_path)]) == 0
    assert str(tmp_path / "xdg" / "sylvie" / "partitions") in capsys.readouterr().out


def test_projection_and_ready_assignment(tmp_path: Path) -> None:
    path, parts, out = write_npz(tmp_path / "a.npz"), tmp_path / "a.part.2", tmp_path / "out"
    parts.write_text("0\n1\n" * 6)
    chosen = ["--partition", str(parts), "--input-projection", "3", "--out", str(out)]
    assert main([str(path), *chosen]) == 0
    part = load_partition(out, 1, 2)
    assert part.inner_ids.tolist() == [1, 3, 5, 7, 9, 11]
    assert tuple(part.features.shape) == (6, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["crora"], "did you mean cora"),
        (["reddit"], "is not under"),
        (["gone.npz"], "no such file"),
        (["generator", "--parts", "0"], "0 parts"),
        (["generator:nodes=40,degree=2", "--parts", "50"], "50 parts are more than the 40 nodes"),
        (["generator", "--seed", "-1"], "too small"),
        (["generator", "--input-projection", "0"], "at least 1"),
        (["generator", "--partition", "gone.part"], "gone.part"),
        (["generator", "--parts", "two"], "invalid int value"),
        (["generator", "--colour"], "unrecognized arguments"),
        ([], "required"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(arguments)
    except SystemExit as stop:
        code = stop.code
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith("load: ")]
    assert code == 2
    assert len(lines) == 1
    assert words in lines[0]
    assert printed.out == ""


def test_seed_without_effect_is_refused(tmp_path: Path, capsys: Capture) -> None:
    parts = tmp_path / "p"
    parts.write_text("0\n1\n" * 6)
    assert main([str(write_npz(tmp_path / "a.npz")), "--partition", str(parts), "--seed", "3"]) == 2
    assert "--seed does nothing" in capsys.readouterr().err
