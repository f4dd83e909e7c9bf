"""A writer of synthetic runs: every interval, byte and decision is known, so reports can be exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sylvie_trace.decision import Controller, ControllerConfig
from sylvie_trace.recorder import Recorder
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import (
    BACKGROUND,
    MAIN,
    Bits,
    Decision,
    Epoch,
    Footer,
    Header,
    Message,
    Span,
)

MS = 1_000_000
WIDTH, ROWS = 16, 10


@dataclass
class Plan:
    """What a synthetic run does; times in ms, per epoch. ``offsets_ms``: clocks ahead of rank 0's."""

    world_size: int = 2
    epochs: int = 12
    trace: bool = True
    losses: Sequence[float] | None = None
    controller: ControllerConfig = field(default_factory=lambda: ControllerConfig(delta=3))
    offsets_ms: Sequence[int] = (0, 5000, -700, 31)
    late_ms: Sequence[int] = (0, 0, 0, 0)
    forward_ms: int = 10
    encode_ms: int = 3
    transfer_ms: int = 7
    decode_ms: int = 2
    backward_ms: int = 20
    loss_ms: int = 1
    optimiser_ms: int = 2
    gradient_ms: int = 4
    coordinate_ms: int = 1
    gap_ms: int = 0
    evaluate_ms: int = 30
    evaluate_every: int = 5
    change: Callable[[int, Any], Any] = lambda rank, record: record


class SyntheticRun:
    """Writes the run of a ``Plan`` through the real recorder.

    An epoch of rank r: its lateness is extra forward work; then encode, wait (for the latest rank, then for
    the transfer), decode, the rest of forward, loss, backward, gradient all-reduce, optimiser, coordinate.
    In an asynchronous epoch the exchange runs behind the main thread instead and nobody waits.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan = path, plan
        self.directory = RunDir.create(path)
        self.directory.write_run_json(self.info())
        losses = plan.losses or [2.0 / (1 + epoch) for epoch in range(plan.epochs)]
        self.epoch_ms = (
            max(plan.late_ms[: plan.world_size])
            + plan.forward_ms
            + plan.encode_ms
            + plan.transfer_ms
            + plan.decode_ms
            + plan.loss_ms
            + plan.backward_ms
            + plan.gradient_ms
            + plan.optimiser_ms
        )
        self.length_ms = self.epoch_ms + plan.coordinate_ms + plan.gap_ms
        for rank in range(plan.world_size):
            self._write_rank(rank, losses)

    def info(self) -> dict[str, Any]:
        config = self.plan.controller
        bits = "adaptive" if config.bits is None else str(config.bits)
        return {
            "run_id": "synthetic",
            "config": {"dataset": "made", "model": "graphsage", "system": "sylvie", "seed": 3, "bits": bits},
            "describes": {"bits": bits, "mask": "off", "schedule": config.schedule},
            "dataset": {"name": "made", "nodes": 100},
            "boundary": {
                "pool_nodes": 20,
                "share_of_nodes": 0.2,
                "halo_rows": 20,
                "level_counts": [20, 0, 0, 0],
                "thresholds": [0.9, 0.97, 0.99],
                "importance": "rank",
            },
            "offline_cached": False,
        }

    def _write_rank(self, rank: int, losses: Sequence[float]) -> None:
        plan, offset = self.plan, self.plan.offsets_ms[rank]
        header = Header(
            schema=1,
            run_id="synthetic",
            rank=rank,
            world_size=plan.world_size,
            pid=100 + rank,
            host="here",
            wall_ns=0,
            clock_ns=(offset + 10_000) * MS,
            offset_ns=offset * MS,
            offset_bound_ns=1000,
            trace=plan.trace,
        )
        recorder = Recorder(self.directory.trace_file(rank), header)

        def write(record: Any) -> None:
            changed = plan.change(rank, record)
            if changed is not None:
                recorder.record(changed)

        def at(ms: float) -> int:
            return int((ms + offset) * MS)

        now = 10_100.0
        for name, length in (("startup", 50), ("load", 20), ("partition", 100), ("extract", 10)):
            write(Span(name=name, epoch=-1, start_ns=at(now), end_ns=at(now + length)))
            now += length
        begin = now
        controller = Controller(plan.controller)
        totals = {"train": 0, "gradient_allreduce": 0}
        for epoch in range(plan.epochs):
            mode, base = controller.mode, controller.base
            sent = self._write_epoch(write, at, rank, epoch, now, mode, base)
            verdict = controller.step(epoch, losses[epoch], self.epoch_ms / 1e3)
            write(
                Epoch(
                    epoch=epoch,
                    mode=mode,
                    base_bits=base,
                    start_ns=at(now),
                    end_ns=at(now + self.epoch_ms + plan.coordinate_ms),
                    epoch_time_ns=self.epoch_ms * MS,
                    loss=losses[epoch],
                    smoothed_loss=verdict.smoothed_loss,
                    ldr=verdict.ldr,
                    descent_rate=verdict.descent_rate,
                    et_wall_s=self.epoch_ms / 1e3,
                    et_s=self.epoch_ms / 1e3,
                    rows=sent["rows"],
                    main_bytes=sent["main"],
                    meta_bytes=sent["meta"],
                    header_bytes=sent["header"],
                    gradient_allreduce_bytes=1000,
                    fp32_equivalent_bytes=sent["rows"] * 4 * WIDTH,
                )
            )
            write(
                Decision(
                    epoch=epoch,
                    rule=plan.controller.rule,
                    clock=plan.controller.clock,
                    smoothing=plan.controller.smoothing,
                    delta=plan.controller.delta,
                    max_base=plan.controller.max_base,
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
            write(Bits(epoch=epoch, base_bits=base, histogram={str(base): sent["rows"]}))
            totals["train"] += sent["main"] + sent["meta"] + sent["header"]
            totals["gradient_allreduce"] += 1000
            now += self.length_ms
            if plan.evaluate_every and epoch % plan.evaluate_every == plan.evaluate_every - 1:
                write(Span(name="evaluate", epoch=-1, start_ns=at(now), end_ns=at(now + plan.evaluate_ms)))
                now += plan.evaluate_ms
        write(Span(name="train", epoch=-1, start_ns=at(begin), end_ns=at(now)))
        write(
            Footer(
                complete=True,
                end_ns=at(now + 20),
                bytes={"evaluate": 40, "input_halo": 50, "control": 60, "unused": 0, **totals},
                peak_memory_mb=100.0 + rank,
                device_peak_mb=None,
                quality={
                    "metric": "accuracy",
                    "best_val": 0.8,
                    "test_at_best_val": 0.79,
                    "final_test": 0.78,
                    "best_epoch": 9,
                },
            )
        )
        recorder.close()

    def _write_epoch(
        self,
        write: Callable[[Any], None],
        at: Callable[[float], int],
        rank: int,
        epoch: int,
        start: float,
        mode: str,
        base: int,
    ) -> dict[str, int]:
        """One epoch's spans and messages; returns the rows and bytes sent."""
        plan = self.plan
        own, latest = plan.late_ms[rank], max(plan.late_ms[: plan.world_size])
        encode = start + own + 5
        ready = encode + plan.encode_ms
        all_ready = start + latest + 5 + plan.encode_ms
        arrived = all_ready + plan.transfer_ms
        forward_end = arrived + plan.decode_ms + plan.forward_ms - 5
        marks = [start, forward_end]
        for length in (
            plan.loss_ms,
            plan.backward_ms,
            plan.gradient_ms,
            plan.optimiser_ms,
            plan.coordinate_ms,
        ):
            marks.append(marks[-1] + length)
        names = ("forward", "loss", "backward", "gradient_allreduce", "optimiser", "coordinate")
        for name, first, last in zip(names, marks[:-1], marks[1:], strict=True):
            write(Span(name=name, epoch=epoch, start_ns=at(first), end_ns=at(last)))
        main = -(-WIDTH * base // 8) * ROWS
        synchronous = mode == "sync"
        thread = MAIN if synchronous else BACKGROUND
        for peer in range(plan.world_size):
            if peer == rank:
                continue
            peer_ready = start + plan.late_ms[peer] + 5 + plan.encode_ms
            write(
                Message(
                    purpose="train",
                    epoch=epoch,
                    layer=2,
                    step=0,
                    direction="forward",
                    peer=peer,
                    mode=mode,
                    width=WIDTH,
                    rows=ROWS,
                    main_bytes=main,
                    meta_bytes=8 * ROWS,
                    header_bytes=32,
                    recv_rows=ROWS,
                    recv_main_bytes=main,
                    recv_meta_bytes=8 * ROWS,
                    recv_header_bytes=32,
                    recv_epoch=epoch,
                    consumed_epoch=epoch if synchronous else epoch + 1,
                    age=0 if synchronous else 1,
                    unused=False,
                    sent_ns=int((peer_ready + plan.offsets_ms[peer]) * MS),
                    fused=True,
                    encode_start_ns=at(encode),
                    encode_end_ns=at(ready),
                    encode_thread=thread,
                    queued_ns=at(ready),
                    wire_start_ns=at(ready),
                    wire_end_ns=at(arrived),
                    decode_start_ns=at(arrived),
                    decode_end_ns=at(arrived + plan.decode_ms),
                    decode_thread=thread,
                    wait_start_ns=at(ready) if synchronous else None,
                    wait_end_ns=at(arrived) if synchronous else None,
                    wait_epoch=epoch if synchronous else None,
                )
            )
        peers = plan.world_size - 1
        return {"rows": ROWS * peers, "main": main * peers, "meta": 8 * ROWS * peers, "header": 32 * peers}

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """A rank's records as written."""
        return [json.loads(line) for line in self.directory.trace_file(rank).read_text().splitlines()]

    def rewrite(self, rank: int, text: str) -> None:
        """Replace a rank's trace."""
        self.directory.trace_file(rank).write_text(text)


@pytest.fixture
def synthetic(tmp_path: Path) -> Callable[..., SyntheticRun]:
    """Writes a synthetic run: ``synthetic(epochs=4, …)`` with ``Plan``'s fields."""
    count = 0

    def write(**changes: Any) -> SyntheticRun:
        nonlocal count
        count += 1
        return SyntheticRun(tmp_path / f"run-{count}", Plan(**changes))

    return write
