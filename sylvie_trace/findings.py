"""What a reader of the report should know: missing numbers with their reason, and signs of trouble.

Each check looks at the run and its report and yields findings; a check that has nothing to say is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sylvie_trace.arrival import straggler
from sylvie_trace.audit import validate
from sylvie_trace.reader import Run
from sylvie_trace.replay import first_mismatch, logged_config
from sylvie_trace.report_types import Finding, Report

#: Thresholds of the findings, as fractions. Of two, the first is worth a note, the second is a fault.
LOW_ATTRIBUTION, LARGE_BOUNDARY, CLOCK_SHARE, CLOCK_DRIVEN = (0.98, 0.95), 0.5, (0.01, 0.1), 0.2
LATE_SHARE, EXPOSED_SHARE = (0.05, 0.15), 0.25


def find(run: Run, report: Report) -> tuple[Finding, ...]:
    """All findings, warnings first, then notes, then absent numbers."""
    checks: tuple[Callable[[Run, Report], Iterator[Finding]], ...] = (
        _incomplete,
        _books,
        _attribution,
        _width_without_effect,
        _boundary,
        _traffic,
        _clocks,
        _straggler,
        _rule,
        _offline,
        _absent,
    )
    found = [finding for check in checks for finding in check(run, report)]
    order = {"warning": 0, "note": 1, "absent": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.status]))


def _warning(check: str, evidence: str) -> Finding:
    return Finding(check=check, status="warning", evidence=evidence)


def _note(check: str, evidence: str) -> Finding:
    return Finding(check=check, status="note", evidence=evidence)


def _graded(check: str, evidence: str, fault: bool) -> Finding:
    return _warning(check, evidence) if fault else _note(check, evidence)


def _incomplete(run: Run, report: Report) -> Iterator[Finding]:
    for trace in run.ranks:
        for fault in trace.faults:
            where = f"rank {trace.rank} in epoch {fault.epoch}"
            yield _warning("fault", f"{where}: {fault.error}: {fault.message}")
        if trace.torn:
            yield _warning("torn_tail", f"{trace.path.name} ends in the middle of a record, which is left out")
    for rank in run.missing_ranks:
        yield _warning("missing_rank", f"rank {rank} of {run.world_size} left no trace")
    if not run.complete:
        open_ranks = [str(t.rank) for t in run.ranks if t.footer is None or not t.footer.complete]
        yield _warning(
            "incomplete_run",
            f"{report.run.epochs} epochs are common to all ranks; unfinished: rank {', '.join(open_ranks)}"
            if open_ranks
            else f"{report.run.epochs} epochs are common to the ranks that left a trace",
        )


def _books(run: Run, report: Report) -> Iterator[Finding]:
    if run.complete:
        violation = next(validate(run), None)
        if violation is not None:
            yield _warning("audit", violation)


def _attribution(run: Run, report: Report) -> Iterator[Finding]:
    share = report.attributed_fraction
    usual, fault = LOW_ATTRIBUTION
    if share is not None and share < usual:
        yield _graded(
            "attributed_fraction",
            f"measured spans cover {share:.1%} of an epoch, {usual:.0%} is usual",
            share < fault,
        )


def _width_without_effect(run: Run, report: Report) -> Iterator[Finding]:
    """Narrow rows must make narrow messages: the bytes follow the widths that the decisions claim."""
    traffic, bits = report.bytes_per_epoch, report.bits
    if traffic is None or bits is None or bits.mean is None or not traffic.fp32_equivalent or bits.mean >= 32:
        return
    rows = sum(bits.histogram.values()) / (report.epoch_time_s.n if report.epoch_time_s else 1)
    expected = traffic.fp32_equivalent * bits.mean / 32
    # Rows differ in width and bits by exchange, and each is padded to a whole byte: leave room for both.
    if traffic.main > 1.5 * expected + rows:
        yield _warning(
            "compression",
            f"rows have {bits.mean:.2f} bits on average, which is {expected:.0f} bytes an epoch, "
            f"but {traffic.main:.0f} were sent",
        )
    beside = traffic.meta + traffic.header
    if beside > traffic.main > 0:
        yield _note("metadata", f"metadata and headers are {beside / traffic.main:.1f} times the rows' bytes")


def _boundary(run: Run, report: Report) -> Iterator[Finding]:
    """A large boundary is a fact about the graph; it is a fault where the epoch waits for it."""
    share, parts = report.boundary.share_of_nodes, report.breakdown_s
    if share is None or share <= LARGE_BOUNDARY:
        return
    waiting = parts.exposed_wait + parts.exposed_transfer if parts else 0.0
    epoch_s = report.epoch_time_s.mean if report.epoch_time_s else 0.0
    yield _graded(
        "boundary_share",
        f"{share:.0%} of the nodes are boundary nodes: fewer parts cut less",
        waiting > EXPOSED_SHARE * epoch_s > 0,
    )


def _traffic(run: Run, report: Report) -> Iterator[Finding]:
    traffic = report.bytes_per_epoch
    if traffic is None or run.world_size == 1:
        return
    sent = traffic.main + traffic.meta + traffic.header
    if traffic.main == 0:
        yield _note("no_traffic", "no boundary row was exchanged in the measured epochs")
    elif traffic.gradient_allreduce > sent:
        yield _note(
            "gradient_allreduce",
            f"weight gradients take {traffic.gradient_allreduce:.0f} bytes an epoch, messages {sent:.0f}",
        )


def _clocks(run: Run, report: Report) -> Iterator[Finding]:
    bound_s = max(trace.header.offset_bound_ns for trace in run.ranks) / 1e9
    noted, fault = CLOCK_SHARE
    if report.epoch_time_s is not None and bound_s > noted * report.epoch_time_s.median:
        yield _graded(
            "clock_bound",
            f"clocks of two ranks may differ by {bound_s * 1e3:.3f} ms, "
            f"{bound_s / report.epoch_time_s.median:.1%} of an epoch: "
            "exposed_wait and exposed_transfer are uncertain by that much a wait",
            bound_s > fault * report.epoch_time_s.median,
        )


def _straggler(run: Run, report: Report) -> Iterator[Finding]:
    if report.epoch_time_s is None or not run.traced:
        return
    late = straggler(run)
    if late is None:
        return
    usually = late.share > (1 + 1 / run.world_size) / 2  # far more often than 1/N, what equal ranks give
    share, (noted, fault) = late.seconds_per_epoch / report.epoch_time_s.mean, LATE_SHARE
    if usually and share > noted:
        yield _graded(
            "straggler",
            f"rank {late.rank} was the last to send in {late.share:.0%} of the exchanges, "
            f"{late.seconds_per_epoch * 1e3:.1f} ms an epoch after the rank before it, {share:.0%} of its time",
            share > fault,
        )


def _rule(run: Run, report: Report) -> Iterator[Finding]:
    try:
        config = logged_config(run)
        mismatch = first_mismatch(run)
    except ValueError as error:
        yield Finding(check="ldr_replay", status="absent", evidence=str(error))
        return
    if mismatch is not None:
        yield _warning("decisions", f"the logged decisions do not follow from the log: {mismatch}")
    adaptive = config.bits is None or config.schedule == "adaptive"
    differs = report.ldr_replay.constant_clock_differs
    if adaptive and differs is not None and differs > CLOCK_DRIVEN:
        yield _note(
            "ldr_clock",
            f"{differs:.0%} of {report.ldr_replay.decided} decisions differ with a constant clock",
        )
    if differs is None:
        yield Finding(
            check="ldr_replay",
            status="absent",
            evidence=f"no epoch after δ = {config.delta}: nothing was decided",
        )


def _offline(run: Run, report: Report) -> Iterator[Finding]:
    if report.offline_cached:
        yield _note("offline_cached", "partition and plan came from the cache: offline times are those of reading it")


def _absent(run: Run, report: Report) -> Iterator[Finding]:
    """A reason for every number that is None."""

    def absent(fields: str, reason: str) -> Finding:
        return Finding(check=fields, status="absent", evidence=reason)

    if report.epoch_time_s is None:
        yield absent(
            "epoch_time_s, throughput_epochs_per_s, bytes_per_epoch, compression_ratio, bits, breakdown_s, "
            "breakdown_max_rank_s, breakdown_max_rank, attributed_fraction",
            f"{report.run.epochs} epochs recorded by every rank: none is left after the warm-up",
        )
    if not run.traced:
        yield absent(
            "breakdown_s, breakdown_max_rank_s, breakdown_max_rank, attributed_fraction, bytes_per_epoch.by_layer, "
            "bytes_per_epoch.by_pair, staleness, online_s, overhead.online_share",
            "message and span records were not written: run with --trace",
        )
    traffic = report.bytes_per_epoch
    if run.missing_ranks and report.epoch_time_s is not None:
        yield absent("bytes_per_epoch, compression_ratio", "a rank left no trace: what it sent is not known")
    if traffic is not None and traffic.fp32_equivalent is None:
        yield absent("bytes_per_epoch.fp32_equivalent, compression_ratio", "the widths of rows were not recorded")
    elif traffic is not None and traffic.compression_ratio is None:
        yield absent("compression_ratio", "nothing was sent")
    if report.bits is not None and report.bits.mean is None:
        yield absent("bits.mean", "no row was sent in the measured epochs")
    if report.bits is not None and report.bits.node_mean is None:
        yield absent("bits.node_mean", "the boundary pool is empty or not described in run.json")
    if report.bytes_total is None:
        yield absent("bytes_total", "a rank has no footer")
    for section, values in (
        ("boundary", report.boundary),
        ("wall_s", report.wall_s),
        ("quality", report.quality),
    ):
        missing = [name for name in _names(values) if getattr(values, name) is None]
        if missing:
            reason = "not recorded by this run" if run.complete else "the run was cut short before it was recorded"
            yield absent(", ".join(f"{section}.{name}" for name in missing), reason)
    if report.overhead.offline_share is None:
        yield absent("overhead.offline_share", "the times of partition, extraction or training are not recorded")
    if report.offline_cached is None:
        yield absent("offline_cached", "run.json does not say")
    if report.peak_memory_mb is None:
        yield absent("peak_memory_mb", "no footer names it")
    if report.device_peak_mb is None:
        yield absent("device_peak_mb", "no accelerator memory was recorded: the ranks ran on the CPU or were cut short")


def _names(values: object) -> tuple[str, ...]:
    fields = getattr(values, "__struct_fields__", None) or getattr(values, "__dataclass_fields__", {})
    return tuple(fields)
