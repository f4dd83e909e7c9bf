"""The device check's own logic, as far as the host can show it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from analysis import device_check
from analysis.device_ranks import LateTransport, loopback
from sylvie.codec import codec_for
from sylvie.exchange.carrier import DeviceCarrier, HostCarrier
from sylvie.exchange.exchange import HaloExchange
from sylvie.exchange.streams import HostStreams
from sylvie.exchange.worker import StreamWorker, Worker
from tests.fake_streams import FakeStreams

HOST = torch.device("cpu")


class SelfTransport:
    """The only peer is oneself."""

    rank, world_size = 0, 1

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        recv.copy_(send)

    def all_gather_int64(self, values: Tensor) -> Tensor:
        return values.unsqueeze(0)

    def close(self) -> None:
        pass


def made(kind: str, folder: Path) -> tuple[HaloExchange, Worker | None]:
    transport = LateTransport(SelfTransport(), seed=0)
    trace = folder / "loopback.jsonl"
    if kind == "host":
        streams, worker = HostStreams(time.monotonic_ns), Worker(30.0)
        return device_check.loopback_exchange(
            streams, worker, HostCarrier(transport, streams, time.monotonic_ns), trace
        ), worker
    fake = FakeStreams(0)
    carrier = DeviceCarrier(transport, fake, time.monotonic_ns)
    return device_check.loopback_exchange(fake, StreamWorker(fake), carrier, trace), None


@pytest.mark.parametrize("kind", ["host", "device"])
def test_rows_to_oneself(kind: str, tmp_path: Path) -> None:
    exchange, worker = made(kind, tmp_path)
    assert loopback(exchange, HOST, 40, seed=1) == 0
    if worker is not None:
        worker.close()


def test_wrong_rows_are_counted(tmp_path: Path) -> None:
    exchange, worker = made("host", tmp_path)
    plain, calls = exchange.take, [0]

    def take(site: Any) -> Tensor:
        calls[0] += 1
        rows = plain(site)
        return rows.roll(1, 0) if calls[0] == 5 else rows

    exchange.take = take  # type: ignore[method-assign]
    assert loopback(exchange, HOST, 10, seed=1) == exchange.plan.forward.arrivals
    assert worker is not None
    worker.close()


def test_codec_rows() -> None:
    rows = device_check.codec_rows(codec_for("cpu"), HOST, 2**16)
    assert [row.result for row in rows[:2]] == ["equal", "equal"]
    assert len(rows) == 10


def test_other_bytes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = codec_for("cpu")
    plain = codec.encode

    def encode(source: Tensor, *rest: Any) -> None:
        plain(source, *rest)
        rest[-1][-1] ^= 1

    monkeypatch.setattr(codec, "encode", encode)
    assert [row.passed for row in device_check.codec_rows(codec, HOST, 2**12)[:2]] == [False, False]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device: run the check itself")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert device_check.main([]) == 0
    assert capsys.readouterr().out == "device check: skipped, this torch sees no CUDA device\n"
