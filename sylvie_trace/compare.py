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

from sylvie_trace.breakdown import PARTS
from sylvie_trace.curves import MeanPoint, Point, curve, first_reaching, mean_curve
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
#: Targets of the time-to-quality table, as shares of the baseline's mean best validation metric.
TARGETS = (0.9, 0.95, 0.99)
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Reached:
    """Runs of a setting that reached a validation metric of ``target``; means over those, None when there is none."""

    target: float
    runs: int
    of: int
    time_s: float | None
    bytes: float | None


@dataclass(frozen=True)
class Group:
    """The repeats of one setting. ``pareto``: no other setting is both faster and better in the mean."""

    label: str
    setting: dict[str, object]
    runs: tuple[str, ...]
    seeds: tuple[int | None, ...]
    throughput_epochs_per_s: float | None
    epoch_s: float | None
    bytes_per_epoch: float | None
    best_val: float | None
    test: float | None
    test_std: float | None
    exposed_share: float | None
    pareto: bool
    reached: tuple[Reached, ...]
    curve: tuple[MeanPoint, ...]


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
    grouped = _grouped(subjects)
    if len(grouped) < 2:
        raise ValueError(f"all {len(subjects)} runs have one setting, {next(iter(grouped))}: name runs of another one too")
    first = next(iter(grouped))
    targets = _targets(grouped[first])
    groups = _with_pareto([_group(label, members, targets) for label, members in grouped.items()])
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


def _grouped(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
    """Runs by setting; a label is the system and the options in which settings of that system differ."""
    by_system: dict[str, list[Subject]] = {}
    for subject in subjects:
        by_system.setdefault(str(subject.setting.get("system")), []).append(subject)
    differing = {}
    for system, members in by_system.items():
        names = dict.fromkeys(name for member in members for name in member.setting)
        differing[system] = [n for n in names if len({str(m.setting.get(n)) for m in members}) > 1]
    grouped: dict[str, list[Subject]] = {}
    for subject in subjects:
        setting = subject.setting
        system = str(setting.get("system"))
        label = ", ".join((system, *(f"{name} {setting.get(name)}" for name in differing[system])))
        grouped.setdefault(label, []).append(subject)
    return grouped


def _quality(subject: Subject) -> float | None:
    """The test metric at the best validation epoch, else after the last one; None for an unfinished run."""
    if not subject.run.complete:
        return None
    quality = subject.report.quality
    return quality.final_test if quality.test_at_best_val is None else quality.test_at_best_val


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _std(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    mean = sum(known) / len(known)
    return float((sum((value - mean) ** 2 for value in known) / (len(known) - 1)) ** 0.5)


def exposed_share(subject: Subject) -> float | None:
    """Share of an epoch in which the main thread stands still for rows: exposed wait and transfer."""
    parts = subject.report.breakdown_s
    if parts is None:
        return None
    epoch_s = sum(getattr(parts, name) for name in PARTS[:8])
    return (parts.exposed_wait + parts.exposed_transfer) / epoch_s if epoch_s > 0 else None


def _bytes(subject: Subject) -> float | None:
    traffic = subject.report.bytes_per_epoch
    return None if traffic is None else traffic.main + traffic.meta + traffic.header


def _targets(baseline: Sequence[Subject]) -> tuple[float, ...]:
    best = _mean([subject.report.quality.best_val for subject in baseline])
    return tuple(share * best for share in TARGETS) if best is not None else ()


def _group(label: str, members: Sequence[Subject], targets: Sequence[float]) -> Group:
    curves = [curve(member.run) for member in members]
    tests = [_quality(member) for member in members]
    return Group(
        label=label,
        setting=dict(members[0].setting),
        runs=tuple(member.name for member in members),
        seeds=tuple(member.report.run.seed for member in members),
        throughput_epochs_per_s=_mean([member.report.throughput_epochs_per_s for member in members]),
        epoch_s=_mean([m.report.epoch_time_s.mean if m.report.epoch_time_s else None for m in members]),
        bytes_per_epoch=_mean([_bytes(member) for member in members]),
        best_val=_mean([member.report.quality.best_val for member in members]),
        test=_mean(tests),
        test_std=_std(tests),
        exposed_share=_mean([exposed_share(member) for member in members]),
        pareto=False,
        reached=tuple(_reached(curves, target) for target in targets),
        curve=mean_curve(curves),
    )


def _reached(curves: Sequence[Sequence[Point]], target: float) -> Reached:
    found = [point for one in curves if (point := first_reaching(one, target)) is not None]
    return Reached(
        target=target,
        runs=len(found),
        of=len(curves),
        time_s=_mean([point.time_s for point in found]),
        bytes=_mean([float(point.bytes) for point in found]),
    )


def _with_pareto(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Marks the settings that no other one beats in speed and quality at once."""

    def at(group: Group) -> tuple[float, float] | None:
        if group.throughput_epochs_per_s is None or group.test is None:
            return None
        return group.throughput_epochs_per_s, group.test

    def beaten(mine: tuple[float, float]) -> bool:
        others = [place for group in groups if (place := at(group)) is not None]
        return any(a >= mine[0] and b >= mine[1] and (a, b) != mine for a, b in others)

    result = []
    for group in groups:
        mine = at(group)
        result.append(Group(**{**group.__dict__, "pareto": mine is not None and not beaten(mine)}))
    return tuple(result)


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
    speed = [[_mean([m.report.throughput_epochs_per_s for m in run]) for run in side] for side in (shared, against)]
    tests = [[_mean([_quality(m) for m in run]) for run in side] for side in (shared, against)]
    speedup = ratio_of_means(*_known(speed, paired=bool(keys)), paired=bool(keys))
    if keys:
        a, b = _known(tests, paired=True)
        quality = mean_interval([x - y for x, y in zip(a, b, strict=True)])
    else:
        quality = difference_of_means(*_known(tests, paired=False))
    sent, fp32 = _mean([_bytes(m) for m in members]), _mean([_bytes(m) for m in baseline])
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
