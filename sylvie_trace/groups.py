"""The repeats of one setting and what they come to: speed, bytes, quality, curves, the place on the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sylvie_trace.breakdown import PARTS
from sylvie_trace.curves import MeanPoint, Point, curve, first_reaching, mean_curve
from sylvie_trace.job import Subject

#: Targets of the time-to-quality table, as shares of the baseline's mean best validation metric.
TARGETS = (0.9, 0.95, 0.99)


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


def group_by_setting(subjects: Sequence[Subject]) -> dict[str, list[Subject]]:
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


def test_metric(subject: Subject) -> float | None:
    """The test metric at the best validation epoch, else after the last one; None for an unfinished run."""
    if not subject.run.complete:
        return None
    found = subject.report.quality
    return found.final_test if found.test_at_best_val is None else found.test_at_best_val


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _std(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    middle = sum(known) / len(known)
    return float((sum((value - middle) ** 2 for value in known) / (len(known) - 1)) ** 0.5)


def exposed_share(subject: Subject) -> float | None:
    """Share of an epoch in which the main thread stands still for rows: exposed wait and transfer."""
    parts = subject.report.breakdown_s
    if parts is None:
        return None
    epoch_s = sum(getattr(parts, name) for name in PARTS[:8])
    return (parts.exposed_wait + parts.exposed_transfer) / epoch_s if epoch_s > 0 else None


def message_bytes(subject: Subject) -> float | None:
    """Bytes of messages per measured epoch, all ranks; weight gradients left out."""
    traffic = subject.report.bytes_per_epoch
    return None if traffic is None else traffic.main + traffic.meta + traffic.header


def targets_of(baseline: Sequence[Subject]) -> tuple[float, ...]:
    """Validation metrics that the time-to-quality table asks for."""
    best = mean([subject.report.quality.best_val for subject in baseline])
    return tuple(share * best for share in TARGETS) if best is not None else ()


def summarise(label: str, members: Sequence[Subject], targets: Sequence[float]) -> Group:
    """The figures of a setting's runs."""
    curves = [curve(member.run) for member in members]
    tests = [test_metric(member) for member in members]
    return Group(
        label=label,
        setting=dict(members[0].setting),
        runs=tuple(member.name for member in members),
        seeds=tuple(member.report.run.seed for member in members),
        throughput_epochs_per_s=mean([member.report.throughput_epochs_per_s for member in members]),
        epoch_s=mean([m.report.epoch_time_s.mean if m.report.epoch_time_s else None for m in members]),
        bytes_per_epoch=mean([message_bytes(member) for member in members]),
        best_val=mean([member.report.quality.best_val for member in members]),
        test=mean(tests),
        test_std=_std(tests),
        exposed_share=mean([exposed_share(member) for member in members]),
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
        time_s=mean([point.time_s for point in found]),
        bytes=mean([float(point.bytes) for point in found]),
    )


def with_pareto(groups: Sequence[Group]) -> tuple[Group, ...]:
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
        result.append(replace(group, pareto=mine is not None and not beaten(mine)))
    return tuple(result)
