"""From a trace to the program of every rank: what its main thread does in an epoch, in order, and what an exchange costs.

An epoch's main thread alternates between *work* and marks: a *post* hands rows to the background thread, a *take* needs
rows, then come the gradient all-reduce and the coordination. Time spent waiting is no part of the program: waiting is
what the simulation finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sylvie_trace.columns import MISSING, PURPOSES, THREADS
from sylvie_trace.epochs import Extents, extents
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import (
    ASYNC,
    MAIN,
    SPAN_COORDINATE,
    SPAN_GRADIENT_ALLREDUCE,
    SYNC,
    TRAIN,
)
from sylvie_trace.timeline import totals_within

WORK, POST, TAKE, GRADIENT, COORDINATE = "work", "post", "take", "gradient", "coordinate"
#: A place where rows are exchanged: layer, step, direction, and which of several collectives there.
Site = tuple[int, int, int, int]


@dataclass(frozen=True)
class Rows:
    """Rows of one message: how many, how wide, and their bytes as traced."""

    rows: int
    width: int
    main: int
    meta: int
    header: int


@dataclass(frozen=True)
class Exchange:
    """One collective of a rank as traced: codec seconds, rows sent and received, seconds on the wire when all were ready."""

    encode_s: float
    decode_s: float
    sent: tuple[Rows, ...]
    received: tuple[Rows, ...]
    wire_s: float | None


@dataclass(frozen=True)
class Op:
    """A step of the main thread: ``seconds`` of work, or a mark at ``site``."""

    kind: str
    seconds: float = 0.0
    site: Site | None = None


@dataclass(frozen=True)
class EpochProgram:
    """A rank's epoch. ``gradient_bytes`` are those of every bucket, in the order of summing.

    ``gradient_s`` and ``coordinate_s`` are the spans' lengths, waiting for others included. ``codec_behind``: rows were encoded
    beside the main thread's work, which a rank of a single core does not do even in an asynchronous epoch.
    """

    epoch: int
    mode: str
    base: int
    ops: tuple[Op, ...]
    exchanges: dict[Site, Exchange]
    gradient_bytes: tuple[int, ...]
    gradient_s: float
    coordinate_s: float
    codec_behind: bool

    @property
    def work_s(self) -> float:
        """Seconds of work on the main thread, without encoding and decoding."""
        return sum(op.seconds for op in self.ops)


@dataclass
class _Flight:
    """A collective's rows in the message table."""

    site: Site
    index: list[int]


def programs(run: Run, epochs: Sequence[int]) -> list[list[EpochProgram]]:
    """Per rank, the programs of ``epochs``. ``ValueError`` in one line when the trace does not tell them."""
    if not run.traced:
        raise ValueError(f"{run.path} has no message and span records: run with --trace")
    if run.missing_ranks:
        raise ValueError(f"{run.path}: rank {run.missing_ranks[0]} left no trace: every rank's is needed")
    if run.world_size < 2:
        raise ValueError(f"{run.path} is a run of one rank: it exchanges nothing")
    return [_Rank(run, trace).programs(epochs) for trace in run.ranks]


def _buckets(run: Run) -> tuple[int, ...]:
    """Bytes that a rank sends for every bucket of weight gradients; none when run.json does not say."""
    sizes = run.info.get("gradient_bucket_bytes")
    known = isinstance(sizes, list) and all(isinstance(size, int) for size in sizes)
    return tuple(sizes) if isinstance(sizes, list) and known else ()


class _Rank:
    """Reads one rank's programs."""

    def __init__(self, run: Run, trace: RankTrace) -> None:
        self.trace = trace
        self.extent: Extents = extents(run, trace)
        self.table = trace.messages[trace.messages["purpose"] == PURPOSES[TRAIN]]
        self.columns = {name: self.table[name] for name in self.table.names}
        self.flights = self._flights()
        self.spans = {name: self._spans(run, name) for name in (SPAN_GRADIENT_ALLREDUCE, SPAN_COORDINATE)}
        self.records = {record.epoch: record for record in trace.epochs}
        self.offsets = self._take_offsets()
        self.buckets = _buckets(run)

    def _spans(self, run: Run, name: str) -> dict[int, tuple[int, int]]:
        code = run.span_names.get(name, -1)
        spans = self.trace.spans[self.trace.spans["name"] == code]
        return {int(row["epoch"]): (int(row["start_ns"]), int(row["end_ns"])) for row in spans.rows()}

    def _flights(self) -> dict[int, list[_Flight]]:
        """Collectives by the epoch that produced them, in the order of posting."""
        together: dict[tuple[int, ...], list[int]] = defaultdict(list)
        columns = self.columns
        names = ("epoch", "queued_ns", "layer", "step", "direction")
        for place, key in enumerate(zip(*(columns[name].tolist() for name in names), strict=True)):
            together[key].append(place)
        result: dict[int, list[_Flight]] = defaultdict(list)
        for (epoch, _, *site), index in sorted(together.items()):
            number = sum(flight.site[:3] == tuple(site) for flight in result[epoch])
            result[epoch].append(_Flight((site[0], site[1], site[2], number), index))
        return result

    def programs(self, epochs: Sequence[int]) -> list[EpochProgram]:
        return [self._program(epoch) for epoch in epochs]

    def _value(self, flight: _Flight, name: str) -> int | None:
        value = int(self.columns[name][flight.index[0]])
        return None if value == MISSING else value

    def _marks(self, epoch: int) -> list[tuple[int, int, Op]]:
        """(start, end, op) of everything on the main thread that is no work, where it is known."""
        marks: list[tuple[int, int, Op]] = []
        for flight in self.flights.get(epoch, []):
            queued = self._value(flight, "queued_ns")
            start, end = self._value(flight, "encode_start_ns"), self._value(flight, "encode_end_ns")
            on_main = self._value(flight, "encode_thread") == THREADS[MAIN]
            if queued is None:
                continue
            span = (start, end) if on_main and start is not None and end is not None else (queued, queued)
            marks.append((*span, Op(POST, site=flight.site)))
        for produced in (epoch - 1, epoch):
            for flight in self.flights.get(produced, []):
                taken = self._taken(flight, epoch) if self._value(flight, "consumed_epoch") == epoch else None
                if taken is not None:
                    marks.append((*taken, Op(TAKE, site=flight.site)))
        for name, kind in ((SPAN_GRADIENT_ALLREDUCE, GRADIENT), (SPAN_COORDINATE, COORDINATE)):
            if epoch in self.spans[name]:
                marks.append((*self.spans[name][epoch], Op(kind)))
        return sorted(marks, key=lambda mark: mark[:2])

    def _taken(self, flight: _Flight, epoch: int) -> tuple[int, int] | None:
        """When the main thread took a collective's rows: from the wait or the decode, whichever came first."""
        times = []
        if self._value(flight, "wait_epoch") == epoch:
            times += [self._value(flight, "wait_start_ns"), self._value(flight, "wait_end_ns")]
        if self._value(flight, "decode_thread") == THREADS[MAIN]:
            times += [self._value(flight, "decode_start_ns"), self._value(flight, "decode_end_ns")]
        known = [time for time in times if time is not None]
        return (min(known), max(known)) if known else None

    def _work(self, epoch: int) -> list[Op]:
        """Marks with the work between them; takes that left no trace are missing."""
        place = int(np.nonzero(self.extent.epoch == epoch)[0][0])
        now, end = int(self.extent.start_ns[place]), int(self.extent.end_ns[place])
        ops = []
        for start, stop, op in self._marks(epoch):
            ops += [Op(WORK, max(0, start - now) / 1e9), op]
            now = max(now, stop)
        tail = max(0, end - now - int(totals_within(self.extent.pauses, [now], [max(now, end)])[0]))
        return [*ops, Op(WORK, tail / 1e9)]

    def _take_offsets(self) -> dict[Site, float]:
        """Share of an epoch's work that lies between a site's post and its take, from synchronous epochs."""
        found: dict[Site, list[float]] = defaultdict(list)
        known = [record.epoch for record in self.trace.epochs if record.mode == SYNC]
        later = [epoch for epoch in known if epoch > 0]
        for epoch in (later or known)[:50]:
            posted: dict[Site | None, float] = {}
            done = 0.0
            ops = self._work(epoch)
            total = sum(op.seconds for op in ops)
            for op in ops:
                done += op.seconds
                if op.kind == POST:
                    posted[op.site] = done
                elif op.kind == TAKE and op.site in posted and op.site is not None and total > 0:
                    found[op.site].append((done - posted[op.site]) / total)
        return {site: float(np.median(shares)) for site, shares in found.items()}

    def _program(self, epoch: int) -> EpochProgram:
        record = self.records[epoch]
        ops = self._work(epoch)
        if record.mode == ASYNC:
            ops = self._with_takes(ops)
        flights = self.flights.get(epoch, [])
        gradient, coordinate = (self.spans[n].get(epoch, (0, 0)) for n in (SPAN_GRADIENT_ALLREDUCE, SPAN_COORDINATE))
        return EpochProgram(
            epoch=epoch,
            mode=record.mode,
            base=record.base_bits,
            ops=tuple(ops),
            exchanges={flight.site: self._exchange(flight) for flight in flights},
            gradient_bytes=self.buckets or (record.gradient_allreduce_bytes,),
            gradient_s=(gradient[1] - gradient[0]) / 1e9,
            coordinate_s=(coordinate[1] - coordinate[0]) / 1e9,
            codec_behind=any(self._value(flight, "encode_thread") != THREADS[MAIN] for flight in flights),
        )

    def _with_takes(self, ops: Sequence[Op]) -> list[Op]:
        """Insert the takes that an asynchronous epoch does not show, as far behind the post as a synchronous one's."""
        shown = {op.site for op in ops if op.kind == TAKE}
        total, done = sum(op.seconds for op in ops), 0.0
        due: list[tuple[float, Site]] = []
        result: list[Op] = []
        for op in ops:
            left = op.seconds
            while op.kind == WORK and due and due[0][0] <= done + left:
                when, site = due.pop(0)
                part = max(0.0, when - done)
                result += [Op(WORK, part), Op(TAKE, site=site)]
                done, left = done + part, left - part
            if op.kind in (GRADIENT, COORDINATE):  # nothing is taken later than backward
                result += [Op(TAKE, site=site) for _, site in due]
                due.clear()
            result.append(Op(WORK, left) if op.kind == WORK else op)
            done += left
            if op.kind == POST and op.site is not None and op.site not in shown:
                due.append((done + self.offsets.get(op.site, 0.0) * total, op.site))
                due.sort()
        return result

    def _exchange(self, flight: _Flight) -> Exchange:
        def seconds(name: str) -> float:
            start, end = self._value(flight, f"{name}_start_ns"), self._value(flight, f"{name}_end_ns")
            return 0.0 if start is None or end is None else (end - start) / 1e9

        sides: dict[str, list[Rows]] = {"": [], "recv_": []}
        for place in flight.index:
            for prefix, rows in sides.items():
                parts = (f"{prefix}{name}" for name in ("rows", "main_bytes", "meta_bytes", "header_bytes"))
                count, main, meta, header = (int(self.columns[name][place]) for name in parts)
                rows.append(Rows(count, int(self.columns["width"][place]), main, meta, header))
        return Exchange(seconds("encode"), seconds("decode"), tuple(sides[""]), tuple(sides["recv_"]), seconds("wire"))
