"""Conservation: what one rank says it sent in an exchange is what its peer says it received."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sylvie_trace.columns import DIRECTIONS, MISSING, PURPOSES, Table, group_codes
from sylvie_trace.epochs import common_epochs
from sylvie_trace.reader import RankTrace, Run

_KEY = ("src", "dst", "purpose", "epoch", "layer", "step", "direction")
#: What is booked of a message on both sides.
BOOKED = ("rows", "main_bytes", "meta_bytes", "header_bytes")


def conservation(run: Run) -> Iterator[str]:
    """What r says it sent to q in an exchange is what q received from r: rows, main, meta, header bytes."""
    if not run.traced or run.missing_ranks:
        return
    sent = np.concatenate([_ledger(trace, received=False) for trace in run.ranks])
    received = np.concatenate([_ledger(trace, received=True) for trace in run.ranks])
    if not run.complete:  # a killed rank misses records of its last epochs
        finished = common_epochs(run)[:-1]
        sent, received = (t[np.isin(t["epoch"], finished)] for t in (sent, received))
    both = np.concatenate((sent, received))
    codes, first, place = np.unique(
        group_codes([both[name] for name in _KEY]), return_index=True, return_inverse=True
    )
    place = place.reshape(-1)
    for booked in BOOKED:
        # Repeated exchanges of one key (evaluations outside epochs) are added up.
        balance = np.zeros((2, len(codes)), dtype=np.int64)
        np.add.at(balance[0], place[: len(sent)], sent[booked])
        np.add.at(balance[1], place[len(sent) :], received[booked])
        for index in np.nonzero(balance[0] != balance[1])[0][:10].tolist():
            key, (said, got) = both[first[index]], balance[:, index]
            yield (
                f"{exchange_name(key)}: rank {key['src']} sent {said} {booked} to rank {key['dst']}, "
                f"which received {got}"
            )


def _ledger(trace: RankTrace, *, received: bool) -> Table:
    """A rank's messages as (key, rows and bytes), seen as sent or as received."""
    messages = trace.messages
    fields = [(name, np.int64) for name in (*_KEY, *BOOKED)]
    ledger: Table = np.zeros(len(messages), dtype=fields)
    for name in ("purpose", "epoch", "layer", "step", "direction"):
        ledger[name] = messages[name]
    ledger["src"], ledger["dst"] = trace.rank, messages["peer"]
    if received:
        ledger["src"], ledger["dst"] = messages["peer"], trace.rank
        known = messages["recv_epoch"] != MISSING
        ledger["epoch"] = np.where(known, messages["recv_epoch"], messages["epoch"])
    for name in BOOKED:
        ledger[name] = messages[f"recv_{name}" if received else name]
    return ledger


def exchange_name(row: np.void) -> str:
    """Names an exchange from a row of codes: ``train epoch 3 L2.0 forward``."""
    purpose = next(name for name, code in PURPOSES.items() if code == row["purpose"])
    direction = next(name for name, code in DIRECTIONS.items() if code == row["direction"])
    return f"{purpose} epoch {row['epoch']} L{row['layer']}.{row['step']} {direction}"
