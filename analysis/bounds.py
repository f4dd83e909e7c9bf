"""What an epoch could take at best: its computation, and the bytes that the link's goodput lets through meanwhile.

``bound`` of an epoch: asynchronous ``max(compute_only, bytes/goodput)``; synchronous ``compute_only + Σ over exchanges max(0,
bytes/goodput − the computation that may overlap it)``. Bytes are those of the busiest host, the gradient all-reduce
included: it needs the last gradient and cannot be hidden from a synchronous epoch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sylvie_trace.columns import MISSING, PURPOSES
from sylvie_trace.epochs import common_epochs, measured_epochs
from sylvie_trace.reader import RankTrace, Run, read_run
from sylvie_trace.schema import SYNC, TRAIN

_SITE = ("epoch", "layer", "step", "direction")
_TIMES = ("queued_ns", "wait_start_ns", "wire_end_ns")


def epoch_bounds_s(run: Run, compute_only_s: float, goodput: float) -> dict[int, float]:
    """The bound of every measured epoch of a traced run, seconds; ``goodput`` in bytes/s."""
    ranks = [_Sent(trace) for trace in run.ranks]
    bounds = {}
    for epoch in measured_epochs(common_epochs(run)):
        record = run.ranks[0].epochs[epoch]
        gradients = max(trace.epochs[epoch].gradient_allreduce_bytes for trace in run.ranks)
        if record.mode == SYNC:
            transfers = _exposed_s(ranks, epoch, goodput)
            bounds[epoch] = compute_only_s + transfers + gradients / goodput
        else:
            sent = max(rank.total(epoch) for rank in ranks) + gradients
            bounds[epoch] = max(compute_only_s, sent / goodput)
    return bounds


def mean_bound_s(run_dir: Path, compute_only_s: float, goodput: float) -> float:
    """Mean over the measured epochs of a traced run."""
    return float(np.mean(list(epoch_bounds_s(read_run(run_dir), compute_only_s, goodput).values())))


def _exposed_s(ranks: list[_Sent], epoch: int, goodput: float) -> float:
    """Σ over exchanges of the transfer that outlasts the computation placed behind it, the busiest rank's bytes for each."""
    sites = set().union(*(rank.by_site(epoch) for rank in ranks))
    exposed = 0.0
    for site in sites:
        found = [rank.by_site(epoch)[site] for rank in ranks if site in rank.by_site(epoch)]
        transfer = max(sent for sent, _ in found) / goodput
        exposed += max(0.0, transfer - min(overlap for _, overlap in found))
    return exposed


class _Sent:
    """A rank's training messages by epoch and site: bytes sent, and seconds of computation between post and wait."""

    def __init__(self, trace: RankTrace) -> None:
        table = trace.messages
        self._sites: dict[int, dict[tuple[int, ...], tuple[int, float]]] = {}
        train = table[table["purpose"] == PURPOSES[TRAIN]]
        columns = {name: train[name] for name in (*_SITE, *_TIMES)}
        nbytes = train["main_bytes"] + train["meta_bytes"] + train["header_bytes"]
        for i in range(len(train)):
            epoch, *site = (int(columns[name][i]) for name in _SITE)
            queued, waited, arrived = (int(columns[name][i]) for name in _TIMES)
            end = waited if waited != MISSING else arrived
            sites = self._sites.setdefault(epoch, {})
            before, overlap = sites.get(tuple(site), (0, 0.0))
            sites[tuple(site)] = (before + int(nbytes[i]), max(overlap, (end - queued) * 1e-9))

    def by_site(self, epoch: int) -> dict[tuple[int, ...], tuple[int, float]]:
        """(bytes, overlap) of every exchange of an epoch."""
        return self._sites.get(epoch, {})

    def total(self, epoch: int) -> int:
        """Bytes that an epoch sent."""
        return sum(sent for sent, _ in self.by_site(epoch).values())
