"""A run as a timeline for Perfetto: the Trace Event format, one JSON file.

A rank is a process. Its threads hold epochs, spans and the sites of its exchanges as complete events; what would overlap
without being nested goes to a further track, for overlapping complete events on one track are dropped silently. A message is
an asynchronous pair (``b``, ``e``) on the track of its peer, on a further lane while another one to that peer is in flight.
All times are on rank 0's clock, in µs since the earliest event.
"""

from __future__ import annotations

import gzip
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sylvie_trace.columns import DIRECTIONS, MISSING, MODES, PURPOSES, THREADS, Table
from sylvie_trace.nvtx import site_name
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.run_dir import replacing
from sylvie_trace.schema import BACKGROUND, MAIN

_DIRECTION = {code: name for name, code in DIRECTIONS.items()}
_PURPOSE = {code: name for name, code in PURPOSES.items()}
_MODE = {code: name for name, code in MODES.items()}
_SITES = ("encode", "wire", "decode", "wait")
#: What a message's event is made of.
_MESSAGE = (
    *("purpose", "epoch", "layer", "step", "direction", "mode", "width", "rows", "main_bytes", "meta_bytes", "header_bytes"),
    *("recv_epoch", "consumed_epoch", "age", "queued_ns", "wire_start_ns", "wire_end_ns"),
)


@dataclass(frozen=True)
class Exported:
    """What an export wrote: events of each kind, and messages whose times on the wire are not recorded."""

    path: Path
    slices: int
    messages: int
    further_tracks: int
    untimed_messages: int


@dataclass(frozen=True)
class Slice:
    """A stretch of a rank's thread, ns on rank 0's clock."""

    start: int
    end: int
    name: str
    category: str
    arguments: dict[str, Any]


def export(run: Run, path: Path, epochs: range | None = None) -> Exported:
    """Write the timeline of ``run`` (of ``epochs`` only, when given) to ``path``, gzipped if it ends in ``.gz``.

    Raises ``ValueError`` for a run that has nothing to show.
    """
    chosen = [_Rank(trace, run, epochs) for trace in run.ranks]
    origin = min((rank.first() for rank in chosen if not rank.empty), default=None)
    if origin is None:
        raise ValueError(f"{run.path} has no event to export: run with --trace, or name other epochs")
    encoder = msgspec.json.Encoder()
    counts = dict.fromkeys(("X", "b", "further"), 0)
    with replacing(path) as plain:
        file = gzip.GzipFile(fileobj=plain, mode="wb", mtime=0, compresslevel=5) if path.suffix == ".gz" else plain
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        separator = b""
        for rank in chosen:
            for event in rank.events(origin, counts):
                file.write(separator + encoder.encode(event))
                separator = b",\n"
        file.write(b"\n]}\n")
        if file is not plain:
            file.close()
    return Exported(path, counts["X"], counts["b"], counts["further"], sum(rank.untimed for rank in chosen))


class _Rank:
    """One rank's events; a pid is the rank + 1, for pid 0 means the idle process to Perfetto."""

    def __init__(self, trace: RankTrace, run: Run, epochs: range | None) -> None:
        self.trace, self.pid = trace, trace.rank + 1
        self._offset = trace.header.offset_ns
        self._peers = run.world_size
        self._names = {code: name for name, code in run.span_names.items()}
        self._epochs = epochs
        messages = self._within(trace.messages)
        timed = (messages["wire_start_ns"] != MISSING) & (messages["wire_end_ns"] != MISSING)
        self.messages, self.untimed = messages[timed], int((~timed).sum())
        self._all = messages
        self.slices = {MAIN: self._main(), BACKGROUND: self._background()}

    def _within(self, table: Table) -> Table:
        if self._epochs is None:
            return table
        chosen: Table = table[(table["epoch"] >= self._epochs.start) & (table["epoch"] < self._epochs.stop)]
        return chosen

    @property
    def empty(self) -> bool:
        return not len(self.messages) and not any(self.slices.values())

    def first(self) -> int:
        """When this rank's first event starts."""
        starts = [slices[0].start for slices in self.slices.values() if slices]
        if len(self.messages):
            starts.append(int(self.messages["wire_start_ns"].min()) - self._offset)
        return min(starts)

    def _main(self) -> list[Slice]:
        shift = self._offset
        found = [
            Slice(
                record.start_ns - shift,
                record.end_ns - shift,
                f"epoch {record.epoch}",
                "epoch",
                {"mode": record.mode, "base_bits": record.base_bits, "loss": record.loss},
            )
            for record in self.trace.epochs
            if self._epochs is None or record.epoch in self._epochs
        ]
        return _sorted([*found, *self._spans(MAIN), *self._sites(MAIN)])

    def _background(self) -> list[Slice]:
        return _sorted([*self._spans(BACKGROUND), *self._sites(BACKGROUND)])

    def _spans(self, thread: str) -> Iterator[Slice]:
        spans = self._within(self.trace.spans)
        spans = spans[spans["thread"] == THREADS[thread]]
        columns = [spans[name].tolist() for name in ("start_ns", "end_ns", "name", "epoch", "layer", "step")]
        for start, end, name, epoch, layer, step in zip(*columns, strict=True):
            arguments = {key: value for key, value in (("epoch", epoch), ("layer", layer), ("step", step)) if value >= 0}
            yield Slice(start - self._offset, end - self._offset, self._names[name], "span", arguments)

    def _sites(self, thread: str) -> Iterator[Slice]:
        """Encode, wire, decode and wait of each exchange, once for all peers of a fused collective."""
        for action in _SITES:
            threads = {"wire": BACKGROUND, "wait": MAIN}
            table = self._all
            known = (table[f"{action}_start_ns"] != MISSING) & (table[f"{action}_end_ns"] != MISSING)
            if action in threads:
                known &= threads[action] == thread
            else:
                known &= table[f"{action}_thread"] == THREADS[thread]
            table = table[known]
            keys = ("epoch", "layer", "step", "direction", "purpose", f"{action}_start_ns", f"{action}_end_ns")
            sent = table["main_bytes"] + table["meta_bytes"] + table["header_bytes"]
            received = table["recv_main_bytes"] + table["recv_meta_bytes"] + table["recv_header_bytes"]
            volumes = (sent if action in ("encode", "wire") else received).tolist()
            total: dict[tuple[int, ...], int] = {}
            for key, volume in zip(zip(*(table[name].tolist() for name in keys), strict=True), volumes, strict=True):
                total[key] = total.get(key, 0) + volume
            for (epoch, layer, step, direction, purpose, start, end), volume in total.items():
                name = site_name(layer, step, _DIRECTION[direction], action)
                arguments = {"epoch": epoch, "bytes": volume, "purpose": _PURPOSE[purpose]}
                yield Slice(start - self._offset, end - self._offset, name, action, arguments)

    def events(self, origin: int, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
        """All events of this rank in the Trace Event format; ``counts`` is added to."""
        header = self.trace.header
        yield self._named("process_name", f"rank {self.trace.rank} ({header.host})")
        yield {"ph": "M", "name": "process_sort_index", "pid": self.pid, "args": {"sort_index": self.trace.rank}}
        tid = 0
        for thread, slices in self.slices.items():
            for lane, nested in enumerate(nested_lanes(slices)):
                tid += 1
                counts["further"] += lane > 0
                yield self._named("thread_name", thread if lane == 0 else f"{thread}, overlapping {lane}", tid)
                for item in nested:
                    counts["X"] += 1
                    yield {
                        "ph": "X",
                        "name": item.name,
                        "cat": item.category,
                        "pid": self.pid,
                        "tid": tid,
                        "ts": (item.start - origin) / 1000,
                        "dur": max(item.end - item.start, 0) / 1000,
                        "args": item.arguments,
                    }
        for peer in range(self._peers):
            yield from self._to_peer(peer, origin, counts)

    def _named(self, kind: str, name: str, tid: int | None = None) -> dict[str, Any]:
        event: dict[str, Any] = {"ph": "M", "name": kind, "pid": self.pid, "args": {"name": name}}
        return event if tid is None else event | {"tid": tid}

    def _to_peer(self, peer: int, origin: int, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Messages to one peer. The instant that opens a lane gives the lane its name."""
        table = self.messages[self.messages["peer"] == peer]
        if not len(table):
            return
        order = np.lexsort((table["wire_end_ns"], table["wire_start_ns"]))
        opened: set[int] = set()
        for lane, row in _disjoint_lanes(table[order]):
            start = (row["wire_start_ns"] - self._offset - origin) / 1000
            end = max((row["wire_end_ns"] - self._offset - origin) / 1000, start)
            track = {"cat": "message", "pid": self.pid, "tid": 1, "id2": {"local": f"{peer}.{lane}"}}
            if lane not in opened:
                opened.add(lane)
                yield {"ph": "n", "name": f"messages to rank {peer}", "ts": start, **track}
            name = site_name(row["layer"], row["step"], _DIRECTION[row["direction"]], f"to rank {peer}")
            counts["b"] += 1
            yield {"ph": "b", "name": name, "ts": start, "args": _describe(row), **track}
            yield {"ph": "e", "name": name, "ts": end, **track}


def _describe(row: dict[str, int]) -> dict[str, Any]:
    """The arguments of a message."""
    shown = {name: row[name] for name in ("epoch", "rows", "width", "main_bytes", "meta_bytes", "header_bytes")}
    optional = {name: row[name] for name in ("age", "recv_epoch", "consumed_epoch") if row[name] != MISSING}
    queued = {} if row["queued_ns"] == MISSING else {"queued_us": (row["wire_start_ns"] - row["queued_ns"]) / 1000}
    return {**shown, **optional, **queued, "mode": _MODE[row["mode"]], "purpose": _PURPOSE[row["purpose"]]}


def _sorted(slices: Iterable[Slice]) -> list[Slice]:
    """By start; of those that start together the longest first, so that it encloses the others."""
    return sorted(slices, key=lambda item: (item.start, -item.end))


def nested_lanes(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Sorted slices on as few tracks as a first fit finds, such that two of one track are disjoint or nested."""
    lanes: list[list[Slice]] = []
    stacks: list[list[int]] = []
    for item in slices:
        for lane, stack in zip(lanes, stacks, strict=True):  # noqa: B007, lane is the one that fits
            while stack and stack[-1] <= item.start:
                stack.pop()
            if not stack or item.end <= stack[-1]:
                break
        else:
            lane, stack = [], []
            lanes.append(lane)
            stacks.append(stack)
        lane.append(item)
        stack.append(item.end)
    return lanes


def _disjoint_lanes(table: Table) -> Iterator[tuple[int, dict[str, int]]]:
    """The rows, sorted by start, each with the lowest lane on which no earlier one is still under way."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    count = 0
    columns = [table[name].tolist() for name in _MESSAGE]
    for values in zip(*columns, strict=True):
        row = dict(zip(_MESSAGE, values, strict=True))
        while busy and busy[0][0] <= row["wire_start_ns"]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (row["wire_end_ns"], lane))
        yield lane, row
