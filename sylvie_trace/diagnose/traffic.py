"""Causes on links 1 and 2: the volume, and the time it takes on the wire."""

from __future__ import annotations

from collections.abc import Iterator

from sylvie_trace.decision import EQUATION, MAX_BASE
from sylvie_trace.diagnose.facts import Facts
from sylvie_trace.diagnose.types import Cause

#: From these shares of an epoch on, exposed communication is worth a word, and is a fault.
NOTED, COSTLY = 0.10, 0.25
#: Epochs that must have been decided before a rule's habits are judged, and the share that makes a habit.
ENOUGH_DECIDED, HABIT = 20, 0.9
_LARGE_BOUNDARY, _LATENCY_BOUND, _SLOWER_THAN_PROBED = 0.5, 0.5, 2.0


def _status(share: float | None, bound: float) -> str:
    return "warning" if share is not None and share >= bound else "note"


def bytes_that_did_not_fall(facts: Facts) -> Iterator[Cause]:
    """Rows are narrow, messages are not: the quantized rows are not what goes into the collective."""
    for finding in facts.subject.report.findings:
        if finding.check == "compression" and finding.status == "warning":
            yield Cause(
                check="compression",
                status="warning",
                link=1,
                evidence=finding.evidence,
                remedy="see whether the encoded rows are what is sent: compare by_layer.main with rows · width · bits / 8",
            )


def width_pinned_high(facts: Facts) -> Iterator[Cause]:
    """The rule keeps the base at 8: nothing is left for the mask, and little of the saving; a smaller limit leaves both."""
    rule = facts.rule
    if rule is None or rule.config.bits is not None or rule.config.max_base < MAX_BASE:
        return
    if rule.decided < ENOUGH_DECIDED or not rule.bases:
        return
    high = sum(base == MAX_BASE for base in rule.bases)
    if high >= HABIT * len(rule.bases):
        yield Cause(
            check="width_high",
            status="warning",
            link=1,
            evidence=f"the base width was {MAX_BASE} in {high} of {len(rule.bases)} epochs after a decision",
            remedy="--ldr-max-base 2 or 4 keeps the base from rising so far; or " + _other_rule(rule.config.rule),
        )


def _other_rule(rule: str) -> str:
    return "a larger --ldr-delta" + ("" if rule == EQUATION else ", or --ldr-rule equation")


def metadata_heavy(facts: Facts) -> Iterator[Cause]:
    """Short rows: minimum, scale and headers weigh as much as what they describe."""
    traffic = facts.subject.report.bytes_per_epoch
    if traffic is None or traffic.main == 0 or traffic.meta + traffic.header < traffic.main:
        return
    if facts.setting("bits") == "32":
        return
    beside = (traffic.meta + traffic.header) / traffic.main
    yield Cause(
        check="metadata",
        status=_status(facts.share(facts.parts_s.get("exposed_transfer")), COSTLY),
        link=1,
        evidence=f"metadata and headers are {beside:.2f} times the rows' own bytes",
        remedy="--metadata bf16 halves them; wider layers make them small",
    )


def many_messages(facts: Facts) -> Iterator[Cause]:
    """The number of messages, not their size, takes the time."""
    found, rtt = facts.transfers, facts.rtt_s
    if found is None or rtt is None or found.seconds <= 0:
        return
    latency = found.exchanges * rtt / 2
    share = facts.share(found.seconds)
    if latency >= _LATENCY_BOUND * found.seconds and share is not None and share >= NOTED:
        yield Cause(
            check="message_count",
            status=_status(facts.share(facts.parts_s.get("exposed_transfer")), COSTLY),
            link=2,
            evidence=(
                f"{found.exchanges:.0f} exchanges an epoch at {rtt * 500:.2f} ms one way take {latency * 1e3:.1f} of the "
                f"{found.seconds * 1e3:.1f} ms on the wire: fewer bytes cannot shorten it"
            ),
            remedy="fewer layers or steps with an exchange, or fewer and larger parts",
        )


def slow_link(facts: Facts) -> Iterator[Cause]:
    """The main thread stands still while bytes that have been sent are on their way."""
    found, transfer = facts.transfers, facts.parts_s.get("exposed_transfer")
    share = facts.share(transfer)
    if found is None or share is None or share < NOTED or found.seconds <= 0:
        return
    yield Cause(
        check="slow_link",
        status=_status(share, COSTLY),
        link=2,
        evidence=(
            f"{share:.0%} of an epoch waits for bytes on their way: a rank sends {found.bytes / 1e6:.3g} MB an epoch at "
            f"{found.bytes / found.seconds / 1e6:.3g} MB/s"
        ),
        remedy="a faster link, narrower rows, --schedule async, or fewer boundary rows; see `whatif`",
    )


def slower_than_probed(facts: Facts) -> Iterator[Cause]:
    """The bytes take longer than the probed link needs for them: the wire is not the bottleneck, or is shared."""
    found, rate = facts.transfers, facts.link_bytes_per_s
    if found is None or rate is None or found.seconds <= 0:
        return
    due, share = found.exchanges * (facts.rtt_s or 0.0) / 2 + found.bytes / rate, facts.share(found.seconds)
    if share is not None and share >= NOTED and found.seconds >= _SLOWER_THAN_PROBED * due:
        yield Cause(
            check="slower_than_probed",
            status="note",
            link=2,
            evidence=(
                f"an epoch's bytes take {found.seconds * 1e3:.3g} ms, the link as probed needs {due * 1e3:.3g} ms for them"
            ),
            remedy="a core of its own for the exchange's thread; other traffic on the link",
        )


def little_to_gain(facts: Facts) -> Iterator[Cause]:
    """Amdahl: where exchange is a small share of the fp32 epoch, nothing that saves bytes can pay."""
    fp32, mine = facts.fp32_transfer_s, facts.exposed_s
    if fp32 is None or mine is None or facts.epoch_s is None:
        return
    share = fp32 / (facts.epoch_s - mine + fp32)
    if share < NOTED:
        how = "measured" if facts.fp32_measured else "by the probed link"
        yield Cause(
            check="little_to_gain",
            status="note",
            link=2,
            evidence=(
                f"fp32 rows would take {fp32 * 1e3:.2g} ms of an epoch ({how}), {share:.1%}: no saving of bytes can make "
                f"it more than {1 / (1 - share):.2f} times as fast"
            ),
            remedy="nothing is wrong: the method pays where links are slow against computation",
        )


def large_boundary(facts: Facts) -> Iterator[Cause]:
    """A partition in which most nodes are boundary nodes; a fault only where its traffic is felt."""
    share = facts.subject.report.boundary.share_of_nodes
    if share is not None and share > _LARGE_BOUNDARY:
        yield Cause(
            check="boundary_share",
            status=_status(facts.share(facts.parts_s.get("exposed_transfer")), COSTLY),
            link=1,
            evidence=f"{share:.0%} of the nodes are boundary nodes",
            remedy="fewer parts, or a partition made for communication volume (METIS, the default)",
        )
