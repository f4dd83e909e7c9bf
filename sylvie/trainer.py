"""Trainer: the epoch. Forward, loss, backward, weight gradients, optimiser, coordination, record — in that order.

It asks nobody which system runs: the exchange was given its mode and base bits, the model its graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import SupportsInt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sylvie.coordinator import Coordinated, Coordinator
from sylvie.evaluate import Scores, evaluate
from sylvie.exchange.exchange import HaloExchange, Setting
from sylvie.exchange.gradients import GradientSum
from sylvie.exchange.halo import Halo
from sylvie.exchange.ledger import EpochTotals, Ledger
from sylvie.exchange.reduce import Reducer
from sylvie.exchange.streams import HostStreams, Streams
from sylvie.nn.graph import RankGraph
from sylvie.nn.inputs import InputRows
from sylvie.optimiser import Adam
from sylvie.partition.partition import Partition
from sylvie_trace import schema
from sylvie_trace.nvtx import Ranges
from sylvie_trace.recorder import Recorder

Clock = Callable[[], int]


@dataclass(kw_only=True, eq=False)
class Best:
    """The best validation epoch so far and its parameters."""

    epoch: int = -1
    val: float = -math.inf
    test: float | None = None
    state: dict[str, Tensor] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Trainer:
    """Everything an epoch needs, handed in; ``prepare`` comes first, ``train`` runs the epochs."""

    partition: Partition
    model: nn.Module
    optimiser: Adam
    graph: RankGraph
    eval_graph: RankGraph
    x: Tensor | InputRows
    exchange: HaloExchange | None
    eval_exchange: HaloExchange | None
    input_exchange: HaloExchange | None
    ledger: Ledger
    eval_ledger: Ledger
    input_ledger: Ledger
    coordinator: Coordinator
    reducer: Reducer
    recorder: Recorder
    ranges: Ranges
    eval_every: int
    on_epoch: Callable[[int, Coordinated, dict[str, float | None], float], None] = lambda *_: None
    on_best: Callable[[Best], None] = lambda _: None
    clock: Clock = time.monotonic_ns
    streams: Streams = field(default_factory=lambda: HostStreams(time.monotonic_ns))
    best: Best = field(default_factory=Best)
    last: Scores | None = None
    epoch: int = -1
    gradient_bytes: int = 0
    _prepared: bool = False
    _spans: list[tuple[str, SupportsInt, SupportsInt]] = field(default_factory=list)

    @cached_property
    def gradients(self) -> GradientSum:
        """The sum of weight gradients over ranks."""
        return GradientSum(self.model.parameters(), self.reducer)

    @cached_property
    def _train_rows(self) -> Tensor:
        return torch.nonzero(self.partition.train_mask).flatten()

    @cached_property
    def _train_labels(self) -> Tensor:
        return self.partition.labels[self._train_rows]

    def train(self, epochs: int) -> None:
        """Run epochs 0 … ``epochs`` − 1, evaluating as configured and always at the end."""
        self.prepare()
        for epoch in range(epochs):
            self.epoch = epoch
            self._run_epoch(epoch, last=epoch == epochs - 1)
        if self.exchange is not None:
            self.exchange.drain()
        self.ledger.flush()

    def prepare(self) -> None:
        """Let a model with ``prepare(graph, x)`` replace its input, once: exact rows, synchronous, no gradient.

        What the ranks send for that belongs to the input, not to an epoch or an evaluation; its buffers are freed afterwards.
        """
        exchange, self.input_exchange = self.input_exchange, None
        prepare: Callable[..., Tensor | InputRows] | None = getattr(self.model, "prepare", None)
        if self._prepared or prepare is None:
            return
        self._prepared = True
        if exchange is not None:
            exchange.begin_epoch(Setting(epoch=0, mode=schema.SYNC, base=32))
        with torch.no_grad():
            self.x = prepare(RankGraph(self.graph.structure, Halo(exchange), self.reducer), self.x)
        if exchange is not None:
            exchange.end_epoch()
        self.input_ledger.flush()

    def _run_epoch(self, epoch: int, *, last: bool) -> None:
        mode, base = self.coordinator.controller.mode, self.coordinator.controller.base
        self.ranges.push_epoch(epoch)
        self.streams.anchor()
        start = self.clock()
        if self.exchange is not None:
            self.exchange.begin_epoch(Setting(epoch=epoch, mode=mode, base=base))
        loss = self._forward_backward()
        with self._span(schema.SPAN_GRADIENT_ALLREDUCE):
            allreduce_bytes = self.gradients.finish()
        with self._span(schema.SPAN_OPTIMISER):
            self.optimiser.step()
        loss_sum = float(loss)  # on a device the host catches up here, and only here
        taken_ns = self.clock() - start
        totals = self.ledger.epoch(epoch)
        with self._span(schema.SPAN_COORDINATE):
            if self.exchange is not None:
                self.exchange.end_epoch()
            closed = self.coordinator.close_epoch(epoch, loss_sum, taken_ns * 1e-9, totals.nbytes + allreduce_bytes, mode)
        if self.exchange is not None:
            self.exchange.release()
        end = self.clock()
        self.ranges.pop()
        self.gradient_bytes += allreduce_bytes
        due = last or (self.eval_every > 0 and (epoch + 1) % self.eval_every == 0)
        metrics = self._evaluate(epoch) if due else {}
        self._record(epoch, mode, base, (start, end), taken_ns, closed, totals, allreduce_bytes, metrics)
        self.on_epoch(epoch, closed, metrics, closed.et_wall_s)

    def _forward_backward(self) -> Tensor:
        """One pass; returns this rank's share of the global mean loss. Backward runs on this thread, on a device, too."""
        self.optimiser.zero_grad()
        self.gradients.begin()
        self.graph.halo.begin_forward()
        with self._span(schema.SPAN_FORWARD):
            logits = self.model(self.graph, self.x)
        with self._span(schema.SPAN_LOSS):
            loss = self.loss(logits)
        with self._span(schema.SPAN_BACKWARD), torch.autograd.set_multithreading_enabled(False):
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def loss(self, logits: Tensor) -> Tensor:
        """Sum over this rank's training nodes, divided by the number of training nodes of the whole graph."""
        part = self.partition
        chosen, labels = logits.index_select(0, self._train_rows), self._train_labels
        if part.multilabel:
            each = F.binary_cross_entropy_with_logits(chosen, labels.to(chosen.dtype), reduction="sum")
            return each / (part.num_train * part.num_classes)
        return F.cross_entropy(chosen, labels, reduction="sum") / part.num_train

    def _evaluate(self, epoch: int) -> dict[str, float | None]:
        with self._span(schema.SPAN_EVALUATE):
            if self.eval_exchange is not None:
                self.eval_exchange.begin_epoch(Setting(epoch=epoch, mode=schema.SYNC, base=32))
            self.last = evaluate(self.model, self.eval_graph, self.x, self.partition, self.reducer)
            if self.eval_exchange is not None:
                self.eval_exchange.end_epoch()
        values = self.last.values
        val = values["val"]
        if val is not None and val > self.best.val:
            state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            self.best = Best(epoch=epoch, val=val, test=values["test"], state=state)
            with self._span(schema.SPAN_CHECKPOINT):
                self.on_best(self.best)
        return values

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        self.ranges.push(name)
        start = self.streams.moment()
        try:
            yield
        finally:
            self._spans.append((name, start, self.streams.moment()))
            self.ranges.pop()

    def _record(
        self,
        epoch: int,
        mode: str,
        base: int,
        extent: tuple[int, int],
        taken_ns: int,
        closed: Coordinated,
        totals: EpochTotals,
        allreduce_bytes: int,
        metrics: dict[str, float | None],
    ) -> None:
        verdict, config = closed.verdict, self.coordinator.controller.config
        for name, start, end in self._spans:
            self.recorder.record(schema.Span(name=name, epoch=epoch, start_ns=int(start), end_ns=int(end)))
        self._spans.clear()
        self.ledger.flush()
        self.eval_ledger.flush()
        self.recorder.record(
            schema.Epoch(
                epoch=epoch,
                mode=mode,
                base_bits=base,
                start_ns=extent[0],
                end_ns=extent[1],
                epoch_time_ns=taken_ns,
                loss=closed.loss,
                smoothed_loss=verdict.smoothed_loss,
                ldr=verdict.ldr,
                descent_rate=verdict.descent_rate,
                et_wall_s=closed.et_wall_s,
                et_s=closed.et_s,
                rows=totals.rows,
                main_bytes=totals.main_bytes,
                meta_bytes=totals.meta_bytes,
                header_bytes=totals.header_bytes,
                fp32_equivalent_bytes=totals.fp32_bytes,
                gradient_allreduce_bytes=allreduce_bytes,
                metrics=metrics,
            )
        )
        self.recorder.record(
            schema.Bits(
                epoch=epoch,
                base_bits=base,
                histogram={str(width): count for width, count in sorted(totals.histogram.items())},
            )
        )
        self.recorder.record(
            schema.Decision(
                epoch=epoch,
                rule=config.rule,
                clock=config.clock,
                smoothing=config.smoothing,
                delta=config.delta,
                max_base=config.max_base,
                ldr=verdict.ldr,
                ldr_reference=verdict.ldr_reference,
                outcome=verdict.outcome,
                base_before=base,
                base_after=verdict.base_next,
                mode_before=mode,
                mode_after=verdict.mode_next,
                forced_sync=verdict.forced_sync,
            )
        )
