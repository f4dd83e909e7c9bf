"""Every rule that can name a cause, and the order in which causes are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sylvie_trace.diagnose import protection, traffic, waiting
from sylvie_trace.diagnose.facts import Facts
from sylvie_trace.diagnose.types import Cause

_RULES: tuple[Callable[[Facts], Iterator[Cause]], ...] = (
    traffic.bytes_that_did_not_fall,
    traffic.width_pinned_high,
    traffic.metadata_heavy,
    traffic.many_messages,
    traffic.slow_link,
    traffic.slower_than_probed,
    traffic.little_to_gain,
    traffic.large_boundary,
    waiting.slow_rank,
    waiting.encode_bound,
    waiting.slow_delta,
    waiting.stuck_mode,
    protection.wrong_mask,
    protection.stuck_width,
    protection.sync_never_forced,
    protection.rising_loss,
    protection.lost_quality,
    protection.disabled_axes,
    protection.offline_cost,
)


def find_causes(facts: Facts) -> tuple[Cause, ...]:
    """All causes: warnings first, along the chain."""
    found = [cause for rule in _RULES for cause in rule(facts)]
    return tuple(sorted(found, key=lambda cause: (cause.status != "warning", cause.link or 9)))
