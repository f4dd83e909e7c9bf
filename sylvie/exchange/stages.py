"""Stages: what happens to one flight between *post* and *take* — encode, wire, decode — and what is checked on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sylvie.codec.base import Codec, NonFiniteRowError
from sylvie.codec.layout import NoiseKey
from sylvie.exchange.carrier import Carrier
from sylvie.exchange.flight import ExchangeError, Flight, Site
from sylvie.exchange.header import DIRECTION_CODES, PURPOSE_CODES, WIRE_FORMAT, MessageHeader, mismatch
from sylvie.exchange.plan import ExchangePlan
from sylvie.exchange.streams import Streams
from sylvie_trace.nvtx import Ranges, site_name
from sylvie_trace.schema import BACKWARD, FORWARD, MAIN


class Stages:
    """The stages of every flight of one exchange; the main thread and the worker both call them, never for the same flight."""

    def __init__(
        self,
        *,
        plan: ExchangePlan,
        carrier: Carrier,
        codec: Codec | None,
        seed: int,
        streams: Streams,
        ranges: Ranges,
        purpose: str,
    ) -> None:
        self._plan, self._carrier, self.codec = plan, carrier, codec
        self._seed, self._streams, self._moment = seed, streams, streams.moment
        self._ranges, self._purpose = ranges, purpose
        self._names: dict[tuple[int, int, str, str], str] = {}
        self._unlabelled: deque[Flight] = deque()

    def name(self, site: Site, action: str) -> str:
        """The NVTX name of a site and what happens there, built once."""
        key = (site.layer, site.step, site.direction, action)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = site_name(*key)
        return name

    def _header(self, flight: Flight) -> MessageHeader:
        return MessageHeader(
            wire_format=WIRE_FORMAT,
            direction=DIRECTION_CODES[flight.site.direction],
            purpose=PURPOSE_CODES[self._purpose],
            layer=flight.site.layer,
            step=flight.site.step,
            epoch=flight.epoch,
            base=flight.base,
            plan_id=self._plan.plan_id,
            sent_ns=0,
        )

    def encode(self, flight: Flight, thread: str) -> None:
        """Write every outgoing row into a buffer lent for it; ``thread`` is noted as the place where it happened."""
        assert flight.source is not None
        wire, site = flight.wire, flight.site
        self._ranges.push(self.name(site, "encode"), sum(wire.send_splits))
        started = self._moment()
        buffer = self._carrier.lend(sum(wire.send_splits))
        self._streams.keep(flight.source)
        key = NoiseKey(
            seed=self._seed,
            epoch=flight.epoch,
            layer=site.layer,
            step=site.step,
            direction=DIRECTION_CODES[site.direction],
            sender=0 if site.direction == FORWARD else self._plan.rank,
        )
        with self._naming_rows():
            wire.pack(flight.source, buffer, self.codec, key)
        if thread == MAIN or self._streams.in_step:
            self._release(flight)
        flight.send = buffer
        flight.times.encode, flight.times.encode_thread = (started, self._moment()), thread
        self._ranges.pop()

    @contextmanager
    def _naming_rows(self) -> Iterator[None]:
        """Say where a row stood that cannot be sent; on a device it may be one of an earlier message."""
        try:
            yield
        except NonFiniteRowError as error:
            key = error.key
            direction = FORWARD if key.direction == DIRECTION_CODES[FORWARD] else BACKWARD
            raise ExchangeError(
                f"a non-finite row cannot be sent: global node {error.node_id}",
                rank=self._plan.rank,
                site=Site(layer=key.layer, step=key.step, direction=direction),
                epoch=key.epoch,
            ) from error

    def _release(self, flight: Flight) -> None:
        """The rows to send have been read: let go of them, if they are still what was posted."""
        source, flight.source = flight.source, None
        if source is not None and source._version != flight.source_version:
            raise ExchangeError(
                "rows were modified in place while they were being sent; use an out-of-place operation",
                rank=self._plan.rank,
                site=flight.site,
                epoch=flight.epoch,
            )

    def transfer(self, flight: Flight) -> None:
        """Move the bytes, and look at the received headers as soon as they can be read."""
        assert flight.send is not None
        send, flight.send = flight.send, None
        self._ranges.push(self.name(flight.site, "wire"), send.numel())
        try:
            delivery = self._carrier.carry(send, flight.wire, self._header(flight))
        except Exception as error:
            raise ExchangeError(
                f"the exchange broke off: {error}", rank=self._plan.rank, site=flight.site, epoch=flight.epoch
            ) from error
        self._ranges.pop()
        flight.recv, flight.labels, flight.times.wire = delivery.recv, delivery.labels, delivery.wire
        if delivery.labels.ready:
            self.check_headers(flight)
        else:
            self._unlabelled.append(flight)

    def check_headers(self, flight: Flight) -> None:
        """Compare the received headers with what was due, waiting for them if need be; a second call does nothing."""
        labels, flight.labels = flight.labels, None
        if labels is None:
            return
        want = self._header(flight)
        for peer, got in labels.read().items():
            wrong = mismatch(got, want)
            if wrong is not None:
                raise ExchangeError(
                    f"a message is not the one that was due: {wrong}",
                    rank=self._plan.rank,
                    site=flight.site,
                    epoch=flight.epoch,
                    peer=peer,
                )
            flight.headers[peer] = got
        self._release(flight)

    def look(self) -> None:
        """Check the headers that have come in the meantime."""
        while self._unlabelled and (self._unlabelled[0].labels is None or self._unlabelled[0].labels.ready):
            self.check_headers(self._unlabelled.popleft())

    def decode(self, flight: Flight, thread: str) -> None:
        """Restore the arrived rows into the flight's row buffer."""
        assert flight.recv is not None
        self._ranges.push(self.name(flight.site, "decode"), flight.recv.numel())
        started = self._moment()
        for target in (flight.rows, flight.scratch):
            if target is not None:
                self._streams.keep(target)
        flight.wire.unpack(flight.recv, self.codec, flight.rows, flight.scratch)
        self._carrier.give_back(flight.recv)
        flight.recv, flight.scratch, flight.decoded = None, None, True
        flight.times.decode, flight.times.decode_thread = (started, self._moment()), thread
        self._ranges.pop()

    def check_rows(self, *, wait: bool) -> None:
        """Raise for a row found non-finite on the device, naming it; ``wait`` for what is still under way."""
        if self.codec is not None:
            with self._naming_rows():
                self.codec.check(wait=wait)
