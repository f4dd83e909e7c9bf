"""Whatever the timing, consumed rows have the age their mode promises; a message that is wrong ends the run by name."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from sylvie.exchange.flight import ExchangeError
from sylvie.exchange.header import HEADER_BYTES
from sylvie.trainer import Trainer
from sylvie_trace.schema import AnyRecord, Message, Reuse
from tests.hard_graphs import hard_graph, random_assignment
from tests.simulation import Script
from tests.sylvie.test_staleness import Scripted
from tests.thread_world import ThreadWorld, make_config

DELAYS_S = (0.0, 0.001, 0.005, 0.05)


class Delayed:
    """A transport that sleeps before and after every exchange, by a draw of its own."""

    def __init__(self, inner: Any, seed: int) -> None:
        self._inner, self._rng = inner, np.random.default_rng([seed, inner.rank])
        self.rank, self.world_size = inner.rank, inner.world_size

    def all_to_all(self, *args: Any) -> None:
        time.sleep(self._rng.choice(DELAYS_S))
        self._inner.all_to_all(*args)
        time.sleep(self._rng.choice(DELAYS_S))

    def all_gather_int64(self, values: torch.Tensor) -> torch.Tensor:
        return self._inner.all_gather_int64(values)


def ages(world: ThreadWorld, script: Script, seed: int) -> int:
    """Train under random delays; check every consumed message's age; returns how many there were."""

    def run(trainer: Trainer) -> None:
        rng = np.random.default_rng([seed, 7, trainer.partition.rank])
        for layer in trainer.model.layers:  # type: ignore[union-attr]
            layer.register_forward_pre_hook(lambda *_: time.sleep(rng.choice(DELAYS_S)))
        trainer.coordinator.controller = Scripted(trainer.coordinator.controller, script)
        trainer.train(len(script.modes))

    world.run(run, deadline_s=1200)
    consumed = 0
    for file in world.folder.glob("rank-*.jsonl"):
        for line in file.read_bytes().splitlines():
            record = msgspec.json.decode(line, type=AnyRecord)
            if isinstance(record, Message) and record.purpose == "train" and record.consumed_epoch is not None:
                due = 0 if script.modes[record.consumed_epoch] == "sync" else 1
                assert record.age == due, record
                consumed += 1
            if isinstance(record, Reuse):
                assert record.age == 1 and script.modes[record.epoch] == "async", record
                consumed += 1
    return consumed


def random_script(epochs: int, seed: int) -> Script:
    rng = np.random.default_rng(seed)
    modes = ["sync", *rng.choice(["sync", "async"], epochs - 1, p=[0.3, 0.7]).tolist()]
    return Script(modes, rng.choice([1, 2, 4, 8], epochs).tolist())


def delayed_world(folder: Path, seed: int, ranks: int) -> ThreadWorld:
    graph = hard_graph(40, seed=seed)
    config = make_config(system="sylvie", dtype="float32", hidden=4, trace=True)
    owners = random_assignment(graph, ranks, seed)
    return ThreadWorld(graph, owners, ranks, config, folder, transport=lambda inner: Delayed(inner, seed))


@pytest.mark.parametrize("seed", [0, 1])
def test_ages_under_random_delays(seed: int, tmp_path: Path) -> None:
    assert ages(delayed_world(tmp_path, seed, 3), random_script(30, seed), seed) >= 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ages_of_a_hundred_thousand_messages(seed: int, tmp_path: Path) -> None:
    assert ages(delayed_world(tmp_path, seed, 4), random_script(550, seed), seed) >= 25_000


def test_unused_messages_are_counted_apart(tmp_path: Path) -> None:
    """Rows in flight at a switch to sync, and those of the last asynchronous epoch, are bytes that nobody used."""
    world = delayed_world(tmp_path, 0, 3)
    script = Script(["sync", "async", "async", "sync", "sync", "async"], [1] * 6)
    ledgers: list[tuple[int, int]] = []

    def run(trainer: Trainer) -> None:
        trainer.coordinator.controller = Scripted(trainer.coordinator.controller, script)
        trainer.train(6)
        ledgers.append((trainer.ledger.sent_bytes, trainer.ledger.unused_bytes))

    world.run(run)
    for sent, unused in ledgers:
        assert sent > 0
        assert unused * 6 == sent * 2, "epochs 2 and 5 of six equal ones are never used"


class Tampering:
    """A transport that changes bytes of one message of a chosen call on their way to rank 0."""

    def __init__(self, inner: Any, offset: int, value: bytes, call: int = 5) -> None:
        self._inner, self._offset, self._value, self._call = inner, offset, value, call
        self.rank, self.world_size = inner.rank, inner.world_size

    def all_to_all(self, recv: torch.Tensor, send: torch.Tensor, *splits: Any) -> None:
        self._inner.all_to_all(recv, send, *splits)
        if self.rank == 0 and self._inner.calls == self._call:
            value = torch.frombuffer(bytearray(self._value), dtype=torch.uint8)
            recv[self._offset : self._offset + len(value)] = value

    def all_gather_int64(self, values: torch.Tensor) -> torch.Tensor:
        return self._inner.all_gather_int64(values)


@pytest.mark.parametrize(
    ("offset", "value", "named"),
    [
        (8, struct.pack("<i", 77), "epoch 77 instead of"),
        (16, struct.pack("<Q", 5), "plan_id 5 instead of"),
        (4, struct.pack("<H", 9), "layer 9 instead of"),
        (6, struct.pack("<H", 3), "step 3 instead of"),
        (2, b"\x07", "direction 7 instead of"),
        (3, b"\x01", "purpose 1 instead of"),
        (12, struct.pack("<I", 16), "base 16 instead of"),
        (0, struct.pack("<H", 2), "wire_format 2 instead of"),
    ],
)
@pytest.mark.parametrize("schedule", ["sync", "async"])
def test_a_message_that_is_not_the_due_one_ends_the_run(
    schedule: str, offset: int, value: bytes, named: str, tmp_path: Path
) -> None:
    assert offset + len(value) <= HEADER_BYTES
    graph = hard_graph()
    config = make_config(system="sylvie", bits="4", schedule=schedule, epochs=4)
    world = ThreadWorld(
        graph, random_assignment(graph, 2), 2, config, tmp_path, transport=lambda inner: Tampering(inner, offset, value)
    )
    started = time.monotonic()
    with pytest.raises(ExchangeError, match=named) as caught:
        world.run(lambda trainer: trainer.train(4))
    assert "rank 0" in str(caught.value) and "peer 1" in str(caught.value)
    assert time.monotonic() - started < 30


class Failing:
    """A codec that raises at its n-th call of a stage."""

    name = "failing"

    def __init__(self, inner: Any, stage: str, call: int) -> None:
        self._inner, self._stage, self._left = inner, stage, call

    def _count(self, stage: str) -> None:
        if stage == self._stage:
            self._left -= 1
            if self._left == 0:
                raise RuntimeError(f"injected into {stage}")

    def encode(self, *args: Any) -> None:
        self._count("encode")
        self._inner.encode(*args)

    def decode(self, *args: Any) -> None:
        self._count("decode")
        self._inner.decode(*args)

    def check(self, *, wait: bool = True) -> None:
        self._inner.check(wait=wait)


@pytest.mark.parametrize("schedule", ["sync", "async"])
@pytest.mark.parametrize("stage", ["encode", "decode"])
def test_a_fault_in_the_background_ends_the_run(stage: str, schedule: str, tmp_path: Path) -> None:
    graph = hard_graph()
    config = make_config(system="sylvie", bits="4", schedule=schedule, epochs=6)
    world = ThreadWorld(graph, random_assignment(graph, 3), 3, config, tmp_path)

    def run(trainer: Trainer) -> None:
        assert trainer.exchange is not None
        if trainer.partition.rank == 1:
            trainer.exchange.stages.codec = Failing(trainer.exchange.stages.codec, stage, 9)
        trainer.train(6)

    started = time.monotonic()
    with pytest.raises(RuntimeError, match=f"injected into {stage}"):
        world.run(run)
    assert time.monotonic() - started < 30


def test_a_row_changed_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    graph = hard_graph()
    config = make_config(system="sylvie", bits="4", schedule="async", epochs=6)
    world = ThreadWorld(graph, random_assignment(graph, 2), 2, config, tmp_path)

    def run(trainer: Trainer) -> None:
        exchange = trainer.exchange
        assert exchange is not None
        plain_post = exchange.post

        def post(site: Any, rows: torch.Tensor) -> None:
            plain_post(site, rows)
            if exchange.setting.epoch == 2:
                rows.add_(1.0)

        exchange.post = post  # type: ignore[method-assign]
        trainer.train(6)

    with pytest.raises((ExchangeError, RuntimeError), match=r"in place|inplace|in-place"):
        world.run(run)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_named(bad: float, tmp_path: Path) -> None:
    graph = hard_graph()
    config = make_config(system="sylvie", bits="4", schedule="sync", epochs=3)
    world = ThreadWorld(graph, random_assignment(graph, 2), 2, config, tmp_path)

    def run(trainer: Trainer) -> None:
        if trainer.partition.rank == 1:
            node = trainer.partition.send_index[0]

            def spoil(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
                return output.index_fill(0, node.reshape(1), bad)

            trainer.model.layers[0].register_forward_hook(spoil)  # type: ignore[index]
        trainer.train(3)

    with pytest.raises(ExchangeError, match=r"non-finite.*global node \d+.*rank 1, L2.0 fwd, epoch 0"):
        world.run(run)
