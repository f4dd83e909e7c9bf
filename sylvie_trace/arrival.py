"""Who comes last: attribution by arrival names the slow rank where waiting makes all ranks look slow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import MISSING, PURPOSES, group_codes
from sylvie_trace.reader import Run
from sylvie_trace.schema import TRAIN


@dataclass(frozen=True)
class Straggler:
    """The rank that was last to send in most exchanges.

    ``share`` of the exchanges in which it was last; ``seconds_per_epoch`` how long after the rank before it.
    """

    rank: int
    share: float
    seconds_per_epoch: float


def straggler(run: Run) -> Straggler | None:
    """The rank that cost most by sending last; None for one rank or when sending times are not known.

    Sending times come from the receivers' records, moved onto rank 0's clock; an exchange counts when the
    times of all ranks that sent in it are known, at least two.
    """
    offsets = {trace.rank: trace.header.offset_ns for trace in run.ranks}
    fields = [(name, np.int64) for name in ("epoch", "layer", "step", "direction", "time", "rank")]
    tables = []
    for trace in run.ranks:
        messages = trace.messages
        known = (messages["purpose"] == PURPOSES[TRAIN]) & (messages["sent_ns"] != MISSING)
        messages = messages[
            known & (messages["recv_epoch"] != MISSING) & np.isin(messages["peer"], list(offsets))
        ]
        table = np.zeros(len(messages), dtype=fields)
        for name in ("layer", "step", "direction"):
            table[name] = messages[name]
        table["epoch"], table["rank"] = messages["recv_epoch"], messages["peer"]
        shift = np.zeros(run.world_size, dtype=np.int64)
        for rank, offset in offsets.items():
            shift[rank] = offset
        table["time"] = messages["sent_ns"] - shift[messages["peer"]]
        tables.append(table)
    sent = np.concatenate(tables)
    if not len(sent):
        return None
    exchange = group_codes([sent[name] for name in ("epoch", "layer", "step", "direction")])
    # A rank counts once in an exchange, with its latest message; then exchanges in order, by time inside.
    order = np.lexsort((sent["time"], sent["rank"], exchange))
    sent, exchange = sent[order], exchange[order]
    final = _ends(exchange) | _ends(sent["rank"])
    sent, exchange = sent[final], exchange[final]
    order = np.lexsort((sent["time"], exchange))
    sent, exchange = sent[order], exchange[order]
    last = np.nonzero(_ends(exchange))[0]
    last = last[(last > 0) & (exchange[last] == exchange[last - 1])]  # a second rank to compare with
    if not last.size:
        return None
    late_ns = np.zeros(run.world_size, dtype=np.int64)
    np.add.at(late_ns, sent["rank"][last], sent["time"][last] - sent["time"][last - 1])
    rank = int(np.argmax(late_ns))
    share = float((sent["rank"][last] == rank).mean())
    return Straggler(rank, share, int(late_ns[rank]) / 1e9 / len(np.unique(sent["epoch"])))


def _ends(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each entry is the last of a run of equal ones."""
    return np.concatenate((values[1:] != values[:-1], [True]))
