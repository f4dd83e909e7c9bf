"""What happens to rows between their arrival and their use: nothing, or an average over epochs."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from sylvie.exchange.flight import Site


class ArrivalFilter(Protocol):
    """Turns the rows that arrived for a site into the rows that the layer sees."""

    def apply(self, site: Site, rows: Tensor) -> Tensor:
        """[arrivals, D] -> [arrivals, D]."""


class Unfiltered:
    """Rows are used as they arrive."""

    def apply(self, site: Site, rows: Tensor) -> Tensor:
        """The rows themselves."""
        return rows


class Smoothing:
    """PipeGCN's smoothing: an exponential average over epochs, ``a = m·a + (1 − m)·rows``, begun with the first rows.

    ``directions`` says which are averaged: embeddings (forward), gradients (backward), or both.
    """

    def __init__(self, momentum: float, directions: frozenset[str]) -> None:
        self._momentum, self._directions = momentum, directions
        self._average: dict[Site, Tensor] = {}

    def apply(self, site: Site, rows: Tensor) -> Tensor:
        """The average including ``rows``; other directions pass unchanged."""
        if site.direction not in self._directions:
            return rows
        average = self._average.get(site)
        if average is None:
            average = self._average[site] = rows.clone()
        else:
            average.mul_(self._momentum).add_(rows, alpha=1 - self._momentum)
        return average.view_as(average)
