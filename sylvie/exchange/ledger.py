"""Ledger: what was sent, for the record — bytes, rows and widths by epoch, and a message record per peer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import SupportsInt

from sylvie.exchange.flight import Flight
from sylvie.exchange.header import HEADER_BYTES
from sylvie.exchange.wire import MessageShape
from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import TRAIN, Message, Reuse


@dataclass(kw_only=True)
class EpochTotals:
    """Messages that one epoch produced on this rank."""

    rows: int = 0
    main_bytes: int = 0
    meta_bytes: int = 0
    header_bytes: int = 0
    fp32_bytes: int = 0  # what the same rows would be as plain float32
    histogram: Counter[int] = field(default_factory=Counter)

    @property
    def nbytes(self) -> int:
        """All bytes."""
        return self.main_bytes + self.meta_bytes + self.header_bytes


class Ledger:
    """Counts every flight once, when it is posted, and writes its records when its rows are used or dropped."""

    def __init__(self, recorder: Recorder, purpose: str = TRAIN) -> None:
        self._recorder, self._purpose = recorder, purpose
        self.sent_bytes = 0
        self.unused_bytes = 0
        self.waited_ns = 0  # what the main thread has stood still for rows so far
        self._epochs: dict[int, EpochTotals] = {}
        self._pending: list[Message | Reuse] = []

    def epoch(self, epoch: int) -> EpochTotals:
        """The totals of an epoch (of one that sent nothing: zeros)."""
        return self._epochs.pop(epoch, EpochTotals())

    def flush(self) -> None:
        """Write the records that came up since the last call; between epochs, so that writing disturbs none."""
        if self._pending:
            self._recorder.record_details(self._pending)
            self._pending.clear()

    def posted(self, flight: Flight) -> None:
        """Count what a flight sends."""
        totals = self._epochs.setdefault(flight.epoch, EpochTotals())
        for shape in flight.wire.out:
            totals.rows += shape.rows
            totals.main_bytes += shape.main_bytes
            totals.meta_bytes += shape.meta_bytes
            totals.header_bytes += HEADER_BYTES
            totals.fp32_bytes += 4 * shape.rows * flight.wire.dim
            self.sent_bytes += shape.main_bytes + shape.meta_bytes + HEADER_BYTES
        totals.histogram.update(flight.wire.histogram)

    def consumed(self, flight: Flight, epoch: int) -> None:
        """Record that ``epoch`` used the rows of a flight; a second use is a reuse, not a second message."""
        if flight.consumed is None:
            self._write(flight, epoch)
        elif self._recorder.trace:
            for peer, header in flight.headers.items():
                self._pending.append(_reuse(flight, peer, header.epoch, epoch))

    def unused(self, flight: Flight) -> None:
        """Record a flight whose rows nobody used."""
        self.unused_bytes += sum(flight.wire.send_splits)
        self._write(flight, None)

    def _write(self, flight: Flight, consumed: int | None) -> None:
        start, end = _ends(flight.times.wait)
        if start is not None and end is not None:
            self.waited_ns += end - start
        if not self._recorder.trace:
            return
        out = {shape.peer: shape for shape in flight.wire.out}
        incoming = {shape.peer: shape for shape in flight.wire.incoming}
        for peer in sorted(out.keys() | incoming.keys()):
            self._pending.append(_message(self._purpose, flight, peer, out.get(peer), incoming.get(peer), consumed))


def _ends(interval: tuple[SupportsInt, SupportsInt] | None) -> tuple[int | None, int | None]:
    return (int(interval[0]), int(interval[1])) if interval is not None else (None, None)


def _reuse(flight: Flight, peer: int, produced: int, epoch: int) -> Reuse:
    site = flight.site
    return Reuse(
        epoch=epoch,
        layer=site.layer,
        step=site.step,
        direction=site.direction,
        peer=peer,
        recv_epoch=produced,
        age=epoch - produced,
    )


def _message(
    purpose: str,
    flight: Flight,
    peer: int,
    out: MessageShape | None,
    incoming: MessageShape | None,
    consumed: int | None,
) -> Message:
    site, times = flight.site, flight.times
    header = flight.headers.get(peer)
    encode, wire, decode, wait = map(_ends, (times.encode, times.wire, times.decode, times.wait))
    return Message(
        purpose=purpose,
        epoch=flight.epoch,
        layer=site.layer,
        step=site.step,
        direction=site.direction,
        peer=peer,
        mode=flight.mode,
        width=flight.wire.dim,
        rows=out.rows if out else 0,
        main_bytes=out.main_bytes if out else 0,
        meta_bytes=out.meta_bytes if out else 0,
        header_bytes=HEADER_BYTES if out else 0,
        recv_rows=incoming.rows if incoming else 0,
        recv_main_bytes=incoming.main_bytes if incoming else 0,
        recv_meta_bytes=incoming.meta_bytes if incoming else 0,
        recv_header_bytes=HEADER_BYTES if incoming else 0,
        recv_epoch=header.epoch if header else None,
        consumed_epoch=consumed,
        age=consumed - header.epoch if header and consumed is not None else None,
        unused=consumed is None,
        sent_ns=header.sent_ns if header else None,
        fused=len(flight.wire.out) + len(flight.wire.incoming) > 1,
        encode_start_ns=encode[0],
        encode_end_ns=encode[1],
        encode_thread=times.encode_thread,
        queued_ns=None if times.queued is None else int(times.queued),
        wire_start_ns=wire[0],
        wire_end_ns=wire[1],
        decode_start_ns=decode[0],
        decode_end_ns=decode[1],
        decode_thread=times.decode_thread,
        wait_start_ns=wait[0],
        wait_end_ns=wait[1],
        wait_epoch=times.wait_epoch,
    )
