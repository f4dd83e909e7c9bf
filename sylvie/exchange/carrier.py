"""Carriers: how a fused message gets from this rank's memory into its peers', header first.

HostCarrier     rows in host memory; one collective on host bytes.
DeviceCarrier   rows on a device, a transport that moves device bytes (NCCL): nothing waits on the host. Headers are written
                from pinned memory and come back into pinned memory, readable once the device has got so far.
StagedCarrier   rows on a device, a transport that moves host bytes (gloo, when ranks share a device): copied through pinned
                memory. It waits for the device, so it belongs on a background thread.

``carry`` takes the send buffer over and returns a buffer that whoever decodes it gives back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, SupportsInt

from torch import Tensor

from sylvie.exchange.buffers import BytePool, PinnedPool
from sylvie.exchange.header import HEADER_BYTES, MessageHeader, unpack_header
from sylvie.exchange.streams import DONE, Mark, Streams
from sylvie.exchange.transport import Transport
from sylvie.exchange.wire import Wire

Clock = Callable[[], int]


class Labels:
    """The received headers: at ``places`` (by peer) of host memory ``raw``, readable when ``mark`` has come."""

    def __init__(
        self, raw: Tensor, places: dict[int, int], mark: Mark = DONE, release: Callable[[Tensor], None] = lambda _: None
    ) -> None:
        self._raw, self._places, self._mark, self._release = raw, places, mark, release

    @property
    def ready(self) -> bool:
        """Whether ``read`` would not wait."""
        return self._mark.query()

    def read(self) -> dict[int, MessageHeader]:
        """The header of every peer's message, waiting for the device if need be. Once: the memory is given back."""
        self._mark.synchronize()
        bytes_ = self._raw.numpy().data
        headers = {peer: unpack_header(bytes_[at : at + HEADER_BYTES]) for peer, at in self._places.items()}
        self._release(self._raw)
        return headers


@dataclass(frozen=True, kw_only=True, eq=False)
class Delivery:
    """Received bytes, their headers, and the run clock's time before and after the journey."""

    recv: Tensor
    labels: Labels
    wire: tuple[SupportsInt, SupportsInt]


class Carrier(Protocol):
    """Phase 3 of an exchange; the memory of phases 2 to 4."""

    def lend(self, nbytes: int) -> Tensor:
        """A send buffer, uint8 [nbytes], where rows are."""

    def give_back(self, buffer: Tensor) -> None:
        """Take a received buffer back."""

    def carry(self, send: Tensor, wire: Wire, header: MessageHeader) -> Delivery:
        """Label the messages in ``send`` with ``header`` and the time, and exchange them."""


class HostCarrier:
    """Bytes on the host from end to end."""

    def __init__(self, transport: Transport, streams: Streams, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._pool = BytePool(streams)
        self.lend, self.give_back = self._pool.lend, self._pool.give_back

    def carry(self, send: Tensor, wire: Wire, header: MessageHeader) -> Delivery:
        """See Carrier; blocks until the bytes are there."""
        recv = self._pool.lend(sum(wire.recv_splits))
        started = self._clock()
        _write_headers(send, wire, header, started)
        self._transport.all_to_all(recv, send, wire.recv_splits, wire.send_splits)
        ended = self._clock()
        self._pool.give_back(send)
        return Delivery(recv=recv, labels=Labels(recv, _places(wire)), wire=(started, ended))


class DeviceCarrier:
    """Device bytes through a transport that enqueues its collective on the current stream; see the module's docstring.

    A header's clock tells when the message was issued, which on a device may be long before it left.
    """

    def __init__(self, transport: Transport, streams: Streams, clock: Clock) -> None:
        self._transport, self._streams, self._clock = transport, streams, clock
        self._pool, self._pinned = BytePool(streams), PinnedPool(streams)
        self.lend, self.give_back = self._pool.lend, self._pool.give_back

    def carry(self, send: Tensor, wire: Wire, header: MessageHeader) -> Delivery:
        """See Carrier; issues headers, collective and the copy of received headers, in this order, on the current stream."""
        started = self._streams.moment()
        label = self._pinned.lend(HEADER_BYTES)
        label.numpy().data[:] = replace(header, sent_ns=self._clock()).pack()
        for shape in wire.out:
            send[shape.offset : shape.offset + HEADER_BYTES].copy_(label, non_blocking=True)
        self._pinned.give_back(label)
        recv = self._pool.lend(sum(wire.recv_splits))
        self._transport.all_to_all(recv, send, wire.recv_splits, wire.send_splits)
        ended = self._streams.moment()
        self._pool.give_back(send)
        arrived = self._pinned.lend(HEADER_BYTES * len(wire.incoming))
        for place, shape in enumerate(wire.incoming):
            at = place * HEADER_BYTES
            arrived[at : at + HEADER_BYTES].copy_(recv[shape.offset : shape.offset + HEADER_BYTES], non_blocking=True)
        places = {shape.peer: place * HEADER_BYTES for place, shape in enumerate(wire.incoming)}
        labels = Labels(arrived, places, self._streams.mark(), self._pinned.give_back)
        return Delivery(recv=recv, labels=labels, wire=(started, ended))


class StagedCarrier:
    """Device bytes through pinned host memory and a transport of host bytes."""

    def __init__(self, transport: Transport, streams: Streams, clock: Clock) -> None:
        self._transport, self._streams, self._clock = transport, streams, clock
        self._pool, self._pinned = BytePool(streams), PinnedPool(streams)
        self.lend, self.give_back = self._pool.lend, self._pool.give_back

    def carry(self, send: Tensor, wire: Wire, header: MessageHeader) -> Delivery:
        """See Carrier; the calling thread waits for the device, then for the peers. Both copies count as part of the way."""
        started = self._streams.moment()
        outgoing = self._pinned.lend(send.numel())
        outgoing.copy_(send, non_blocking=True)
        self._pool.give_back(send)
        self._streams.mark().synchronize()
        incoming = self._pinned.lend(sum(wire.recv_splits))
        _write_headers(outgoing, wire, header, self._clock())
        self._transport.all_to_all(incoming, outgoing, wire.recv_splits, wire.send_splits)
        self._pinned.give_back(outgoing)
        recv = self._pool.lend(incoming.numel())
        recv.copy_(incoming, non_blocking=True)
        ended = self._streams.moment()
        # The host may read the headers while the device copies them, but may write there only afterwards.
        labels = Labels(incoming, _places(wire), DONE, self._pinned.give_back)
        return Delivery(recv=recv, labels=labels, wire=(started, ended))


def _write_headers(buffer: Tensor, wire: Wire, header: MessageHeader, sent_ns: int) -> None:
    view, packed = buffer.numpy().data, replace(header, sent_ns=sent_ns).pack()
    for shape in wire.out:
        view[shape.offset : shape.offset + HEADER_BYTES] = packed


def _places(wire: Wire) -> dict[int, int]:
    return {shape.peer: shape.offset for shape in wire.incoming}
