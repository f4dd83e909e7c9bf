"""Sampled boundary rows (BNS-GCN, Wan et al. 2022, arXiv 2203.10983): each epoch a sender draws some rows for each peer.

For an ordered pair with n rows, k = max(1, round(p·n)) are drawn without replacement; their int32 numbers travel once an epoch,
ahead of all rows. A linear aggregator weights a drawn row by n/k, so that its sum stays unbiased; attention leaves the others
out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sylvie.exchange.header import HEADER_BYTES
from sylvie.exchange.plan import ExchangePlan, Route
from sylvie.exchange.wire import MessageShape, Wire

INT32_BYTES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The rows of one epoch: routes of the drawn rows, their places among all rows, and the weight of every halo row."""

    forward: Route
    backward: Route
    halo_rows: Tensor  # int64: place of every arriving row among the h halo rows
    sent_rows: Tensor  # int64: place of every row sent among the s rows of the plan
    weight: Tensor  # float64 [h, 1]: n/k where drawn, 0 elsewhere


class RowSampler:
    """Draws rows by (seed, epoch, sender, receiver) and turns both sides' numbers into an epoch's routes."""

    def __init__(self, plan: ExchangePlan, share: float, seed: int) -> None:
        self._plan, self._share, self._seed = plan, share, seed

    def count(self, rows: int) -> int:
        """k of n rows; 0 of 0."""
        return max(1, round(self._share * rows)) if rows else 0

    def draw(self, epoch: int) -> tuple[Tensor, ...]:
        """For every peer the drawn places among the rows it would get, int32, ascending."""
        drawn = []
        for peer, ids in enumerate(self._plan.forward.out_ids):
            rows = int(ids.shape[0])
            rng = np.random.default_rng([self._seed, epoch, self._plan.rank, peer])
            chosen = np.sort(rng.choice(rows, self.count(rows), replace=False)) if rows else np.empty(0)
            drawn.append(torch.from_numpy(chosen.astype(np.int32)))
        return tuple(drawn)

    def wire(self) -> Wire:
        """The layout of the message that carries the drawn numbers: no rows' width, 4 bytes of metadata a row."""
        route, sides = self._plan.forward, []
        for ids in (route.out_ids, route.in_ids):
            shapes, splits, offset = [], [0] * len(ids), 0
            for peer, rows in enumerate(map(len, ids)):
                if rows:
                    meta = INT32_BYTES * self.count(rows)
                    shapes.append(
                        MessageShape(
                            peer=peer, offset=offset, rows=self.count(rows), main_bytes=0, meta_bytes=meta, layout=None
                        )
                    )
                    splits[peer] = HEADER_BYTES + meta
                    offset += splits[peer]
            sides.append((tuple(shapes), splits))
        (out, send), (incoming, recv) = sides
        return Wire(
            route=route,
            dim=0,
            base=32,
            dtype=torch.int32,
            out=out,
            incoming=incoming,
            send_splits=send,
            recv_splits=recv,
        )

    def select(self, out_places: tuple[Tensor, ...], in_places: tuple[Tensor, ...]) -> Selection:
        """The epoch's routes from the places drawn here and those drawn by the peers."""
        plan = self._plan
        forward = _sampled(plan.forward, out_places, in_places)
        backward = _sampled(plan.backward, in_places, out_places)
        halo = torch.cat([p.long() + s.start for p, s in zip(in_places, plan.forward.in_slice, strict=True)])
        sent = torch.cat([p.long() + s.start for p, s in zip(out_places, plan.backward.in_slice, strict=True)])
        weight = torch.zeros(plan.forward.arrivals, 1, dtype=torch.float64)
        for places, rows in zip(in_places, plan.forward.in_slice, strict=True):
            if len(places):
                weight[places.long() + rows.start] = (rows.stop - rows.start) / len(places)
        device = plan.forward.out_index[plan.rank].device
        halo, sent, weight = halo.to(device), sent.to(device), weight.to(device)
        return Selection(forward=forward, backward=backward, halo_rows=halo, sent_rows=sent, weight=weight)


def _sampled(route: Route, out_places: tuple[Tensor, ...], in_places: tuple[Tensor, ...]) -> Route:
    starts = [0]
    for places in in_places:
        starts.append(starts[-1] + len(places))
    return Route(
        out_index=tuple(index[p.long()] for index, p in zip(route.out_index, out_places, strict=True)),
        out_ids=tuple(ids[p.long()] for ids, p in zip(route.out_ids, out_places, strict=True)),
        out_levels=tuple(levels[p.long()] for levels, p in zip(route.out_levels, out_places, strict=True)),
        in_ids=tuple(ids[p.long()] for ids, p in zip(route.in_ids, in_places, strict=True)),
        in_levels=tuple(levels[p.long()] for levels, p in zip(route.in_levels, in_places, strict=True)),
        in_slice=tuple(slice(a, b) for a, b in itertools.pairwise(starts)),
    )
