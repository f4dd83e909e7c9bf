"""The four links, each judged by its own evidence and by the causes that were found on it."""

from __future__ import annotations

from collections.abc import Sequence

from sylvie_trace.decision import ADAPTIVE
from sylvie_trace.diagnose.facts import Facts
from sylvie_trace.diagnose.traffic import NOTED
from sylvie_trace.diagnose.types import Cause, Link
from sylvie_trace.diagnose.waiting import uncovered, waits_at_all
from sylvie_trace.schema import SYNC

#: A volume that fell is at most this share of fp32's, a time that fell at most this share of fp32's.
_FELL = 0.6


def judge(facts: Facts, causes: Sequence[Cause]) -> tuple[Link, ...]:
    """Links 1 to 4. A warning on a link breaks it where the link does not break by its own evidence."""
    return (
        _link(1, "the boundary's volume falls", *_volume(facts), causes),
        _link(2, "communication takes less time", *_time(facts), causes),
        _link(3, "asynchronous epochs cover the waiting", *_cover(facts), causes),
        _link(4, "mask, width and forced synchronisation protect the quality", *_protect(facts), causes),
    )


def _link(number: int, name: str, status: str, evidence: str, causes: Sequence[Cause]) -> Link:
    faults = [cause for cause in causes if cause.link == number and cause.status == "warning" and _breaks(cause)]
    if faults and status in ("holds", "idle", "unknown"):
        status = "broken"
        evidence = f"{evidence}; {faults[0].evidence}"
    return Link(number=number, name=name, status=status, evidence=evidence)


def _breaks(cause: Cause) -> bool:
    """A fixed axis is a choice; metadata and a large boundary weaken a link that its own numbers judge."""
    return not cause.check.startswith("axis_off") and cause.check not in ("metadata", "boundary_share")


def _volume(facts: Facts) -> tuple[str, str]:
    traffic = facts.subject.report.bytes_per_epoch
    if traffic is None or traffic.fp32_equivalent is None:
        return "unknown", "the bytes of fp32 rows are not known: no measured epoch, or no message records"
    if traffic.fp32_equivalent == 0:
        return "idle", "nothing is exchanged"
    sent = traffic.main + traffic.meta + traffic.header
    evidence = (
        f"{sent / 1e6:.4g} MB an epoch, {traffic.fp32_equivalent / sent:.2f} times less than fp32 rows "
        f"({traffic.meta / sent:.0%} of it metadata)"
    )
    if facts.setting("bits") == "32":
        return "off", f"rows travel in full precision: {sent / 1e6:.4g} MB an epoch"
    return ("holds" if sent <= _FELL * traffic.fp32_equivalent else "broken"), evidence


def _time(facts: Facts) -> tuple[str, str]:
    found, fp32 = facts.transfers, facts.fp32_transfer_s
    if found is None or fp32 is None or facts.epoch_s is None or facts.exposed_s is None:
        return "unknown", "times on the wire, or the link's rate, are not recorded"
    how = "measured" if facts.fp32_measured else "estimated from the probed link"
    evidence = f"{found.seconds * 1e3:.3g} ms an epoch on the wire, fp32 rows {fp32 * 1e3:.3g} ms ({how})"
    if facts.setting("bits") == "32":
        return "off", evidence
    if fp32 / (facts.epoch_s - facts.exposed_s + fp32) < NOTED:
        return "idle", f"{evidence}: too small a part of an epoch to matter"
    return ("holds" if found.seconds <= _FELL * fp32 else "broken"), evidence


def _cover(facts: Facts) -> tuple[str, str]:
    ahead, behind = facts.sync_exposed_share, facts.async_exposed_share
    if ahead is None and behind is None:
        return "unknown", "times of waiting are not recorded"
    shown = [f"{share:.1%} of {name} epochs" for name, share in (("sync", ahead), ("async", behind)) if share is not None]
    evidence = f"waiting for rows takes {' and '.join(shown)}"
    if facts.setting("schedule") == SYNC:
        return "off", f"{evidence}; no epoch may run ahead (schedule sync)"
    if uncovered(facts):
        return "broken", f"{evidence}: a transfer takes longer than there is to compute"
    if not waits_at_all(facts):
        return "idle", f"{evidence}: there is little to cover"
    if behind is None:
        return "unknown", f"{evidence}; no measured epoch ran asynchronously"
    return "holds", evidence


def _protect(facts: Facts) -> tuple[str, str]:
    quality, rule = facts.subject.report.quality, facts.rule
    parts = []
    if facts.by_degree and facts.setting("mask") == "degree":
        top = facts.by_degree[-1]
        parts.append(f"rows above in-degree {top['min_degree']} have mask level {float(top['mean_level']):.2f}")
    if rule is not None and rule.config.bits is None and rule.bases:
        parts.append(f"base width {min(rule.bases)} to {max(rule.bases)}, mean {sum(rule.bases) / len(rule.bases):.2f}")
    if rule is not None and rule.config.schedule == ADAPTIVE:
        parts.append(f"{rule.forced_sync} epochs forced to be synchronous")
    if quality.test_at_best_val is not None:
        parts.append(f"test {quality.test_at_best_val:.2%}")
    evidence = "; ".join(parts) if parts else "nothing of it is recorded"
    if facts.setting("system") != "sylvie":
        return "off", evidence
    if not any(option == ADAPTIVE for option in (facts.setting("bits"), facts.setting("schedule"))):
        return "off", f"{evidence}; both width and schedule are fixed"
    return ("holds" if facts.rule is not None and facts.rule.decided else "unknown"), evidence
