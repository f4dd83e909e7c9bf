"""Epochs gathered into bins, so that 5000 of them stay readable; a picture says when it shows bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Plotted = list[float | None]


@dataclass(frozen=True)
class Bins:
    """``size`` consecutive epochs a bin, the last one shorter when they do not divide. ``epoch`` is of shape (E,)."""

    epoch: npt.NDArray[np.int64]
    size: int

    @property
    def x(self) -> list[float]:
        """Where each bin stands: the middle of its epochs."""
        return [float(value) for value in self._split(self.epoch.astype(np.float64), np.nanmean)]

    @property
    def gap(self) -> float:
        """The gap between bars, none where they are too thin for one."""
        return 0.04 if len(self.epoch) <= 80 * self.size else 0.0

    @property
    def note(self) -> str:
        """What to tell the reader; empty when every epoch is shown."""
        return "" if self.size == 1 else f"Each point stands for {self.size} epochs."

    def mean(self, values: npt.ArrayLike) -> Plotted:
        """Mean of each bin, None where it holds no number."""
        return plotted(self._split(values, np.nanmean))

    def low(self, values: npt.ArrayLike) -> Plotted:
        """Smallest number of each bin."""
        return plotted(self._split(values, np.nanmin))

    def high(self, values: npt.ArrayLike) -> Plotted:
        """Largest number of each bin."""
        return plotted(self._split(values, np.nanmax))

    def _split(self, values: npt.ArrayLike, reduce: object) -> Floats:
        assert callable(reduce)
        array = np.asarray(values, dtype=np.float64)
        count = -(-len(self.epoch) // self.size)
        padded = np.full(count * self.size, np.nan)
        padded[: len(array)] = array
        rows = padded.reshape(count, self.size)
        known = ~np.isnan(rows).all(axis=1)
        result = np.full(count, np.nan)
        result[known] = reduce(rows[known], axis=1)
        return result


def bins(epoch: npt.NDArray[np.int64], limit: int) -> Bins:
    """The smallest bins of which at most ``limit`` cover the epochs."""
    return Bins(epoch, max(1, -(-len(epoch) // limit)))


def plotted(values: npt.ArrayLike) -> Plotted:
    """Numbers as a picture needs them: six digits, None where there is none."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=np.float64).tolist()]


def numbers(values: list[float | None]) -> Floats:
    """Optional numbers as an array, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
