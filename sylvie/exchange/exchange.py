"""HaloExchange: rows leave a rank and arrive at its peers, site by site, epoch by epoch.

An exchange has five phases; each is one group of fields in the message record:

1. *post*: the main thread names the site and hands over the rows.
2. *encode*: every outgoing row is written into the fused send buffer (``Stages.encode``).
3. *wire*: one collective moves the bytes; the received headers are compared with what was due (``Stages.transfer``).
4. *decode*: arrived rows are restored into the site's row buffer (``Stages.decode``).
5. *take*: the main thread receives the rows that its mode calls for, waiting if it must.

Synchronous epochs encode before and decode after the wire on the main thread, and take the rows of this epoch. Asynchronous
epochs leave phases 2 to 4 to the worker and take the rows of the epoch before. There the last message of a backward pass has
an epoch's time to arrive, and the first layer's weight gradient none: the message leaves behind it (``release``). A rank with
a single core (``spare_core`` false) has no place to hide the codec in: it encodes at once, while the rows are in the cache, and
decodes where the rows are used; only the wire is left to the worker.

On a device "main thread" and "worker" are the current and the communication stream, and the host is ahead of both. What it
can only know later — the received headers and with them the rows' age, whether encoded rows were finite, the times — it
looks at as soon as the device has got there, and at the latest in ``end_epoch`` of the epoch that used the rows: a wrong
message ends the run before the next epoch, not before its rows were computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sylvie.codec.base import Codec
from sylvie.exchange.buffers import RowBuffers
from sylvie.exchange.carrier import Carrier
from sylvie.exchange.flight import ExchangeError, Flight, Site
from sylvie.exchange.ledger import Ledger
from sylvie.exchange.plan import ExchangePlan, Route
from sylvie.exchange.sampling import RowSampler, Selection
from sylvie.exchange.stages import Stages
from sylvie.exchange.streams import Streams
from sylvie.exchange.wire import Wire, build_wire
from sylvie.exchange.worker import Issuer
from sylvie_trace.nvtx import Ranges
from sylvie_trace.schema import ASYNC, BACKGROUND, BACKWARD, FORWARD, MAIN, SYNC, TRAIN


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


@dataclass(frozen=True, eq=False)
class _Use:
    """A flight whose rows, due from epoch ``due``, were used by ``epoch``; None: nobody used them."""

    flight: Flight
    epoch: int | None
    due: int


class HaloExchange:
    """All exchanges of one purpose (training or evaluation) on one rank."""

    def __init__(
        self,
        *,
        plan: ExchangePlan,
        carrier: Carrier,
        worker: Issuer,
        codec: Codec | None,
        rounds: Sequence[Round],
        metadata: str,
        seed: int,
        streams: Streams,
        ledger: Ledger,
        ranges: Ranges,
        purpose: str = TRAIN,
        sampler: RowSampler | None = None,
        spare_core: bool = True,
    ) -> None:
        self.plan, self.rounds = plan, tuple(rounds)
        self.stages = Stages(
            plan=plan, carrier=carrier, codec=codec, seed=seed, streams=streams, ranges=ranges, purpose=purpose
        )
        self._carrier, self._worker, self._metadata = carrier, worker, metadata
        self._streams, self._moment = streams, streams.moment
        self._ledger, self._ranges = ledger, ranges
        self._setting = Setting(epoch=0, mode=SYNC, base=32)
        self._wires: dict[tuple[str, int, int, int, torch.dtype], Wire] = {}
        self._sampler = sampler
        self._spare_core = spare_core
        self._selection: Selection | None = None
        self._buffers = RowBuffers(fresh=len(self.rounds) > 1)
        self._latest: dict[Site, Flight] = {}
        self._previous: dict[Site, Flight] = {}
        self._uses: list[_Use] = []
        self._newest: Site | None = None  # what was posted last, in this epoch and at the end of the last one
        self._final: Site | None = None
        self._held: Flight | None = None

    @property
    def setting(self) -> Setting:
        """The epoch under way."""
        return self._setting

    def begin_epoch(self, setting: Setting) -> None:
        """Enter an epoch; rows posted from now on belong to it."""
        if setting.mode == ASYNC and setting.epoch == 0:
            raise ValueError("epoch 0 cannot be asynchronous: there are no earlier rows")
        self.release()
        self.end_epoch()
        self._setting = setting
        self._final, self._newest = self._newest, None
        if self._sampler is not None:
            self._selection = None

    def end_epoch(self) -> None:
        """Look at everything that the epoch has used and the device has not shown yet; raises what was wrong with it.

        On a device it waits for the rows that were used, which whoever knows the epoch's loss has waited for already.
        """
        self._worker.check()
        uses, self._uses = self._uses, []
        for use in uses:
            self.stages.check_headers(use.flight)
        self.stages.check_rows(wait=False)  # what is under way for the next epoch is not waited for
        for use in uses:
            self._note(use)
        self.stages.look()

    def row_weight(self, dtype: torch.dtype) -> Tensor | None:
        """What every halo row [h, 1] counts in a sum: n/k or 0 under sampling, None where all rows travel."""
        return None if self._selection is None else self._selection.weight.to(dtype)

    def post(self, site: Site, source: Tensor) -> None:
        """Send rows of ``source`` [n or h, D] as the plan says; returns at once.

        Under sampling the first post of an epoch draws its rows: an epoch that sends nothing draws none.
        """
        if self._sampler is not None and self._selection is None:
            self._selection = self._agree_on_rows(self._sampler)
            self._wires.clear()
        now, wire = self._setting, self._wire(site, source)
        rows = self._buffers.rows(site, now.epoch, (wire.rows_in, wire.dim), source)
        scratch = None
        if now.base != 32 and source.dtype != torch.float32:
            scratch = torch.empty(rows.shape, dtype=torch.float32, device=source.device)
        flight = Flight(site=site, epoch=now.epoch, mode=now.mode, base=now.base, wire=wire, rows=rows, scratch=scratch)
        flight.source, flight.source_version = source.detach(), source._version
        if site in self._latest:
            self._previous[site] = self._latest[site]
        self._latest[site] = flight
        self._ledger.posted(flight)
        if now.mode == SYNC:
            self.stages.encode(flight, MAIN)
            flight.times.queued = self._moment()
            flight.ticket = self._worker.submit(lambda: self.stages.transfer(flight))
        else:
            self._encode_behind(flight)
            if site == self._final and site.direction == BACKWARD:
                self._held = flight
            else:
                self._send_off(flight)
        self._newest = site
        self.stages.look()

    def release(self) -> None:
        """Let the message go that was held back; once the epoch's weight gradients and coordination are through."""
        flight, self._held = self._held, None
        if flight is not None:
            self._send_off(flight)

    def take(self, site: Site) -> Tensor:
        """The rows [arrivals, D] that this epoch uses at ``site``: its own (sync) or the last epoch's (async)."""
        now = self._setting
        due = now.epoch if now.mode == SYNC else now.epoch - 1
        if now.mode == SYNC:
            # Of many rounds one at a time is in memory: nobody will ask for these rows again.
            flight = self._latest.pop(site, None) if len(self.rounds) > 1 else self._latest.get(site)
            self._drop(self._previous.pop(site, None))
        else:
            flight = self._previous.pop(site, None)
        if flight is None:
            raise ExchangeError("no rows were posted for this site", rank=self.plan.rank, site=site, epoch=due)
        self._wait(flight)
        if not flight.decoded:
            self.stages.decode(flight, MAIN)
        self._used(_Use(flight, now.epoch, due))
        return self._placed(site, flight.rows.view_as(flight.rows))

    def drain(self) -> None:
        """Receive and drop what is still in flight at the end of a run."""
        self.release()
        self.end_epoch()
        for flight in (*self._previous.values(), *self._latest.values()):
            self._drop(flight)
        self._previous.clear()
        self._latest.clear()
        self.end_epoch()
        self.stages.check_rows(wait=True)

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
        started = self._moment()
        flight.send = self._carrier.lend(sum(wire.send_splits))
        for shape in wire.out:
            flight.send[shape.body] = drawn[shape.peer].view(torch.uint8).to(flight.send.device)
        flight.times.encode, flight.times.queued = (started, self._moment()), self._moment()
        self._ledger.posted(flight)
        flight.ticket = self._worker.submit(lambda: self.stages.transfer(flight))
        self._wait(flight)
        assert flight.recv is not None
        arrived = [torch.empty(0, dtype=torch.int32)] * self.plan.world_size
        for shape in wire.incoming:
            arrived[shape.peer] = flight.recv[shape.body].clone().cpu().view(torch.int32)
        self._carrier.give_back(flight.recv)
        flight.recv = None
        self._used(_Use(flight, now.epoch, now.epoch))
        return sampler.select(drawn, tuple(arrived))

    def _encode_behind(self, flight: Flight) -> None:
        """Encode on the worker, or at once where there is no core for it to run on."""
        if self._spare_core:
            flight.times.queued = self._moment()
            flight.ticket = self._worker.submit(lambda: self.stages.encode(flight, BACKGROUND))
        else:
            self.stages.encode(flight, MAIN)
            flight.times.queued = self._moment()

    def _send_off(self, flight: Flight) -> None:
        """Leave the wire to the worker, and where it has a core the decoding."""

        def run() -> None:
            self.stages.transfer(flight)
            if self._spare_core:
                self.stages.decode(flight, BACKGROUND)

        flight.ticket = self._worker.submit(run)

    def _wait(self, flight: Flight) -> None:
        assert flight.ticket is not None
        if flight.ticket.done:
            self._worker.check()
            return
        self._ranges.push(self.stages.name(flight.site, "wait"), sum(flight.wire.recv_splits))
        started = self._moment()
        self._worker.wait(flight.ticket)
        flight.times.wait, flight.times.wait_epoch = (started, self._moment()), self._setting.epoch
        self._ranges.pop()

    def _used(self, use: _Use) -> None:
        """Note a use at once; on a device later, when the headers are there."""
        if self._streams.in_step:
            self._note(use)
        else:
            self._uses.append(use)

    def _note(self, use: _Use) -> None:
        flight, epoch = use.flight, use.epoch
        self.stages.check_headers(flight)
        if epoch is None:
            self._ledger.unused(flight)
            return
        for peer, header in flight.headers.items():
            if header.epoch != use.due:
                raise ExchangeError(
                    f"rows of epoch {header.epoch} arrived where those of epoch {use.due} are due",
                    rank=self.plan.rank,
                    site=flight.site,
                    epoch=epoch,
                    peer=peer,
                )
        self._ledger.consumed(flight, epoch)
        flight.consumed = epoch

    def _drop(self, flight: Flight | None) -> None:
        """Wait for a flight whose rows nobody will use and note its bytes as unused."""
        if flight is None or flight.consumed is not None:
            return
        self._wait(flight)
        if flight.recv is not None:
            self._carrier.give_back(flight.recv)
            flight.recv = None
        self._used(_Use(flight, None, flight.epoch))
