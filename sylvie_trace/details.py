"""What the pictures of a run need beyond its report: the same quantities by epoch, by rank, by exchange and by pair.

Everything here is a frozen record of arrays; ``sylvie_trace.report`` draws it. Axis names: E epochs that every rank recorded,
R ranks that left a trace, N ranks of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sylvie_trace.arrival import Lateness, lateness
from sylvie_trace.breakdown import PARTS, RankParts, wait_intervals
from sylvie_trace.columns import DIRECTIONS, MISSING, PURPOSES, Table, group_codes
from sylvie_trace.epochs import common_epochs, epoch_times_s, measured_epochs
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import TRAIN
from sylvie_trace.timeline import Intervals, intervals, subtract, total

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Kinds of bytes of a message: what was sent, by kind, and what the same rows would weigh in fp32.
BYTES = ("main", "meta", "header", "fp32")


@dataclass(frozen=True)
class EpochDetail:
    """By epoch, each of shape (E,). ``parts_s`` is the mean over ranks, None without message and span records.

    ``rows`` counts rows sent by width; ``bytes`` is summed over ranks, ``fp32`` absent where widths are not recorded;
    ``ages`` counts consumed messages by age.
    """

    epoch: Integers
    time_s: Floats
    parts_s: dict[str, Floats] | None
    rows: dict[int, Integers]
    bytes: dict[str, Integers]
    gradient_allreduce: Integers
    ages: dict[int, Integers]


@dataclass(frozen=True)
class ExchangeDetail:
    """One exchange in a measured epoch: bytes summed over ranks, seconds as means over ranks.

    ``wait_s`` waits for a late sender, ``transfer_s`` is the rest of the waiting, ``hidden_s`` is time on the wire while the
    main thread did not wait.
    """

    layer: int
    step: int
    direction: str
    bytes: dict[str, float]
    wait_s: float
    transfer_s: float
    hidden_s: float


@dataclass(frozen=True)
class RankDetail:
    """By rank: ``parts_s[part]`` of shape (R,), mean over measured epochs; ``peak_mb`` None where no footer says."""

    rank: tuple[int, ...]
    parts_s: dict[str, Floats]
    peak_mb: tuple[float | None, ...]
    device_peak_mb: tuple[float | None, ...]


@dataclass(frozen=True)
class Details:
    """Everything the pictures need. ``pairs[kind]`` of shape (N, N) holds bytes per measured epoch from row to column."""

    epochs: EpochDetail
    measured: tuple[int, ...]
    exchanges: tuple[ExchangeDetail, ...]
    pairs: dict[str, Floats]
    ranks: RankDetail
    late: Lateness | None
    metrics: dict[str, tuple[list[int], list[float]]]


def details(run: Run, parts: Sequence[RankParts]) -> Details:
    """The details of a run; ``parts`` as ``breakdown.rank_parts`` gives them, empty for a run without message records."""
    common = common_epochs(run)
    measured = measured_epochs(common)
    tables = [_training(trace.messages) for trace in run.ranks]
    in_measured = [table[np.isin(table["epoch"], measured)] for table in tables]
    return Details(
        epochs=_by_epoch(run, parts, common, tables),
        measured=tuple(measured),
        exchanges=_exchanges(run, in_measured, len(measured)),
        pairs=_pairs(run, in_measured, len(measured)),
        ranks=_by_rank(run, parts, measured),
        late=lateness(run) if run.traced else None,
        metrics=_metrics(run),
    )


def _training(messages: Table) -> Table:
    chosen: Table = messages[messages["purpose"] == PURPOSES[TRAIN]]
    return chosen


def message_sizes(table: Table) -> dict[str, Integers]:
    """Bytes of each message by kind, shape (n,); ``fp32`` = rows · 4 · width."""
    sizes = {kind: table[f"{kind}_bytes"] for kind in BYTES[:3]}
    sizes["fp32"] = table["rows"] * 4 * table["width"]
    return sizes


def _by_epoch(run: Run, parts: Sequence[RankParts], common: Sequence[int], tables: Sequence[Table]) -> EpochDetail:
    epoch = np.array(common, dtype=np.int64)
    place = {number: index for index, number in enumerate(common)}
    sums = {kind: np.zeros(len(epoch), dtype=np.int64) for kind in (*BYTES, "gradient_allreduce")}
    rows: dict[int, Integers] = {}
    fp32_known = True
    for trace in run.ranks:
        for record in trace.epochs:
            at = place.get(record.epoch)
            if at is None:
                continue
            sums["main"][at] += record.main_bytes
            sums["meta"][at] += record.meta_bytes
            sums["header"][at] += record.header_bytes
            sums["gradient_allreduce"][at] += record.gradient_allreduce_bytes
            fp32_known &= record.fp32_equivalent_bytes is not None
            sums["fp32"][at] += record.fp32_equivalent_bytes or 0
        for bits in trace.bits:
            at = place.get(bits.epoch)
            if at is not None:
                for width, number in bits.histogram.items():
                    rows.setdefault(int(width), np.zeros(len(epoch), dtype=np.int64))[at] += number
    if run.traced:
        sums["fp32"] = _count(epoch, [(t["epoch"], message_sizes(t)["fp32"]) for t in tables])
    elif not fp32_known:
        del sums["fp32"]
    return EpochDetail(
        epoch=epoch,
        time_s=epoch_times_s(run, common),
        parts_s=_mean_parts(parts, epoch) if parts else None,
        rows=dict(sorted(rows.items())),
        gradient_allreduce=sums.pop("gradient_allreduce"),
        bytes=sums,
        ages=_ages(run, epoch, tables) if run.traced else {},
    )


def _mean_parts(parts: Sequence[RankParts], epoch: Integers) -> dict[str, Floats]:
    """Seconds of every part in every epoch, mean over ranks."""
    return {
        part: np.mean([rank.parts[part][np.isin(rank.extent.epoch, epoch)] for rank in parts], axis=0) / 1e9 for part in PARTS
    }


def _count(epoch: Integers, events: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Sum of the weights of the events in each of ``epoch`` (sorted); others are left out."""
    result = np.zeros(len(epoch), dtype=np.int64)
    if not len(epoch):
        return result
    for when, weight in events:
        at = np.minimum(np.searchsorted(epoch, when), len(epoch) - 1)
        inside = epoch[at] == when
        np.add.at(result, at[inside], weight[inside])
    return result


def _ages(run: Run, epoch: Integers, tables: Sequence[Table]) -> dict[int, Integers]:
    """Consumed messages by age in the epoch that consumed them; rows used a second time count again."""
    events: dict[int, list[tuple[Integers, Integers]]] = {}
    for trace, table in zip(run.ranks, tables, strict=True):
        consumed = table[(table["age"] != MISSING) & (table["consumed_epoch"] != MISSING)]
        for ages, when in (
            (consumed["age"], consumed["consumed_epoch"]),
            (trace.reuses["age"], trace.reuses["epoch"]),
        ):
            for age in np.unique(ages).tolist():
                chosen = when[ages == age]
                events.setdefault(age, []).append((chosen, np.ones(len(chosen), dtype=np.int64)))
    return {age: _count(epoch, events[age]) for age in sorted(events)}


def _exchanges(run: Run, tables: Sequence[Table], epochs: int) -> tuple[ExchangeDetail, ...]:
    if not run.traced or not epochs:
        return ()
    waiting = [wait_intervals(run, trace, table)[1] for trace, table in zip(run.ranks, tables, strict=True)]
    keys = ("layer", "step", "direction")
    found: set[tuple[int, int, int]] = set()
    for table in tables:
        first = np.unique(group_codes([table[key] for key in keys]), return_index=True)[1]
        found |= {(row["layer"], row["step"], row["direction"]) for row in table[first].rows()}
    return tuple(
        _exchange(run, exchange, [_select(table, exchange) for table in tables], waiting, epochs) for exchange in sorted(found)
    )


def _select(table: Table, exchange: tuple[int, int, int]) -> Table:
    layer, step, direction = exchange
    chosen: Table = table[(table["layer"] == layer) & (table["step"] == step) & (table["direction"] == direction)]
    return chosen


def _exchange(
    run: Run,
    exchange: tuple[int, int, int],
    tables: Sequence[Table],
    waiting: Sequence[Intervals],
    epochs: int,
) -> ExchangeDetail:
    late = waited = hidden = 0
    size = dict.fromkeys(BYTES, 0.0)
    for trace, table, busy in zip(run.ranks, tables, waiting, strict=True):
        late_set, waited_set = wait_intervals(run, trace, table)
        late, waited = late + total(late_set), waited + total(waited_set)
        hidden += total(subtract(_wire(table), busy))
        for kind, sizes in message_sizes(table).items():
            size[kind] += int(sizes.sum()) / epochs
    share = 1e9 * epochs * len(run.ranks)
    names = {code: name for name, code in DIRECTIONS.items()}
    return ExchangeDetail(
        layer=exchange[0],
        step=exchange[1],
        direction=names[exchange[2]],
        bytes=size,
        wait_s=late / share,
        transfer_s=(waited - late) / share,
        hidden_s=hidden / share,
    )


def _wire(table: Table) -> Intervals:
    known = (table["wire_start_ns"] != MISSING) & (table["wire_end_ns"] != MISSING)
    return intervals(table["wire_start_ns"][known], table["wire_end_ns"][known])


def _pairs(run: Run, tables: Sequence[Table], epochs: int) -> dict[str, Floats]:
    if not run.traced or not epochs or run.world_size < 2:
        return {}
    result = {kind: np.zeros((run.world_size, run.world_size)) for kind in BYTES}
    for trace, table in zip(run.ranks, tables, strict=True):
        for kind, sizes in message_sizes(table).items():
            np.add.at(result[kind][trace.rank], table["peer"], sizes / epochs)
    return result


def _by_rank(run: Run, parts: Sequence[RankParts], measured: Sequence[int]) -> RankDetail:
    means = [rank.mean_s(measured) for rank in parts] if measured else []

    def footers(name: str) -> tuple[float | None, ...]:
        return tuple(None if t.footer is None else getattr(t.footer, name) for t in run.ranks)

    return RankDetail(
        rank=tuple(trace.rank for trace in run.ranks),
        parts_s={part: np.array([getattr(mean, part) for mean in means]) for part in PARTS} if means else {},
        peak_mb=footers("peak_memory_mb"),
        device_peak_mb=footers("device_peak_mb"),
    )


def _metrics(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    """Scores by split: the epochs that were evaluated and the values, from the first rank that recorded any."""
    trace: RankTrace = next((t for t in run.ranks if any(r.metrics for r in t.epochs)), run.ranks[0])
    result: dict[str, tuple[list[int], list[float]]] = {}
    for record in trace.epochs:
        for split, value in record.metrics.items():
            if value is not None:
                epochs, values = result.setdefault(split, ([], []))
                epochs.append(record.epoch)
                values.append(value)
    return result
