"""Poisson batches: the law of inclusions, pairs and sizes at small and large rates, with samplers that must fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from training_fakes import keyed

from trainables.engine.random import SeededGenerator
from trainables.engine.sampling import _GAPS_BELOW, poisson_batch

RECORDS, BATCHES = 200, 4000
RATES = [0.05, 0.4]
assert RATES[0] < _GAPS_BELOW < RATES[1], "both ways to a batch are tested"


def chosen(batches: Sequence[Tensor], records: int) -> np.ndarray[Any, Any]:
    included = np.zeros((len(batches), records))
    for row, batch in zip(included, batches, strict=True):
        row[batch.numpy()] = 1
    return included


def looks_poisson(batches: list[Tensor], rate: float) -> bool:
    """Sizes against the binomial, each record's inclusions, neighbours and all pairs together; each at about 1e-3."""
    count = len(batches)
    sizes = np.bincount([len(batch) for batch in batches], minlength=RECORDS + 1)
    law = stats.binom.pmf(np.arange(RECORDS + 1), RECORDS, rate) * count
    common = law >= 5
    observed, expected = np.append(sizes[common], sizes[~common].sum()), np.append(law[common], law[~common].sum())
    included = chosen(batches, RECORDS)
    standard = (included - rate) / math.sqrt(rate * (1 - rate))
    spread = (standard.sum(0) ** 2).sum() / count
    neighbours = (standard[:, :-1] * standard[:, 1:]).sum() / math.sqrt(count * (RECORDS - 1))
    # The products of all pairs are uncorrelated, so that their mean square is 1 up to a few of its deviations.
    products = (standard.T @ standard / math.sqrt(count))[np.triu_indices(RECORDS, 1)]
    return bool(
        stats.chisquare(observed, expected).pvalue > 1e-3
        and 1e-3 < stats.chi2.cdf(spread, RECORDS) < 1 - 1e-3
        and abs(neighbours) < 3.3
        and abs((products**2).mean() - 1) < 3.3 * math.sqrt(2 / len(products))
    )


@pytest.mark.parametrize("rate", RATES)
def test_batches_follow_the_poisson_sampling_law(rate: float) -> None:
    generator = keyed()
    assert looks_poisson([poisson_batch(generator, RECORDS, rate) for _ in range(BATCHES)], rate)


@pytest.mark.parametrize("rate", RATES)
def test_the_sampling_test_can_fail(rate: float) -> None:
    torch.manual_seed(0)
    size = round(RECORDS * rate)
    several = range(BATCHES)

    def bernoulli(rates: Tensor | float, records: int = RECORDS) -> Tensor:
        return (torch.rand(records) < rates).nonzero().squeeze(1)

    fixed = [torch.randperm(RECORDS)[:size] for _ in several]
    halves = [bernoulli(rate, RECORDS // 2) for _ in several]
    pairs = [torch.cat([2 * half, 2 * half + 1]) for half in halves]
    mirrored = [torch.cat([half, RECORDS - 1 - half]) for half in halves]
    uneven = [bernoulli(torch.linspace(0.5 * rate, 1.5 * rate, RECORDS)) for _ in several]
    more = [bernoulli(1.05 * rate) for _ in several]
    spaced = [batch[torch.cat([torch.ones(1), batch.diff()]) > 1] for batch in (bernoulli(rate) for _ in several)]
    for wrong in (fixed, pairs, mirrored, uneven, more, spaced):
        assert not looks_poisson(wrong, rate)


def joint_pvalue(draw: Callable[[], Tensor], records: int, rate: float, batches: int) -> float:
    """Chi-square of all 2ⁿ possible batches against the product of Bernoulli laws; rare ones are counted together."""
    codes = [int((2**batch).sum()) for batch in (draw() for _ in range(batches))]
    counts = np.bincount(codes, minlength=2**records)
    sizes = np.array([code.bit_count() for code in range(2**records)])
    law = rate**sizes * (1 - rate) ** (records - sizes) * batches
    common = law >= 5
    observed, expected = np.append(counts[common], counts[~common].sum()), np.append(law[common], law[~common].sum())
    return float(stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue)


@pytest.mark.parametrize("rate", [0.19, 0.4])
def test_every_possible_batch_has_its_probability(rate: float) -> None:
    """Of five records there are 32 batches: this is the whole law, all dependences included."""
    generator, records = keyed(2), 5
    assert joint_pvalue(lambda: poisson_batch(generator, records, rate), records, rate, 10_000) > 1e-3
    torch.manual_seed(0)

    def of_fixed_size() -> Tensor:
        return torch.randperm(records)[: round(records * rate)]

    def in_pairs() -> Tensor:
        half = (torch.rand(3) < rate).nonzero().squeeze(1)
        both = torch.cat([2 * half, 2 * half + 1])
        return both[both < records]

    assert joint_pvalue(of_fixed_size, records, rate, 10_000) < 1e-9
    assert joint_pvalue(in_pairs, records, rate, 10_000) < 1e-9


class Scripted(SeededGenerator):
    """Hands out the uniforms it is given, and the last one again and again."""

    def __init__(self, *uniforms: float) -> None:
        super().__init__(0)
        self.left = list(uniforms)

    def uniform(self, size: int) -> Tensor:
        drawn = [self.left.pop(0) if len(self.left) > 1 else self.left[0] for _ in range(size)]
        return torch.tensor(drawn, dtype=torch.float64)


@given(st.floats(1e-6, _GAPS_BELOW, exclude_max=True), st.integers(0, 2**53 - 1), st.integers(1, 10**9))
def test_a_gap_is_the_inverse_of_its_law(rate: float, numerator: int, records: int) -> None:
    """The first record to enter is the k with (1 - q)^(k+1) < u ≤ (1 - q)^k, in fifty digits."""
    found = poisson_batch(Scripted(numerator / 2**53, 1 - 2.0**-53), min(records, 10**6), rate).tolist()
    with mpmath.workdps(50):
        exact = mpmath.log(1 - mpmath.mpf(numerator) / 2**53) / mpmath.log(1 - mpmath.mpf(rate))
        if abs(exact - mpmath.nint(exact)) > 1e-14 * (1 + exact):  # on a border, either side is right
            first = int(mpmath.floor(exact))
            assert found[:1] == ([first] if first < min(records, 10**6) else [])


def test_drawing_goes_on_until_the_last_record_is_passed() -> None:
    """Uniforms of 0 are gaps of 0: many more records enter than were expected, and none may be missed."""
    for records in (1, 2, 50, 1000):
        assert poisson_batch(Scripted(0.0), records, 0.01).tolist() == list(range(records))
    assert poisson_batch(Scripted(1 - 2.0**-53), 1000, 0.01).tolist() == []


@given(st.integers(0, 500), st.floats(0, 1, exclude_min=True), st.integers(0, 1000))
def test_a_batch_is_increasing_indices(records: int, rate: float, seed: int) -> None:
    batch = poisson_batch(SeededGenerator(seed), records, rate)
    assert batch.dtype == torch.int64
    assert batch.dim() == 1
    assert bool((batch.diff() > 0).all())
    assert len(batch) == 0 or 0 <= int(batch[0]) <= int(batch[-1]) < records


def test_batches_at_the_ends() -> None:
    assert poisson_batch(keyed(), 5, 1.0).tolist() == [0, 1, 2, 3, 4]
    for rate in (1e-300, 5e-324, 1e-12):
        empty = poisson_batch(keyed(), 5, rate)
        assert (empty.tolist(), empty.dtype) == ([], torch.int64)
    for rate in (1e-9, 0.1, 0.5, 1.0):
        none = poisson_batch(keyed(), 0, rate)
        assert (none.tolist(), none.dtype) == ([], torch.int64)


def test_a_tiny_rate_still_finds_its_records() -> None:
    """10⁹ records at 10⁻⁸: ten are expected a batch, and no memory of the size of the data set is needed."""
    generator = keyed()
    sizes = [len(poisson_batch(generator, 10**9, 1e-8)) for _ in range(400)]
    assert abs(np.mean(sizes) - 10) < 3.5 * math.sqrt(10 / 400)
    assert abs(np.var(sizes, ddof=1) - 10) < 3.5 * math.sqrt((10 + 2 * 10**2) / 400)
