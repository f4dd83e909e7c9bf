"""Coordinator: losses and times of all ranks in, one decision out — the same on every rank.

A single all-reduce of a float64 vector with one slot per rank and quantity carries the ranks' losses, times and the hash of
their last decision. Every rank then takes the same step with the same code; hashes that differ stop the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sylvie.exchange.reduce import Reducer, gather_control
from sylvie_trace.decision import Controller, Verdict
from sylvie_trace.schema import SYNC


@dataclass(frozen=True, kw_only=True)
class Coordinated:
    """The global state at the end of an epoch: mean loss, the longest rank's time, what the rule divided by, the verdict."""

    loss: float
    et_wall_s: float
    et_s: float
    verdict: Verdict


class RuleClock:
    """What the rule divides by: the measured time, a constant, or a model of an epoch over a link of a stated rate.

    The model takes one second for the computation and the busiest rank's bytes over the rate for the transfer: the sum of both
    when synchronous, the larger when not. It depends on no measurement, so decisions can be repeated anywhere.
    """

    def __init__(self, kind: str, bytes_per_s: float | None = None) -> None:
        self.kind, self._rate = kind, bytes_per_s

    def et_s(self, wall_s: float, sent_bytes: float, mode: str) -> float:
        """Seconds of an epoch by this clock."""
        if self.kind == "constant":
            return 1.0
        if self.kind == "wall" or self._rate is None:
            return wall_s
        transfer = sent_bytes / self._rate
        return 1.0 + transfer if mode == SYNC else max(1.0, transfer)


class Coordinator:
    """Sums up an epoch over ranks and steps the controller."""

    def __init__(self, controller: Controller, reducer: Reducer, clock: RuleClock) -> None:
        self.controller = controller
        self._reducer, self._clock = reducer, clock

    def close_epoch(self, epoch: int, loss_sum: float, et_s: float, sent_bytes: int, mode: str) -> Coordinated:
        """Close ``epoch`` with this rank's share of the global mean loss, its time and its sent bytes.

        Raises ValueError for a non-finite loss, with the first such rank; RuntimeError when ranks disagree.
        """
        finite = math.isfinite(loss_sum)
        mine = [loss_sum if finite else 0.0, et_s, float(self.controller.digest()), float(sent_bytes), float(not finite)]
        everyone = gather_control(self._reducer, torch.tensor(mine, dtype=torch.float64))
        losses, times, digests, sent, broken = everyone.T
        if bool(broken.any()):
            raise ValueError(
                f"the loss of rank {int(broken.argmax())} is not finite in epoch {epoch}; "
                "lower --lr or look for extreme features"
            )
        if len(set(digests.tolist())) > 1:
            raise RuntimeError(f"ranks took different decisions before epoch {epoch}: hashes {digests.tolist()}")
        wall_s = float(times.max())
        et = self._clock.et_s(wall_s, float(sent.max()), mode)
        loss = float(losses.sum())
        verdict = self.controller.step(epoch, loss, et)
        return Coordinated(loss=loss, et_wall_s=wall_s, et_s=et, verdict=verdict)
