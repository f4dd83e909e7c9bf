"""Intervals, p-values and power against what can be known without them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from sylvie_trace.resample import (
    MIN_REPEATS,
    detectable,
    mean_interval,
    power,
    ratio_of_means,
    sign_flip_p_value,
    smallest_p_value,
)


def test_an_interval_needs_repeats() -> None:
    few = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert few is not None and (few.estimate, few.low, few.high, few.n) == (2.5, None, None, 4)
    assert mean_interval([]) is None and ratio_of_means([], [1.0], paired=False) is None
    equal = mean_interval([0.5] * MIN_REPEATS)
    assert equal is not None and equal.low == equal.high == 0.5


def test_an_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(60):
        found = mean_interval(rng.normal(3.0, 1.0, size=12).tolist())
        assert found is not None and found.low is not None and found.high is not None
        covered += found.low <= 3.0 <= found.high
    assert covered >= 50  # 95 % of 60 is 57; a bootstrap of 12 is a little narrow


def test_pairing_takes_out_what_both_sides_share() -> None:
    rng = np.random.default_rng(1)
    shared = rng.uniform(1, 3, size=10)
    over, under = (2.0 * shared).tolist(), shared.tolist()
    paired = ratio_of_means(over, under, paired=True)
    apart = ratio_of_means(over, under, paired=False)
    assert paired is not None and apart is not None
    assert paired.estimate == pytest.approx(2.0) and paired.low == pytest.approx(2.0)
    assert apart.low is not None and apart.low < 1.9


def test_the_p_value_is_that_of_all_sign_flips() -> None:
    data = [0.3, 0.1, -0.05, 0.4, 0.2, 0.15]
    observed = abs(np.mean(data))
    flips = [abs(np.mean(np.multiply(signs, data))) for signs in itertools.product((-1, 1), repeat=6)]
    expected = np.mean([flip >= observed - 1e-12 for flip in flips])
    assert sign_flip_p_value(data) == pytest.approx(expected)
    assert sign_flip_p_value([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(smallest_p_value(5)) == 2 / 32
    with pytest.raises(ValueError, match="no pair"):
        sign_flip_p_value([])


def test_power_is_what_simulation_gives() -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(0.8, 1.0, size=(4000, 10))
    simulated = float(np.mean(stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05))
    assert power(0.8, 1.0, 10) == pytest.approx(simulated, abs=0.03)
    assert power(100.0, 1.0, 5) == 0.0  # five pairs cannot give a p-value below 0.05
    smallest = detectable(1.0, 10)
    assert smallest is not None and power(smallest, 1.0, 10) == pytest.approx(0.8, abs=1e-6)
    assert detectable(1.0, 4) is None
