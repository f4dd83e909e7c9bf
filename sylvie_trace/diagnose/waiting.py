"""Causes on link 3: who waits for whom, and whether asynchronous epochs get their chance to hide it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from sylvie_trace.decision import ADAPTIVE
from sylvie_trace.diagnose.facts import Facts, Rank
from sylvie_trace.diagnose.traffic import COSTLY, NOTED
from sylvie_trace.diagnose.types import Cause
from sylvie_trace.schema import ASYNC

#: A rank that works this much longer than the others is slow, one with so many more edges is overloaded; an epoch that spends
#: so much in the codec is bound by it.
_SLOW_RANK, _IMBALANCED, _ENCODE_BOUND = 1.3, 1.2, 0.2
#: δ is slow when the rule has not acted in at least half of the epochs.
_SLOW_DELTA = 0.5


def slow_rank(facts: Facts) -> Iterator[Cause]:
    """One rank works longer than the others: because it has more edges, or because it is slower at the same work."""
    if len(facts.ranks) < 2:
        return
    slow = max(facts.ranks, key=lambda rank: rank.busy_s)
    others = [rank for rank in facts.ranks if rank is not slow]
    usual = statistics.median(rank.busy_s for rank in others)
    if usual <= 0 or slow.busy_s < _SLOW_RANK * usual:
        return
    ratio, work = slow.busy_s / usual, _work(slow, others)
    if work is not None and ratio < _SLOW_RANK * work:
        if work >= _IMBALANCED:
            yield Cause(
                check="imbalance",
                status="warning",
                link=3,
                evidence=f"rank {slow.rank} works {ratio:.2f} times as long as the others, with {work:.2f} times the edges",
                remedy="another --partition-seed, or a partition that balances edges",
            )
        return
    more = "" if work is None else f" on {work:.2f} times the edges"
    yield Cause(
        check="slow_rank",
        status="warning",
        link=3,
        evidence=(
            f"rank {slow.rank} works {slow.busy_s * 1e3:.1f} ms an epoch, the others {usual * 1e3:.1f} ms: "
            f"{ratio:.2f} times as long{more}; every other rank waits for it"
        ),
        remedy=f"look at the machine of rank {slow.rank}: other work, fewer cores, a lower clock",
    )


def _work(slow: Rank, others: list[Rank]) -> float | None:
    """Edges of the slow rank over the others' median."""
    edges = [rank.edges for rank in others if rank.edges]
    return slow.edges / statistics.median(edges) if slow.edges and edges else None


def encode_bound(facts: Facts) -> Iterator[Cause]:
    """Encoding and decoding cost as much as they save."""
    parts = facts.parts_s
    if not parts:
        return
    codec = parts["encode"] + parts["decode"]
    hidden = parts["encode_hidden"] + parts["decode_hidden"]
    share = facts.share(codec + hidden)
    if share is None or share < _ENCODE_BOUND:
        return
    yield Cause(
        check="encode_bound",
        status="warning",
        link=3,
        evidence=(
            f"encoding and decoding take {codec * 1e3:.1f} ms of an epoch on the main thread and {hidden * 1e3:.1f} ms "
            f"behind it, {share:.0%} of its length"
        ),
        remedy="a core for the background thread, or plain rows (--bits 32) where the link is fast",
    )


def slow_delta(facts: Facts) -> Iterator[Cause]:
    """δ so large that the run is half over before the rule may act."""
    rule, epochs = facts.rule, facts.subject.report.run.epochs
    if rule is None or (rule.config.bits is not None and rule.config.schedule != ADAPTIVE) or not epochs:
        return
    if facts.run.world_size == 1:  # nothing waits
        return
    if rule.decided < _SLOW_DELTA * epochs:
        yield Cause(
            check="delta_slow",
            status="warning",
            link=3,
            evidence=(
                f"the rule decided {rule.decided} of {epochs} epochs: before epoch {rule.config.delta + 1} (δ = "
                f"{rule.config.delta}) everything is synchronous at base 1"
            ),
            remedy="a smaller --ldr-delta (5 for quality, 20 for speed), or more epochs",
        )


def stuck_mode(facts: Facts) -> Iterator[Cause]:
    """Asynchronous epochs never come, or do not come when the rule calls for them."""
    rule = facts.rule
    if rule is None or rule.config.schedule != ADAPTIVE:
        return
    if rule.mode_ignored:
        yield Cause(
            check="mode_stuck",
            status="warning",
            link=3,
            evidence=f"after {rule.mode_ignored} of {rule.true + rule.false} outcomes the mode did not follow the rule",
            remedy="the pipeline's switch is broken: `validate` and `replay` name the epochs",
        )
    elif rule.true >= 10 and rule.false == 0 and not rule.async_epochs:
        yield Cause(
            check="never_async",
            status="warning",
            link=3,
            evidence=f"the rule was true in all {rule.true} epochs it decided: no epoch ran {ASYNC}",
            remedy="see the replay with a constant clock: is the rule driven by epoch times?",
        )


def uncovered(facts: Facts) -> bool:
    """Whether asynchronous epochs still wait for rows to an extent that costs."""
    share = facts.async_exposed_share
    return share is not None and share >= COSTLY


def waits_at_all(facts: Facts) -> bool:
    """Whether there is any waiting that asynchronous epochs could cover."""
    shares = [share for share in (facts.sync_exposed_share, facts.async_exposed_share) if share is not None]
    return any(share >= NOTED for share in shares)
