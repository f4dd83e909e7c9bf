"""The replay gives the logged decisions again, and shows what another rule or clock would have done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sylvie_trace.decision import ControllerConfig
from sylvie_trace.reader import read_run
from sylvie_trace.replay import first_mismatch, logged_config, replay
from sylvie_trace.schema import Decision, Epoch

Make = Callable[..., Any]

LOSSES = [3.0, 2.5, 2.6, 1.9, 1.2, 1.5, 1.1, 0.9, 0.95, 0.4, 0.42, 0.41]


@pytest.mark.parametrize("rule", ["equation", "prose", "window"])
@pytest.mark.parametrize(("bits", "schedule"), [(None, "adaptive"), (4, "adaptive"), (None, "async")])
def test_the_log_follows_its_rule(synthetic: Make, rule: str, bits: int | None, schedule: str) -> None:
    config = ControllerConfig(rule=rule, delta=2, smoothing=0.5, bits=bits, schedule=schedule)
    run = read_run(synthetic(losses=LOSSES, controller=config).path)
    assert logged_config(run) == config
    assert first_mismatch(run) is None
    result = replay(run)
    assert (result.decided, result.differ, result.differs_share) == (9, 0, 0.0)
    logged = [(d.ldr, d.outcome, d.base_after, d.mode_after, d.forced_sync) for d in run.ranks[0].decisions]
    again = [(v.ldr, v.outcome, v.base_next, v.mode_next, v.forced_sync) for v in result.verdicts]
    assert again == logged


def test_another_rule_differs(synthetic: Make) -> None:
    run = read_run(synthetic(losses=LOSSES, controller=ControllerConfig(delta=2, smoothing=0.0)).path)
    other = replay(run, rule="prose")
    # Without ties the two rules always disagree.
    assert other.differs_share == 1.0 and other.first_difference == 3
    assert replay(run, smoothing=0.9).config.smoothing == 0.9
    capped = replay(run, max_base=2)
    assert capped.differ == 0 and max(v.base_next for v in capped.verdicts) == 2, "the same outcomes move a smaller base"
    assert capped.mean_base is not None and capped.mean_base < (replay(run).mean_base or 0)
    shorter = replay(run, delta=1)
    assert shorter.decided == 10 and shorter.differ >= 1  # epoch 2: the log still held


def test_a_constant_clock_shows_what_the_times_decided(synthetic: Make) -> None:
    """A steady fall with uneven times: every true decision came from the clock."""

    def uneven(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch):
            return msgspec.structs.replace(record, et_s=0.5 if record.epoch % 2 else 1.0)
        return record

    losses = [20.0 - t for t in range(12)]
    run = read_run(
        synthetic(losses=losses, controller=ControllerConfig(delta=3, smoothing=0.0), change=uneven).path
    )
    wall, constant = replay(run), replay(run, constant_clock=True)
    assert {v.outcome for v in constant.verdicts[4:]} == {"false"}
    assert [v.outcome for v in wall.verdicts[4:]] == ["false", "true"] * 4
    assert constant.config.clock == "constant"


def test_a_forged_decision_is_named(synthetic: Make) -> None:
    def forge(rank: int, record: Any) -> Any:
        if isinstance(record, Decision) and (rank, record.epoch) == (1, 6):
            return msgspec.structs.replace(record, base_after=16)
        return record

    mismatch = first_mismatch(read_run(synthetic(losses=LOSSES, change=forge).path))
    assert mismatch is not None and mismatch.startswith("rank 1, epoch 6: ")


def test_what_cannot_be_replayed_says_so(synthetic: Make) -> None:
    def drop(kind: type) -> Callable[[int, Any], Any]:
        return lambda rank, record: None if isinstance(record, kind) else record

    with pytest.raises(ValueError, match="logs no decision"):
        replay(read_run(synthetic(change=drop(Decision)).path))
    made = synthetic(epochs=3)
    lines = [line for line in made.lines(0) if not (line["kind"] == "epoch" and line["epoch"] == 1)]
    made.rewrite(0, "".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match="epoch 1 is missing"):
        replay(read_run(made.path))
    made = synthetic(epochs=3)
    lines = [{**line, "loss": None} if line["kind"] == "epoch" else line for line in made.lines(0)]
    made.rewrite(0, "".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match="the loss of epoch 0 is not in the log"):
        replay(read_run(made.path))
