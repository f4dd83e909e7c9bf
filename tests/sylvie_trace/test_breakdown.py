"""Where the time went: injected delays land in their class, parts add up to the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sylvie_trace.breakdown import PARTS, break_down, rank_parts
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.epochs import common_epochs, epoch_times_s, extents, measured_epochs
from sylvie_trace.reader import read_run
from sylvie_trace.schema import Span

Make = Callable[..., Any]
SYNC = ControllerConfig(schedule="sync")
ASYNC = ControllerConfig(schedule="async")


def parts_ms(made: Any, epochs: list[int] | None = None) -> dict[str, float]:
    run = read_run(made.path)
    mean = break_down(rank_parts(run), epochs or measured_epochs(common_epochs(run))).mean
    return {name: round(getattr(mean, name) * 1e3, 9) for name in PARTS}


def test_every_part_of_a_synchronous_epoch(synthetic: Make) -> None:
    made = synthetic(controller=SYNC)
    assert parts_ms(made) == {
        "compute": 33.0,  # forward 10, loss 1, backward 20, optimiser 2
        "encode": 3.0,
        "decode": 2.0,
        "exposed_wait": 0.0,
        "exposed_transfer": 7.0,
        "gradient_allreduce": 4.0,
        "coordinate": 1.0,
        "other": 0.0,
        "encode_hidden": 0.0,
        "decode_hidden": 0.0,
        "comm_hidden": 0.0,
    }


def test_an_asynchronous_epoch_hides_the_exchange(synthetic: Make) -> None:
    parts = parts_ms(synthetic(controller=ASYNC))
    assert (parts["encode"], parts["decode"], parts["exposed_wait"], parts["exposed_transfer"]) == (
        0,
        0,
        0,
        0,
    )
    assert (parts["encode_hidden"], parts["decode_hidden"], parts["comm_hidden"]) == (3, 2, 7)
    assert parts["compute"] == 33 + 3 + 7 + 2  # the synthetic main thread computes through them


@pytest.mark.parametrize(
    ("plan_field", "part"),
    [
        ("forward_ms", "compute"),
        ("backward_ms", "compute"),
        ("loss_ms", "compute"),
        ("optimiser_ms", "compute"),
        ("encode_ms", "encode"),
        ("decode_ms", "decode"),
        ("transfer_ms", "exposed_transfer"),
        ("gradient_ms", "gradient_allreduce"),
        ("coordinate_ms", "coordinate"),
        ("gap_ms", "other"),
    ],
)
def test_an_injected_delay_lands_in_its_class(synthetic: Make, plan_field: str, part: str) -> None:
    before = parts_ms(synthetic(controller=SYNC))
    usual = 0 if plan_field == "gap_ms" else getattr(synthetic(epochs=1).plan, plan_field)
    after = parts_ms(synthetic(controller=SYNC, **{plan_field: usual + 50}))
    changed = {name: round(after[name] - before[name], 6) for name in PARTS if after[name] != before[name]}
    share = 1.0
    if part == "other":  # the last epoch ends with its coordination: one gap of two lies inside
        share = 0.5
    assert changed == {part: 50 * share}


def test_a_late_rank_makes_the_others_wait(synthetic: Make) -> None:
    made = synthetic(controller=SYNC, world_size=3, late_ms=(0, 40, 10))
    run = read_run(made.path)
    ranks = rank_parts(run)
    epochs = measured_epochs(common_epochs(run))
    by_rank = {rank.rank: rank.mean_s(epochs) for rank in ranks}
    # Rank 2 is itself 10 ms late; rank 1 is the last and waits for nobody. Clocks differ by seconds.
    assert [round(by_rank[r].exposed_wait * 1e3, 6) for r in range(3)] == [40, 0, 30]
    assert [round(by_rank[r].exposed_transfer * 1e3, 6) for r in range(3)] == [7, 7, 7]
    assert [round(by_rank[r].compute * 1e3, 6) for r in range(3)] == [33, 73, 43]
    result = break_down(ranks, epochs)
    assert result.max_rank_number == 1
    assert result.max_rank.compute == by_rank[1].compute
    assert result.mean.exposed_wait == pytest.approx((40 + 0 + 30) / 3 / 1e3)
    assert result.attributed_fraction == 1.0


def test_a_wait_for_an_unknown_sender_is_transfer(synthetic: Make) -> None:
    def forget(rank: int, record: Any) -> Any:
        return msgspec.structs.replace(record, sent_ns=None) if hasattr(record, "sent_ns") else record

    parts = parts_ms(synthetic(controller=SYNC, late_ms=(0, 40), change=forget))
    assert (parts["exposed_wait"], parts["exposed_transfer"]) == (0, 7 + 20)  # mean of 47 and 7


def test_peers_of_a_fused_collective_count_once(synthetic: Make) -> None:
    assert parts_ms(synthetic(controller=SYNC, world_size=4)) == parts_ms(synthetic(controller=SYNC))


def test_evaluations_and_checkpoints_belong_to_no_epoch(synthetic: Make) -> None:
    plain = synthetic(controller=SYNC, evaluate_every=0)
    evaluated = synthetic(controller=SYNC, evaluate_every=1, evaluate_ms=500)
    assert parts_ms(plain) == parts_ms(evaluated)
    run = read_run(evaluated.path)
    assert epoch_times_s(run, common_epochs(run)).tolist() == pytest.approx([0.050] * 12)


def test_without_the_spans_the_time_is_other(synthetic: Make) -> None:
    """Nothing is a remainder but ``other``: work that nobody measured is not called compute."""

    def drop(rank: int, record: Any) -> Any:
        return None if isinstance(record, Span) and record.name == "backward" else record

    made = synthetic(controller=SYNC, change=drop)
    parts = parts_ms(made)
    assert (parts["other"], parts["compute"]) == (20, 13)
    run = read_run(made.path)
    assert break_down(rank_parts(run), [10, 11]).attributed_fraction == pytest.approx(1 - 20 / 50)


def test_overlapping_spans_count_once(synthetic: Make) -> None:
    """An all-reduce that starts inside backward is not compute as well; parts never exceed the epoch."""

    def overlap(rank: int, record: Any) -> Any:
        if isinstance(record, Span) and record.name == "gradient_allreduce":
            return msgspec.structs.replace(record, start_ns=record.start_ns - 6_000_000)
        return record

    parts = parts_ms(synthetic(controller=SYNC, change=overlap))
    assert (parts["gradient_allreduce"], parts["compute"], parts["other"]) == (10, 27, 0)


@pytest.mark.parametrize(
    ("count", "measured"),
    [(0, []), (1, []), (2, [1]), (10, list(range(1, 10))), (11, [10]), (13, [10, 11, 12])],
)
def test_measured_epochs(count: int, measured: list[int]) -> None:
    assert measured_epochs(range(count)) == measured


def test_an_epoch_is_as_long_as_on_its_slowest_rank(synthetic: Make) -> None:
    def longer(rank: int, record: Any) -> Any:
        if rank == 1 and getattr(record, "mode_after", None) is None and hasattr(record, "epoch_time_ns"):
            return msgspec.structs.replace(record, end_ns=record.end_ns + 5_000_000)
        return record

    run = read_run(synthetic(controller=SYNC, epochs=3, evaluate_every=0, change=longer).path)
    assert epoch_times_s(run, [0, 1, 2]).tolist() == pytest.approx([0.050, 0.050, 0.055])
    assert [len(extents(run, trace).epoch) for trace in run.ranks] == [3, 3]
