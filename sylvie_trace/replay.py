"""The controllers replayed from a run's log: the same losses and times through the same rule, or another one.

A replay is open loop: the logged losses and times are what they were under the decisions really taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sylvie_trace.decision import ADAPTIVE, Controller, ControllerConfig, Verdict
from sylvie_trace.reader import Run
from sylvie_trace.schema import Decision, Epoch

#: The time of every epoch under the constant clock, s: only ratios matter to the rule.
CONSTANT_S = 1.0


@dataclass(frozen=True)
class Replay:
    """A replay beside the log.

    ``decided`` counts the epochs t > δ, where the rule acts; ``differ`` those whose outcome is another one
    in the log; ``differs_share`` their share, None when nothing was decided. ``verdicts``: one an epoch.
    """

    config: ControllerConfig
    decided: int
    differ: int
    first_difference: int | None
    verdicts: tuple[Verdict, ...]

    @property
    def mean_base(self) -> float | None:
        """Mean base width of the epochs under the replayed verdicts, bits; epoch 0 excepted, which no verdict precedes."""
        bases = [verdict.base_next for verdict in self.verdicts[:-1]]
        return sum(bases) / len(bases) if bases else None

    @property
    def differs_share(self) -> float | None:
        """Share of the decisions that differ."""
        return self.differ / self.decided if self.decided else None


def logged_config(run: Run) -> ControllerConfig:
    """The controllers' configuration, from the decision records and run.json.

    Raises ``ValueError`` when the log has no decision.
    """
    decisions = run.ranks[0].decisions
    if not decisions:
        raise ValueError(f"{run.path} logs no decision: nothing can be replayed")
    first = decisions[0]
    settings = {**run.section("config"), **run.section("describes")}
    bits, schedule = str(settings.get("bits", ADAPTIVE)), str(settings.get("schedule", ADAPTIVE))
    return ControllerConfig(
        rule=first.rule,
        delta=first.delta,
        smoothing=first.smoothing,
        clock=first.clock,
        max_base=first.max_base,
        bits=int(bits) if bits.isdigit() else None,
        schedule=schedule if schedule in ("sync", "async") else ADAPTIVE,
    )


def replay(
    run: Run,
    *,
    rule: str | None = None,
    delta: int | None = None,
    smoothing: float | None = None,
    max_base: int | None = None,
    constant_clock: bool = False,
) -> Replay:
    """Replay rank 0's log, with another rule, δ, λ, largest base or a constant clock where given.

    Raises ``ValueError`` when there is nothing to replay or a loss is missing.
    """
    config = logged_config(run)
    if max_base is not None and config.bits is not None:
        raise ValueError(f"--max-base has no effect: the width of this run is fixed at {config.bits} bits; leave it out")
    config = replace(
        config,
        rule=config.rule if rule is None else rule,
        delta=config.delta if delta is None else delta,
        smoothing=config.smoothing if smoothing is None else smoothing,
        max_base=config.max_base if max_base is None else max_base,
        clock="constant" if constant_clock else config.clock,
    )
    epochs, decisions = run.ranks[0].epochs, run.ranks[0].decisions
    verdicts = replay_epochs(config, epochs, constant_clock=constant_clock)
    logged = {decision.epoch: decision for decision in decisions}
    decided, different = 0, []
    for epoch, verdict in enumerate(verdicts):
        decision = logged.get(epoch)
        if decision is None or epoch <= min(decision.delta, config.delta):
            continue
        decided += 1
        if verdict.outcome != decision.outcome:
            different.append(epoch)
    return Replay(config, decided, len(different), different[0] if different else None, verdicts)


def replay_epochs(
    config: ControllerConfig, epochs: Sequence[Epoch], *, constant_clock: bool = False
) -> tuple[Verdict, ...]:
    """The verdicts of ``config`` on logged losses and times; epochs must run from 0 without a gap."""
    controller = Controller(config)
    verdicts = []
    for index, record in enumerate(epochs):
        if record.epoch != index:
            raise ValueError(f"epoch {index} is missing from the log: a replay needs every epoch from 0")
        if record.loss is None:
            raise ValueError(f"the loss of epoch {index} is not in the log: a replay needs every loss")
        et_s = CONSTANT_S if constant_clock else record.et_s
        verdicts.append(controller.step(index, record.loss, et_s))
    return tuple(verdicts)


def first_mismatch(run: Run) -> str | None:
    """The first logged decision that its own rule does not give, as one line; None when all agree.

    Every rank's decisions are compared, bit for bit.
    """
    config = logged_config(run)
    for trace in run.ranks:
        verdicts = replay_epochs(config, trace.epochs)
        for decision in trace.decisions:
            if decision.epoch >= len(verdicts):
                continue  # a kill fell between the decision's record and the epoch's
            if _conclusion(verdicts[decision.epoch]) != _logged(decision):
                return (
                    f"rank {trace.rank}, epoch {decision.epoch}: the log says {_logged(decision)}, "
                    f"the rule gives {_conclusion(verdicts[decision.epoch])}"
                )
    return None


def _conclusion(verdict: Verdict) -> tuple[float | None, float | None, str, int, str, bool]:
    return (
        verdict.ldr,
        verdict.ldr_reference,
        verdict.outcome,
        verdict.base_next,
        verdict.mode_next,
        verdict.forced_sync,
    )


def _logged(decision: Decision) -> tuple[float | None, float | None, str, int, str, bool]:
    return (
        decision.ldr,
        decision.ldr_reference,
        decision.outcome,
        decision.base_after,
        decision.mode_after,
        decision.forced_sync,
    )
