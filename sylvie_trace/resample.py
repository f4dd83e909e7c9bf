"""Intervals and p-values by resampling, and what to make of them when there are few repeats.

Everything random draws from a generator with a fixed seed: the same runs give the same numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

#: Fewer repeats than this give no interval: resampling four values says little about a fifth.
MIN_REPEATS = 5
_RESAMPLES = 9999
_SEED = 20_231

Values = npt.NDArray[np.float64]
Statistic = Callable[..., npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Interval:
    """An estimate of n repeats with its 95 % interval; ``low`` and ``high`` are None below ``MIN_REPEATS``."""

    estimate: float
    low: float | None
    high: float | None
    n: int

    def above(self, bound: float) -> bool:
        """Whether the whole interval lies above ``bound``."""
        return self.low is not None and self.low > bound

    def below(self, bound: float) -> bool:
        """Whether the whole interval lies below ``bound``."""
        return self.high is not None and self.high < bound


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The mean of ``values`` (paired differences, say) with its bootstrap interval; None for no value."""
    if not values:
        return None
    data = np.asarray(values, dtype=np.float64)
    return _interval((data,), float(data.mean()), _mean, paired=False)


def ratio_of_means(over: Sequence[float], under: Sequence[float], *, paired: bool) -> Interval | None:
    """mean(over) / mean(under), resampled in pairs or apart; None when a side is empty."""
    if not over or not under:
        return None
    a, b = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    assert not paired or a.shape == b.shape
    return _interval((a, b), float(a.mean() / b.mean()), _ratio, paired=paired)


def difference_of_means(over: Sequence[float], under: Sequence[float]) -> Interval | None:
    """mean(over) − mean(under) of runs that cannot be paired; None when a side is empty."""
    if not over or not under:
        return None
    a, b = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    return _interval((a, b), float(a.mean() - b.mean()), _difference, paired=False)


def _mean(x: Values, axis: int = -1) -> Values:
    return np.asarray(x.mean(axis=axis))


def _ratio(a: Values, b: Values, axis: int = -1) -> Values:
    return np.asarray(a.mean(axis=axis) / b.mean(axis=axis))


def _difference(a: Values, b: Values, axis: int = -1) -> Values:
    return np.asarray(a.mean(axis=axis) - b.mean(axis=axis))


def _interval(data: tuple[Values, ...], estimate: float, statistic: Statistic, *, paired: bool) -> Interval:
    """Bias-corrected and accelerated where that is defined, percentile otherwise (equal values, say)."""
    n = min(len(sample) for sample in data)
    if n < MIN_REPEATS:
        return Interval(estimate, None, None, n)
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # degenerate data: the bounds below say so as NaN
            found = stats.bootstrap(
                data,
                statistic,
                paired=paired,
                vectorized=True,
                n_resamples=_RESAMPLES,
                method=method,
                rng=np.random.default_rng(_SEED),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return Interval(estimate, float(found.low), float(found.high), n)
    return Interval(estimate, estimate, estimate, n)


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Two-sided p-value of paired differences: under no effect each could as well have the other sign.

    Exact up to 13 pairs (all 2^n flips), 9999 random flips beyond. Raises ``ValueError`` for no difference.
    """
    if not differences:
        raise ValueError("no pair to test: name runs of both kinds with equal seeds")
    data = np.asarray(differences, dtype=np.float64)
    found = stats.permutation_test(
        (data,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        alternative="two-sided",
        rng=np.random.default_rng(_SEED),
    )
    return float(found.pvalue)


def smallest_p_value(pairs: int) -> float:
    """The least p-value that a two-sided sign-flip test of this many pairs can give: 2 / 2^n."""
    return float(2.0 ** (1 - pairs)) if pairs else 1.0


def power(effect: float, std: float, pairs: int, *, alpha: float = 0.05) -> float:
    """Chance that ``pairs`` normal differences with this mean and deviation give a p-value below ``alpha``.

    The paired t-test's, whose power the sign-flip test approaches; 0 where no p-value can get below ``alpha``.
    """
    if smallest_p_value(pairs) > alpha or pairs < 2:
        return 0.0
    if std == 0:
        return 1.0 if effect else alpha
    shift = abs(effect) * math.sqrt(pairs) / std
    bound = float(stats.t.ppf(1 - alpha / 2, pairs - 1))
    noncentral = stats.nct(pairs - 1, shift)
    return float(noncentral.sf(bound) + noncentral.cdf(-bound))


def detectable(std: float, pairs: int, *, alpha: float = 0.05, wanted: float = 0.8) -> float | None:
    """The effect that ``pairs`` differences of this deviation detect with power ``wanted``; None where none can."""
    if power(1.0, 0.0, pairs, alpha=alpha) < wanted:
        return None
    low, high = 0.0, max(std, 1e-12)
    while power(high, std, pairs, alpha=alpha) < wanted:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, std, pairs, alpha=alpha) >= wanted else (middle, high)
    return high
