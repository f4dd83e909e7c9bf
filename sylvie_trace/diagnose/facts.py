"""The numbers that a diagnosis rests on, each from the run's records; None where they do not tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sylvie_trace.breakdown import PARTS, RankParts, arrival_ns
from sylvie_trace.columns import MISSING, PURPOSES
from sylvie_trace.decision import ADAPTIVE, FALSE, MIN_BASE, TRUE, ControllerConfig
from sylvie_trace.epochs import common_epochs, measured_epochs
from sylvie_trace.job import Subject, slowest_link
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.replay import logged_config
from sylvie_trace.schema import ASYNC, TRAIN

#: Parts of an epoch in which a rank waits for others.
WAITING = ("exposed_wait", "exposed_transfer", "gradient_allreduce", "coordinate")


@dataclass(frozen=True)
class Transfers:
    """Of one rank and epoch, means: exchanges, bytes sent, seconds of wire after the latest peer was ready."""

    exchanges: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Rank:
    """A rank's mean epoch: seconds at work (not waiting for others), its edges."""

    rank: int
    busy_s: float
    edges: int | None


@dataclass(frozen=True)
class Rule:
    """What the rule did: epochs it decided, outcomes, the widths that followed, epochs forced to be synchronous.

    ``width_ignored`` and ``mode_ignored`` count outcomes after which an adaptive width, or mode, did not move as the rule
    has it.
    """

    config: ControllerConfig
    decided: int
    true: int
    false: int
    bases: tuple[int, ...]
    width_ignored: int
    mode_ignored: int
    async_epochs: int
    forced_sync: int


@dataclass(frozen=True)
class Facts:
    """Everything the rules look at. Seconds and bytes are per measured epoch, ``parts_s`` the breakdown by name.

    ``async_exposed_share``: exposed communication as a share of asynchronous epochs alone. ``fp32_transfer_s``: what fp32
    rows would take on the link, measured (``fp32_measured``) or estimated from the probed link.
    """

    subject: Subject
    against: Subject | None
    epoch_s: float | None
    parts_s: Mapping[str, float]
    async_exposed_share: float | None
    sync_exposed_share: float | None
    transfers: Transfers | None
    fp32_transfer_s: float | None
    fp32_measured: bool
    rtt_s: float | None
    link_bytes_per_s: float | None
    ranks: tuple[Rank, ...]
    rule: Rule | None
    by_degree: tuple[Mapping[str, Any], ...]

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.subject.run

    @property
    def exposed_s(self) -> float | None:
        """Seconds of an epoch in which the main thread stands still for rows."""
        return self.parts_s["exposed_wait"] + self.parts_s["exposed_transfer"] if self.parts_s else None

    def share(self, seconds: float | None) -> float | None:
        """``seconds`` as a share of an epoch."""
        return seconds / self.epoch_s if seconds is not None and self.epoch_s else None

    def setting(self, name: str) -> str:
        """What run.json says the run does on an axis (``bits``, ``mask``, ``schedule``) or for an option."""
        described = self.run.section("describes").get(name, self.run.section("config").get(name))
        return str(described)


def gather(subject: Subject, parts: Sequence[RankParts], against: Subject | None) -> Facts:
    """All facts of a run."""
    run, report = subject.run, subject.report
    measured = measured_epochs(common_epochs(run))
    breakdown = report.breakdown_s
    parts_s = {name: float(getattr(breakdown, name)) for name in PARTS} if breakdown is not None else {}
    transfers = _transfers(run, measured) if parts and measured else None
    link = slowest_link(run)
    fp32_s, is_measured = _fp32_transfer(subject, against, transfers, link)
    modes = {record.epoch: record.mode for record in run.ranks[0].epochs}
    behind = [epoch for epoch in measured if modes.get(epoch) == ASYNC]
    ahead = [epoch for epoch in measured if modes.get(epoch) != ASYNC]
    return Facts(
        subject=subject,
        against=against,
        epoch_s=sum(parts_s[name] for name in PARTS[:8]) if parts_s else None,
        parts_s=parts_s,
        async_exposed_share=_exposed(parts, behind),
        sync_exposed_share=_exposed(parts, ahead),
        transfers=transfers,
        fp32_transfer_s=fp32_s,
        fp32_measured=is_measured,
        rtt_s=float(link["rtt_s"]) if link and link.get("rtt_s") else None,
        link_bytes_per_s=float(link["bytes_per_s"]) if link else None,
        ranks=_ranks(run, parts, measured),
        rule=_rule(run),
        by_degree=_by_degree(run),
    )


def _exposed(parts: Sequence[RankParts], epochs: Sequence[int]) -> float | None:
    """Exposed communication as a share of these epochs, mean over ranks."""
    shares = []
    for rank in parts:
        chosen = np.isin(rank.extent.epoch, epochs)
        length = int(rank.extent.length_ns[chosen].sum())
        if length > 0:
            shares.append(int(sum(rank.parts[name][chosen].sum() for name in WAITING[:2])) / length)
    return float(np.mean(shares)) if shares else None


def _transfers(run: Run, epochs: Sequence[int]) -> Transfers | None:
    """Means over ranks and epochs; None when nothing was sent."""
    found = [_rank_transfers(run, trace, epochs) for trace in run.ranks]
    if not found or not any(each.exchanges for each in found):
        return None
    means = [float(np.mean([getattr(each, name) for each in found])) for name in ("exchanges", "bytes", "seconds")]
    return Transfers(*means)


def _rank_transfers(run: Run, trace: RankTrace, epochs: Sequence[int]) -> Transfers:
    table = trace.messages
    chosen = (table["purpose"] == PURPOSES[TRAIN]) & np.isin(table["epoch"], epochs)
    table = table[chosen & (table["wire_start_ns"] != MISSING) & (table["wire_end_ns"] != MISSING)]
    sent = int((table["main_bytes"] + table["meta_bytes"] + table["header_bytes"]).sum())
    starts, ends = table["wire_start_ns"], table["wire_end_ns"]
    ready = np.clip(np.maximum(arrival_ns(run, trace, table), starts), starts, ends)
    # A fused collective starts when its last peer is ready: the latest of its messages' times counts for all.
    order = np.lexsort((ready, ends, starts))
    starts, ends, ready = starts[order], ends[order], ready[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    seconds = int((ends[last] - ready[last]).sum()) / 1e9
    count = len(epochs)
    return Transfers(int(last.sum()) / count, sent / count, seconds / count)


def _fp32_transfer(
    subject: Subject, against: Subject | None, transfers: Transfers | None, link: Mapping[str, Any] | None
) -> tuple[float | None, bool]:
    """Seconds of an epoch that fp32 rows take: measured by the baseline, else latency + bytes/rate of the probed link."""
    if against is not None and against.run.traced:
        epochs = measured_epochs(common_epochs(against.run))
        theirs = _transfers(against.run, epochs) if epochs else None
        if theirs is not None:
            return theirs.seconds, True
    traffic = subject.report.bytes_per_epoch
    if traffic is None or not traffic.fp32_equivalent or link is None or transfers is None:
        return None, False
    per_rank = traffic.fp32_equivalent / subject.run.world_size
    return transfers.exchanges * float(link.get("rtt_s") or 0.0) / 2 + per_rank / float(link["bytes_per_s"]), False


def _ranks(run: Run, parts: Sequence[RankParts], epochs: Sequence[int]) -> tuple[Rank, ...]:
    edges = run.section("partition").get("edges")
    known = edges if isinstance(edges, list) and len(edges) == run.world_size else None
    result = []
    for rank in parts:
        chosen = np.isin(rank.extent.epoch, epochs)
        if not chosen.any():
            continue
        waiting = sum(rank.parts[name][chosen] for name in WAITING)
        busy = rank.extent.length_ns[chosen] - waiting
        result.append(Rank(rank.rank, float(np.median(busy)) / 1e9, int(known[rank.rank]) if known else None))
    return tuple(result)


def _rule(run: Run) -> Rule | None:
    try:
        config = logged_config(run)
    except ValueError:
        return None
    first = run.ranks[0]
    ran = {record.epoch: record for record in first.epochs}
    decided = [decision for decision in first.decisions if decision.epoch > config.delta]
    after = [decision for decision in decided if decision.epoch + 1 in ran]
    wide = [
        (decision.outcome, ran[decision.epoch].base_bits, ran[decision.epoch + 1].base_bits)
        for decision in after
        if config.bits is None and decision.epoch in ran
    ]
    modes = [(decision.outcome, ran[decision.epoch + 1].mode) for decision in after if config.schedule == ADAPTIVE]
    return Rule(
        config=config,
        decided=len(decided),
        true=sum(decision.outcome == TRUE for decision in after),
        false=sum(decision.outcome == FALSE for decision in after),
        bases=tuple(ran[decision.epoch + 1].base_bits for decision in after),
        width_ignored=sum(
            (outcome == TRUE and base <= before < config.max_base) or (outcome == FALSE and base >= before > MIN_BASE)
            for outcome, before, base in wide
        ),
        mode_ignored=sum((o == TRUE and mode == ASYNC) or (o == FALSE and mode != ASYNC) for o, mode in modes),
        async_epochs=sum(record.mode == ASYNC for record in first.epochs),
        forced_sync=sum(decision.forced_sync for decision in after),
    )


def _by_degree(run: Run) -> tuple[Mapping[str, Any], ...]:
    """run.json's buckets of rows by degree; empty when they are absent or of another form."""
    found = run.section("boundary").get("by_degree")
    if not isinstance(found, list):
        return ()
    wanted = ("from_quantile", "rows", "mean_level", "min_degree", "max_degree")
    whole = [b for b in found if isinstance(b, dict) and all(isinstance(b.get(n), int | float) for n in wanted)]
    return tuple(whole) if len(whole) == len(found) else ()
