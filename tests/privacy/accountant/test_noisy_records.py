"""ε of one noisy record: against brute force, a second accountant, published values; planted wrong formulas."""

from __future__ import annotations

from itertools import product
from math import comb, exp, inf, log

import numpy as np
import pytest

from tuner.errors import InputError
from tuner.privacy.accountant.filters import OneRelease
from tuner.privacy.accountant.noisy_records import NoisyRecords, calibrate_release
from tuner.privacy.verify.accountant.noisy_record import release_epsilon

CASES = [(0.05, 2, 0.3), (1.0, 2, 0.5), (4.0, 3, 0.2), (8.0, 10, 0.7)]


@pytest.mark.parametrize(("epsilon", "classes", "share"), CASES)
def test_two_accountants_agree_and_the_calibrated_noise_is_the_smallest(
    epsilon: float, classes: int, share: float
) -> None:
    found = calibrate_release(clip=1.5, label_share=share, classes=classes, epsilon=epsilon, delta=1e-5)
    claimed = found.epsilon(1e-5)
    low, high = release_epsilon(OneRelease(found, 10).body(), 1e-5)
    assert low * (1 - 1e-6) <= claimed <= epsilon
    assert claimed <= high <= claimed * 1.005
    less = NoisyRecords(clip=1.5, noise=found.noise * 0.9998, label_epsilon=found.label_epsilon, classes=classes)
    assert less.epsilon(1e-5) > epsilon


def test_without_labels_it_is_the_analytic_gaussian_mechanism() -> None:
    # Balle & Wang 2018 at δ = 1e-5, for two records at a distance of 2.
    for epsilon, noise in ((0.5, 14.06), (1.0, 7.46), (2.0, 3.99), (4.0, 2.16), (8.0, 1.20)):
        found = calibrate_release(clip=1.0, label_share=1e-9, classes=2, epsilon=epsilon, delta=1e-5)
        assert abs(found.noise - noise) < 0.005


def discrete_records(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on a grid with a largest log-ratio of ±1 a step, as a Gaussian's stand-in that can be enumerated."""
    p = exp(0.5) / (1 + exp(0.5))
    counts = np.arange(steps + 1)
    ways = np.array([comb(steps, int(count)) for count in counts], float)
    one = ways * p**counts * (1 - p) ** (steps - counts)
    return one, one[::-1]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_sum_over_reports_is_the_divergence_of_both_outputs(classes: int) -> None:
    """Enumerate (cell, report) of two records, with the profile of the cells in the place of the Gaussian's."""
    one, other = discrete_records(6)
    randomiser = NoisyRecords(clip=1.0, noise=1.0, label_epsilon=0.8, classes=classes)
    response = np.full((classes, classes), randomiser.changed)
    np.fill_diagonal(response, randomiser.kept)
    assert np.allclose(response.sum(1), 1)

    def cells(epsilon: float) -> float:
        return float(np.maximum(one - exp(epsilon) * other, 0).sum())

    for epsilon in (-0.5, 0.0, 0.3, 1.2, 2.5):
        p, q = np.outer(one, response[0]), np.outer(other, response[1])
        brute = float(np.maximum(p - exp(epsilon) * q, 0).sum())
        y = randomiser.label_epsilon
        summed = randomiser.kept * cells(epsilon - y) + randomiser.changed * (
            cells(epsilon + y) + (classes - 2) * cells(epsilon)
        )
        assert summed == pytest.approx(brute, abs=1e-12)


@pytest.mark.parametrize(("records", "rows"), [(2, 2), (2, 3), (3, 2), (1, 3), (4, 2)])
def test_neighbours_by_brute_force_over_places_and_choices(records: int, rows: int) -> None:
    """A small release in full: features −1 or 1 by a coin, labels by response; D with and without its last record.

    The local divergence of one record bounds that of the whole release, whatever n and m are, in both directions.
    """
    keep, response = 0.8, 0.7

    def row(record: tuple[int, int] | None) -> dict[tuple[int, int], float]:
        if record is None:  # features 0: the coin is fair, and the label is uniform
            return {(x, y): 0.25 for x in (-1, 1) for y in (0, 1)}
        return {
            (x, y): (keep if x == record[0] else 1 - keep) * (response if y == record[1] else 1 - response)
            for x in (-1, 1)
            for y in (0, 1)
        }

    def release(data: list[tuple[int, int]]) -> dict[tuple[tuple[int, int], ...], float]:
        slots: list[tuple[int, int] | None] = [*data, *[None] * max(rows - len(data), 0)]
        orders = list({order for order in product(range(len(slots)), repeat=rows) if len(set(order)) == rows})
        law: dict[tuple[tuple[int, int], ...], float] = {}
        for order in orders:
            rows_laws = [row(slots[place]) for place in order]
            for outcome in product(*rows_laws):
                mass = float(np.prod([each[value] for each, value in zip(rows_laws, outcome, strict=True)]))
                law[outcome] = law.get(outcome, 0.0) + mass / len(orders)
        return law

    def divergence(p: dict[object, float], q: dict[object, float], epsilon: float) -> float:
        return sum(max(p.get(each, 0.0) - exp(epsilon) * q.get(each, 0.0), 0.0) for each in p.keys() | q.keys())

    data = [(1, 0), (-1, 1), (1, 1), (-1, 0)][:records]
    with_it, without = release([*data[:-1], data[-1]]), release(data[:-1])
    every = [(x, y) for x in (-1, 1) for y in (0, 1)]
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        local = max(divergence(row(a), row(b), epsilon) for a in every for b in every)
        for p, q in ((with_it, without), (without, with_it)):
            assert divergence(p, q, epsilon) <= local + 1e-12
    # Control: without the fill, the number of rows tells the two data sets apart.
    if records == rows:
        shorter = {outcome[:-1]: mass for outcome, mass in without.items()}
        assert divergence(with_it, shorter, 5.0) == pytest.approx(1.0)


def test_the_divergence_bounds_the_profile() -> None:
    """A claim by Rényi divergence is never below the exact one, and the response alone is exact."""
    found = NoisyRecords(clip=1.0, noise=3.0, label_epsilon=1.2, classes=4)
    for order in (1.5, 4.0, 16.0):
        by_order = found.divergence(order) + log(1e5) / (order - 1)
        assert by_order >= found.epsilon(1e-5)
        p, q = np.array([found.kept, *[found.changed] * 3]), np.array([found.changed, found.kept, *[found.changed] * 2])
        exact = log(float((p**order * q ** (1 - order)).sum())) / (order - 1)
        assert found.divergence(order) - order * found.shift**2 / 2 == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("fault", ["one sided distance", "labels for nothing", "labels alone"])
def test_planted_faults_are_found_by_the_second_accountant(fault: str) -> None:
    real = NoisyRecords(clip=1.0, noise=4.0, label_epsilon=1.0, classes=3)
    wrong = {
        "one sided distance": NoisyRecords(clip=0.5, noise=4.0, label_epsilon=1.0, classes=3),
        "labels for nothing": NoisyRecords(clip=1.0, noise=4.0, label_epsilon=1e-6, classes=3),
        "labels alone": NoisyRecords(clip=1e-6, noise=4.0, label_epsilon=1.0, classes=3),
    }[fault]
    low, _ = release_epsilon(OneRelease(real, 5).body(), 1e-5)
    assert wrong.epsilon(1e-5) < low
    assert real.epsilon(1e-5) >= low * (1 - 1e-6)


@pytest.mark.parametrize("bad", [{"noise": 0.0}, {"noise": float("nan")}, {"clip": inf}, {"classes": 1}])
def test_bad_numbers_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        NoisyRecords(**{"clip": 1.0, "noise": 1.0, "label_epsilon": 1.0, "classes": 2, **bad})  # type: ignore[arg-type]


def test_labels_that_are_hardly_ever_changed_have_no_claim() -> None:
    """The uniform numbers have 53 bits: at 38, none of them changes a label of two classes."""
    assert NoisyRecords(clip=1.0, noise=10.0, label_epsilon=24.0, classes=2).epsilon(1e-5) < 25
    assert NoisyRecords(clip=1.0, noise=10.0, label_epsilon=38.0, classes=2).epsilon(1e-5) == inf
