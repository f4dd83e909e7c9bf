"""A guess at more or fewer ranks, which a trace of N ranks cannot know: another partition has another boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sylvie_trace.whatif.program import WORK, Site
from sylvie_trace.whatif.simulate import Cost, Step


def more_ranks(steps: Sequence[Sequence[Step]], ranks: int) -> list[list[Step]]:
    """``ranks`` programs made of those traced: work shrinks as n/N, each rank's boundary rows as √(n/N).

    Between a boundary that stays with the rank (each part keeps its surface) and one that shrinks with it (n/N).
    """
    share = len(steps) / ranks
    surface = share**0.5
    result = []
    for rank in range(ranks):
        own = steps[rank % len(steps)]
        result.append([_scaled(step, share, surface, ranks, len(steps)) for step in own])
    return result


def _scaled(step: Step, work: float, surface: float, ranks: int, before: int) -> Step:
    costs: dict[Site, Cost] = {
        site: Cost(cost.encode_s * surface, cost.decode_s * surface, cost.bytes * surface) for site, cost in step.costs.items()
    }
    ring = ((ranks - 1) / ranks) / ((before - 1) / before)
    ops = tuple(replace(op, seconds=op.seconds * work) if op.kind == WORK else op for op in step.ops)
    return replace(step, ops=ops, costs=costs, gradient_bytes=tuple(size * ring for size in step.gradient_bytes))
