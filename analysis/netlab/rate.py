"""Link rates as `tc` writes them: a number with a unit of bits per second, or `none` for an unshaped link."""

import re
from dataclasses import dataclass

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_MIN_BITS_PER_S = 10e6
_MIN_BURST_BYTES = 128 * 1024
# The bucket is refilled by a timer: it must hold what the link carries between two ticks (250 Hz is the slowest
# common kernel), or a fast link never reaches its rate.
_REFILLS_PER_S = 250
QUEUE_LATENCY_MS = 100


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A link's nominal rate; `bits_per_s` is None for a link without a limit."""

    text: str
    bits_per_s: float | None

    @property
    def burst_bytes(self) -> int:
        """Token bucket size, max(128 KiB, rate / 8 / 250), in bytes; 0 without a limit."""
        if self.bits_per_s is None:
            return 0
        return max(_MIN_BURST_BYTES, round(self.bits_per_s / 8 / _REFILLS_PER_S))

    @property
    def drain_s(self) -> float:
        """How long a full bucket feeds the link at its rate, in seconds; 0 without a limit."""
        return 0.0 if self.bits_per_s is None else 8 * self.burst_bytes / self.bits_per_s

    @property
    def segment_s(self) -> float:
        """How long the largest piece that the kernel sends at once, 64 KiB, takes; 0 without a limit."""
        return 0.0 if self.bits_per_s is None else 8 * 65536 / self.bits_per_s

    def qdisc(self) -> list[str]:
        """The `tc qdisc` words that shape one end of a link; empty without a limit."""
        if self.bits_per_s is None:
            return []
        words = f"tbf rate {round(self.bits_per_s)}bit burst {self.burst_bytes} latency {QUEUE_LATENCY_MS}ms"
        return words.split()


def parse_rate(text: str) -> Rate:
    """Read `200mbit`, `1.5gbit`, `none`.

    Raises ValueError for another form, or below 10 mbit: there the 128 KiB bucket is a good part of a
    second, and a rate measured in a second means little.
    """
    word = text.strip().lower()
    if word == "none":
        return Rate(text="none", bits_per_s=None)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", word)
    if match is None:
        raise ValueError(
            f"rate {text!r} is not a rate: write it like 200mbit or 1.5gbit, or none for no limit"
        )
    bits = float(match[1]) * _UNITS[match[2]]
    if not _MIN_BITS_PER_S <= bits <= 1e12:
        raise ValueError(f"rate {text!r} is out of range: give 10mbit to 1000gbit, or none for no limit")
    return Rate(text=word, bits_per_s=bits)
