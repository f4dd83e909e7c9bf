"""Ranks of the device check: rows that must have the age their mode promises while everything around them is late by chance.

`python -m analysis.device_ranks CACHE RUN_DIR DEVICE` is one rank, started by `sylvie.launch.launch_local`. `loopback` is the
exchange of a rank with itself, for the path that one device cannot share (NCCL).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sylvie.cli import end_failed
from sylvie.config import Config, resolve
from sylvie.exchange.exchange import HaloExchange, Setting
from sylvie.exchange.flight import Site
from sylvie.exchange.plan import ExchangePlan, Route
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.transport import Transport
from sylvie.launch import World, die_with_parent, join, leave
from sylvie.recipes import find_recipe
from sylvie.session import Session
from sylvie.start import start_session
from sylvie.trainer import Trainer
from sylvie_trace.decision import Controller, Verdict
from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import ASYNC, FORWARD, SYNC

SMALL = "generator:nodes=3000,degree=10,features=32"
EPOCHS = 60
_DELAYS_S = (0.0, 0.0, 0.001, 0.005, 0.02)
_CYCLES_PER_S = 1.5e9  # of a device's clock, roughly: delays need no exact length


def modes_and_bases(epochs: int, seed: int) -> tuple[list[str], list[int]]:
    """A random mode and base for every epoch; the first is synchronous."""
    rng = np.random.default_rng(seed)
    modes = [SYNC, *rng.choice([SYNC, ASYNC], epochs - 1, p=[0.3, 0.7]).tolist()]
    return modes, rng.choice([1, 2, 4, 8], epochs).tolist()


def be_late(rng: np.random.Generator, device: torch.device) -> None:
    """Lose a little time, on the host or on the device's current stream."""
    seconds = float(rng.choice(_DELAYS_S))
    if device.type == "cuda" and rng.random() < 0.5:
        torch.cuda._sleep(int(seconds * _CYCLES_PER_S))  # type: ignore[no-untyped-call]
    else:
        time.sleep(seconds)


class LateTransport:
    """Loses time before and after every exchange."""

    def __init__(self, inner: Transport, seed: int) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self._inner, self._rng = inner, np.random.default_rng([seed, inner.rank])

    def all_to_all(self, recv: Tensor, send: Tensor, recv_splits: list[int], send_splits: list[int]) -> None:
        """The exchange, some time."""
        be_late(self._rng, recv.device)
        self._inner.all_to_all(recv, send, recv_splits, send_splits)
        be_late(self._rng, recv.device)

    def all_gather_int64(self, values: Tensor) -> Tensor:
        """[k] -> [N, k]."""
        return self._inner.all_gather_int64(values)

    def close(self) -> None:
        """Give back what the inner transport holds."""
        self._inner.close()


class _Scripted(Controller):
    """Follows a script of modes and bases instead of the loss."""

    def __init__(self, plain: Controller, modes: list[str], bases: list[int]) -> None:
        super().__init__(plain.config)
        self._modes, self._bases, self._epoch = modes, bases, 0

    @property
    def base(self) -> int:
        """Of the coming epoch."""
        return self._bases[min(self._epoch, len(self._bases) - 1)]

    @property
    def mode(self) -> str:
        """Of the coming epoch."""
        return self._modes[min(self._epoch, len(self._modes) - 1)]

    def step(self, epoch: int, loss: float, et_s: float) -> Verdict:
        """One further; the rule's verdict is recorded and not followed."""
        self._epoch = epoch + 1
        return super().step(epoch, loss, et_s)


class LateSession(Session):
    """A run whose transport and layers lose time by chance, under a scripted controller."""

    def _connect(self) -> tuple[Transport, Reducer]:
        transport, reducer = super()._connect()
        return LateTransport(transport, self.config.seed), reducer

    def _train(self, trainer: Trainer, recorder: Recorder, halo_bytes: int) -> None:
        rng, device = np.random.default_rng([self.config.seed, 7, self.world.rank]), self.placement.device
        for layer in trainer.model.children():
            layer.register_forward_pre_hook(lambda *_: be_late(rng, device))
        script = modes_and_bases(self.config.epochs, self.config.seed)
        trainer.coordinator.controller = _Scripted(trainer.coordinator.controller, *script)
        super()._train(trainer, recorder, halo_bytes)


def late_config(cache: Path, run_dir: Path, device: str) -> Config:
    """The run of `LateSession`."""
    given = {"dataset": SMALL, "parts": 2, "epochs": EPOCHS, "layers": 4, "hidden": 16, "eval_every": 20, "trace": True}
    place = {"device": device, "backend": "gloo", "cache_dir": cache, "run_dir": run_dir}
    return resolve(find_recipe("quickstart").config(), {**given, **place})


def loopback(exchange: HaloExchange, device: torch.device, epochs: int, seed: int) -> int:
    """Send rows to oneself, every mode and base by chance; how many arrived that are not those of the due epoch.

    Row i of epoch t holds 1000·t + i in every column: equal columns survive any number of bits exactly.
    """
    rng, rows = np.random.default_rng(seed), exchange.plan.forward.arrivals
    site, number = Site(layer=1, step=0, direction=FORWARD), torch.arange(rows, device=device, dtype=torch.float32)
    modes, bases = modes_and_bases(epochs, seed)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    for epoch, (mode, base) in enumerate(zip(modes, bases, strict=True)):
        exchange.begin_epoch(Setting(epoch=epoch, mode=mode, base=32 if rng.random() < 0.3 else base))
        be_late(rng, device)
        exchange.post(site, (number + 1000 * epoch).unsqueeze(1).expand(rows, 24).contiguous())
        be_late(rng, device)
        taken = exchange.take(site)
        due = number + 1000 * (epoch if mode == SYNC else epoch - 1)
        wrong += (taken != due.unsqueeze(1)).any(1).sum()
    found = int(wrong)
    exchange.drain()
    return found


def loopback_plan(rows: int) -> ExchangePlan:
    """One rank whose only peer is itself."""
    ids, levels = torch.arange(rows), (torch.arange(rows) % 4).to(torch.uint8)
    route = Route(
        out_index=(ids,),
        out_ids=(ids,),
        out_levels=(levels,),
        in_ids=(ids,),
        in_levels=(levels,),
        in_slice=(slice(0, rows),),
    )
    return ExchangePlan(rank=0, world_size=1, plan_id=1, forward=route, backward=route)


def main(argv: list[str]) -> int:
    """Be one rank."""
    cache, run_dir, device = Path(argv[0]), Path(argv[1]), argv[2]
    die_with_parent()
    world, session = World.from_environment(), None
    assert world is not None, "started by the device check"
    try:
        join(world, "gloo", 60.0)
        config = late_config(cache, run_dir, device)
        plain = start_session(config, "device-check", world, run_dir, time.monotonic_ns())
        values: dict[str, Any] = {item.name: getattr(plain, item.name) for item in fields(plain)}
        make: Callable[..., Session] = LateSession
        session = make(**values)
        session.run()
        leave(world)
    except Exception as error:
        return end_failed(error, training=session is not None and session.training)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
