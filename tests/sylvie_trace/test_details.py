"""What the pictures show, against runs whose every number is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sylvie_trace.details import Details, details
from sylvie_trace.reader import read_run
from sylvie_trace.schema import Epoch, Message
from sylvie_trace.summary import build, run_parts
from tests.sylvie_trace.conftest import ROWS, WIDTH, SyntheticRun

Make = Callable[..., SyntheticRun]
SYNC_BYTES = ROWS * (WIDTH // 8)


def of(made: SyntheticRun) -> Details:
    run = read_run(made.path)
    return details(run, run_parts(run))


def test_parts_by_epoch_sum_to_the_epoch_and_agree_with_the_breakdown(synthetic: Make) -> None:
    made = synthetic(epochs=14, late_ms=(0, 6, 0, 0), gap_ms=3)
    detail = of(made)
    parts = detail.epochs.parts_s
    assert parts is not None
    hidden = ("encode_hidden", "decode_hidden", "comm_hidden")
    total = np.sum([parts[name] for name in parts if name not in hidden], axis=0)
    assert total == pytest.approx(detail.epochs.time_s)
    report = build(read_run(made.path))
    assert report.breakdown_s is not None
    measured = np.isin(detail.epochs.epoch, detail.measured)
    for name, values in parts.items():
        assert values[measured].mean() == pytest.approx(getattr(report.breakdown_s, name)), name


def test_one_exchange_in_a_synchronous_run(synthetic: Make) -> None:
    """Rank 1 comes 6 ms late: rank 0 waits 6 ms for it and both 7 ms for the transfer; nothing is hidden."""
    detail = of(synthetic(epochs=4, late_ms=(0, 6, 0, 0)))
    (exchange,) = detail.exchanges
    assert (exchange.layer, exchange.step, exchange.direction) == (2, 0, "forward")
    assert exchange.wait_s == pytest.approx(0.006 / 2)
    assert exchange.transfer_s == pytest.approx(0.007)
    assert exchange.hidden_s == 0
    assert exchange.bytes == {
        "main": 2 * SYNC_BYTES,
        "meta": 2 * 8 * ROWS,
        "header": 64,
        "fp32": 2 * 4 * WIDTH * ROWS,
    }


def test_asynchronous_epochs_hide_their_transfers(synthetic: Make) -> None:
    detail = of(synthetic(epochs=14, losses=[2.0] * 14))
    modes = [record.mode for record in read_run(synthetic(epochs=14, losses=[2.0] * 14).path).ranks[0].epochs]
    parts = detail.epochs.parts_s
    assert parts is not None and {"sync", "async"} == set(modes)
    asynchronous = np.array([mode == "async" for mode in modes])
    assert (parts["comm_hidden"][asynchronous] > 0).all() and (parts["comm_hidden"][~asynchronous] == 0).all()


def test_pairs_bits_ages_and_lateness(synthetic: Make) -> None:
    made = synthetic(world_size=3, epochs=4, late_ms=(0, 0, 9, 0))
    detail = of(made)
    expected = (np.ones((3, 3)) - np.eye(3)) * SYNC_BYTES
    assert np.array_equal(detail.pairs["main"], expected)
    assert np.array_equal(detail.pairs["fp32"], expected * 32)
    assert {width: rows.tolist() for width, rows in detail.epochs.rows.items()} == {1: [6 * ROWS] * 4}
    assert {age: number.tolist() for age, number in detail.epochs.ages.items()} == {0: [6] * 4}
    assert detail.epochs.bytes["main"].tolist() == [6 * SYNC_BYTES] * 4
    assert detail.epochs.bytes["fp32"].tolist() == [6 * SYNC_BYTES * 32] * 4
    assert detail.late is not None
    assert detail.late.share.tolist() == [0, 0, 1]
    assert detail.late.seconds_per_epoch == pytest.approx([0, 0, 0.009])
    assert detail.ranks.peak_mb == (100.0, 101.0, 102.0)


def test_ages_stand_in_the_epoch_that_used_the_rows(synthetic: Make) -> None:
    def change(rank: int, record: Any) -> Any:
        if isinstance(record, Message) and record.epoch == 1:
            record.consumed_epoch, record.age = 2, 1
        return record

    ages = of(synthetic(epochs=4, change=change)).epochs.ages
    assert ages[0].tolist() == [2, 0, 2, 2] and ages[1].tolist() == [0, 0, 2, 0]


def test_without_messages_only_the_epochs_are_known(synthetic: Make) -> None:
    detail = of(synthetic(epochs=4, trace=False))
    assert detail.epochs.parts_s is None and detail.exchanges == () and detail.pairs == {} and detail.late is None
    assert detail.ranks.parts_s == {} and detail.epochs.ages == {}
    assert detail.epochs.bytes["fp32"].tolist() == [2 * ROWS * 4 * WIDTH] * 4

    def forget(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch):
            record.fp32_equivalent_bytes = None
        return record

    assert "fp32" not in of(synthetic(epochs=4, trace=False, change=forget)).epochs.bytes


def test_an_epoch_that_a_rank_lacks_is_left_out(synthetic: Make) -> None:
    made = synthetic(epochs=4)
    lines = made.directory.trace_file(1).read_text().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if '"kind":"epoch","epoch":3' in line)
    made.rewrite(1, "".join(lines[:cut]))
    detail = of(made)
    assert detail.epochs.epoch.tolist() == [0, 1, 2]
    assert all(len(values) == 3 for values in detail.epochs.bytes.values())
    assert detail.ranks.peak_mb == (100.0, None)


def test_metrics_of_the_epochs_that_were_evaluated(synthetic: Make) -> None:
    def score(rank: int, record: Any) -> Any:
        if isinstance(record, Epoch) and record.epoch % 2:
            record.metrics = {"val": 0.5 + record.epoch / 10, "test": None}
        return record

    assert of(synthetic(epochs=4, change=score)).metrics == {"val": ([1, 3], [0.6, 0.8])}
