"""The README's commands and programs, each run here or held by the test that is named beside it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sylvie.graphs import tiny_arrays, write_npz
from tests.sylvie.runs import environment

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PROGRAMS = {
    "sylvie-train": ["-m", "sylvie"],
    "sylvie-report": ["-m", "sylvie_trace"],
    "sylvie-partition": ["-m", "sylvie.partition.cli"],
    "python": [],
}
INSTALL = "python3.11 -m venv .venv && . .venv/bin/activate && pip install "
#: Commands that are not run here: what covers them, a file and a text in it.
ELSEWHERE = {
    INSTALL + "-e '.[dev]' && python -m pytest": (".ci/run", "python -m pytest"),
    "sylvie-train --dataset my_graph.npz --parts 4 --partition my_graph.part.4": ("tests/sylvie/test_launch.py", "--partition"),
    "sylvie-train graphsage-reddit --data-root /data --parts 8": ("tests/sylvie/data/test_layouts.py", "reddit"),
    "torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr host0 --master-port 29500 "
    "-m sylvie --dataset my_graph.npz --run-dir runs/two": ("tests/sylvie/test_launch.py", "torch.distributed.run"),
}


def fenced(language: str) -> Iterator[str]:
    """The README's blocks in a language."""
    for block in re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL):
        yield block.strip()


def commands() -> list[str]:
    """Every command line, in order."""
    return [line for block in fenced("bash") for line in block.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a graph and the README's own model."""
    folder = tmp_path_factory.mktemp("readme")
    write_npz(folder / "my_graph.npz", **tiny_arrays(60))
    model = next(block for block in fenced("python") if block.startswith("# own_model.py"))
    (folder / "own_model.py").write_text(model + "\n")
    os.symlink(ROOT / "examples", folder / "examples")
    return folder


def run(line: str, place: Path) -> str:
    """Run one command as written, by this interpreter; its standard output."""
    program, *words = shlex.split(line)
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], *words],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_of_the_readme(place: Path) -> None:
    """In the order of the page, so that what one leaves the next may use."""
    assert set(ELSEWHERE) <= set(commands())
    for line in commands():
        if line in ELSEWHERE:
            file, text = ELSEWHERE[line]
            assert text in (ROOT / file).read_text()
            continue
        for part in line.removeprefix(f"{INSTALL}. && ").split(" && "):
            run(f"{part} --epochs 3" if part.startswith("sylvie-train --dataset") else part, place)
    assert (place / "runs" / "first" / "report.html").is_file()
    report = json.loads((place / "runs" / "first" / "report.json").read_text())
    assert report["run"]["complete"]
    assert report["quality"]["best_val"] > 0.85  # it learns


def test_every_file_and_option_that_it_names_is_there() -> None:
    for name in re.findall(r"`((?:examples|docs|analysis|tests|\.ci)/[\w./-]+)`", TEXT):
        assert (ROOT / name).exists(), name
    from sylvie.config import OPTIONS, flag

    known = {flag(name) for name in OPTIONS} | {"--list", "--config", "--help", "--ldr-", "--rule"}
    foreign = {"--nnodes", "--node-rank", "--nproc-per-node", "--master-addr", "--master-port", "--hosts", "--rate"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) <= known | foreign
