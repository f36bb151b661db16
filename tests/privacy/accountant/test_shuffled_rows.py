"""Rows in a secret order: clones by enumeration, whole shuffled releases by brute force, two accountants."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import comb, exp

import numpy as np
import pytest

from tuner.privacy.accountant.filters import OneRelease, from_body
from tuner.privacy.accountant.shuffled_rows import calibrate_shuffled, clones_delta, shuffled_epsilon
from tuner.privacy.verify.accountant.bounds import epsilon_ranges, judge


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("clone", [0.2, 1.5])
def test_clones_are_those_of_an_enumeration(rows: int, clone: float) -> None:
    others, rate = rows - 1, exp(-clone)
    for epsilon in (0.05, 0.6, 2.0):
        found = 0.0
        for n in range(others + 1):
            chance = comb(others, n) * rate**n * (1 - rate) ** (others - n)
            for k in range(n + 2):
                one = comb(n, k - 1) / 2**n if k else 0.0
                other = comb(n, k) / 2**n
                found += chance * max(one - exp(epsilon) * other, 0.0)
        assert clones_delta(epsilon, rows=rows, clone_epsilon=clone) == pytest.approx(found, abs=1e-13)


def divergence(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - exp(epsilon) * q, 0.0).sum())


def shuffled_law(laws: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """Law of the multiset of the rows' outputs."""
    found: Counter[tuple[int, ...]] = Counter()
    for outputs in product(range(len(laws[0])), repeat=len(laws)):
        mass = float(np.prod([law[each] for law, each in zip(laws, outputs, strict=True)]))
        if mass:
            found[tuple(sorted(outputs))] += mass
    return dict(found)


def random_randomiser(generator: np.random.Generator) -> np.ndarray:
    """Laws of three values of a record over four outputs; some outputs are impossible for some values."""
    laws = generator.dirichlet(np.full(4, generator.choice([0.5, 2.0, 20.0])), size=3)
    if generator.random() < 0.5:
        laws[generator.integers(3), generator.integers(4)] = 0.0
    return laws / laws.sum(1, keepdims=True)


def test_whole_shuffled_releases_by_brute_force() -> None:
    """No shuffled release passes the bound. Without the part for δ₀, some do."""
    generator, exceeded = np.random.default_rng(0), 0
    for _ in range(250):
        laws, rows = random_randomiser(generator), int(generator.integers(2, 5))
        others = [laws[each] for each in generator.integers(0, 3, rows - 1)]
        with_one, with_other = shuffled_law([laws[0], *others]), shuffled_law([laws[1], *others])
        keys = with_one.keys() | with_other.keys()
        p, q = (np.array([law.get(key, 0.0) for key in keys]) for law in (with_one, with_other))
        for clone in (0.1, 0.7, 2.0):
            local = max(divergence(a, b, clone) for a in laws for b in laws)
            for epsilon in (0.05, 0.4, 1.0):
                real = max(divergence(p, q, epsilon), divergence(q, p, epsilon))
                counted = clones_delta(epsilon, rows=rows, clone_epsilon=clone)
                assert real <= counted + (1 + exp(epsilon)) * (rows - 1) * exp(-clone) * local + 1e-12
                exceeded += real > counted + 1e-12
    assert exceeded > 20, "the control"


def test_a_randomiser_that_sometimes_reveals_needs_the_part_for_the_local_delta() -> None:
    """The bound is below 1 here, and the clones alone are exceeded. The law of the counts is exact."""
    rows, reveals, clone, epsilon = 40, 0.002, 0.4, 1.5
    one = 1 / (1 + exp(clone))
    count = np.array([comb(rows - 1, n) * one**n * (1 - one) ** (rows - 1 - n) for n in range(rows)])

    def law(value: np.ndarray) -> np.ndarray:
        """Law of how many rows show 1 if the record's row shows 0, 1 or a mark of its own with these probabilities."""
        hidden = np.append(value[0] * count, 0.0) + np.append(0.0, value[1] * count)
        return np.concatenate([hidden, value[2] * count])

    first = np.array([(1 - reveals) * one, (1 - reveals) * (1 - one), reveals])
    second = np.array([1 - one, one, 0.0])
    local = max(divergence(first, second, clone), divergence(second, first, clone))
    real = max(divergence(law(a), law(b), epsilon) for a, b in ((first, second), (second, first)))
    counted = clones_delta(epsilon, rows=rows, clone_epsilon=clone)
    total = counted + (1 + exp(epsilon)) * (rows - 1) * exp(-clone) * local
    assert real <= total < 1
    assert real > counted, "the control"


@pytest.mark.parametrize("epsilon", [36.0, 37.0, 50.0, 800.0])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_large_epsilon_does_not_hide_that_no_row_may_be_a_clone(epsilon: float, rows: int) -> None:
    alone = (1 - exp(-1.0) / 2) ** (rows - 1)  # the chance that no clone is like the other value
    assert clones_delta(epsilon, rows=rows, clone_epsilon=1.0) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize(("rows", "epsilon"), [(456, 1.0), (29_305, 1.0), (29_305, 0.25)])
def test_two_accountants_agree_and_less_noise_is_needed_than_without_the_order(rows: int, epsilon: float) -> None:
    found, clone = calibrate_shuffled(
        clip=1.5, label_share=0.3, classes=2, epsilon=epsilon, delta=1 / rows**1.2, rows=rows
    )
    assert clone is not None
    limit = OneRelease(found, rows, clone)
    assert from_body(limit.body()) == limit
    claimed = limit.claim(1 / rows**1.2)
    assert 0.9 * epsilon < claimed <= epsilon
    assert found.epsilon(1 / rows**1.2) > 1.2 * epsilon, "a row alone is protected less"
    (range_,) = epsilon_ranges(limit.body(), [1 / rows**1.2])
    assert judge(claimed, range_).ok is True
    # Planted: more rows, or a smaller distance to a clone, than there are.
    for wrong in (OneRelease(found, 2 * rows, clone), OneRelease(found, rows, clone * 0.8)):
        assert judge(wrong.claim(0.01), epsilon_ranges(limit.body(), [0.01])[0]).ok is not True


def test_few_rows_hide_nothing() -> None:
    _, clone = calibrate_shuffled(clip=1.0, label_share=0.3, classes=2, epsilon=1.0, delta=1e-3, rows=20)
    assert clone is None
    found, _ = calibrate_shuffled(clip=1.0, label_share=0.3, classes=2, epsilon=1.0, delta=1e-3, rows=20)
    assert shuffled_epsilon(found, 1e-3, rows=20, clone_epsilon=1.0) == found.epsilon(1e-3)
