"""Does it matter *which* nodes get more bits? The degree mask against its shuffles, at equal numbers of wide nodes.

A shuffled mask has as many nodes at every level, drawn without regard to degree. ``shuffled`` permutes over the whole
pool; nodes of high degree go to more ranks, so it also sends fewer bytes. ``shuffled-rows`` permutes among nodes with
equal numbers of receiving ranks and sends the same bytes: it is the cleaner control. Both run at a fixed base of 1 and 2
bits, synchronously, so that neither width nor staleness answers to the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sylvie_trace.groups import mean, message_bytes, test_metric
from sylvie_trace.job import Objection, Subject, objections
from sylvie_trace.resample import Interval, detectable, mean_interval, power, sign_flip_p_value, smallest_p_value

NOTICE = "a diagnostic of this project, not a result of the paper"
DEGREE, CONTROLS, BASES = "degree", ("shuffled", "shuffled-rows"), ("1", "2")
#: With fewer pairs no sign-flip test can give a p-value below 0.05: 2 / 2^5 = 0.0625.
MIN_PAIRS = 6
ALPHA, SAME = 0.05, 0.004
#: Differences that change how fast a run is, and nothing that is looked at here.
_SPEED_ONLY = ("machine", "link", "tracing")


@dataclass(frozen=True)
class Effect:
    """Degree minus control at one base width, paired by seed; qualities and effects are fractions.

    ``p_value`` is two-sided by sign flips, ``p_holm`` corrected for the number of comparisons. ``power`` is the chance to
    notice a true effect of ``SAME`` with these pairs; ``detectable`` the effect that would be noticed with a chance of
    80 %. ``bytes_ratio`` = bytes of the degree mask over the control's.
    """

    base: str
    control: str
    pairs: int
    degree: float
    shuffled: float
    effect: Interval
    p_value: float
    p_holm: float
    smallest_p: float
    power: float
    detectable: float | None
    bytes_degree: float | None
    bytes_control: float | None
    bytes_ratio: float | None
    verdict: str


@dataclass(frozen=True)
class ShuffledMask:
    """The effects found, what was not run, and what must be borne in mind."""

    notice: str
    metric: str | None
    min_pairs: int
    effects: tuple[Effect, ...]
    missing: tuple[str, ...]
    cautions: tuple[Objection, ...]


def shuffled_mask(subjects: Sequence[Subject]) -> ShuffledMask:
    """Compare the masks. ``ValueError`` in one line for runs that do not belong here, and for too few pairs."""
    for subject in subjects:
        _check(subject)
    against = objections(subjects)
    hard = [each for each in against if each.refuse or each.fact in ("partition", "parts")]
    if hard:
        raise ValueError(f"the masks cannot be compared: {hard[0].evidence}")
    _check_levels(subjects)
    effects, missing = [], []
    for base in BASES:
        for control in CONTROLS:
            pairs = _pairs(subjects, base, control)
            if not pairs:
                missing.append(f"no pair of {DEGREE} and {control} at base {base}")
            elif len(pairs) < MIN_PAIRS:
                raise ValueError(
                    f"{len(pairs)} pairs of {DEGREE} and {control} at base {base}: at least {MIN_PAIRS} seeds are needed "
                    f"(with {len(pairs)} no p-value can be below {smallest_p_value(len(pairs)):.3g})"
                )
            else:
                effects.append(_effect(base, control, pairs))
    if not effects:
        raise ValueError(f"nothing can be paired: run --mask {DEGREE} and --mask {CONTROLS[1]} with equal seeds, --bits 1")
    return ShuffledMask(
        notice=NOTICE,
        metric=subjects[0].report.quality.metric,
        min_pairs=MIN_PAIRS,
        effects=_corrected(effects),
        missing=tuple(missing),
        cautions=tuple(each for each in against if each.fact not in _SPEED_ONLY),
    )


def _option(subject: Subject, name: str) -> str:
    described: Mapping[str, object] = subject.run.section("describes")
    return str(described.get(name, subject.config.get(name)))


def _check(subject: Subject) -> None:
    wanted = (("mask", (DEGREE, *CONTROLS)), ("bits", BASES), ("schedule", ("sync",)))
    for name, values in wanted:
        if _option(subject, name) not in values:
            raise ValueError(
                f"{subject.name} has {name} {_option(subject, name)}: this diagnostic takes runs with --{name} "
                f"{' or '.join(values)}"
            )
    if not subject.run.complete:
        raise ValueError(f"{subject.name} did not finish: leave it out")
    if test_metric(subject) is None:
        raise ValueError(f"{subject.name} has no test metric: it cannot be compared")


def _check_levels(subjects: Sequence[Subject]) -> None:
    """A shuffle keeps the number of nodes at every level; otherwise the mean width is what is compared."""
    counts = {tuple(subject.report.boundary.level_counts or ()) for subject in subjects}
    if len(counts) > 1:
        shown = " and ".join(str(list(each)) for each in sorted(counts)[:2])
        raise ValueError(f"the masks have different numbers of nodes at each level, {shown}: use equal thresholds")


def _pairs(subjects: Sequence[Subject], base: str, control: str) -> list[tuple[list[Subject], list[Subject]]]:
    """(degree, control) runs of equal seed; several shuffles of one seed belong to one pair."""
    sides: dict[str, dict[tuple[object, ...], list[Subject]]] = {DEGREE: {}, control: {}}
    for subject in subjects:
        mask = _option(subject, "mask")
        if mask in sides and _option(subject, "bits") == base:
            sides[mask].setdefault(subject.pair, []).append(subject)
    return [(runs, sides[control][pair]) for pair, runs in sides[DEGREE].items() if pair in sides[control]]


def _effect(base: str, control: str, pairs: Sequence[tuple[list[Subject], list[Subject]]]) -> Effect:
    sides = [[mean([test_metric(run) for run in pair[side]]) or 0.0 for pair in pairs] for side in (0, 1)]
    differences = [degree - other for degree, other in zip(*sides, strict=True)]
    effect = mean_interval(differences)
    assert effect is not None
    middle = effect.estimate
    std = (sum((d - middle) ** 2 for d in differences) / (len(pairs) - 1)) ** 0.5
    sent = [mean([message_bytes(run) for pair in pairs for run in pair[side]]) for side in (0, 1)]
    return Effect(
        base=base,
        control=control,
        pairs=len(pairs),
        degree=sum(sides[0]) / len(pairs),
        shuffled=sum(sides[1]) / len(pairs),
        effect=effect,
        p_value=sign_flip_p_value(differences),
        p_holm=1.0,
        smallest_p=smallest_p_value(len(pairs)),
        power=power(SAME, std, len(pairs), alpha=ALPHA),
        detectable=detectable(std, len(pairs), alpha=ALPHA),
        bytes_degree=sent[0],
        bytes_control=sent[1],
        bytes_ratio=sent[0] / sent[1] if sent[0] is not None and sent[1] else None,
        verdict="",
    )


def _corrected(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Holm's correction over the comparisons made, and the verdicts by it."""
    order = sorted(range(len(effects)), key=lambda place: effects[place].p_value)
    corrected, least = [1.0] * len(effects), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(effects) - rank) * effects[place].p_value))
        corrected[place] = least
    return tuple(
        Effect(**{**effect.__dict__, "p_holm": p, "verdict": _verdict(effect, p)})
        for effect, p in zip(effects, corrected, strict=True)
    )


def _verdict(effect: Effect, p: float) -> str:
    found = effect.effect
    if p < ALPHA:
        return "high-degree nodes deserve the bits" if found.estimate > 0 else "other nodes deserve the bits more"
    if found.above(-SAME) and found.below(SAME):
        return f"no difference beyond {100 * SAME:.1f} points"
    return "inconclusive"
