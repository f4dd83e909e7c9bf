"""Settings compared over repeats: speed against quality, in pairs where runs can be paired.

1. *gate*: runs of different jobs are refused, differences of machine, partition and the like become cautions.
2. *group*: runs that agree in every option of the setting are repeats of one setting; the first run's is the baseline.
3. *pair*: a run and the baseline's with the same seed, data, partition, model and number of parts.
4. *conclude*: speed-up = ratio of mean throughputs beside its Amdahl limit, quality = mean difference of the test metric,
   both with bootstrap intervals; too few repeats, or an interval that settles nothing, is ``inconclusive``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sylvie_trace.groups import Group, group_by_setting, mean, message_bytes, summarise, targets_of, test_metric, with_pareto
from sylvie_trace.job import Objection, Subject, objections
from sylvie_trace.resample import (
    MIN_REPEATS,
    Interval,
    difference_of_means,
    mean_interval,
    ratio_of_means,
)

#: Speeds within 3 % and qualities within 0.4 points are the same for all that a run is for.
SAME_SPEED, SAME_QUALITY = 0.03, 0.004
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Versus:
    """A setting against the baseline. Verdicts: faster, slower, same; better, worse, same; inconclusive."""

    label: str
    pairs: int
    unpaired: int
    speedup: Interval | None
    amdahl_limit: float | None
    speed_verdict: str
    quality: Interval | None
    quality_verdict: str
    bytes_ratio: float | None


@dataclass(frozen=True)
class Comparison:
    """All settings, the baseline first. Quality is the test metric at the best validation epoch, a fraction."""

    metric: str | None
    min_repeats: int
    baseline: str
    groups: tuple[Group, ...]
    versus: tuple[Versus, ...]
    cautions: tuple[Objection, ...]


def compare(subjects: Sequence[Subject]) -> Comparison:
    """Compare runs by setting. ``ValueError`` in one line when there is nothing to compare or it is not one job."""
    against = objections(subjects)
    if against and against[0].refuse:
        raise ValueError(f"these runs cannot be compared: {against[0].evidence}")
    grouped = group_by_setting(subjects)
    if len(grouped) < 2:
        raise ValueError(f"all {len(subjects)} runs have one setting, {next(iter(grouped))}: name runs of another one too")
    first = next(iter(grouped))
    targets = targets_of(grouped[first])
    groups = with_pareto([summarise(label, members, targets) for label, members in grouped.items()])
    share = groups[0].exposed_share
    versus = tuple(_versus(label, members, grouped[first], share) for label, members in grouped.items() if label != first)
    return Comparison(
        metric=subjects[0].report.quality.metric,
        min_repeats=MIN_REPEATS,
        baseline=first,
        groups=groups,
        versus=versus,
        cautions=against,
    )


def _by_pair(members: Sequence[Subject]) -> dict[tuple[object, ...], list[Subject]]:
    result: dict[tuple[object, ...], list[Subject]] = {}
    for member in members:
        result.setdefault(member.pair, []).append(member)
    return result


def _versus(label: str, members: Sequence[Subject], baseline: Sequence[Subject], share: float | None) -> Versus:
    """Paired over the shared pairs; only when there is none at all are the two sides resampled apart."""
    mine, theirs = _by_pair(members), _by_pair(baseline)
    keys = [key for key in mine if key in theirs]
    shared = [mine[key] for key in keys] if keys else [[member] for member in members]
    against = [theirs[key] for key in keys] if keys else [[member] for member in baseline]
    speed = [[mean([m.report.throughput_epochs_per_s for m in run]) for run in side] for side in (shared, against)]
    tests = [[mean([test_metric(m) for m in run]) for run in side] for side in (shared, against)]
    speedup = ratio_of_means(*_known(speed, paired=bool(keys)), paired=bool(keys))
    if keys:
        a, b = _known(tests, paired=True)
        quality = mean_interval([x - y for x, y in zip(a, b, strict=True)])
    else:
        quality = difference_of_means(*_known(tests, paired=False))
    sent, fp32 = mean([message_bytes(m) for m in members]), mean([message_bytes(m) for m in baseline])
    return Versus(
        label=label,
        pairs=len(keys),
        unpaired=len(members) - sum(len(mine[key]) for key in keys),
        speedup=speedup,
        amdahl_limit=1 / (1 - share) if share is not None and share < 1 else None,
        speed_verdict=verdict(speedup, 1.0, SAME_SPEED, ("faster", "slower")),
        quality=quality,
        quality_verdict=verdict(quality, 0.0, SAME_QUALITY, ("better", "worse")),
        bytes_ratio=fp32 / sent if sent and fp32 is not None else None,
    )


def _known(sides: Sequence[Sequence[float | None]], *, paired: bool) -> tuple[list[float], list[float]]:
    """The known values of both sides; paired ones go together."""
    a, b = sides
    if paired:
        both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
        return [x for x, _ in both], [y for _, y in both]
    return [x for x in a if x is not None], [y for y in b if y is not None]


def verdict(found: Interval | None, neutral: float, margin: float, words: tuple[str, str]) -> str:
    """What an interval settles: above or below ``neutral``, within ``margin`` of it, or nothing."""
    if found is None or found.low is None or found.high is None:
        return INCONCLUSIVE
    if found.low >= neutral - margin and found.high <= neutral + margin:
        return "same"
    if found.above(neutral):
        return words[0]
    if found.below(neutral):
        return words[1]
    return INCONCLUSIVE
