"""What a what-if question asks, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sylvie_trace.decision import ADAPTIVE
from sylvie_trace.schema import ASYNC, SYNC

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
#: Payload of a TCP stream over Ethernet frames of 1500 bytes, as a share of the nominal rate.
GOODPUT_SHARE = 1448 / 1514
_SCHEDULES = (ADAPTIVE, SYNC, ASYNC)
_BITS = (1, 2, 4, 8, 32)


def parse_rate(text: str) -> float:
    """``200mbit`` -> nominal bytes a second. Raises ``ValueError`` for anything else."""
    for unit, factor in _UNITS.items():
        if text.lower().endswith(unit):
            try:
                rate = float(text[: -len(unit)]) * factor / 8
            except ValueError:
                break
            if rate > 0 and math.isfinite(rate):
                return rate
    raise ValueError(f"rate {text!r} is not a number with kbit, mbit or gbit, such as 200mbit")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is to be different; None means as in the run.

    ``goodput`` is the link's payload rate in bytes/s (both directions at once), ``latency_s`` one way, ``burst_bytes`` what
    a shaped link lets through at full speed after a pause. ``bits`` fixes the width of every row (mask off), 32 sends plain
    rows. ``schedule`` ``adaptive`` keeps the run's own sequence of modes.
    """

    goodput: float
    latency_s: float | None = None
    burst_bytes: int = 0
    bits: int | None = None
    schedule: str | None = None
    ranks: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.goodput) and self.goodput > 0):
            raise ValueError(f"a link of {self.goodput} bytes/s carries nothing: give a rate such as 200mbit")
        if self.latency_s is not None and not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise ValueError(f"latency {self.latency_s} s must be a number of seconds from 0 on")
        if self.burst_bytes < 0:
            raise ValueError(f"burst {self.burst_bytes} must be a number of bytes from 0 on")
        if self.bits is not None and self.bits not in _BITS:
            raise ValueError(f"bits {self.bits} is unknown: use one of {', '.join(map(str, _BITS))}")
        if self.schedule is not None and self.schedule not in _SCHEDULES:
            raise ValueError(f"schedule {self.schedule!r} is unknown: use one of {', '.join(_SCHEDULES)}")
        if self.ranks is not None and self.ranks < 2:
            raise ValueError(f"{self.ranks} ranks exchange nothing: ask about 2 or more")


@dataclass(frozen=True)
class Prediction:
    """Seconds of an epoch, mean over the traced epochs that were replayed.

    ``low`` and ``high`` bound what the trace does not determine: the spread of the epochs, how much the codec and the network
    slow down the computation beside them, the link's exact rate, the machine's speed from run to run. ``check_s`` is the
    model's answer for the run as it was, ``measured_s`` what it really took: their difference is the model's error at home.
    ``speedup`` is the model's own time of the run as it was, its work fitted, over ``epoch_s``: 1 when nothing is changed.
    """

    epoch_s: float
    low: float
    high: float
    throughput_epochs_per_s: float
    compute_s: float
    bytes_per_rank: float
    measured_s: float
    check_s: float
    speedup: float
    epochs_replayed: int
    assumptions: tuple[str, ...]
