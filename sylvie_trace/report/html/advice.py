"""For every finding: what it is, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sylvie_trace.diagnose.types import Cause
from sylvie_trace.report_types import Finding

#: check -> (what, what to do).
_KNOWN: dict[str, tuple[str, str]] = {
    "fault": ("A rank failed", "Mend the error it names; the epochs before it are sound."),
    "torn_tail": ("A trace ends in the middle of a record", "Nothing: only that record is lost. The process was killed."),
    "missing_rank": ("A rank left no trace", "Copy its trace into the run directory; sums over ranks lack it."),
    "incomplete_run": (
        "The run did not end as planned",
        "Read its figures as those of the epochs shown; run it again for quality.",
    ),
    "audit": ("The books do not balance", "Do not trust the bytes and times of this run; run sylvie-report validate on it."),
    "attributed_fraction": (
        "Part of the epoch is unexplained",
        "Take shares of the epoch with care; look for work between the spans, such as a callback or a busy machine.",
    ),
    "compression": (
        "Bytes did not fall although bits did",
        "Check that the codec is on for every exchange: bytes by layer and direction show which one is not.",
    ),
    "metadata": (
        "Rows are short: metadata outweighs them",
        "Use the 4-byte form (--metadata bf16), or wider rows; fewer bits save little here.",
    ),
    "boundary_share": ("Most of the graph is boundary", "Use fewer parts, or a partition with less boundary."),
    "no_traffic": ("Nothing was exchanged", "Nothing to mend; the three axes have nothing to act on in this run."),
    "gradient_allreduce": (
        "Weight gradients outweigh the messages",
        "Narrow the input (--input-projection) or the layers; fewer bits a row will not help.",
    ),
    "clock_bound": (
        "The ranks' clocks are loosely aligned",
        "Trust the sum of both kinds of waiting, not how it is divided; synchronise the hosts' clocks.",
    ),
    "straggler": ("One rank is late", "Look at that rank's host and part: give it fewer edges, or a faster core."),
    "decisions": ("The log contradicts its rule", "Do not trust the controllers of this run; report it."),
    "ldr_clock": (
        "The clock, not the loss, drives the rule",
        "Compare with --ldr-clock constant, or a larger --ldr-delta, before reading the bits as a verdict on the loss.",
    ),
    "offline_cached": ("Offline work came from the cache", "Empty the cache (--cache-dir) to measure the offline stage."),
    "ldr_replay": ("The rule could not be replayed", "Run more epochs than δ."),
}
_FALLBACK = {
    "warning": "Look at the picture it speaks of before using the run's figures.",
    "note": "Nothing to mend; keep it in mind.",
    "absent": "Nothing, unless you need the number: the reason says what would provide it.",
}


@dataclass(frozen=True)
class Advised:
    """A finding with its words: ``what`` it is, its ``evidence``, what to ``do``."""

    status: str
    check: str
    what: str
    evidence: str
    do: str


def advise_all(findings: Sequence[Finding], causes: Sequence[Cause]) -> list[Advised]:
    """The diagnosis' causes and the findings that no cause speaks of, warnings first."""
    named = {cause.check for cause in causes}
    advised = [
        Advised(cause.status, cause.check, _what(cause.check), cause.evidence, cause.remedy[:1].upper() + cause.remedy[1:])
        for cause in causes
    ]
    advised += [advise(finding) for finding in findings if finding.check not in named]
    order = list(_FALLBACK)
    return sorted(advised, key=lambda item: order.index(item.status))


def _what(check: str) -> str:
    return _KNOWN[check][0] if check in _KNOWN else check.replace("_", " ").capitalize()


def advise(finding: Finding) -> Advised:
    """The finding in words; one that is not known keeps its name and gets the general advice of its status."""
    do = _KNOWN[finding.check][1] if finding.check in _KNOWN else _FALLBACK[finding.status]
    return Advised(finding.status, finding.check, _what(finding.check), finding.evidence, do)
