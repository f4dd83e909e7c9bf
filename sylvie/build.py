"""Build: from a configuration and a rank's part to a trainer. The only place where all the pieces meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor, nn

from sylvie.codec import codec_for
from sylvie.config import Config, parse_rate
from sylvie.coordinator import Coordinated, Coordinator, RuleClock
from sylvie.exchange.carrier import Carrier, HostCarrier
from sylvie.exchange.exchange import HaloExchange
from sylvie.exchange.halo import Halo
from sylvie.exchange.ledger import Ledger
from sylvie.exchange.plan import ExchangePlan, build_plan
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.sampling import RowSampler
from sylvie.exchange.streams import HostStreams, Streams
from sylvie.exchange.transport import Transport
from sylvie.exchange.worker import Issuer
from sylvie.extractor import BoundaryLevels
from sylvie.nn.custom import build_model
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows
from sylvie.nn.models import ModelOptions
from sylvie.nn.structure import Structure
from sylvie.optimiser import Adam
from sylvie.partition.partition import Partition
from sylvie.systems import system_of
from sylvie.trainer import Best, Trainer
from sylvie_trace.decision import Controller, ControllerConfig
from sylvie_trace.nvtx import Ranges
from sylvie_trace.recorder import Recorder
from sylvie_trace.schema import EVALUATE, INPUT_HALO, TRAIN

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def dtype_of(config: Config) -> torch.dtype:
    """The arithmetic of a run."""
    return _DTYPES[config.dtype]


def plan_for(config: Config, partition: Partition, levels: BoundaryLevels) -> ExchangePlan:
    """The exchange plan of a part under the mask; its id covers everything both ends must agree on."""
    send_ids = partition.inner_ids[partition.send_index]
    salt = f"{config.metadata}/{config.seed}/{levels.mask}/{levels.thresholds}/{levels.importance}"
    return build_plan(partition, levels.levels_of(send_ids), levels.levels_of(partition.halo_ids), salt)


def build_controller(config: Config) -> Controller:
    """The controllers of both adaptive axes, each fixed where the configuration says so."""
    return Controller(
        ControllerConfig(
            rule=config.ldr_rule,
            delta=config.ldr_delta,
            smoothing=config.ldr_lambda,
            bits=config.fixed_bits,
            schedule=config.schedule,
            clock=config.ldr_clock,
            max_base=int(config.ldr_max_base),
        )
    )


def seeded_model(config: Config, partition: Partition) -> nn.Module:
    """The model with parameters that depend on the seed alone; afterwards dropout draws differ by rank."""
    options = ModelOptions(**{item.name: getattr(config, item.name) for item in fields(ModelOptions)})
    torch.manual_seed(config.seed)
    width = int(partition.features.shape[1])
    model = build_model(config.model, width, partition.num_classes, options).to(dtype_of(config))
    torch.manual_seed(config.seed * 1_000_003 + partition.rank + 1)
    return model


def build_trainer(
    config: Config,
    *,
    partition: Partition,
    plan: ExchangePlan,
    transport: Transport,
    reducer: Reducer,
    recorder: Recorder,
    worker: Issuer,
    x: Tensor | InputRows,
    on_epoch: Callable[[int, Coordinated, dict[str, float | None], float], None] = lambda *_: None,
    on_best: Callable[[Best], None] = lambda _: None,
    clock: Callable[[], int] = time.monotonic_ns,
    exchange_type: type[HaloExchange] = HaloExchange,
    streams: Streams | None = None,
    carrier: Callable[[Transport, Streams, Callable[[], int]], Carrier] = HostCarrier,
    spare_core: bool = True,
) -> Trainer:
    """A trainer of ``partition`` over ``transport`` as ``config`` says; ``x`` are the rank's input rows.

    It computes on the device of ``streams`` (None: the host); ``worker`` and ``carrier`` must be made for it.
    ``spare_core``: the worker may run beside the main thread, so that encoding and decoding can be left to it.
    """
    streams = streams or HostStreams(clock)
    device = streams.device
    partition, plan, x = partition.on(device), plan.on(device), x.to(device)
    system = system_of(config)
    ranges = Ranges(config.trace)
    rounds = system.rounds(plan.rank, plan.world_size)
    structure = Structure(partition, tuple(r.recv_peers for r in rounds), dtype_of(config))
    codec = codec_for(device.type) if config.bits != "32" else None

    def exchange(ledger: Ledger, purpose: str) -> HaloExchange | None:
        if plan.world_size == 1:
            return None
        return exchange_type(
            plan=plan,
            carrier=carrier(transport, streams, clock),
            worker=worker,
            codec=codec,
            rounds=rounds,
            metadata=config.metadata,
            seed=config.seed,
            streams=streams,
            ledger=ledger,
            ranges=ranges,
            purpose=purpose,
            sampler=RowSampler(plan, system.sample, config.seed) if system.sample and purpose == TRAIN else None,
            spare_core=spare_core,
        )

    train_ledger, eval_ledger = Ledger(recorder, TRAIN), Ledger(recorder, EVALUATE)
    train, evaluation = exchange(train_ledger, TRAIN), exchange(eval_ledger, EVALUATE)
    input_ledger = Ledger(recorder, INPUT_HALO)
    halo = Halo(train, overlap=config.overlap, rematerialise=system.rematerialise, arrivals=system.arrivals())
    model = seeded_model(config, partition).to(device)
    rate = parse_rate(config.ldr_link_rate) if config.ldr_link_rate else None
    rule_clock = RuleClock(config.ldr_clock, rate)
    return Trainer(
        partition=partition,
        model=model,
        optimiser=Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay),
        graph=RankGraph(structure, halo, reducer),
        eval_graph=RankGraph(structure, Halo(evaluation), reducer),
        x=x,
        exchange=train,
        eval_exchange=evaluation,
        input_exchange=exchange(input_ledger, INPUT_HALO) if hasattr(model, "prepare") else None,
        ledger=train_ledger,
        eval_ledger=eval_ledger,
        input_ledger=input_ledger,
        coordinator=Coordinator(build_controller(config), reducer, rule_clock),
        reducer=reducer,
        recorder=recorder,
        ranges=ranges,
        eval_every=config.eval_every,
        on_epoch=on_epoch,
        on_best=on_best,
        clock=clock,
        streams=streams,
    )
