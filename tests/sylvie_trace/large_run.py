"""Writes runs of any size quickly: many ranks, many epochs, many messages; plausible, not exact."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from sylvie_trace.decision import Controller, ControllerConfig
from sylvie_trace.recorder import Recorder
from sylvie_trace.run_dir import RunDir
from sylvie_trace.schema import Bits, Decision, Epoch, Footer, Header, Message, Reuse, Span

MS = 1_000_000
WIDTH, ROWS = 64, 100
_NAMES = ("forward", "loss", "backward", "gradient_allreduce", "optimiser", "coordinate")
_SHARES = (0.33, 0.02, 0.5, 0.08, 0.03, 0.04)


def write_large_run(path: Path, *, ranks: int, epochs: int, layers: int = 3, info: dict[str, Any] | None = None) -> int:
    """Write a complete traced run into ``path``; returns the number of records."""
    directory = RunDir.create(path)
    directory.write_run_json(
        {
            "run_id": "large",
            "config": {"dataset": "made", "model": "graphsage", "system": "sylvie", "bits": "adaptive", "seed": 1},
            "describes": {"bits": "adaptive", "mask": "degree", "schedule": "adaptive"},
            "devices": [{"rank": rank, "host": f"host{rank // 4}", "cores": 4} for rank in range(ranks)],
            "boundary": {"pool_nodes": 900, "share_of_nodes": 0.2, "level_counts": [810, 60, 20, 10]},
            "offline_cached": False,
            **(info or {}),
        }
    )
    noise = random.Random(7)
    lengths = [int(100 * MS * (1 + 0.2 * noise.random())) for _ in range(epochs)]
    losses = [0.2 + 2 * math.exp(-4 * epoch / epochs) * (1 + 0.05 * noise.random()) for epoch in range(epochs)]
    verdicts = []
    controller = Controller(ControllerConfig(delta=5))
    for epoch in range(epochs):
        mode, base = controller.mode, controller.base
        verdicts.append((mode, base, controller.step(epoch, losses[epoch], lengths[epoch] * 0.96 / 1e9)))
    return sum(_write_rank(directory, rank, ranks, layers, lengths, losses, verdicts) for rank in range(ranks))


def _write_rank(
    directory: RunDir, rank: int, ranks: int, layers: int, lengths: list[int], losses: list[float], verdicts: list[Any]
) -> int:
    header = Header(
        schema=1,
        run_id="large",
        rank=rank,
        world_size=ranks,
        pid=rank,
        host=f"host{rank // 4}",
        wall_ns=0,
        clock_ns=0,
        offset_ns=1000 * rank,
        offset_bound_ns=20_000,
        trace=True,
    )
    recorder = Recorder(directory.trace_file(rank), header)
    shift, begin = header.offset_ns, 1000 * MS
    recorder.record(Span(name="startup", epoch=-1, start_ns=shift, end_ns=begin + shift))
    now, count, sent, unused = begin, 2, 0, 0
    for epoch, length in enumerate(lengths):
        mode, base, verdict = verdicts[epoch]
        last = epoch == len(lengths) - 1
        details, messages = _epoch(rank, ranks, layers, epoch, now + shift, length, verdicts, last)
        recorder.record_details(details)
        main = sum(m.main_bytes for m in messages)
        meta, head = sum(m.meta_bytes for m in messages), 32 * len(messages)
        sent += main + meta + head
        unused += sum(m.main_bytes + m.meta_bytes + m.header_bytes for m in messages if m.unused)
        rows = sum(m.rows for m in messages)
        recorder.record(
            Epoch(
                epoch=epoch,
                mode=mode,
                base_bits=base,
                start_ns=now + shift,
                end_ns=now + shift + length,
                epoch_time_ns=int(length * 0.96),
                loss=losses[epoch],
                smoothed_loss=verdict.smoothed_loss,
                ldr=verdict.ldr,
                descent_rate=verdict.descent_rate,
                et_wall_s=length * 0.96 / 1e9,
                et_s=length * 0.96 / 1e9,
                rows=rows,
                main_bytes=main,
                meta_bytes=meta,
                header_bytes=head,
                gradient_allreduce_bytes=5000,
                fp32_equivalent_bytes=rows * 4 * WIDTH,
                metrics={"train": 0.7, "val": 0.6, "test": 0.6} if epoch % 10 == 9 else {},
            )
        )
        recorder.record(Bits(epoch=epoch, base_bits=base, histogram={str(base): rows}))
        recorder.record(_decision(epoch, mode, base, verdict))
        count += len(details) + 3
        now += length
    recorder.record(Span(name="train", epoch=-1, start_ns=begin + shift, end_ns=now + shift))
    totals = {"train": sent - unused, "unused": unused, "gradient_allreduce": 5000 * len(lengths)}
    totals |= {"evaluate": 0, "input_halo": 0, "control": 0}
    quality: dict[str, float | int | str | None] = {"metric": "accuracy", "best_val": 0.6, "test_at_best_val": 0.6}
    recorder.record(
        Footer(
            complete=True,
            end_ns=now + shift + MS,
            bytes=totals,
            peak_memory_mb=500.0 + rank,
            device_peak_mb=None,
            quality={**quality, "final_test": 0.6, "best_epoch": 9},
        )
    )
    recorder.close()
    return count + 2


def _decision(epoch: int, mode: str, base: int, verdict: Any) -> Decision:
    return Decision(
        epoch=epoch,
        rule="equation",
        clock="wall",
        smoothing=0.9,
        delta=5,
        ldr=verdict.ldr,
        ldr_reference=verdict.ldr_reference,
        outcome=verdict.outcome,
        base_before=base,
        base_after=verdict.base_next,
        mode_before=mode,
        mode_after=verdict.mode_next,
        forced_sync=verdict.forced_sync,
    )


def _epoch(
    rank: int, ranks: int, layers: int, epoch: int, start: int, length: int, verdicts: list[Any], last: bool
) -> tuple[list[Message | Reuse | Span], list[Message]]:
    """The spans, messages and reuses of an epoch."""
    mode, base, _ = verdicts[epoch]
    earlier = epoch - 1 if epoch else 0
    before = verdicts[earlier][0] if epoch else "sync"
    after = verdicts[epoch + 1][0] if not last else "sync"
    details: list[Message | Reuse | Span] = []
    at = start
    marks = {}
    for name, share in zip(_NAMES, _SHARES, strict=True):
        end = at + int(length * share)
        details.append(Span(name=name, epoch=epoch, start_ns=at, end_ns=end))
        marks[name] = (at, end)
        at = end
    messages = []
    for direction, name in (("forward", "forward"), ("backward", "backward")):
        first, end = marks[name]
        step = (end - first) // (layers + 1)
        for index in range(1, layers):
            layer = index + 1 if direction == "forward" else layers + 1 - index
            site = first + index * step
            for peer in range(ranks):
                if peer == rank:
                    continue
                if mode == "async" and before == "sync":
                    details.append(
                        Reuse(epoch=epoch, layer=layer, step=0, direction=direction, peer=peer, recv_epoch=earlier, age=1)
                    )
                messages.append(_message(rank, epoch, layer, direction, peer, mode, after, base, site, step))
    return details + messages, messages


def _message(
    rank: int, epoch: int, layer: int, direction: str, peer: int, mode: str, after: str, base: int, site: int, step: int
) -> Message:
    synchronous = mode == "sync"
    used = epoch if synchronous else epoch + 1 if after == "async" else None
    thread = "main" if synchronous else "background"
    main = ROWS * (-(-WIDTH * base // 8))
    wire, end = site + step // 20, site + step // 4
    return Message(
        purpose="train",
        epoch=epoch,
        layer=layer,
        step=0,
        direction=direction,
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
        consumed_epoch=used,
        age=None if used is None else used - epoch,
        unused=used is None,
        sent_ns=wire + 1000 * (peer - rank) + 1000 * ((peer * 7) % 13),
        fused=True,
        encode_start_ns=site,
        encode_end_ns=wire,
        encode_thread=thread,
        queued_ns=wire,
        wire_start_ns=wire,
        wire_end_ns=end,
        decode_start_ns=end,
        decode_end_ns=end + step // 40,
        decode_thread=thread,
        wait_start_ns=wire if synchronous else None,
        wait_end_ns=end if synchronous else None,
        wait_epoch=epoch if synchronous else None,
    )
