"""The loss-descent-rate rule (§8): live in the coordinator, and again when a run's log is replayed.

``F_0 = L_0``, ``F_t = λ·F_{t−1} + (1 − λ)·L_t``, ``ldr_t = (F_t − F_{t−1}) / et_t``. For t > δ the rule's
outcome moves the base width and the execution mode of the next epoch:

* ``true``: base = min(2·base, the largest base), next epoch synchronous;
* ``false``: base = max(base/2, 1), next epoch asynchronous (a tie is ``false``);
* ``hold``: both stay (t <= δ, or an undecided ``window``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sylvie_trace.schema import ASYNC, SYNC

EQUATION, PROSE, WINDOW = "equation", "prose", "window"
RULES = (EQUATION, PROSE, WINDOW)
CLOCKS = ("wall", "constant", "modelled")
ADAPTIVE = "adaptive"
TRUE, FALSE, HOLD = "true", "false", "hold"
WIDTHS = (1, 2, 4, 8, 32)
MIN_BASE, MAX_BASE = 1, 8  # §8's clamps


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """The rule and which axes it may move.

    ``bits`` None means adaptive, a number fixes the base width; ``schedule`` is ``adaptive``, ``sync`` or
    ``async``. ``smoothing`` is λ in [0, 1), ``delta`` is δ >= 1 epochs. ``clock`` names what the caller
    passes as et and is only recorded. ``max_base`` ends the doubling of an adaptive base; §8 has 8.
    """

    rule: str = EQUATION
    delta: int = 5
    smoothing: float = 0.9
    bits: int | None = None
    schedule: str = ADAPTIVE
    clock: str = "wall"
    max_base: int = MAX_BASE

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"LDR rule {self.rule!r} is unknown: use one of {', '.join(RULES)}")
        if self.clock not in CLOCKS:
            raise ValueError(f"LDR clock {self.clock!r} is unknown: use one of {', '.join(CLOCKS)}")
        if self.delta < 1:
            raise ValueError(f"LDR delta {self.delta} is too small: use at least 1 epoch")
        if self.rule == WINDOW and self.delta < 2:
            raise ValueError("LDR rule 'window' with delta 1 can never act: use a delta of at least 2")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"LDR lambda {self.smoothing} is outside [0, 1): choose a value such as 0.9")
        if self.bits is not None and self.bits not in WIDTHS:
            raise ValueError(f"bit width {self.bits} is unknown: use one of {', '.join(map(str, WIDTHS))}")
        if self.max_base not in (1, 2, 4, 8):
            raise ValueError(f"largest base {self.max_base} is unknown: use 1, 2, 4 or 8")
        if self.schedule not in (ADAPTIVE, SYNC, ASYNC):
            raise ValueError(f"schedule {self.schedule!r} is unknown: use adaptive, sync or async")

    @property
    def description(self) -> str:
        """The rule and its numbers in one line; the largest base only where the width adapts."""
        widths = f"base up to {self.max_base}, " if self.bits is None else ""
        return f"rule {self.rule}, δ {self.delta}, λ {self.smoothing}, {widths}clock {self.clock}"


@dataclass(frozen=True)
class State:
    """The controllers between two epochs: what epoch ``epoch + 1`` will run with, and the rule's memory.

    ``ldrs`` holds the last (at most δ + 1) descent rates, oldest first.
    """

    epoch: int
    smoothed_loss: float | None
    ldrs: tuple[float, ...]
    base: int
    mode: str


@dataclass(frozen=True)
class Verdict:
    """The conclusion of one epoch. ``ldr_reference`` is ldr_{t−δ}, None where nothing was compared to it."""

    smoothed_loss: float
    ldr: float | None
    descent_rate: float | None
    ldr_reference: float | None
    outcome: str
    base_next: int
    mode_next: str
    forced_sync: bool


def initial_state(config: ControllerConfig) -> State:
    """Before epoch 0, which is synchronous under every schedule: there is nothing stale to use."""
    return State(-1, None, (), MIN_BASE if config.bits is None else config.bits, SYNC)


def rule_outcome(config: ControllerConfig, epoch: int, ldrs: tuple[float, ...]) -> str:
    """The rule at ``epoch`` = t on ``ldrs`` = (…, ldr_{t−1}, ldr_t): ``true``, ``false`` or ``hold``.

    equation: ldr_t < ldr_{t−δ}. prose: the same of the descent rate −ldr. window: |ldr| over the last δ
    epochs, non-increasing and not all equal is true, non-decreasing and not all equal is false, else hold.
    """
    if epoch <= config.delta:
        return HOLD
    if config.rule == EQUATION:
        return TRUE if ldrs[-1] < ldrs[-1 - config.delta] else FALSE
    if config.rule == PROSE:
        return TRUE if -ldrs[-1] < -ldrs[-1 - config.delta] else FALSE
    rates = [abs(ldr) for ldr in ldrs[-config.delta :]]
    pairs = list(pairwise(rates))
    falls, rises = any(b < a for a, b in pairs), any(b > a for a, b in pairs)
    if falls == rises:
        return HOLD
    return TRUE if falls else FALSE


def decide(
    config: ControllerConfig, state: State, *, epoch: int, loss: float, et_s: float
) -> tuple[State, Verdict]:
    """Close ``epoch`` with its global loss and its time ``et_s`` (s): the next state, and the verdict.

    Raises ``ValueError`` for a non-finite loss, and for a time that is not a positive finite number.
    """
    assert epoch == state.epoch + 1, f"epoch {epoch} follows epoch {state.epoch}"
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss is {loss} in epoch {epoch}: lower the learning rate or check the features"
        )
    if not (math.isfinite(et_s) and et_s > 0):
        raise ValueError(f"epoch {epoch} took {et_s} s by the rule's clock: it must be a positive number")
    previous = state.smoothed_loss
    ldrs, ldr = state.ldrs, None
    if previous is None:
        smoothed = loss
    else:
        smoothed = config.smoothing * previous + (1 - config.smoothing) * loss
        ldr = (smoothed - previous) / et_s
        ldrs = (*ldrs, ldr)[-(config.delta + 1) :]
    outcome = rule_outcome(config, epoch, ldrs)
    base, mode = state.base, state.mode
    if config.bits is None and outcome != HOLD:
        base = min(2 * base, config.max_base) if outcome == TRUE else max(base // 2, MIN_BASE)
    if config.schedule != ADAPTIVE:
        mode = config.schedule
    elif outcome != HOLD:
        mode = SYNC if outcome == TRUE else ASYNC
    compared = epoch > config.delta and config.rule != WINDOW
    verdict = Verdict(
        smoothed_loss=smoothed,
        ldr=ldr,
        descent_rate=None if ldr is None else -ldr,
        ldr_reference=ldrs[-1 - config.delta] if compared else None,
        outcome=outcome,
        base_next=base,
        mode_next=mode,
        forced_sync=outcome == TRUE and config.schedule == ADAPTIVE,
    )
    return State(epoch, smoothed, ldrs, base, mode), verdict


class Controller:
    """The rule with its state, stepped once an epoch; equal inputs give equal verdicts on every rank."""

    def __init__(self, config: ControllerConfig) -> None:
        self.config = config
        self._state = initial_state(config)

    @property
    def base(self) -> int:
        """Base bit width of the coming epoch."""
        return self._state.base

    @property
    def mode(self) -> str:
        """Execution mode of the coming epoch, ``sync`` or ``async``."""
        return self._state.mode

    def step(self, epoch: int, loss: float, et_s: float) -> Verdict:
        """Close ``epoch`` (see ``decide``); a failing call leaves the state as it was."""
        self._state, verdict = decide(self.config, self._state, epoch=epoch, loss=loss, et_s=et_s)
        return verdict

    def digest(self) -> int:
        """A hash of configuration and state in [0, 2^53): exact in a float64 slot of an all-reduce."""
        text = repr((self.config, self._state)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 11

    def state(self) -> dict[str, Any]:
        """The state as plain numbers and strings, for a checkpoint."""
        state = self._state
        return {
            "epoch": state.epoch,
            "smoothed_loss": state.smoothed_loss,
            "ldrs": list(state.ldrs),
            "base": state.base,
            "mode": state.mode,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a controller with the same configuration."""
        self._state = replace(
            self._state,
            epoch=int(state["epoch"]),
            smoothed_loss=state["smoothed_loss"],
            ldrs=tuple(state["ldrs"]),
            base=int(state["base"]),
            mode=str(state["mode"]),
        )
