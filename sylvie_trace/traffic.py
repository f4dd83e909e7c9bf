"""Bytes, rows and bits of a run, counted at the sender and summed over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import DIRECTIONS, MISSING, PURPOSES, Table, group_codes
from sylvie_trace.reader import Run
from sylvie_trace.schema import TRAIN
from sylvie_trace.timeline import intervals, total


@dataclass(frozen=True)
class LayerTraffic:
    """One exchange per epoch, summed over ranks; ``wire_s`` and ``exposed_s`` are means over ranks."""

    layer: int
    step: int
    direction: str
    rows: float
    main: float
    meta: float
    header: float
    wire_s: float
    exposed_s: float


@dataclass(frozen=True)
class PairTraffic:
    """Bytes per epoch from rank ``src`` to rank ``dst``, headers included."""

    src: int
    dst: int
    bytes: float


@dataclass(frozen=True)
class EpochTraffic:
    """Mean bytes per measured epoch; None where the trace does not tell."""

    main: float
    meta: float
    header: float
    gradient_allreduce: float
    fp32_equivalent: float | None
    by_layer: tuple[LayerTraffic, ...] | None
    by_pair: tuple[PairTraffic, ...] | None

    @property
    def compression_ratio(self) -> float | None:
        """Σ rows · 4 · D / Σ (main + meta + header); None when nothing was sent."""
        sent = self.main + self.meta + self.header
        return None if self.fp32_equivalent is None or sent == 0 else self.fp32_equivalent / sent


@dataclass(frozen=True)
class BytesTotal:
    """Bytes over the whole run; ``sent`` is the exact sum of the others."""

    sent: int
    train: int
    evaluate: int
    input_halo: int
    gradient_allreduce: int
    control: int
    unused: int


@dataclass(frozen=True)
class BitsUsed:
    """Widths over the rows of training messages, and over the pool's nodes (a node counts once an epoch)."""

    mean: float | None
    histogram: dict[str, int]
    node_mean: float | None
    node_histogram: dict[str, int] | None


def epoch_traffic(run: Run, epochs: Sequence[int]) -> EpochTraffic:
    """Traffic of ``epochs`` (not empty). Totals come from epoch records, the split from message records."""
    wanted = set(epochs)
    records = [record for trace in run.ranks for record in trace.epochs if record.epoch in wanted]
    count = len(epochs)
    tables = [(trace.rank, _training(trace.messages, epochs)) for trace in run.ranks] if run.traced else []
    equivalents = [record.fp32_equivalent_bytes for record in records]
    equivalent: float | None = None
    if run.traced:
        equivalent = sum(_fp32_bytes(table) for _, table in tables) / count
    elif None not in equivalents:
        equivalent = sum(value for value in equivalents if value is not None) / count
    return EpochTraffic(
        main=sum(record.main_bytes for record in records) / count,
        meta=sum(record.meta_bytes for record in records) / count,
        header=sum(record.header_bytes for record in records) / count,
        gradient_allreduce=sum(record.gradient_allreduce_bytes for record in records) / count,
        fp32_equivalent=equivalent,
        by_layer=_by_layer([table for _, table in tables], count) if run.traced else None,
        by_pair=_by_pair(tables, run.world_size, count) if run.traced else None,
    )


def _training(messages: Table, epochs: Sequence[int]) -> Table:
    """Training messages produced in ``epochs``."""
    chosen: Table = messages[(messages["purpose"] == PURPOSES[TRAIN]) & np.isin(messages["epoch"], epochs)]
    return chosen


def _fp32_bytes(messages: Table) -> int:
    return int((messages["rows"] * 4 * messages["width"]).sum())


def _by_layer(tables: Sequence[Table], epochs: int) -> tuple[LayerTraffic, ...]:
    """Traffic by exchange of every rank's training messages, per epoch."""
    exchanges = sorted(
        {
            (row["layer"], row["step"], row["direction"])
            for table in tables
            for row in table[_first_of_each(table)].rows()
        }
    )
    names = {code: name for name, code in DIRECTIONS.items()}
    result = []
    for layer, step, direction in exchanges:
        rows = [
            table[(table["layer"] == layer) & (table["step"] == step) & (table["direction"] == direction)]
            for table in tables
        ]
        sums = {
            name: sum(int(r[column].sum()) for r in rows) / epochs
            for name, column in (
                ("rows", "rows"),
                ("main", "main_bytes"),
                ("meta", "meta_bytes"),
                ("header", "header_bytes"),
            )
        }
        share = 1e9 * epochs * len(rows)
        result.append(
            LayerTraffic(
                layer=layer,
                step=step,
                direction=names[direction],
                wire_s=sum(_length(r, "wire") for r in rows) / share,
                exposed_s=sum(_length(r, "wait") for r in rows) / share,
                **sums,
            )
        )
    return tuple(result)


def _first_of_each(messages: Table) -> npt.NDArray[np.int64]:
    """Index of one message of every exchange that occurs."""
    codes = group_codes([messages[name] for name in ("layer", "step", "direction")])
    return np.unique(codes, return_index=True)[1]


def _length(messages: Table, name: str) -> int:
    """Length in ns of the union of an exchange's intervals: peers of a fused collective count once."""
    starts, ends = messages[f"{name}_start_ns"], messages[f"{name}_end_ns"]
    known = (starts != MISSING) & (ends != MISSING)
    return total(intervals(starts[known], ends[known]))


def _by_pair(tables: Sequence[tuple[int, Table]], world_size: int, epochs: int) -> tuple[PairTraffic, ...]:
    """Bytes of every ordered pair of ranks, per epoch."""
    result = []
    for rank, table in tables:
        sent = np.zeros(world_size, dtype=np.int64)
        np.add.at(sent, table["peer"], message_bytes(table))
        result += [
            PairTraffic(rank, peer, int(sent[peer]) / epochs) for peer in range(world_size) if peer != rank
        ]
    return tuple(result)


def message_bytes(messages: Table) -> npt.NDArray[np.int64]:
    """Bytes of each message on the wire, shape (n,)."""
    size: npt.NDArray[np.int64] = messages["main_bytes"] + messages["meta_bytes"] + messages["header_bytes"]
    return size


def bytes_total(run: Run) -> BytesTotal | None:
    """Bytes of the whole run from the footers; None when a rank has none."""
    if run.missing_ranks or any(trace.footer is None for trace in run.ranks):
        return None
    parts = {
        part: sum(trace.footer.bytes.get(part, 0) for trace in run.ranks if trace.footer is not None)
        for part in ("train", "evaluate", "input_halo", "gradient_allreduce", "control", "unused")
    }
    return BytesTotal(sent=sum(parts.values()), **parts)


def bits_used(run: Run, epochs: Sequence[int], level_counts: Sequence[int] | None) -> BitsUsed:
    """Widths over the rows sent in ``epochs``, and over the pool (``level_counts``: nodes at level 0 … 3).

    The pool's node of level k has min(8, base · 2^k) bits in an epoch, or the base itself from 32 on.
    """
    wanted = set(epochs)
    rows: dict[str, int] = {}
    for trace in run.ranks:
        for record in trace.bits:
            if record.epoch in wanted:
                for width, number in record.histogram.items():
                    rows[width] = rows.get(width, 0) + number
    nodes: dict[str, int] = {}
    for base in (epoch.base_bits for epoch in run.ranks[0].epochs if epoch.epoch in wanted):
        for level, number in enumerate(level_counts or ()):
            width = str(base if base > 8 else min(8, base << level))
            nodes[width] = nodes.get(width, 0) + number
    full_precision = run.ranks[0].epochs[0].base_bits > 8 if run.ranks[0].epochs else False
    return BitsUsed(
        mean=_mean_width(rows),
        histogram=_complete(rows, full_precision),
        node_mean=_mean_width(nodes),
        node_histogram=_complete(nodes, full_precision) if level_counts is not None else None,
    )


def _complete(histogram: Mapping[str, int], full_precision: bool) -> dict[str, int]:
    """The histogram with exactly the keys 1, 2, 4, 8, or 32 alone."""
    widths = ("32",) if full_precision else ("1", "2", "4", "8")
    return {width: histogram.get(width, 0) for width in widths}


def _mean_width(histogram: Mapping[str, int]) -> float | None:
    number = sum(histogram.values())
    if number == 0:
        return None
    return sum(int(width) * count for width, count in histogram.items()) / number
