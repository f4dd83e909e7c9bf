"""Lays a profiler's ranges beside our records: which epoch, span or message was each of them.

Both clocks are anchored in UTC: the export by its session's start, a rank by its header. The rest of the difference, from
two readings of UTC, is the median over the ranges named ``epoch N`` and is taken away; what remains is reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import DIRECTIONS, MISSING, Column, Table
from sylvie_trace.importers.nsys import Export, NvtxRange
from sylvie_trace.nvtx import DOMAIN
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import BACKWARD, FORWARD

_SITE = re.compile(r"L(\d+)\.(\d+) (fwd|bwd) (encode|wire|decode|wait)")
_EPOCH = re.compile(r"epoch (\d+)")
#: A range belongs to a record that starts within this share of a median epoch, at least 1 ms.
_TOLERANCE, _LEAST_NS = 0.05, 1_000_000


@dataclass(frozen=True)
class Aligned:
    """A range on its rank's run clock, and the record that it is.

    ``what``: ``epoch``, ``span``, ``message``, or None where no record is near. ``peers`` and ``bytes`` are those of the
    exchange; ``difference_ns`` = start of the range − start of the record.
    """

    rank: int
    name: str
    thread: int
    start_ns: int
    end_ns: int | None
    payload: int | None
    what: str | None = None
    epoch: int | None = None
    layer: int | None = None
    step: int | None = None
    direction: str | None = None
    action: str | None = None
    peers: tuple[int, ...] = ()
    bytes: int | None = None
    difference_ns: int | None = None


@dataclass(frozen=True)
class RankAlignment:
    """One rank: the correction of its clock, and how well its ranges fit; None where nothing was matched."""

    rank: int
    ranges: int
    matched: int
    open: int
    shift_ns: int | None
    epochs: int
    median_difference_ns: int | None
    largest_difference_ns: int | None
    payload_differs: int


@dataclass(frozen=True)
class Imported:
    """An export beside a run; ``foreign`` counts ranges of other domains, ``strange`` those of processes of no rank."""

    file: str
    schema_version: str
    ranks: tuple[RankAlignment, ...]
    foreign: int
    strange: int
    ranges: tuple[Aligned, ...]


def align(run: Run, export: Export, ranks: Sequence[int] | None = None) -> Imported:
    """Match the ranges of ``export`` with the records of ``run``, of ``ranks`` only when given.

    Raises ``ValueError`` when the export holds no range of the run, or a process id that two ranks had.
    """
    ours = [item for item in export.ranges if item.domain == DOMAIN]
    if not ours:
        raise ValueError(f"{export.path} has no range of the domain {DOMAIN}: run with --trace under the profiler")
    traces = _by_process(run, ranks)
    by_rank: dict[int, list[NvtxRange]] = {}
    for item in ours:
        if item.pid in traces:
            by_rank.setdefault(traces[item.pid].rank, []).append(item)
    if not by_rank:
        raise ValueError(f"{export.path} is of other processes than {run.path}: name the run that was profiled")
    aligned: list[Aligned] = []
    summaries = []
    for trace in traces.values():
        if trace.rank in by_rank:
            found, summary = _align_rank(run, trace, export, by_rank[trace.rank])
            aligned += found
            summaries.append(summary)
    return Imported(
        file=str(export.path),
        schema_version=export.schema_version,
        ranks=tuple(sorted(summaries, key=lambda summary: summary.rank)),
        foreign=len(export.ranges) - len(ours),
        strange=len(ours) - sum(map(len, by_rank.values())),
        ranges=tuple(aligned),
    )


def _by_process(run: Run, ranks: Sequence[int] | None) -> dict[int, RankTrace]:
    traces: dict[int, RankTrace] = {}
    for trace in run.ranks:
        if ranks is not None and trace.rank not in ranks:
            continue
        other = traces.setdefault(trace.header.pid, trace)
        if other is not trace:
            raise ValueError(
                f"ranks {other.rank} and {trace.rank} had the same process id {trace.header.pid} on two hosts: "
                "name those of the profiled host with --ranks"
            )
    return traces


def _align_rank(run: Run, trace: RankTrace, export: Export, ranges: Sequence[NvtxRange]) -> tuple[list[Aligned], RankAlignment]:
    header = trace.header
    moved = header.clock_ns + export.utc_ns - header.wall_ns
    starts = {record.epoch: record.start_ns for record in trace.epochs}
    gaps = [item.start_ns + moved - starts[epoch] for item in ranges if (epoch := _epoch_of(item.name)) in starts]
    shift = int(np.median(gaps)) if gaps else None
    moved -= shift or 0
    finder = _Finder(run, trace)
    found = [
        finder.find(
            Aligned(
                rank=trace.rank,
                name=item.name,
                thread=item.tid,
                start_ns=item.start_ns + moved,
                end_ns=None if item.end_ns is None else item.end_ns + moved,
                payload=item.payload,
            )
        )
        for item in ranges
    ]
    differences = [abs(item.difference_ns) for item in found if item.difference_ns is not None]
    return found, RankAlignment(
        rank=trace.rank,
        ranges=len(found),
        matched=len(differences),
        open=sum(item.end_ns is None for item in found),
        shift_ns=shift,
        epochs=len(gaps),
        median_difference_ns=int(np.median(differences)) if differences else None,
        largest_difference_ns=max(differences, default=None),
        payload_differs=sum(item.what == "message" and item.payload not in (None, item.bytes) for item in found),
    )


def _epoch_of(name: str) -> int | None:
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


class _Finder:
    """The records of a rank by what a range's name says, and by when they start."""

    def __init__(self, run: Run, trace: RankTrace) -> None:
        self._trace = trace
        self._codes = run.span_names
        self._by_name: dict[str, tuple[Column, Table]] = {}
        self._sites: dict[tuple[int, int, int, str], tuple[Column, Table]] = {}
        lengths = [record.end_ns - record.start_ns for record in trace.epochs]
        self._tolerance = max(_LEAST_NS, int(_TOLERANCE * float(np.median(lengths)))) if lengths else _LEAST_NS
        self._epochs = {record.epoch: record.start_ns for record in trace.epochs}

    def find(self, item: Aligned) -> Aligned:
        """The range with its record."""
        epoch = _epoch_of(item.name)
        if epoch is not None:
            if epoch not in self._epochs:
                return item
            return replace(item, what="epoch", epoch=epoch, difference_ns=item.start_ns - self._epochs[epoch])
        match = _SITE.fullmatch(item.name)
        if match is not None:
            direction = FORWARD if match[3] == "fwd" else BACKWARD
            return self._message(item, int(match[1]), int(match[2]), direction, match[4])
        return self._span(item)

    def _message(self, item: Aligned, layer: int, step: int, direction: str, action: str) -> Aligned:
        """The messages of the exchange whose interval of this kind starts nearest; all peers of a fused collective."""
        item = replace(item, layer=layer, step=step, direction=direction, action=action)
        starts, messages = self._site(layer, step, DIRECTIONS[direction], action)
        at = _nearest(starts, item.start_ns)
        if at is None or abs(item.start_ns - int(starts[at])) > self._tolerance:
            return item
        first, last = np.searchsorted(starts, starts[at], "left"), np.searchsorted(starts, starts[at], "right")
        together = messages[np.arange(first, last)]
        side = ("main_bytes", "meta_bytes", "header_bytes")
        columns = side if action in ("encode", "wire") else tuple(f"recv_{name}" for name in side)
        return replace(
            item,
            what="message",
            epoch=int(together["epoch"][0]),
            peers=tuple(sorted(together["peer"].tolist())),
            bytes=sum(int(together[name].sum()) for name in columns),
            difference_ns=item.start_ns - int(starts[at]),
        )

    def _site(self, layer: int, step: int, direction: int, action: str) -> tuple[Column, Table]:
        key = (layer, step, direction, action)
        if key not in self._sites:
            table = self._trace.messages
            chosen = (table["layer"] == layer) & (table["step"] == step) & (table["direction"] == direction)
            rows = table[chosen & (table[f"{action}_start_ns"] != MISSING)]
            rows = rows[np.argsort(rows[f"{action}_start_ns"], kind="stable")]
            self._sites[key] = rows[f"{action}_start_ns"], rows
        return self._sites[key]

    def _span(self, item: Aligned) -> Aligned:
        starts, spans = self._named(item.name)
        at = _nearest(starts, item.start_ns)
        if at is None or abs(item.start_ns - int(starts[at])) > self._tolerance:
            return item
        epoch, difference = int(spans["epoch"][at]), item.start_ns - int(starts[at])
        return replace(item, what="span", epoch=epoch, difference_ns=difference)

    def _named(self, name: str) -> tuple[Column, Table]:
        if name not in self._by_name:
            spans = self._trace.spans
            rows = spans[spans["name"] == self._codes.get(name, -1)]
            rows = rows[np.argsort(rows["start_ns"], kind="stable")]
            self._by_name[name] = rows["start_ns"], rows
        return self._by_name[name]


def _nearest(starts: npt.NDArray[np.int64], time: int) -> int | None:
    """Index of the sorted start nearest to ``time``; None when there is none."""
    if not len(starts):
        return None
    after = int(np.searchsorted(starts, time))
    choices = [index for index in (after - 1, after) if 0 <= index < len(starts)]
    return min(choices, key=lambda index: abs(int(starts[index]) - time))
