"""Every branch of the descent-rate rule, on scripted losses and times."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sylvie_trace.decision import Controller, ControllerConfig, Verdict, rule_outcome


def run(
    config: ControllerConfig, losses: Sequence[float], times: Sequence[float] | float = 1.0
) -> list[Verdict]:
    controller = Controller(config)
    spent = [times] * len(losses) if isinstance(times, int | float) else times
    return [controller.step(t, loss, et) for t, (loss, et) in enumerate(zip(losses, spent, strict=True))]


def config(**changes: object) -> ControllerConfig:
    return ControllerConfig(**{"delta": 1, "smoothing": 0.0, **changes})  # type: ignore[arg-type]


def test_smoothing_and_rates_follow_the_formulas() -> None:
    verdicts = run(ControllerConfig(smoothing=0.9), [4.0, 2.0, 3.0], [1.0, 0.5, 2.0])
    first = 0.9 * 4.0 + (1 - 0.9) * 2.0
    second = 0.9 * first + (1 - 0.9) * 3.0
    assert [v.smoothed_loss for v in verdicts] == [4.0, first, second]
    assert [v.ldr for v in verdicts] == [None, (first - 4.0) / 0.5, (second - first) / 2.0]
    assert verdicts[2].descent_rate == -(second - first) / 2.0


def test_nothing_changes_up_to_delta() -> None:
    verdicts = run(config(delta=3), [5.0, 4.0, 2.0, -2.0])
    assert [(v.outcome, v.base_next, v.mode_next, v.forced_sync) for v in verdicts] == [
        ("hold", 1, "sync", False)
    ] * 4
    assert all(v.ldr_reference is None for v in verdicts)


# ldr with smoothing 0 and et 1 is L_t − L_{t−1}; δ = 1 compares it with the one before.
def test_equation_true_false_and_tie() -> None:
    verdicts = run(config(), [10.0, 9.0, 7.0, 6.0, 5.0])  # ldr: None, −1, −2, −1, −1
    assert [v.outcome for v in verdicts] == ["hold", "hold", "true", "false", "false"]
    assert [(v.base_next, v.mode_next) for v in verdicts[2:]] == [(2, "sync"), (1, "async"), (1, "async")]
    assert [v.forced_sync for v in verdicts] == [False, False, True, False, False]
    assert [v.ldr_reference for v in verdicts[2:]] == [-1.0, -2.0, -1.0]


def test_prose_is_the_opposite_but_for_ties() -> None:
    verdicts = run(config(rule="prose"), [10.0, 9.0, 7.0, 6.0, 5.0])
    assert [v.outcome for v in verdicts] == ["hold", "hold", "false", "true", "false"]


def test_both_clamps() -> None:
    faster = [-float(t * t) for t in range(8)]  # ldr −1, −3, −5, …
    steady = [faster[-1] - 13.0 * t for t in range(1, 6)]  # ldr −13 each: ties
    verdicts = run(config(), faster + steady)
    assert [v.base_next for v in verdicts] == [1, 1, 2, 4, 8, 8, 8, 8, 4, 2, 1, 1, 1]
    assert [v.outcome for v in verdicts[2:]] == ["true"] * 6 + ["false"] * 5


@pytest.mark.parametrize("largest", [1, 2, 4, 8])
def test_the_doubling_ends_at_the_largest_base(largest: int) -> None:
    """Outcomes and modes do not depend on it; widths that stay below it do not either."""
    losses = [-float(t * t) for t in range(6)]
    losses += [losses[-1] - 9.0, losses[-1] - 18.0]  # three doublings, then ties
    free, capped = run(config(), losses), run(config(max_base=largest), losses)
    assert [v.base_next for v in free] == [1, 1, 2, 4, 8, 8, 4, 2]
    assert [(v.outcome, v.mode_next) for v in capped] == [(v.outcome, v.mode_next) for v in free]
    assert max(v.base_next for v in capped) == largest
    assert [v.base_next for v in capped[:5]] == [min(v.base_next, largest) for v in free[:5]]
    with pytest.raises(ValueError, match="largest base"):
        config(max_base=largest + 8)


def test_the_clock_drives_the_rule() -> None:
    """A steady loss: with a constant time all ties are false, after a shorter epoch it is true."""
    losses = [10.0 - t for t in range(5)]
    assert {v.outcome for v in run(config(), losses)[2:]} == {"false"}
    assert run(config(), losses, [1.0, 1.0, 0.5, 1.0, 1.0])[2].outcome == "true"


@pytest.mark.parametrize(
    ("ldrs", "outcome"),
    [
        ((-3.0, -2.0, -1.0), "true"),
        ((-3.0, 2.0, -2.0), "true"),
        ((-1.0, 2.0, -3.0), "false"),
        ((-1.0, -1.0, -2.0), "false"),
        ((-1.0, -1.0, 1.0), "hold"),
        ((-1.0, -3.0, -2.0), "hold"),
        ((9.0, -1.0, -1.0, -1.0), "hold"),
        ((0.5, -3.0, -2.0, -1.0), "true"),
    ],
)
def test_window(ldrs: tuple[float, ...], outcome: str) -> None:
    """The last three |ldr|: falling is true, rising is false, else hold; older ones do not count."""
    assert rule_outcome(ControllerConfig(rule="window", delta=3), 4, ldrs) == outcome
    assert rule_outcome(ControllerConfig(rule="window", delta=3), 3, ldrs) == "hold"


def test_window_hold_keeps_both() -> None:
    losses = [10.0, 9.0, 7.0, 4.0, 0.0, 0.0, 1.0]  # |ldr|: 1, 2, 3, 4, 0, 1
    verdicts = run(config(rule="window", delta=2), losses)
    assert [v.outcome for v in verdicts] == ["hold", "hold", "hold", "false", "false", "true", "false"]
    assert all(v.ldr_reference is None for v in verdicts)
    kept = run(config(rule="window", delta=3), [10.0, 9.0, 7.0, 4.0, 0.0, 1.0, -3.0])
    assert kept[5].outcome == "hold"
    assert (kept[5].base_next, kept[5].mode_next) == (kept[4].base_next, kept[4].mode_next) == (1, "async")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 32])
def test_fixed_bits_keep_the_schedule_adaptive(bits: int) -> None:
    verdicts = run(config(bits=bits), [10.0, 9.0, 7.0, 6.0])
    assert {v.base_next for v in verdicts} == {bits}
    assert [v.mode_next for v in verdicts] == ["sync", "sync", "sync", "async"]
    assert verdicts[2].forced_sync


@pytest.mark.parametrize("schedule", ["sync", "async"])
def test_fixed_schedule_keeps_the_bits_adaptive(schedule: str) -> None:
    controller = Controller(config(schedule=schedule))
    assert controller.mode == "sync"  # epoch 0, whatever the schedule
    verdicts = run(config(schedule=schedule), [10.0, 9.0, 7.0, 6.0])
    assert {v.mode_next for v in verdicts} == {schedule}
    assert [v.base_next for v in verdicts] == [1, 1, 2, 1]
    assert not any(v.forced_sync for v in verdicts)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_and_changes_nothing(loss: float) -> None:
    controller = Controller(config())
    controller.step(0, 1.0, 1.0)
    before = controller.state()
    with pytest.raises(ValueError, match=r"the loss is -?(nan|inf) in epoch 1"):
        controller.step(1, loss, 1.0)
    assert controller.state() == before


@pytest.mark.parametrize("et", [0.0, -1.0, math.nan, math.inf])
def test_a_time_must_be_positive(et: float) -> None:
    with pytest.raises(ValueError, match="epoch 0 took"):
        Controller(config()).step(0, 1.0, et)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rule": "guess"}, "guess"),
        ({"clock": "sun"}, "sun"),
        ({"delta": 0}, "delta 0"),
        ({"rule": "window", "delta": 1}, "window"),
        ({"smoothing": 1.0}, "lambda 1.0"),
        ({"smoothing": -0.1}, "lambda -0.1"),
        ({"bits": 3}, "width 3"),
        ({"schedule": "later"}, "later"),
    ],
)
def test_bad_settings_are_refused_in_one_line(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        config(**changes)
    assert "\n" not in str(caught.value)


steps = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e3)), min_size=2, max_size=30)


@given(steps, st.sampled_from(["equation", "prose", "window"]), st.integers(2, 6), st.integers(0, 29))
def test_a_restored_controller_goes_on_as_if_nothing_happened(
    script: list[tuple[float, float]], rule: str, delta: int, cut: int
) -> None:
    settings = ControllerConfig(rule=rule, delta=delta)
    whole, first = Controller(settings), Controller(settings)
    cut = min(cut, len(script))
    expected = [whole.step(t, loss, et) for t, (loss, et) in enumerate(script)]
    for t, (loss, et) in enumerate(script[:cut]):
        first.step(t, loss, et)
    second = Controller(settings)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.digest() == first.digest()
    resumed = [second.step(t + cut, loss, et) for t, (loss, et) in enumerate(script[cut:])]
    assert resumed == expected[cut:]
    assert second.digest() == whole.digest()
    assert all(v.base_next in (1, 2, 4, 8) for v in expected)


def test_the_digest_is_exact_in_a_float_and_tells_states_apart() -> None:
    controller, other = Controller(config()), Controller(config())
    seen = {controller.digest()}
    for t in range(50):
        controller.step(t, 1.0 / (t + 1), 0.1)
        other.step(t, 1.0 / (t + 1), 0.1)
        assert controller.digest() == other.digest()
        assert int(float(controller.digest())) == controller.digest() < 2**53
        seen.add(controller.digest())
    assert len(seen) == 51
    other.step(50, 0.5, 0.1)
    controller.step(50, math.nextafter(0.5, 1), 0.1)
    assert controller.digest() != other.digest()
