"""The claims against exact enumeration: small mechanisms, the worst adversaries, and planted faults that must show."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest
from enumeration import FAULTS, MODES, Discrete, hockey_stick, run_cases, worst_adaptive
from enumeration_of_selection import _best, _winner, profile_of

from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import poisson_shift, shift_of

COIN = Discrete((0.6, 0.4), (0.3, 0.7))
DIE = Discrete((0.5, 0.3, 0.2), (0.2, 0.3, 0.5))


@pytest.mark.parametrize(
    ("cases", "seed"), [(700, 1), pytest.param(10_000, 2, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_realised_delta_never_exceeds_the_claim_in_any_mode(cases: int, seed: int) -> None:
    found = run_cases(cases, seed)
    assert [outcome.mode for outcome in found] == list(MODES)
    assert sum(outcome.cases for outcome in found) == cases
    assert [outcome for outcome in found if outcome.violations] == []
    # The cases have teeth: in every mode one of them comes near to its claim.
    assert all(outcome.closest > (0.5 if "learning" in outcome.mode else 0.9) for outcome in found), found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_realised_delta_of_a_committed_run_never_exceeds_the_claim() -> None:
    (found,) = run_cases(10_000, 3, modes=("committed run",))
    assert (found.violations, found.closest > 0.9) == (0, True)


@pytest.mark.parametrize(("fault", "mode"), [(fault, mode) for fault, modes in FAULTS.items() for mode in modes])
def test_a_planted_fault_is_caught_by_the_same_enumeration(fault: str, mode: str) -> None:
    (outcome,) = run_cases(200, 1, fault=fault, modes=(mode,))
    assert outcome.violations > 0


def test_planted_fault_runs_revealed_is_caught() -> None:
    # Whoever sees K with the winner sees more than what was claimed of the winner alone.
    (hidden,) = run_cases(300, 7, modes=("selection",))
    (revealed,) = run_cases(300, 7, fault="runs_revealed", modes=("selection",))
    assert hidden.violations == 0
    assert revealed.violations > 100


def every_tree(menu: tuple[Discrete, ...], quotas: tuple[int, ...], epsilon: float) -> float:
    """δ of the worst decision tree, by going through all decision trees one by one: what the fast way must equal."""

    def trees(used: tuple[int, ...]) -> list[list[tuple[float, float]]]:
        """Every tree from here, as the leaves that it has under the two neighbours."""
        found = [[(1.0, 1.0)]]
        for index, mechanism in enumerate(menu):
            if used[index] >= quotas[index]:
                continue
            below = trees((*used[:index], used[index] + 1, *used[index + 1 :]))
            for choice in product(below, repeat=len(mechanism.on)):
                leaves = [
                    (p * a, q * b)
                    for p, q, tree in zip(mechanism.on, mechanism.off, choice, strict=True)
                    for a, b in tree
                ]
                found.append(leaves)
        return found

    scale = exp(epsilon)
    return max(
        max(sum(max(p - scale * q, 0.0) for p, q in tree), sum(max(q - scale * p, 0.0) for p, q in tree))
        for tree in trees((0,) * len(menu))
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.1])
@pytest.mark.parametrize(
    ("menu", "quotas"), [((COIN, Discrete((0.9, 0.1), (0.7, 0.3))), (2, 1)), ((COIN, DIE), (1, 1))]
)
def test_the_dynamic_programme_equals_going_through_all_decision_trees(
    menu: tuple[Discrete, ...], quotas: tuple[int, ...], epsilon: float
) -> None:
    fast = worst_adaptive(menu, lambda used, index: used[index] < quotas[index], epsilon, depth=sum(quotas))
    assert fast == pytest.approx(every_tree(menu, quotas, epsilon), abs=1e-12)


@pytest.mark.parametrize(
    "law",
    [
        RunLaw(name="geometric", mean=4),
        RunLaw(name="logarithmic", mean=4),
        RunLaw(name="negative_binomial", mean=4, shape=-0.4),
        RunLaw(name="poisson", mean=4),
    ],
    ids=str,
)
def test_the_law_of_the_winner_is_the_sum_over_the_number_of_runs(law: RunLaw) -> None:
    mass, orders = np.array([0.2, 0.5, 0.3]), np.array([[0, 1, 2], [2, 0, 1]])
    runs = np.arange(1, 3000)
    weights = np.array([law.pmf(int(k)) for k in runs])[:, None, None]
    assert _best(law, mass, orders) == pytest.approx((weights * _winner(mass, orders, runs)).sum(axis=0), abs=1e-8)


def test_poisson_with_more_runs_than_a_search_may_have_is_bounded_too() -> None:
    on, off = np.array([[0.7, 0.3]]), np.array([[0.5, 0.5]])
    shift = poisson_shift(30.0, lambda at: profile_of(on, off, at))
    for epsilon in np.linspace(0.5, 12.0, 24):
        for order in ([0, 1], [1, 0]):
            winner = [np.diff(np.exp(-30 * (1 - np.cumsum([0.0, *side[0][order]])))) for side in (on, off)]
            realised = max(hockey_stick(*pair, epsilon) for pair in (winner, winner[::-1]))
            assert realised <= shift.delta(lambda at: profile_of(on, off, at), epsilon) + 1e-12


def test_pure_runs_reach_the_price_of_selection() -> None:
    # ε = 0.5: a rare answer that D favours, below better ones that D′ favours, wins for e^3ε times as often on D.
    law, better, rare, more = RunLaw(name="geometric", mean=500_000), 0.02, 1e-7, exp(0.5)
    on = np.array([[1 - rare * more - better, rare * more, better]])
    off = np.array([[1 - rare - better * more, rare, better * more]])
    shift = shift_of(law, lambda at: profile_of(on, off, at))
    here, there = (_best(law, side[0], np.array([[0, 1, 2]]))[0] for side in (on, off))
    assert 1.49 < log(here[1] / there[1]) <= shift.shift + 0.5 + 1e-9 < 1.5 + 1e-6
