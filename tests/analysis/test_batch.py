"""Batches: many runs in the same processes give what single starts give, leak nothing, and survive a run that fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import batch
from analysis.driver import Driver
from analysis.jobs import Job, read_jobs, write_jobs
from analysis.settings import Outcome, Setting

GRAPH: dict[str, Any] = {
    "dataset": "generator:nodes=300,degree=8,features=12",
    "epochs": 12,
    "hidden": 16,
    "eval-every": 4,
    "parts": 2,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "vanilla": {"system": "vanilla"},
    "one bit": {"bits": 1, "schedule": "sync"},
    "late": {"bits": 2, "schedule": "async", "mask": "degree"},
    "adaptive": {"ldr-clock": "constant"},
}


def _series(outcome: Outcome) -> dict[str, Any]:
    assert outcome.report is not None, outcome.error
    return {key: outcome.report["series"][key] for key in ("L", "F", "base_bits", "mode")} | dict(outcome.report["quality"])


def _settings(cache: Path, *labels: str, seed: int = 5, **more: Any) -> list[Setting]:
    options = GRAPH | {"cache-dir": str(cache)} | more
    return [Setting(label=label, seed=seed, options=options | VARIANTS[label]) for label in labels]


def test_a_batch_gives_what_single_starts_give(tmp_path: Path) -> None:
    """Every kind of run before it in the same processes changes no bit of a run's losses and scores."""
    settings = [*_settings(tmp_path / "cache", *VARIANTS), *_settings(tmp_path / "cache", "adaptive", "late", seed=6)]
    together = Driver(tmp_path / "together").run(settings)
    assert len(list((tmp_path / "together" / "batches").glob("*.json"))) == 1
    alone = Driver(tmp_path / "alone", batch=None).run(settings[3:5])
    assert not (tmp_path / "alone" / "batches").exists()
    assert [_series(one) for one in together[3:5]] == [_series(one) for one in alone]
    assert _series(together[3]) != _series(together[4])  # another seed is another run
    assert all("epoch 11" in (tmp_path / "together/logs" / f"{each.name}.log").read_text() for each in settings)
    again = Driver(tmp_path / "together").run(settings)
    assert all(outcome.reused for outcome in again)


def test_sessions_leave_nothing_behind_in_the_process(tmp_path: Path) -> None:
    settings = [
        Setting(
            label=f"run {number}",
            seed=number,
            options=GRAPH | {"cache-dir": str(tmp_path / "cache"), "epochs": 2},
            session="tests.analysis.counting_session:CountingSession",
        )
        for number in range(5)
    ]
    outcomes = Driver(tmp_path / "out").run(settings)
    for rank in range(2):
        held = [json.loads((outcome.run_dir / f"held-{rank}.json").read_text()) for outcome in outcomes]
        assert held[1] == held[-1], held  # the first run's imports and pools are the process's own
        assert len({each["pid"] for each in held}) == 1


def test_a_failing_run_is_named_and_the_others_run(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    wrong = Setting(label="wrong", seed=1, options=GRAPH | {"cache-dir": str(cache), "bits": 3})
    settings = [*_settings(cache, "vanilla"), wrong, *_settings(cache, "one bit", "late")]
    outcomes = Driver(tmp_path / "out", keep_going=True).run(settings)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True, True]
    assert "--bits '3' is unknown" in (outcomes[1].error or "")
    assert (outcomes[1].error or "").startswith("exit code 2")
    assert len(list((tmp_path / "out" / "batches").glob("*.json"))) == 2
    with pytest.raises(RuntimeError, match=r"run wrong.*--bits"):
        Driver(tmp_path / "out").run(settings)


def test_jobs_are_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        Job(arguments=("quickstart", "--bits", "1"), run_dir=tmp_path / "r", log=tmp_path / "l"),
        Job(arguments=(), run_dir=tmp_path / "s", log=tmp_path / "l", session="a.b:C"),
    ]
    file = tmp_path / "jobs.json"
    write_jobs(file, 3, jobs)
    assert read_jobs(file) == (3, jobs)
    file.write_text('{"parts": 2, "jobs": [{"arguments": []}]}')
    assert batch.main([str(file)]) == 2
    assert "run_dir" in capsys.readouterr().err
    assert batch.main([str(tmp_path / "none.json")]) == 2


def test_a_run_in_the_batch_with_other_ranks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    job = Job(arguments=("--parts", "2"), run_dir=tmp_path / "r", log=tmp_path / "l")
    write_jobs(file, 1, [job])
    assert batch.main([str(file)]) == 2
    assert "--parts 2 in a batch of 1 ranks" in capsys.readouterr().err
