"""On a device every use of a buffer comes behind what filled it, nothing is reused too early, the host waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sylvie.exchange import buffers, carrier, exchange, wire, worker
from sylvie.exchange.carrier import DeviceCarrier, StagedCarrier
from sylvie.exchange.flight import ExchangeError
from sylvie.exchange.header import HEADER_BYTES
from sylvie.exchange.worker import StagedWorker, StreamWorker, Worker
from sylvie.trainer import Trainer
from tests.fake_streams import FakeStreams, as_host, current, unbooked
from tests.hard_graphs import hard_graph, random_assignment
from tests.simulation import Script
from tests.sylvie.test_delays import Tampering
from tests.sylvie.test_staleness import Scripted
from tests.thread_world import ThreadWorld, make_config

SCRIPT = Script(["sync", "async", "async", "sync", "async", "async", "sync", "sync"], [1, 2, 4, 8, 8, 4, 2, 1])
RANKS = 3


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Book what no tensor operation shows: the codec's kernels and the host's own reads and writes of pinned memory."""
    plain_pack, plain_unpack, plain_read = wire.Wire.pack, wire.Wire.unpack, carrier.Labels.read
    plain_lend = buffers.PinnedPool.lend

    def pack(self: Any, source: Any, buffer: Any, *rest: Any) -> None:
        if (streams := current()) is not None:
            streams.must_keep(source)
            streams.must_keep(buffer)
            streams.touch(source, writes=False)
            streams.touch(buffer, writes=True)
        plain_pack(self, source, buffer, *rest)

    def unpack(self: Any, buffer: Any, codec: Any, out: Any, scratch: Any = None) -> None:
        if (streams := current()) is not None:
            streams.touch(buffer, writes=False)
            for target in (out, scratch):
                if target is not None and target.numel():
                    streams.must_keep(target)
                    streams.touch(target, writes=True)
        plain_unpack(self, buffer, codec, out, scratch)

    def read(self: Any) -> Any:
        if (streams := current()) is not None:
            self._mark.synchronize()
            streams.touch(self._raw, writes=False, by_host=True)
        return plain_read(self)

    def lend(self: Any, nbytes: int) -> Any:
        lent = plain_lend(self, nbytes)
        if (streams := current()) is not None and nbytes:
            streams.touch(lent, writes=True, by_host=True)
        return lent

    def build(*args: Any, **given: Any) -> Any:
        with unbooked():
            return wire.build_wire(*args, **given)

    monkeypatch.setattr(exchange, "build_wire", build)
    monkeypatch.setattr(wire.Wire, "pack", pack)
    monkeypatch.setattr(wire.Wire, "unpack", unpack)
    monkeypatch.setattr(carrier.Labels, "read", read)
    monkeypatch.setattr(buffers.PinnedPool, "lend", lend)
    yield


def direct(streams: FakeStreams) -> tuple[Any, Any, Any]:
    return streams, StreamWorker(streams), DeviceCarrier


def staged(streams: FakeStreams) -> tuple[Any, Any, Any]:
    return streams, StagedWorker(Worker(60.0), streams), StagedCarrier


class HostTransport:
    """Moves bytes as gloo does: the host reads and writes them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.rank, self.world_size = inner.rank, inner.world_size

    def all_to_all(self, *args: Any) -> None:
        with as_host():
            self._inner.all_to_all(*args)

    def all_gather_int64(self, values: torch.Tensor) -> torch.Tensor:
        return self._inner.all_gather_int64(values)


def train(
    folder: Path,
    script: Script,
    device: Callable[[FakeStreams], tuple[Any, Any, Any]] | None,
    *,
    transport: Callable[[Any], Any] = lambda inner: inner,
    **given: Any,
) -> tuple[list[list[float]], list[FakeStreams]]:
    """The losses of every rank, and what was booked; ``device`` None is the host."""
    graph, made = hard_graph(), [FakeStreams(rank) for rank in range(RANKS)]
    config = make_config(**{"epochs": len(script.modes), "eval_every": 3, **given})
    options: dict[str, Any] = {"transport": (lambda inner: HostTransport(transport(inner))) if device is staged else transport}
    if device is not None:
        options["device"] = lambda rank: device(made[rank])
    world = ThreadWorld(graph, random_assignment(graph, RANKS), RANKS, config, folder, **options)

    def run(trainer: Trainer) -> list[float]:
        losses: list[float] = []
        trainer.on_epoch = lambda epoch, closed, metrics, seconds: losses.append(closed.loss)
        trainer.coordinator.controller = Scripted(trainer.coordinator.controller, script)
        _ = trainer._train_rows, trainer._train_labels  # made at the first use, which may wait
        if device is None:
            trainer.train(len(script.modes))
            return losses
        with made[trainer.partition.rank].tracking(trainer):
            trainer.train(len(script.modes))
        return losses

    return world.run(run), made


@pytest.mark.parametrize("device", [direct, staged])
@pytest.mark.parametrize(
    "given",
    [
        {"system": "sylvie"},
        {"system": "sylvie", "dtype": "float32", "trace": True},
        {"system": "sylvie", "bits": "32", "model": "gat"},
        {"system": "sylvie", "overlap": False, "cache_input_halo": False},
        {"system": "sar"},
    ],
    ids=lambda given: "-".join(map(str, given.values())),
)
def test_nothing_races_and_nothing_changes(given: dict[str, Any], device: Any, tmp_path: Path) -> None:
    script = SCRIPT
    if given.get("bits") == "32":
        script = Script(SCRIPT.modes, [32] * len(SCRIPT.modes))
    if given["system"] == "sar":
        script = Script(["sync"] * 3, [32] * 3)
    wanted, _ = train(tmp_path / "host", script, None, **given)
    found, made = train(tmp_path / "device", script, device, **given)
    assert found == wanted
    for streams in made:
        assert streams.crossings > 100, "the streams hardly met: this shows nothing"


def test_sampled_rows(tmp_path: Path) -> None:
    """bns-gcn learns the peers' numbers on the host, at the start of an epoch; rows race no more than elsewhere."""
    script = Script(["sync"] * 3, [32] * 3)
    wanted, _ = train(tmp_path / "host", script, None, system="bns-gcn", bns_p=0.5)
    found, _ = train(tmp_path / "device", script, direct, system="bns-gcn", bns_p=0.5)
    assert found == wanted


def _nothing(*args: Any) -> None:
    pass


def _break_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamWorker, "wait", _nothing)


def _break_submit(patch: pytest.MonkeyPatch) -> None:
    def submit(self: Any, job: Callable[[], None]) -> Any:
        with self._streams.communication():
            job()
            return worker._StreamTicket(self._streams.mark())

    patch.setattr(StreamWorker, "submit", submit)


def _break_pool(patch: pytest.MonkeyPatch) -> None:
    plain = buffers.BytePool.lend

    def lend(self: Any, nbytes: int) -> Any:
        self._free = [buffers._Free(free.buffer, carrier.DONE) for free in self._free]
        return plain(self, nbytes)

    patch.setattr(buffers.BytePool, "lend", lend)


def _break_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(buffers.PinnedPool, "_may_lend", lambda self, free: True)


def _break_keep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FakeStreams, "keep", _nothing)


def _break_take(patch: pytest.MonkeyPatch) -> None:
    def used(self: Any, use: Any) -> None:
        self._note(use)

    patch.setattr(exchange.HaloExchange, "_used", used)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_break_wait, "race"),
        (_break_submit, "race"),
        (_break_pool, "race"),
        (_break_pinned, "race"),
        (_break_keep, "did not keep"),
        (_break_take, "host waits"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_detector_sees_what_is_left_out(broken: Any, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Negative controls: without one of the hand-overs the same runs fail. The host never happens to know that work is done."""
    monkeypatch.setattr(FakeStreams, "chance", lambda self: 1.0)
    broken(monkeypatch)
    with pytest.raises((AssertionError, ExchangeError), match=said):
        train(tmp_path, Script(SCRIPT.modes, [4] * 8), direct, system="sylvie", trace=True, eval_every=0)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("device", [direct, staged])
def test_a_wrong_message_ends_the_run(device: Any, mode: str, tmp_path: Path) -> None:
    """Headers are seen late on a device, but before the next epoch's end."""
    script = Script(["sync", *[mode] * 7], [4] * 8)
    tamper = (77).to_bytes(4, "little")
    with pytest.raises(ExchangeError, match="epoch 77 instead of"):
        train(tmp_path, script, device, system="sylvie", transport=lambda inner: Tampering(inner, 8, tamper, call=12))


@pytest.mark.parametrize("device", [direct, staged])
def test_rows_changed_behind_the_exchange_are_an_error(device: Any, tmp_path: Path) -> None:
    graph, made = hard_graph(), [FakeStreams(rank) for rank in range(2)]
    config = make_config(system="sylvie", bits="4", schedule="async", epochs=4)
    owners = random_assignment(graph, 2)
    wrap: Any = HostTransport if device is staged else (lambda inner: inner)
    world = ThreadWorld(graph, owners, 2, config, tmp_path, device=lambda rank: device(made[rank]), transport=wrap)

    def run(trainer: Trainer) -> None:
        assert trainer.exchange is not None
        plain_post = trainer.exchange.post

        def post(site: Any, rows: torch.Tensor) -> None:
            plain_post(site, rows)
            if trainer.exchange is not None and trainer.exchange.setting.epoch == 2:
                rows.add_(1.0)

        trainer.exchange.post = post  # type: ignore[method-assign]
        trainer.train(4)

    with pytest.raises((ExchangeError, RuntimeError), match=r"in place|inplace|in-place"):
        world.run(run)


def test_pools_reuse_memory() -> None:
    streams = FakeStreams(0)
    pool = buffers.BytePool(streams)
    first = pool.lend(64)
    pool.give_back(first)
    assert pool.lend(32).untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
    pinned = buffers.PinnedPool(streams)
    lent = pinned.lend(HEADER_BYTES)
    pinned.give_back(lent)
    for _ in range(100):  # until the device is known to be done with it
        again = pinned.lend(HEADER_BYTES)
        if again.untyped_storage().data_ptr() == lent.untyped_storage().data_ptr():
            return
    raise AssertionError("pinned memory is never used again")
