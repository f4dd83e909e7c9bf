"""Whole runs in processes of their own: what they record, how they end, and that nothing is left, whoever dies and however."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sylvie_trace.audit import validate
from sylvie_trace.reader import read_run
from sylvie_trace.report import build
from tests.sylvie.graphs import tiny_arrays, write_npz
from tests.sylvie.runs import losses, read_records, train, under_way, wait_for

#: A model of the user's own that fails on one rank, in one epoch.
FAILING = """
from sylvie.nn.models import GraphSAGE

class Net(GraphSAGE):
    calls = 0

    def forward(self, graph, x):
        import os
        self.calls += self.training
        if os.environ["RANK"] == "1" and self.calls == 4:
            raise KeyError("no such thing")
        return super().forward(graph, x)
"""


def foreign(err: list[str]) -> list[str]:
    """Lines on stderr that are not this program's own progress."""
    return [line for line in err if not line.startswith(("load: ", "partition: ", "epoch ", "lonely: "))]


def graph(tmp_path: Path, nodes: int = 90) -> Path:
    """A small graph whose parts have boundaries."""
    return write_npz(tmp_path / "graph.npz", **tiny_arrays(nodes))


def lonely(tmp_path: Path) -> list[str | Path]:
    """A graph and an assignment with which rank 2 has no boundary and no training node; one feature column, some labels −1."""
    arrays, own = tiny_arrays(90), np.arange(90) >= 78
    edges = arrays["edge_index"]
    changes = {
        "edge_index": edges[:, own[edges[0]] == own[edges[1]]],
        "x": arrays["x"][:, :1],
        "y": np.where(own & arrays["train_mask"], -1, arrays["y"]),
        "train_mask": arrays["train_mask"] & ~own,
    }
    (tmp_path / "ids").write_text("".join(f"{part}\n" for part in np.where(own, 2, np.arange(90) % 2)))
    return ["--dataset", write_npz(tmp_path / "lonely.npz", **{**arrays, **changes}), "--partition", "ids", "--parts", "3"]


def test_systems_traced(tmp_path: Path) -> None:
    """Each writes a valid run of which the report says all it can, on a rank without boundary too; sar computes as vanilla."""
    curves, common = {}, ["--epochs", "12", "--dropout", "0"]
    settings: dict[str, list[str | Path]] = {
        "vanilla": [*lonely(tmp_path), "--system", "vanilla"],
        "sar": [*lonely(tmp_path), "--system", "sar"],
        "sylvie": ["--dataset", graph(tmp_path), "--bits", "2", "--schedule", "async", "--mask", "degree"],
    }
    for name, words in settings.items():
        ended = train(tmp_path, *words, *common, "--trace", name=name)
        assert ended.code == 0, ended.err
        assert (foreign(ended.err), ended.out) == ([], "")
        run = read_run(ended.run_dir)
        assert list(validate(run)) == []
        report = build(run)
        assert report.run.complete and report.run.epochs == 12 and report.run.system == name
        assert report.attributed_fraction is not None and 0.5 < report.attributed_fraction <= 1
        assert report.bytes_total is not None and report.bytes_total.train > 0
        assert report.quality is not None and report.quality.metric == "accuracy"
        assert report.bytes_per_epoch is not None and report.bytes_per_epoch.by_pair
        assert (ended.run_dir / "model.safetensors").is_file()
        curves[name] = losses(ended.run_dir)
    assert curves["sar"] == pytest.approx(curves["vanilla"], abs=5e-6)
    assert not [m for m in read_records(tmp_path / "vanilla", 2, "message") if m["rows"]]

    # the same settings without a trace: the same losses, bit for bit, and only the small records
    plain = train(tmp_path, *settings["sylvie"], *common, name="plain")
    assert plain.code == 0, plain.err
    assert losses(plain.run_dir) == curves["sylvie"]
    assert read_records(plain.run_dir, 0, "message") == []
    assert list(validate(read_run(plain.run_dir))) == []
    # the offline stage is the launcher's: done once, its time recorded, found again by the second run
    spans = [s for s in read_records(tmp_path / "sylvie", 0, "span") if s["name"] in ("load", "partition")]
    assert len(spans) == 2 and all(s["end_ns"] > s["start_ns"] for s in spans)
    cached = [json.loads((tmp_path / name / "run.json").read_text())["offline_cached"] for name in ("sylvie", "plain")]
    assert cached == [False, True]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_torchrun(tmp_path: Path) -> None:
    """The same program under torchrun; the ranks prepare the partition themselves."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ended = train(tmp_path, "--dataset", graph(tmp_path), "--epochs", "3", launcher=launcher)
    assert ended.code == 0, ended.err
    assert len(losses(ended.run_dir)) == 3
    assert json.loads((ended.run_dir / "run.json").read_text())["config"]["parts"] == 2
    assert any(line.startswith("partition: ") for line in ended.err)
    assert list(validate(read_run(ended.run_dir))) == []


def test_an_exception_in_one_rank(tmp_path: Path) -> None:
    """The traceback, the error and, last, the rank, how it ended and the epoch."""
    (tmp_path / "failing.py").write_text(FAILING)
    ended = train(tmp_path, "--dataset", graph(tmp_path), "--model", "failing:Net", "--epochs", "20")
    assert ended.code == 1
    assert ended.err[-1] == "rank 1 died (exit code 1) in epoch 3"
    assert ended.err[-2] == "error: 'no such thing'"
    assert any("failing.py" in line for line in ended.err)
    assert len(read_records(ended.run_dir, 1, "epoch")) == 3
    assert read_records(ended.run_dir, 1, "fault")[0]["epoch"] == 3
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_killed_rank_ends_the_run(tmp_path: Path) -> None:
    shared = set(os.listdir("/dev/shm"))
    with under_way(tmp_path, "--dataset", graph(tmp_path), "--timeout", "30") as run:
        os.kill(run.pid(1), signal.SIGKILL)
        started = time.monotonic()
        code, err = run.end()
        assert time.monotonic() - started < 30
        assert code == 1
        epochs = read_records(run.run_dir, 1, "epoch")
        assert foreign(err) == [f"rank 1 died (signal 9) in epoch {epochs[-1]['epoch'] + 1}"]
        assert run.left() == []
    assert [record["epoch"] for record in epochs] == list(range(len(epochs)))
    whole = read_run(run.run_dir)
    assert build(whole).run.complete is False
    assert not {name for name in set(os.listdir("/dev/shm")) - shared if name.startswith(("torch", "sem.", "sylvie"))}
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_silent_rank_ends_the_run(tmp_path: Path) -> None:
    """A rank that is stopped, not dead, is given up after --timeout; then it is ended like the others."""
    with under_way(tmp_path, "--dataset", graph(tmp_path), "--timeout", "4") as run:
        os.kill(run.pid(1), signal.SIGSTOP)
        started = time.monotonic()
        code, err = run.end()
        assert time.monotonic() - started < 4 + 20  # timeout, then the launcher's patience; the machine may be busy
        assert code == 1
        epoch = read_records(run.run_dir, 1, "epoch")[-1]["epoch"] + 1
        assert err[-2:] == ["rank 1 did not react and was ended", f"rank 1 died (signal 9) in epoch {epoch}"]
        assert err[-3].startswith("error: ")
        assert run.left() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_launcher_takes_its_ranks_along(how: signal.Signals, tmp_path: Path) -> None:
    with under_way(tmp_path, "--dataset", graph(tmp_path)) as run:
        os.kill(run.process.pid, how)
        code, err = run.end()
        wait_for(lambda: run.left() == [], "the ranks to end", within_s=15)
        if how != signal.SIGKILL:
            assert code == 1
            assert foreign(err) == [f"stopped by {how.name}"]
        assert len(read_records(run.run_dir, 0, "epoch")) >= 3
