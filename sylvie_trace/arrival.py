"""Who comes last: attribution by arrival names the slow rank where waiting makes all ranks look slow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sylvie_trace.columns import MISSING, PURPOSES, Column, group_codes
from sylvie_trace.reader import RankTrace, Run
from sylvie_trace.schema import TRAIN


@dataclass(frozen=True)
class Straggler:
    """The rank that was last to send in most exchanges.

    ``share`` of the exchanges in which it was last; ``seconds_per_epoch`` how long after the rank before it.
    """

    rank: int
    share: float
    seconds_per_epoch: float


@dataclass(frozen=True)
class Lateness:
    """By rank, shape (N,): ``share`` of the exchanges in which the rank sent last, ``seconds_per_epoch`` that it came after
    the rank before it."""

    share: npt.NDArray[np.float64]
    seconds_per_epoch: npt.NDArray[np.float64]


def straggler(run: Run) -> Straggler | None:
    """The rank that cost most by sending last; None for one rank or when sending times are not known."""
    late = lateness(run)
    if late is None:
        return None
    slowest = int(np.argmax(late.seconds_per_epoch))
    return Straggler(slowest, float(late.share[slowest]), float(late.seconds_per_epoch[slowest]))


def lateness(run: Run) -> Lateness | None:
    """How often and by how much each rank was the last to send; None for one rank or without sending times.

    Sending times come from the receivers' records, moved onto rank 0's clock; an exchange counts when the
    times of all ranks that sent in it are known, at least two.
    """
    parts = [_sent(run, trace) for trace in run.ranks]
    exchange = group_codes([np.concatenate([part[i] for part in parts]) for i in range(4)])
    epoch, rank, time = (np.concatenate([part[i] for part in parts]) for i in (0, 4, 5))
    if not len(exchange):
        return None
    # A rank counts once in an exchange, with its latest message; then exchanges in order, by time inside.
    order = np.lexsort((time, rank, exchange))
    order = order[_ends(exchange[order]) | _ends(rank[order])]
    order = order[np.lexsort((time[order], exchange[order]))]
    exchange, rank, time = exchange[order], rank[order], time[order]
    last = np.nonzero(_ends(exchange))[0]
    last = last[(last > 0) & (exchange[last] == exchange[last - 1])]  # a second rank to compare with
    if not last.size:
        return None
    late_ns = np.zeros(run.world_size, dtype=np.int64)
    np.add.at(late_ns, rank[last], time[last] - time[last - 1])
    share = np.bincount(rank[last], minlength=run.world_size) / len(last)
    return Lateness(share, late_ns / 1e9 / len(np.unique(epoch)))


def _sent(run: Run, trace: RankTrace) -> tuple[Column, ...]:
    """(epoch, layer, step, direction, sender, time on rank 0's clock) of the messages a rank received."""
    offset = np.full(run.world_size, MISSING, dtype=np.int64)
    for other in run.ranks:
        offset[other.rank] = other.header.offset_ns
    messages = trace.messages
    known = (messages["purpose"] == PURPOSES[TRAIN]) & (messages["sent_ns"] != MISSING)
    known &= (messages["recv_epoch"] != MISSING) & (offset[messages["peer"]] != MISSING)
    messages = messages[known]
    exchange = (messages[name] for name in ("recv_epoch", "layer", "step", "direction"))
    peer = messages["peer"]
    return (*exchange, peer, messages["sent_ns"] - offset[peer])


def _ends(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each entry is the last of a run of equal ones."""
    return np.concatenate((values[1:] != values[:-1], [True]))
