"""The books of a run, checked: complete files, conservation of bytes, ages, causality, sums.

Each check yields violations as single lines that name rank, epoch and exchange; ``validate`` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import MISSING, PURPOSES, Table
from sylvie_trace.conservation import BOOKED, conservation, exchange_name
from sylvie_trace.reader import Run
from sylvie_trace.schema import ASYNC, SYNC, TRAIN


def validate(run: Run) -> Iterator[str]:
    """Every violation, in the order of the checks; the first is what a caller prints."""
    checks: tuple[Callable[[Run], Iterator[str]], ...] = (
        complete_files,
        epochs_in_order,
        same_decisions,
        conservation,
        ages,
        causality,
        phases_in_order,
        epoch_sums,
        footer_sums,
    )
    for check in checks:
        yield from check(run)


def complete_files(run: Run) -> Iterator[str]:
    """First a header, last a footer, nothing torn, no rank missing."""
    for rank in run.missing_ranks:
        yield f"rank {rank} of {run.world_size} left no trace"
    for trace in run.ranks:
        if trace.torn:
            yield f"{trace.path}: the last line is torn: the rank was killed while it wrote"
        if trace.footer is None:
            yield f"{trace.path}: no footer: the rank did not finish"
        elif not trace.footer_is_last:
            yield f"{trace.path}: the footer is not the last record"
        elif not trace.footer.complete:
            yield f"{trace.path}: the footer says that training did not finish"


def epochs_in_order(run: Run) -> Iterator[str]:
    """Epochs 0, 1, 2 … on every rank, the same number of them, epoch 0 synchronous, times in order."""
    counts = {len(trace.epochs) for trace in run.ranks}
    if len(counts) > 1:
        yield f"ranks recorded different numbers of epochs: {sorted(counts)}"
    for trace in run.ranks:
        for index, record in enumerate(trace.epochs):
            where = f"rank {trace.rank}, epoch {record.epoch}"
            if record.epoch != index:
                yield f"{where}: it stands where epoch {index} belongs"
                break
            if index == 0 and record.mode != SYNC:
                yield f"{where}: epoch 0 must be sync, the log says {record.mode}"
            if record.end_ns < record.start_ns:
                yield f"{where}: it ends before it starts"
            if index and record.start_ns < trace.epochs[index - 1].end_ns:
                yield f"{where}: it starts before the one before it ends"


def same_decisions(run: Run) -> Iterator[str]:
    """Every rank decided the same, and every epoch ran as decided."""
    first = run.ranks[0]
    for trace in run.ranks:
        for mine, theirs in zip(trace.decisions, first.decisions, strict=False):
            if mine != theirs:
                yield f"epoch {mine.epoch}: rank {trace.rank} decided otherwise than rank {first.rank}"
                break
        ran = {record.epoch: (record.base_bits, record.mode) for record in trace.epochs}
        for decision in trace.decisions:
            decided = (decision.base_after, decision.mode_after)
            if ran.get(decision.epoch + 1, decided) != decided:
                yield (
                    f"rank {trace.rank}, epoch {decision.epoch + 1}: it ran with {ran[decision.epoch + 1]}, "
                    f"decided was {decided}"
                )
                break


def ages(run: Run) -> Iterator[str]:
    """Consumed rows have age 0 in a synchronous epoch and exactly 1 in an asynchronous one."""
    for trace in run.ranks:
        modes = {record.epoch: record.mode for record in trace.epochs}
        table = trace.messages
        chosen = (table["purpose"] == PURPOSES[TRAIN]) & (table["age"] != MISSING)
        table = table[chosen & (table["consumed_epoch"] != MISSING)]
        for used, consumed in ((table, table["consumed_epoch"]), (trace.reuses, trace.reuses["epoch"])):
            wrong = _wrong_age(modes, used, consumed)
            for row, epoch in zip(used[wrong].rows(10), consumed[wrong].tolist(), strict=False):
                yield (
                    f"rank {trace.rank}, {exchange_name(row)}: rows of epoch {row['recv_epoch']} from rank "
                    f"{row['peer']} were used in {modes.get(epoch, 'unrecorded')} epoch {epoch} "
                    f"with age {row['age']}"
                )


def _wrong_age(modes: dict[int, str], used: Table, consumed: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each row's age is not that of its epoch's mode, or not the difference of its epochs."""
    wrong: npt.NDArray[np.bool_] = (used["recv_epoch"] != MISSING) & (used["age"] != consumed - used["recv_epoch"])
    for mode, age in ((SYNC, 0), (ASYNC, 1)):
        ran = [epoch for epoch, name in modes.items() if name == mode]
        wrong |= (used["age"] != age) & np.isin(consumed, ran)
    return wrong


def causality(run: Run) -> Iterator[str]:
    """No interval ends before it starts; nothing arrives before it was sent, beyond the clocks' bounds."""
    headers = {trace.rank: trace.header for trace in run.ranks}
    for trace in run.ranks:
        table = trace.messages
        for name in ("encode", "wire", "decode", "wait"):
            start, end = table[f"{name}_start_ns"], table[f"{name}_end_ns"]
            for row in table[(start != MISSING) & (end != MISSING) & (end < start)].rows(10):
                yield f"rank {trace.rank}, {exchange_name(row)}: its {name} ends before it starts"
        for peer, header in headers.items():
            mine = trace.header
            rows = table[(table["peer"] == peer) & (table["sent_ns"] != MISSING) & (table["wire_end_ns"] != MISSING)]
            sent = rows["sent_ns"] - header.offset_ns + mine.offset_ns
            early = sent - rows["wire_end_ns"] > header.offset_bound_ns + mine.offset_bound_ns
            for row in rows[early].rows(10):
                yield (
                    f"rank {trace.rank}, {exchange_name(row)}: rows from rank {peer} arrived before it sent "
                    f"them, beyond the clocks' bounds"
                )


def phases_in_order(run: Run) -> Iterator[str]:
    """On a rank's own clock: rows are encoded and queued before they are on the wire, and decoded when they are off it."""
    order = (("encode_end_ns", "wire_start_ns"), ("queued_ns", "wire_start_ns"), ("wire_end_ns", "decode_start_ns"))
    for trace in run.ranks:
        table = trace.messages
        for first, then in order:
            known = (table[first] != MISSING) & (table[then] != MISSING)
            for row in table[known & (table[first] > table[then])].rows(10):
                before, after = first.removesuffix("_ns").replace("_", " "), then.removesuffix("_ns").replace("_", " ")
                yield f"rank {trace.rank}, {exchange_name(row)}: its {after} comes before its {before}"


def epoch_sums(run: Run) -> Iterator[str]:
    """An epoch's bytes and rows are the sums over its messages, its widths' histogram counts its rows."""
    for trace in run.ranks:
        rows = {record.epoch: record.rows for record in trace.epochs}
        for bits in trace.bits:
            counted = sum(bits.histogram.values())
            if rows.get(bits.epoch, counted) != counted:
                yield (
                    f"rank {trace.rank}, epoch {bits.epoch}: {rows[bits.epoch]} rows sent, {counted} in the histogram of widths"
                )
        if not trace.header.trace:
            continue
        table = trace.messages[trace.messages["purpose"] == PURPOSES[TRAIN]]
        numbers = np.array([record.epoch for record in trace.epochs], dtype=np.int64)
        order = np.argsort(table["epoch"], kind="stable")
        epochs = table["epoch"][order]
        low, high = (
            np.searchsorted(epochs, numbers, side="left"),
            np.searchsorted(epochs, numbers, side="right"),
        )
        for booked in BOOKED:
            cumulated = np.concatenate(([0], np.cumsum(table[booked][order])))
            summed = cumulated[high] - cumulated[low]
            said = np.array([getattr(record, booked) for record in trace.epochs], dtype=np.int64)
            for index in np.nonzero(summed != said)[0][:10].tolist():
                yield (
                    f"rank {trace.rank}, epoch {numbers[index]}: {said[index]} {booked} in the epoch's "
                    f"record, {summed[index]} in its messages"
                )


def footer_sums(run: Run) -> Iterator[str]:
    """The footer's train + unused and gradient all-reduce bytes are the sums over the epochs."""
    for trace in run.ranks:
        if trace.footer is None:
            continue
        said = trace.footer.bytes
        pairs = (
            (
                "train + unused",
                said.get("train", 0) + said.get("unused", 0),
                sum(r.main_bytes + r.meta_bytes + r.header_bytes for r in trace.epochs),
            ),
            (
                "gradient_allreduce",
                said.get("gradient_allreduce", 0),
                sum(r.gradient_allreduce_bytes for r in trace.epochs),
            ),
        )
        for name, total, summed in pairs:
            if total != summed:
                yield f"rank {trace.rank}: the footer counts {total} bytes of {name}, its epochs {summed}"
