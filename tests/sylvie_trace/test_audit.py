"""The audit: an honest run is valid, and each kind of false entry is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sylvie_trace.audit import validate
from sylvie_trace.decision import ControllerConfig
from sylvie_trace.reader import read_run
from sylvie_trace.report import build
from sylvie_trace.schema import Bits, Decision, Epoch, Footer, Message

Make = Callable[..., Any]


def first(made: Any) -> str | None:
    return next(validate(read_run(made.path)), None)


@pytest.mark.parametrize("schedule", ["adaptive", "sync", "async"])
@pytest.mark.parametrize("trace", [True, False])
def test_an_honest_run_is_valid(synthetic: Make, schedule: str, trace: bool) -> None:
    made = synthetic(world_size=3, controller=ControllerConfig(delta=3, schedule=schedule), trace=trace)
    assert list(validate(read_run(made.path))) == []


def alter(kind: type[Any], rank: int, epoch: int, **changes: Any) -> Callable[[int, Any], Any]:
    """A change of the one record of ``kind`` that ``rank`` writes for ``epoch``."""

    def change(who: int, record: Any) -> Any:
        if isinstance(record, kind) and who == rank and getattr(record, "epoch", epoch) == epoch:
            return msgspec.structs.replace(record, **changes)
        return record

    return change


@pytest.mark.parametrize("field", ["recv_rows", "recv_main_bytes", "recv_meta_bytes", "recv_header_bytes"])
def test_lost_bytes_are_noticed(synthetic: Make, field: str) -> None:
    made = synthetic(change=alter(Message, 1, 4, **{field: 1}))
    line = first(made)
    assert line is not None
    assert "train epoch 4 L2.0 forward: rank 0 sent" in line and line.endswith("which received 1")


def test_a_message_that_only_one_side_knows_is_noticed(synthetic: Make) -> None:
    def drop(rank: int, record: Any) -> Any:
        return None if isinstance(record, Message) and (rank, record.epoch) == (1, 4) else record

    line = first(synthetic(change=drop))
    assert line == "train epoch 4 L2.0 forward: rank 0 sent 10 rows to rank 1, which received 0"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"age": 1, "consumed_epoch": 3}, "used in sync epoch 3 with age 1"),
        ({"age": 0, "consumed_epoch": 4}, "used in sync epoch 4 with age 0"),
    ],
)
def test_a_wrong_age_is_noticed(synthetic: Make, changes: dict[str, Any], expected: str) -> None:
    made = synthetic(controller=ControllerConfig(schedule="sync"), change=alter(Message, 0, 3, **changes))
    assert expected in (first(made) or "")


def test_stale_rows_in_a_synchronous_epoch_are_noticed(synthetic: Make) -> None:
    made = synthetic(change=alter(Message, 0, 2, age=1, consumed_epoch=3))
    assert "rows of epoch 2 from rank 1 were used in sync epoch 3 with age 1" in (first(made) or "")


def test_two_epochs_old_rows_are_noticed(synthetic: Make) -> None:
    made = synthetic(
        controller=ControllerConfig(schedule="async"),
        change=alter(Message, 1, 5, age=2, consumed_epoch=7),
    )
    assert "used in async epoch 7 with age 2" in (first(made) or "")


def test_arrival_before_sending_is_noticed_beyond_the_clocks_bound(synthetic: Make) -> None:
    """Rank 1's clock is 5 s ahead; the bounds of both clocks sum to 2 µs."""
    made = synthetic(epochs=4)
    sent = [line for line in made.lines(0) if line["kind"] == "message"][2]
    to_end = sent["wire_end_ns"] + 5_000_000_000
    fine = synthetic(epochs=4, change=alter(Message, 0, 2, sent_ns=to_end + 2000))
    assert first(fine) is None
    wrong = synthetic(epochs=4, change=alter(Message, 0, 2, sent_ns=to_end + 2001))
    assert "arrived before it sent them" in (first(wrong) or "")


@pytest.mark.parametrize("name", ["encode", "wire", "decode", "wait"])
def test_an_interval_that_ends_before_it_starts_is_noticed(synthetic: Make, name: str) -> None:
    made = synthetic(change=alter(Message, 0, 2, **{f"{name}_end_ns": 5}))
    assert f"its {name} ends before it starts" in (first(made) or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encode_end_ns": 10**18}, "its wire start comes before its encode end"),
        ({"queued_ns": 10**18}, "its wire start comes before its queued"),
        ({"decode_start_ns": 7}, "its decode start comes before its wire end"),
    ],
)
def test_phases_out_of_order_are_noticed(synthetic: Make, change: dict[str, int], said: str) -> None:
    made = synthetic(change=alter(Message, 0, 2, **change))
    assert said in (first(made) or "")


@pytest.mark.parametrize("field", ["main_bytes", "meta_bytes", "header_bytes", "rows"])
def test_an_epoch_that_is_not_the_sum_of_its_messages_is_noticed(synthetic: Make, field: str) -> None:
    made = synthetic(change=alter(Epoch, 1, 6, **{field: 7}))
    lines = list(validate(read_run(made.path)))
    assert any(line.startswith(f"rank 1, epoch 6: 7 {field} in the epoch's record") for line in lines)


def test_a_histogram_that_counts_other_rows_is_noticed(synthetic: Make) -> None:
    made = synthetic(change=alter(Bits, 0, 6, histogram={"1": 3, "8": 4}))
    assert first(made) == "rank 0, epoch 6: 10 rows sent, 7 in the histogram of widths"


def test_the_footer_must_agree(synthetic: Make) -> None:
    def change(rank: int, record: Any) -> Any:
        if isinstance(record, Footer) and rank == 0:
            return msgspec.structs.replace(record, bytes={**record.bytes, "train": record.bytes["train"] + 1})
        return record

    assert "bytes of train + unused" in (first(synthetic(change=change)) or "")


def test_ranks_that_decide_otherwise_are_noticed(synthetic: Make) -> None:
    made = synthetic(change=alter(Decision, 1, 5, outcome="hold"))
    assert first(made) == "epoch 5: rank 1 decided otherwise than rank 0"


def test_an_epoch_that_ran_otherwise_than_decided_is_noticed(synthetic: Make) -> None:
    def change(rank: int, record: Any) -> Any:
        if isinstance(record, Decision) and record.epoch == 5:
            return msgspec.structs.replace(record, base_after=4)
        return record

    assert "rank 0, epoch 6: it ran with" in (first(synthetic(change=change)) or "")


def test_epochs_out_of_order_are_noticed(synthetic: Make) -> None:
    def drop(rank: int, record: Any) -> Any:
        return None if isinstance(record, Epoch) and record.epoch == 3 else record

    assert first(synthetic(change=drop)) == "rank 0, epoch 4: it stands where epoch 3 belongs"


def test_an_asynchronous_first_epoch_is_noticed(synthetic: Make) -> None:
    assert "epoch 0 must be sync" in (first(synthetic(change=alter(Epoch, 0, 0, mode="async"))) or "")


def reuse(made: Any, rank: int, **fields: Any) -> None:
    """Add to a rank's trace that its first asynchronous epoch used the last synchronous one's rows."""
    record = {"kind": "reuse", "layer": 2, "step": 0, "direction": "forward", "peer": 1 - rank, **fields}
    lines = made.directory.trace_file(rank).read_text().splitlines(keepends=True)
    made.rewrite(rank, "".join([*lines[:-1], json.dumps(record) + "\n", lines[-1]]))


def test_rows_used_a_second_time_have_an_age_too(synthetic: Make) -> None:
    made = synthetic(controller=ControllerConfig(schedule="async"))
    reuse(made, 0, epoch=1, recv_epoch=0, age=1)
    assert first(made) is None
    assert build(read_run(made.path)).staleness == {"0": 2, "1": 2 * 11 + 1}
    reuse(made, 1, epoch=4, recv_epoch=2, age=2)
    assert first(made) == (
        "rank 1, train epoch 4 L2.0 forward: rows of epoch 2 from rank 0 were used in async epoch 4 with age 2"
    )


def test_incomplete_files_are_noticed(synthetic: Make) -> None:
    made = synthetic(epochs=2)
    lines = made.directory.trace_file(1).read_text().splitlines(keepends=True)
    made.rewrite(1, "".join(lines[:-1]))
    assert "no footer" in (first(made) or "")
    made.rewrite(1, "".join(lines)[:-9])
    assert "torn" in (first(made) or "")
    made.rewrite(1, "".join([*lines[:-2], lines[-1], lines[-2]]))
    assert "the footer is not the last record" in (first(made) or "")
    footer = {**json.loads(lines[-1]), "complete": False}
    made.rewrite(1, "".join([*lines[:-1], json.dumps(footer) + "\n"]))
    assert "training did not finish" in (first(made) or "")
    made.directory.trace_file(1).unlink()
    assert first(made) == "rank 1 of 2 left no trace"


def test_repeated_evaluations_of_one_key_are_added_up(synthetic: Make) -> None:
    """Messages outside epochs share their key; their sums must still agree."""
    made = synthetic(epochs=2)
    for rank in range(2):
        text = made.directory.trace_file(rank).read_text().splitlines(keepends=True)
        message = next(line for line in made.lines(rank) if line["kind"] == "message")
        extra = [{**message, "purpose": "evaluate", "epoch": -1, "recv_epoch": -1, "age": None}] * 2
        made.rewrite(rank, "".join([*text[:-1], *(json.dumps(line) + "\n" for line in extra), text[-1]]))
    assert first(made) is None
