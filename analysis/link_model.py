"""A model of an epoch on a slow link, free of the machine's noise: exchange takes the share s of `vanilla`'s epoch.

    sync (1 − s) + s·b/B;   async max(1 − s, s·b/B)

in units of vanilla's epoch, with b, B the busiest rank's bytes of an epoch (messages and its part of the weight gradients)
and those of vanilla. s = 0.92, as in the runs of the paper. Nothing overlaps in a sync epoch here.
"""

from __future__ import annotations

from pathlib import Path

from sylvie_trace.reader import read_run
from sylvie_trace.schema import SYNC

SHARE = 0.92


def epoch_share(mode: str, bytes_share: float) -> float:
    """Time of an epoch over vanilla's, for its bytes over vanilla's."""
    transfer = SHARE * bytes_share
    return 1 - SHARE + transfer if mode == SYNC else max(1 - SHARE, transfer)


def link_rate(vanilla_bytes: float) -> str:
    """The rate at which `--ldr-clock modelled` (a second of computation) spends SHARE of vanilla's epoch in exchange."""
    return f"{vanilla_bytes * (1 - SHARE) / SHARE * 8 / 1e3:.3f}kbit"


def busiest_bytes(run_dir: Path) -> list[float]:
    """By epoch, the most bytes that a rank sent in it: messages and weight gradients."""
    run = read_run(run_dir)
    sent = [
        [e.main_bytes + e.meta_bytes + e.header_bytes + e.gradient_allreduce_bytes for e in rank.epochs] for rank in run.ranks
    ]
    return [float(max(each)) for each in zip(*sent, strict=True)]
