"""Conservation: what one rank says it sent in an exchange is what its peer says it received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sylvie_trace.columns import DIRECTIONS, MISSING, PURPOSES, Column, group_codes
from sylvie_trace.epochs import common_epochs
from sylvie_trace.reader import RankTrace, Run

_KEY = ("src", "dst", "purpose", "epoch", "layer", "step", "direction")
#: What is booked of a message on both sides.
BOOKED = ("rows", "main_bytes", "meta_bytes", "header_bytes")


def conservation(run: Run) -> Iterator[str]:
    """What r says it sent to q in an exchange is what q received from r: rows, main, meta, header bytes."""
    if not run.traced or run.missing_ranks:
        return
    sides = {}
    for received in (False, True):
        ledgers = [_ledger(trace, received=received) for trace in run.ranks]
        sides[received] = {name: np.concatenate([ledger[name] for ledger in ledgers]) for name in ledgers[0]}
    sent, got = sides[False], sides[True]
    if not run.complete:  # a killed rank misses records of its last epochs
        finished = common_epochs(run)[:-1]
        for side in (sent, got):
            kept = np.isin(side["epoch"], finished)
            side.update({name: column[kept] for name, column in side.items()})
    keys = {name: np.concatenate((sent[name], got[name])) for name in _KEY}
    codes, first, place = np.unique(group_codes(list(keys.values())), return_index=True, return_inverse=True)
    place, count = place.reshape(-1), len(sent["epoch"])
    for booked in BOOKED:
        # Repeated exchanges of one key (evaluations outside epochs) are added up.
        balance = np.zeros((2, len(codes)), dtype=np.int64)
        np.add.at(balance[0], place[:count], sent[booked])
        np.add.at(balance[1], place[count:], got[booked])
        for index in np.nonzero(balance[0] != balance[1])[0][:10].tolist():
            key = {name: int(column[first[index]]) for name, column in keys.items()}
            yield (
                f"{exchange_name(key)}: rank {key['src']} sent {balance[0, index]} {booked} to "
                f"rank {key['dst']}, which received {balance[1, index]}"
            )


def _ledger(trace: RankTrace, *, received: bool) -> dict[str, Column]:
    """A rank's messages as columns of keys and of rows and bytes, seen as sent or as received."""
    messages = trace.messages
    ledger = {name: messages[name] for name in ("purpose", "epoch", "layer", "step", "direction")}
    mine = np.full(len(messages), trace.rank, dtype=np.int64)
    ledger["src"], ledger["dst"] = (messages["peer"], mine) if received else (mine, messages["peer"])
    if received:
        known = messages["recv_epoch"] != MISSING
        ledger["epoch"] = np.where(known, messages["recv_epoch"], messages["epoch"])
    for name in BOOKED:
        ledger[name] = messages[f"recv_{name}" if received else name]
    return ledger


def exchange_name(key: Mapping[str, int]) -> str:
    """Names an exchange from a row of codes: ``train epoch 3 L2.0 forward``."""
    purpose = next(name for name, code in PURPOSES.items() if code == key.get("purpose", 0))
    direction = next(name for name, code in DIRECTIONS.items() if code == key["direction"])
    return f"{purpose} epoch {key['epoch']} L{key['layer']}.{key['step']} {direction}"
