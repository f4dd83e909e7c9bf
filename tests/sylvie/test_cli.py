"""sylvie-train's arguments: what is listed, what runs in this process, and that bad input costs one line and leaves nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from sylvie.cli import main
from sylvie.config import OPTIONS, Config, flag
from sylvie.console import Phases
from sylvie.recipes import RECIPES
from sylvie_trace.audit import validate
from sylvie_trace.reader import read_run
from sylvie_trace.report import build
from tests.sylvie.graphs import tiny_arrays, write_npz
from tests.sylvie.runs import losses, read_records

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory and a cache of the test's own, outside any world of torchrun's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("RANK", "WORLD_SIZE", "SYLVIE_LAUNCHED"):
        monkeypatch.delenv(name, raising=False)
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run with bad input: exit code 2, one line on stderr, nothing made but the notes of the cache; returns the line."""

    def made() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.parent.name != "sources"}  # notes on graphs that were read

    def run(*words: str | Path) -> str:
        capsys.readouterr()
        before = made()
        code = main([*map(str, words)])
        said = capsys.readouterr()
        assert code == 2
        assert said.out == ""
        assert len(said.err.splitlines()) == 1, said.err
        assert {path for path in made() - before if path.name not in ("cache", "sylvie", "partitions", "sources")} == set()
        return said.err

    return run


def npz(**changes: Any) -> Path:
    """A tiny graph in the working directory, with some arrays replaced."""
    return write_npz(Path("graph.npz"), **changes)


def train(*words: str | Path) -> Path:
    """A run of one rank in this process, to its end."""
    assert main([*map(str, words), "--parts", "1", "--run-dir", "run"]) == 0
    return Path("run")


# --- names and listings


def test_list_shows_every_recipe_and_marks_data_to_fetch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RECIPES)
    assert {line.split()[0] for line in lines if "fetched" in line.split()} == {r.name for r in RECIPES.values() if r.fetched}


def test_help_shows_every_option_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, item in OPTIONS.items():
        assert flag(name) in text
        if isinstance(item.default, float | int) and not isinstance(item.default, bool):
            assert f"(default: {item.default})" in text


def test_quickstart_is_what_help_shows() -> None:
    """A run without a recipe has the defaults that --help prints."""
    assert RECIPES["quickstart"].config() == Config()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["quickstrat"], ["'quickstrat'", "did you mean quickstart"]),
        (["my.npz"], ["--dataset my.npz"]),
        (["--bitz", "4"], ["--bitz", "did you mean --bits"]),
        (["--dataset", "reddti"], ["'reddti'", "reddit"]),
        (["--dataset", "nowhere.npz"], ["nowhere.npz", "no such file"]),
        (["--dataset", "reddit"], ["reddit", "expected"]),
        (["--model", "graphsaga"], ["'graphsaga'", "did you mean graphsage"]),
        (["--system", "vanila"], ["'vanila'", "did you mean vanilla"]),
        (["--bits", "3"], ["--bits '3'", "adaptive, 1, 2, 4, 8, 32"]),
        (["--mask", "degre"], ["did you mean degree"]),
        (["--mask-thresholds", ".9,.5,.99"], [".9,.5,.99"]),
        (["--mask-thresholds", "top11"], ["top11", "top10"]),
        (["--ldr-rule", "prosa"], ["did you mean prose"]),
        (["--epochs", "0"], ["--epochs 0", "1 or more"]),
        (["--epochs", "many"], ["--epochs 'many'", "whole number"]),
        (["--lr", "nan"], ["--lr nan", "positive"]),
        (["--dropout", "1"], ["--dropout 1.0", "[0, 1)"]),
        (["--seed", str(2**31)], ["--seed", "out of range"]),
        (["--timeout", "0"], ["--timeout", "positive"]),
        (["--device", "cuda"], ["--device cuda", "cpu"]),
        (["--backend", "nccl"], ["nccl", "gloo"]),
        (["--parts", "0"], ["--parts 0"]),
        (["--ldr-link-rate", "200mbps", "--ldr-clock", "modelled"], ["'200mbps'", "200mbit"]),
    ],
)
def test_unknown_names_and_impossible_values(words: list[str], parts: list[str], refused: Refused) -> None:
    line = refused(*words)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--system", "vanilla", "--bits", "4"], "--bits"),
        (["--system", "sar", "--schedule", "async"], "--schedule"),
        (["--system", "pipegcn", "--mask", "degree"], "--mask"),
        (["--system", "vanilla", "--ldr-delta", "7"], "--ldr-delta"),
        (["--system", "vanilla", "--metadata", "bf16"], "--metadata"),
        (["--heads", "2"], "--heads"),
        (["--jk", "max"], "--jk"),
        (["--sgc", "precompute"], "--sgc"),
        (["--bns-p", "0.2"], "--bns-p"),
        (["--pipegcn-smooth", "both"], "--pipegcn-smooth"),
        (["--system", "pipegcn", "--pipegcn-momentum", "0.5"], "--pipegcn-momentum"),
        (["--mask-seed", "3"], "--mask-seed"),
        (["--bits", "4", "--mask-thresholds", "quartile"], "--mask-thresholds"),
        (["--bits", "32", "--mask", "degree"], "--mask"),
        (["--bits", "8", "--mask", "shuffled"], "--mask"),
        (["--bits", "32", "--metadata", "bf16"], "--metadata"),
        (["--bits", "4", "--schedule", "sync", "--ldr-delta", "3"], "--ldr-delta"),
        (["--bits", "1", "--ldr-max-base", "4"], "--ldr-max-base"),
        (["--system", "vanilla", "--ldr-max-base", "4"], "--ldr-max-base"),
        (["--ldr-rule", "window", "--ldr-delta", "1"], "--ldr-delta"),
        (["--ldr-link-rate", "200mbit"], "--ldr-link-rate"),
        (["--ldr-clock", "modelled"], "--ldr-link-rate"),
        (["--data-root", "."], "--data-root"),
        (["--dataset", "graph.npz", "--partition", "ids", "--partition-seed", "1"], "--partition-seed"),
    ],
)
def test_options_that_cannot_act(words: list[str], option: str, refused: Refused) -> None:
    assert option in refused(*words)


def test_config_file(refused: Refused) -> None:
    """A TOML file sets what the command line sets, the command line rules, and its mistakes are named."""
    npz()
    Path("run.toml").write_text('dataset = "graph.npz"\nepochs = 3\nhidden = 5\nlr = 1\nbits = 4\ntrace = true\n')
    run = train("--config", "run.toml", "--epochs", "2")
    assert len(losses(run)) == 2
    config = json.loads((run / "run.json").read_text())["config"]
    assert (config["hidden"], config["lr"], config["bits"], config["trace"]) == (5, 1.0, "4", True)
    for text, part in [
        ("epoch = 3", "did you mean epochs"),
        ("epochs = ", "run.toml"),
        ('trace = "yes"', "true or false"),
        ("[run]\nepochs = 3", "'run'"),
        ('hidden = "wide"', "whole number"),
    ]:
        Path("run.toml").write_text(text)
        assert part in refused("--config", "run.toml"), text
    assert "no such file" in refused("--config", "none.toml")


def test_another_world_size_than_torchruns(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "WORLD_SIZE 4" in refused("--parts", "2")


# --- graphs, partitions, places


NODES = 12
LABELS = np.arange(NODES, dtype=np.int64) % 3


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"x": np.zeros((NODES - 1, 4), np.float32)}, ["graph.npz"]),
        ({"x": np.full((NODES, 2), np.nan, np.float32)}, ["NaN", "row 0"]),
        ({"x": None}, ["features"]),
        ({"edge_index": np.zeros((3, 5), np.int32)}, ["edge_index", "(3, 5)"]),
        ({"edge_index": np.array([[0], [NODES]])}, [f"node {NODES}"]),
        ({"y": LABELS[:-1]}, ["graph.npz"]),
        ({"y": LABELS - 2}, ["-2"]),
        ({"y": np.where(np.arange(NODES) == 0, -1, LABELS)}, ["label"]),
        ({"train_mask": np.zeros(NODES, bool)}, ["train_mask", "no node"]),
        ({"val_mask": np.ones(NODES + 1, bool)}, ["val_mask", "shape"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_graphs_that_cannot_be_trained(changes: dict[str, Any], parts: list[str], refused: Refused) -> None:
    npz(**changes)
    line = refused("--dataset", "graph.npz", "--run-dir", "run")
    assert all(part in line for part in parts), line


def test_a_truncated_file(refused: Refused) -> None:
    whole = npz().read_bytes()
    for share in (0, len(whole) // 2, len(whole) - 5):
        Path("graph.npz").write_bytes(whole[:share])
        assert "graph.npz" in refused("--dataset", "graph.npz")


def test_partitions_that_do_not_fit(refused: Refused) -> None:
    npz()
    assert "13 parts" in refused("--dataset", "graph.npz", "--parts", "13")
    assert "No such file" in refused("--dataset", "graph.npz", "--partition", "none")
    for text, part in [
        ("0\n1\n" * 5, "10 lines for 12 nodes"),
        ("0\n1\n" * 5 + "0\n2\n", "part 2"),
        ("0\n" * 12, "part 1"),
        ("0\nx\n" * 6, "line 2"),
    ]:
        Path("ids").write_text(text)
        assert part in refused("--dataset", "graph.npz", "--partition", "ids"), text


def test_run_directories_that_cannot_be_used(refused: Refused) -> None:
    Path("full").mkdir()
    Path("full", "note").write_text("mine")
    assert "in use" in refused("--run-dir", "full")
    assert "in use" in refused("--run-dir", "full/note")
    assert "full/note is not a directory" in refused("--run-dir", "full/note/run")
    assert Path("full", "note").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "name", "parts"),
    [
        ("", "own:Net", ["'Net'", "own"]),
        ("import nothing_of_the_kind", "own:Net", ["own", "nothing_of_the_kind"]),
        ("class Net:\n    def __init__(self, *_): pass", "own:Net", ["torch.nn.Module"]),
        ("", "none:Net", ["cannot import none"]),
    ],
)
def test_models_that_cannot_be_made(text: str, name: str, parts: list[str], refused: Refused) -> None:
    """The run directory that a rank made before it built its model is taken back."""
    npz()
    Path("own.py").write_text(text)
    sys.modules.pop("own", None)
    code = main(["--dataset", "graph.npz", "--parts", "1", "--model", name, "--run-dir", "run"])
    assert code == 2
    assert not Path("run").exists()


# --- legal, if odd


def test_one_rank_one_column_one_epoch_unlabelled(capsys: pytest.CaptureFixture[str]) -> None:
    """One rank, one feature column, one epoch, labels of −1 outside every mask, an isolated node, a self-loop."""
    arrays = tiny_arrays()
    inside = arrays["train_mask"] & (np.arange(NODES) != 3)
    edges = np.array([[0, 1, 2, 2, 4], [1, 2, 0, 2, 0]], dtype=np.int64)
    labels = np.where(np.arange(NODES) == 3, -1, arrays["y"])
    npz(edge_index=edges, x=arrays["x"][:, :1], y=labels, train_mask=inside)
    run = train("--dataset", "graph.npz", "--epochs", "1", "--trace")
    report = build(read_run(run))
    assert list(validate(read_run(run))) == []
    assert report.run.complete and report.run.world_size == 1
    assert report.bytes_total is not None and report.bytes_total.sent == 0
    assert len(safetensors.numpy.load_file(run / "model.safetensors")) > 0
    assert "epoch 0: loss" in capsys.readouterr().err


def test_a_run_directory_that_is_there_and_empty() -> None:
    npz()
    Path("run").mkdir()
    train("--dataset", "graph.npz", "--epochs", "2")
    assert len(read_records(Path("run"), 0, "epoch")) == 2


# --- what is told


def test_phases_wait_for_a_refusal() -> None:
    """Lines come at the end of a good stage or when patience is over, and never before a prompt refusal."""
    told: list[str] = []
    good, bad, slow = Phases(told.append, 60), Phases(told.append, 60), Phases(told.append, 0)
    good("load")
    bad("wrong")
    assert told == []
    good.close(refused=False)
    bad.close(refused=True)
    assert told == ["load"]
    slow._timer.join()
    slow("cut")
    slow.close(refused=True)
    assert told == ["load", "cut"]
