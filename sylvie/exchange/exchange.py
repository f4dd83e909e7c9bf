"""HaloExchange: rows leave a rank and arrive at its peers, site by site, epoch by epoch.

An exchange has five phases; each is one method here and one group of fields in the message record:

1. *post*: the main thread names the site and hands over the rows.
2. *encode*: every outgoing row is written into the fused send buffer (``_encode``).
3. *wire*: one collective moves the bytes; the received headers are compared with what was due (``_transfer``).
4. *decode*: arrived rows are restored into the site's row buffer (``_decode``).
5. *take*: the main thread receives the rows that its mode calls for, waiting if it must.

Synchronous epochs encode before and decode after the wire on the main thread, and take the rows of this epoch. Asynchronous epochs
leave phases 2 to 4 to the worker and take the rows of the epoch before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sylvie.codec.base import Codec, NonFiniteRowError
from sylvie.codec.layout import NoiseKey
from sylvie.exchange.buffers import BytePool, RowBuffers
from sylvie.exchange.flight import ExchangeError, Flight, Site
from sylvie.exchange.header import (
    DIRECTION_CODES,
    HEADER_BYTES,
    PURPOSE_CODES,
    WIRE_FORMAT,
    MessageHeader,
    mismatch,
    stamp,
    unpack_header,
)
from sylvie.exchange.ledger import Ledger
from sylvie.exchange.plan import ExchangePlan, Route
from sylvie.exchange.sampling import RowSampler, Selection
from sylvie.exchange.transport import Transport
from sylvie.exchange.wire import Wire, build_wire
from sylvie.exchange.worker import Worker
from sylvie_trace.nvtx import Ranges, site_name
from sylvie_trace.schema import ASYNC, BACKGROUND, FORWARD, MAIN, SYNC, TRAIN

Clock = Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class Round:
    """The peers of one round of an exchange, forward; backward they change places."""

    send_peers: tuple[int, ...]
    recv_peers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What holds for one epoch: its number, its mode (sync or async) and its base bits (32 = plain rows)."""

    epoch: int
    mode: str
    base: int


class HaloExchange:
    """All exchanges of one purpose (training or evaluation) on one rank."""

    def __init__(
        self,
        *,
        plan: ExchangePlan,
        transport: Transport,
        worker: Worker,
        codec: Codec | None,
        rounds: Sequence[Round],
        metadata: str,
        seed: int,
        clock: Clock,
        ledger: Ledger,
        ranges: Ranges,
        purpose: str = TRAIN,
        sampler: RowSampler | None = None,
    ) -> None:
        self.plan, self.rounds = plan, tuple(rounds)
        self._transport, self._worker, self._codec = transport, worker, codec
        self._metadata, self._seed, self._clock = metadata, seed, clock
        self._ledger, self._ranges, self._purpose = ledger, ranges, purpose
        self._names: dict[tuple[int, int, str, str], str] = {}
        self._setting = Setting(epoch=0, mode=SYNC, base=32)
        self._wires: dict[tuple[str, int, int, int, torch.dtype], Wire] = {}
        self._sampler = sampler
        self._selection: Selection | None = None
        self._pool = BytePool()
        self._buffers = RowBuffers(fresh=len(self.rounds) > 1)
        self._latest: dict[Site, Flight] = {}
        self._previous: dict[Site, Flight] = {}

    @property
    def setting(self) -> Setting:
        """The epoch under way."""
        return self._setting

    def begin_epoch(self, setting: Setting) -> None:
        """Enter an epoch; rows posted from now on belong to it."""
        if setting.mode == ASYNC and setting.epoch == 0:
            raise ValueError("epoch 0 cannot be asynchronous: there are no earlier rows")
        self._worker.check()
        self._setting = setting
        if self._sampler is not None:
            self._selection = self._agree_on_rows(self._sampler)
            self._wires.clear()

    def row_weight(self, dtype: torch.dtype) -> Tensor | None:
        """What every halo row [h, 1] counts in a sum: n/k or 0 under sampling, None where all rows travel."""
        return None if self._selection is None else self._selection.weight.to(dtype)

    def post(self, site: Site, source: Tensor) -> None:
        """Send rows of ``source`` [n or h, D] as the plan says; returns at once."""
        now, wire = self._setting, self._wire(site, source)
        rows = self._buffers.rows(site, now.epoch, (wire.rows_in, wire.dim), source.dtype)
        scratch = None
        if now.base != 32 and source.dtype != torch.float32:
            scratch = torch.empty(rows.shape, dtype=torch.float32)
        flight = Flight(site=site, epoch=now.epoch, mode=now.mode, base=now.base, wire=wire, rows=rows, scratch=scratch)
        flight.source, flight.source_version = source.detach(), source._version
        if site in self._latest:
            self._previous[site] = self._latest[site]
        self._latest[site] = flight
        self._ledger.posted(flight)
        if now.mode == SYNC:
            self._encode(flight, MAIN)
            flight.times.queued = self._clock()
            flight.ticket = self._worker.submit(lambda: self._transfer(flight))
        else:
            flight.times.queued = self._clock()
            flight.ticket = self._worker.submit(lambda: self._run_in_background(flight))

    def take(self, site: Site) -> Tensor:
        """The rows [arrivals, D] that this epoch uses at ``site``: its own (sync) or the last epoch's (async)."""
        now = self._setting
        due = now.epoch if now.mode == SYNC else now.epoch - 1
        if now.mode == SYNC:
            flight = self._latest.get(site)
            self._drop(self._previous.pop(site, None))
        else:
            flight = self._previous.pop(site, None)
        if flight is None:
            raise ExchangeError("no rows were posted for this site", rank=self.plan.rank, site=site, epoch=due)
        self._wait(flight)
        if not flight.decoded:
            self._decode(flight, MAIN)
        self._check_age(flight, due)
        self._ledger.consumed(flight, now.epoch)
        flight.consumed = now.epoch
        return self._placed(site, flight.rows.view_as(flight.rows))

    def drain(self) -> None:
        """Receive and drop what is still in flight at the end of a run."""
        for flight in (*self._previous.values(), *self._latest.values()):
            self._drop(flight)
        self._previous.clear()
        self._latest.clear()

    def peers(self, site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(send, receive) peers of the site's round in its direction."""
        a_round = self.rounds[site.round]
        if site.direction == FORWARD:
            return a_round.send_peers, a_round.recv_peers
        return a_round.recv_peers, a_round.send_peers

    def _wire(self, site: Site, source: Tensor) -> Wire:
        dim, base = int(source.shape[1]), self._setting.base
        key = (site.direction, site.round, dim, base, source.dtype)
        wire = self._wires.get(key)
        if wire is None:
            send_peers, recv_peers = self.peers(site)
            start = 0
            if site.direction != FORWARD:  # a round's gradients begin with those of its first peer
                start = min((self.plan.forward.in_slice[p].start for p in send_peers), default=0)
            wire = self._wires[key] = build_wire(
                self._route(site),
                dim=dim,
                base=base,
                dtype=source.dtype,
                metadata=self._metadata,
                send_peers=send_peers,
                recv_peers=recv_peers,
                source_start=start,
            )
        return wire

    def _route(self, site: Site) -> Route:
        routes = self.plan if self._selection is None else self._selection
        return routes.forward if site.direction == FORWARD else routes.backward

    def _placed(self, site: Site, rows: Tensor) -> Tensor:
        """Rows of a sample among all rows of the plan, zeros elsewhere; without sampling the rows themselves."""
        if self._selection is None:
            return rows
        forward = site.direction == FORWARD
        places = self._selection.halo_rows if forward else self._selection.sent_rows
        whole = self.plan.forward if forward else self.plan.backward
        return rows.new_zeros(whole.arrivals, rows.shape[1]).index_copy_(0, places, rows)

    def _agree_on_rows(self, sampler: RowSampler) -> Selection:
        """Draw this epoch's rows and learn the peers'; the numbers are the epoch's first message."""
        now, wire = self._setting, sampler.wire()
        drawn = sampler.draw(now.epoch)
        flight = Flight(
            site=Site(layer=0, step=0, direction=FORWARD),
            epoch=now.epoch,
            mode=now.mode,
            base=now.base,
            wire=wire,
            rows=torch.empty(0),
            scratch=None,
        )
        started = self._clock()
        flight.send = self._pool.lend(sum(wire.send_splits))
        for shape in wire.out:
            flight.send[shape.body] = drawn[shape.peer].view(torch.uint8)
        self._write_headers(flight, flight.send)
        flight.times.encode, flight.times.queued = (started, self._clock()), self._clock()
        self._ledger.posted(flight)
        flight.ticket = self._worker.submit(lambda: self._transfer(flight))
        self._wait(flight)
        assert flight.recv is not None
        arrived = [torch.empty(0, dtype=torch.int32)] * self.plan.world_size
        for shape in wire.incoming:
            arrived[shape.peer] = flight.recv[shape.body].clone().view(torch.int32)
        self._pool.give_back(flight.recv)
        flight.recv = None
        self._ledger.consumed(flight, now.epoch)
        return sampler.select(drawn, tuple(arrived))

    def _name(self, site: Site, action: str) -> str:
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
            plan_id=self.plan.plan_id,
            sent_ns=0,
        )

    def _encode(self, flight: Flight, thread: str) -> None:
        assert flight.source is not None
        wire, site = flight.wire, flight.site
        self._ranges.push(self._name(site, "encode"), sum(wire.send_splits))
        started = self._clock()
        buffer = self._pool.lend(sum(wire.send_splits))
        key = NoiseKey(
            seed=self._seed,
            epoch=flight.epoch,
            layer=site.layer,
            step=site.step,
            direction=DIRECTION_CODES[site.direction],
            sender=0 if site.direction == FORWARD else self.plan.rank,
        )
        try:
            wire.pack(flight.source, buffer, self._codec, key)
        except NonFiniteRowError as error:
            raise ExchangeError(
                f"a non-finite row cannot be sent: global node {error.node_id}",
                rank=self.plan.rank,
                site=site,
                epoch=flight.epoch,
            ) from error
        if flight.source._version != flight.source_version:
            raise ExchangeError(
                "rows were modified in place while they were being sent; use an out-of-place operation",
                rank=self.plan.rank,
                site=site,
                epoch=flight.epoch,
            )
        self._write_headers(flight, buffer)
        flight.send, flight.source = buffer, None
        flight.times.encode, flight.times.encode_thread = (started, self._clock()), thread
        self._ranges.pop()

    def _write_headers(self, flight: Flight, buffer: Tensor) -> None:
        header = torch.frombuffer(bytearray(self._header(flight).pack()), dtype=torch.uint8)
        for shape in flight.wire.out:
            buffer[shape.offset : shape.offset + HEADER_BYTES] = header

    def _transfer(self, flight: Flight) -> None:
        assert flight.send is not None
        wire = flight.wire
        recv = self._pool.lend(sum(wire.recv_splits))
        view = memoryview(flight.send.numpy())
        self._ranges.push(self._name(flight.site, "wire"), flight.send.numel())
        started = self._clock()
        for shape in wire.out:
            stamp(view, shape.offset, started)
        try:
            self._transport.all_to_all(recv, flight.send, wire.recv_splits, wire.send_splits)
        except Exception as error:
            raise ExchangeError(
                f"the exchange broke off: {error}", rank=self.plan.rank, site=flight.site, epoch=flight.epoch
            ) from error
        flight.times.wire = (started, self._clock())
        self._ranges.pop()
        self._pool.give_back(flight.send)
        flight.send, flight.recv = None, recv
        self._check_headers(flight)

    def _check_headers(self, flight: Flight) -> None:
        assert flight.recv is not None
        raw, want = memoryview(flight.recv.numpy()), self._header(flight)
        for shape in flight.wire.incoming:
            got = unpack_header(raw[shape.offset : shape.offset + HEADER_BYTES])
            wrong = mismatch(got, want)
            if wrong is not None:
                raise ExchangeError(
                    f"a message is not the one that was due: {wrong}",
                    rank=self.plan.rank,
                    site=flight.site,
                    epoch=flight.epoch,
                    peer=shape.peer,
                )
            flight.headers[shape.peer] = got

    def _decode(self, flight: Flight, thread: str) -> None:
        assert flight.recv is not None
        self._ranges.push(self._name(flight.site, "decode"), flight.recv.numel())
        started = self._clock()
        flight.wire.unpack(flight.recv, self._codec, flight.rows, flight.scratch)
        self._pool.give_back(flight.recv)
        flight.recv, flight.scratch, flight.decoded = None, None, True
        flight.times.decode, flight.times.decode_thread = (started, self._clock()), thread
        self._ranges.pop()

    def _run_in_background(self, flight: Flight) -> None:
        self._encode(flight, BACKGROUND)
        self._transfer(flight)
        self._decode(flight, BACKGROUND)

    def _wait(self, flight: Flight) -> None:
        assert flight.ticket is not None
        if flight.ticket.done:
            self._worker.check()
            return
        self._ranges.push(self._name(flight.site, "wait"), sum(flight.wire.recv_splits))
        started = self._clock()
        self._worker.wait(flight.ticket)
        flight.times.wait, flight.times.wait_epoch = (started, self._clock()), self._setting.epoch
        self._ranges.pop()

    def _check_age(self, flight: Flight, due: int) -> None:
        for peer, header in flight.headers.items():
            if header.epoch != due:
                raise ExchangeError(
                    f"rows of epoch {header.epoch} arrived where those of epoch {due} are due",
                    rank=self.plan.rank,
                    site=flight.site,
                    epoch=self._setting.epoch,
                    peer=peer,
                )

    def _drop(self, flight: Flight | None) -> None:
        """Wait for a flight whose rows nobody will use and note its bytes as unused."""
        if flight is None or flight.consumed is not None:
            return
        self._wait(flight)
        if flight.recv is not None:
            self._pool.give_back(flight.recv)
            flight.recv = None
        self._ledger.unused(flight)
