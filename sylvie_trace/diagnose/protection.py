"""Causes on link 4: what should protect the quality (mask, width, forced synchronisation), and what the run as a whole shows.

What a rule calls *worse* and what *stuck* means differ by rule:

* ``equation``: worse is ldr_t < ldr_{t−δ}. Stuck: no such epoch among many decided ones, or the width does not follow.
* ``prose``: worse is a descent rate −ldr below that of δ epochs ago. Stuck: as above.
* ``window``: worse is |ldr| falling throughout the last δ epochs. Neither case is the usual one and holds everything, so
  stuck means that neither case ever came.
"""

from __future__ import annotations

from collections.abc import Iterator

from sylvie_trace.decision import ADAPTIVE, EQUATION, PROSE, WINDOW
from sylvie_trace.diagnose.facts import Facts
from sylvie_trace.diagnose.traffic import ENOUGH_DECIDED
from sylvie_trace.diagnose.types import Cause

WORSE = {
    EQUATION: "ldr below that of δ epochs ago",
    PROSE: "a descent rate below that of δ epochs ago",
    WINDOW: "|ldr| falling throughout the last δ epochs",
}
_LOSS_ROSE, _FELL_BACK, _LOST = 1.2, 0.05, 0.004
_SYLVIE = "sylvie"


def wrong_mask(facts: Facts) -> Iterator[Cause]:
    """Nodes of higher degree must never have fewer bits than nodes of lower degree."""
    mask, buckets = facts.setting("mask"), facts.by_degree
    if mask in ("shuffled", "shuffled-rows"):
        yield Cause(
            check="mask_control",
            status="note",
            link=4,
            evidence=f"mask {mask} is a control: bits do not follow the degree on purpose",
            remedy="compare with --mask degree: `shuffled-mask`",
        )
        return
    if mask != "degree" or len(buckets) < 2:
        return
    levels = [float(bucket["mean_level"]) for bucket in buckets]
    top, rest = buckets[-1], max(range(len(levels) - 1), key=levels.__getitem__)
    inverted = [i for i in range(1, len(levels)) if levels[i] < max(levels[:i]) - 1e-9]
    if inverted:
        low, high = buckets[rest], buckets[inverted[-1]]
        said = (
            f"rows of in-degree {high['min_degree']} to {high['max_degree']} have mask level {levels[inverted[-1]]:.2f}, those "
            f"of {low['min_degree']} to {low['max_degree']} have {levels[rest]:.2f}"
        )
    elif max(levels) == min(levels) and top["max_degree"] > buckets[0]["min_degree"]:
        said = f"all rows have mask level {levels[0]:.2f}, in-degree {top['max_degree']} as well as {buckets[0]['min_degree']}"
    else:
        return
    yield Cause(
        check="wrong_mask",
        status="warning",
        link=4,
        evidence=f"the mask does not protect high-degree nodes: {said}",
        remedy="look at the extractor's importance and thresholds (boundary.level_counts, --mask-thresholds)",
    )


def stuck_width(facts: Facts) -> Iterator[Cause]:
    """The base width does not move as the rule says."""
    rule = facts.rule
    if rule is None or rule.config.bits is not None:
        return
    if rule.width_ignored:
        where = f"stayed at {rule.bases[0]}" if len(set(rule.bases)) == 1 else "did not move"
        yield Cause(
            check="width_stuck",
            status="warning",
            link=4,
            evidence=f"after {rule.width_ignored} of {rule.true + rule.false} outcomes of the rule the base width {where}",
            remedy="the quantizer's controller is broken: `validate` and `replay` name the epochs",
        )
    elif rule.config.rule == WINDOW and rule.decided >= ENOUGH_DECIDED and not rule.true + rule.false:
        yield Cause(
            check="width_stuck",
            status="warning",
            link=4,
            evidence=(
                f"in {rule.decided} decided epochs |ldr| never fell or rose throughout the last {rule.config.delta}: "
                f"the base width stayed at {rule.bases[0] if rule.bases else 1}"
            ),
            remedy="a smaller --ldr-delta, or --ldr-rule equation",
        )


def sync_never_forced(facts: Facts) -> Iterator[Cause]:
    """Staleness and low widths were never reined in, because the loss never got worse by the rule."""
    rule = facts.rule
    if rule is None or rule.config.rule == WINDOW or rule.decided < ENOUGH_DECIDED or rule.true:
        return
    if rule.config.bits is not None and rule.config.schedule != ADAPTIVE:
        return
    # By the equation a steadily flattening loss is never worse unless epoch times vary: no fault with a constant clock.
    steady = rule.config.rule == EQUATION and rule.config.clock == "constant"
    yield Cause(
        check="sync_never",
        status="note" if steady else "warning",
        link=4,
        evidence=(
            f"the rule ({WORSE[rule.config.rule]}) was true in none of {rule.decided} decided epochs: the width stayed "
            "low and no epoch was forced to be synchronous"
        ),
        remedy="see `replay` with other rules and δ",
    )


def rising_loss(facts: Facts) -> Iterator[Cause]:
    """The smoothed loss ends well above its lowest value, or validation fell back from its best."""
    smoothed = [value for value in facts.subject.report.series.F if value is not None]
    if smoothed and smoothed[-1] > _LOSS_ROSE * min(smoothed) > 0:
        yield Cause(
            check="loss_rose",
            status="warning",
            link=4,
            evidence=f"the smoothed loss ends at {smoothed[-1]:.4g}, {smoothed[-1] / min(smoothed):.2f} times its lowest",
            remedy="a lower --lr; then more bits or --schedule sync, to see whether quantization or staleness does it",
        )
    vals = [record.metrics.get("val") for record in facts.run.ranks[0].epochs]
    known = [value for value in vals if value is not None]
    if known and known[-1] < max(known) - _FELL_BACK:
        yield Cause(
            check="fell_back",
            status="warning",
            link=4,
            evidence=f"validation ends at {known[-1]:.1%}, {100 * (max(known) - known[-1]):.1f} points below its best",
            remedy="more bits or --schedule sync, to see whether quantization or staleness does it",
        )


def lost_quality(facts: Facts) -> Iterator[Cause]:
    """Against a run of an exact system: the test metric, one run each, so within a point it is a note."""
    if facts.against is None:
        return
    mine, theirs = facts.subject.report.quality.test_at_best_val, facts.against.report.quality.test_at_best_val
    if mine is None or theirs is None or mine >= theirs - _LOST:
        return
    yield Cause(
        check="quality_lost",
        status="warning" if mine < theirs - 0.01 else "note",
        link=4,
        evidence=f"test {mine:.2%}, {facts.against.name} has {theirs:.2%}: {100 * (mine - theirs):+.2f} points in one run",
        remedy="`compare` over at least 5 seeds tells whether it is more than chance",
    )


def disabled_axes(facts: Facts) -> Iterator[Cause]:
    """Which of the three axes of the method the configuration turns off; baselines have none by definition."""
    if facts.setting("system") != _SYLVIE or facts.run.world_size == 1:
        return
    axes = (
        ("mask", "off", "data axis", 4, "every boundary node has the same bits", "--mask degree"),
        ("bits", ADAPTIVE, "time axis", 4, "the width never answers to the loss", "--bits adaptive"),
        ("schedule", ADAPTIVE, "execution axis", 3, "staleness never answers to the loss", "--schedule adaptive"),
    )
    for option, value, name, link, effect, remedy in axes:
        chosen = facts.setting(option)
        if (chosen == value) == (option == "mask"):
            yield Cause(
                check=f"axis_off_{option}",
                status="warning",
                link=link,
                evidence=f"the {name} is off ({option} {chosen}): {effect}",
                remedy=f"{remedy}, unless this run is an ablation",
            )


def offline_cost(facts: Facts) -> Iterator[Cause]:
    """Partition and extraction cost more than the training they serve."""
    wall = facts.subject.report.wall_s
    if facts.subject.report.offline_cached or wall.train is None or wall.partition is None or wall.extract is None:
        return
    offline = wall.partition + wall.extract
    if offline > wall.train:
        yield Cause(
            check="offline_cost",
            status="note",
            link=0,
            evidence=f"the offline stage took {offline:.3g} s, training {wall.train:.3g} s",
            remedy="more epochs, or the cached partition of another run on the same graph, pay for it",
        )
