"""The price of a sealed search: the profile of a run, the bounds on the winner, the least of them, cut and noise."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import erfc, exp, expm1, inf, log, nan, sqrt

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select
from errors_helper import raises_code
from ledgers import delta_at

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant import selection
from tuner.privacy.accountant.filters import Sealed, from_body
from tuner.privacy.accountant.initial_guess import previous
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import divergence, epsilon_of_divergence
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import (
    Profile,
    at_most_for,
    calibrate_selection,
    epsilon_selection,
    poisson_shift,
    profile,
    shift_of,
    winner_divergences,
)

CIFAR = SampledGaussian(256 / 50_000, 1.1)
RUNS = ((CIFAR, 2000),)
GEOMETRIC = RunLaw(name="geometric", mean=20)
LOGARITHMIC = RunLaw(name="logarithmic", mean=20)
BINOMIAL = RunLaw(name="negative_binomial", mean=20, shape=2.5)
HEAVY = RunLaw(name="negative_binomial", mean=20, shape=-0.3)
POISSON = RunLaw(name="poisson", mean=8)
LAWS = [GEOMETRIC, LOGARITHMIC, BINOMIAL, HEAVY, POISSON]
UNCUT = 10**6


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of the Gaussian mechanism at any real ε (Balle & Wang 2018, Theorem 8)."""

    def tail(x: float) -> float:
        return 0.5 * erfc(x / sqrt(2))

    return tail(epsilon / mu - mu / 2) - exp(epsilon) * tail(epsilon / mu + mu / 2)


@pytest.mark.parametrize("epsilon", [-6.0, -2.0, -0.3, 0.0, 0.3, 2.0, 6.0])
def test_profile_of_a_gaussian_is_the_exact_one_from_above_at_negative_epsilon_too(epsilon: float) -> None:
    found = profile(SampledGaussian(1.0, 10.0), 100).delta(epsilon)  # μ = 1
    assert gaussian_delta(1.0, epsilon) <= found <= gaussian_delta(1.0, epsilon) + 2e-5


def test_profile_is_the_larger_direction_and_agrees_with_the_librarys_on_a_finer_grid() -> None:
    grid = accounting.interval(CIFAR, 2000) / 4
    library = PLDAccountant(value_discretization_interval=grid).compose(CIFAR.event(2000))
    for epsilon in (0.0, 0.2, 0.8, 1.5):
        found, finer = profile(CIFAR, 2000).delta(epsilon), library.get_delta(epsilon)
        assert finer * (1 - 1e-9) <= found <= finer * 1.001 + 1e-9
        assert found == pytest.approx(delta_at(CIFAR, 2000, epsilon), rel=1e-12)


def test_profile_at_a_negative_epsilon_obeys_the_exchange_of_neighbours() -> None:
    # H_{−t}(P, Q) = 1 − e^{−t}·(1 − H_t(Q, P)): the larger of both directions at −t follows from the larger at t.
    found = profile(CIFAR, 2000)
    for t in (0.1, 0.7, 2.0, 40.0):
        other = 1 - exp(-t) * (1 - found.delta(t))
        assert -expm1(-t) <= found.delta(-t)
        assert found.delta(-t) == pytest.approx(other, abs=1e-4)
    assert found.delta(-800.0) == 1.0


def test_profile_and_epsilon_are_inverse_and_agree_with_the_accountant() -> None:
    found = profile(CIFAR, 2000)
    for delta in (1e-3, 1e-5, 1e-7):
        epsilon = found.epsilon(delta)
        assert epsilon == pytest.approx(accounting.epsilon(CIFAR, 2000, delta), rel=1e-12)
        assert found.delta(epsilon) <= delta * (1 + 1e-9) < found.delta(epsilon * 0.999)
    assert found.epsilon(1e-14) == inf


def test_a_hopeless_run_claims_nothing() -> None:
    hopeless = Profile(SampledGaussian(1.0, 0.01), 1000)
    assert (hopeless.delta(5.0), hopeless.epsilon(1e-5)) == (1.0, inf)
    assert epsilon_selection(GEOMETRIC, ((SampledGaussian(1.0, 0.01), 1000),), 1e-5, at_most=UNCUT) == inf


def shift_by_hand(law: RunLaw, delta_of: Callable[[float], float], first: float) -> float:
    """The shift of docs/guarantees.md at one ε₁."""
    if law.shape is None:
        return law.mean * (exp(first) - 1) + law.mean * delta_of(first)
    r = exp(first) + (1 - law.gamma) / law.gamma * delta_of(first)
    return (law.shape + 1) * log(r)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_shift_is_the_proven_formula_at_the_best_epsilon_one(law: RunLaw) -> None:
    delta_of = profile(CIFAR, 2000).delta
    found = shift_of(law, delta_of)
    tried = [shift_by_hand(law, delta_of, float(first)) for first in np.linspace(0.0, 3.0, 601)]
    assert found.shift <= min(tried) * (1 + 1e-8)
    assert found.shift == pytest.approx(min(tried), rel=2e-3)
    assert found.factor == pytest.approx(law.mean, rel=2e-9)
    assert found.factor >= law.mean
    for epsilon in (0.1, 2.0, 4.0):
        by_hand = min(law.mean * delta_of(epsilon - found.shift), 1.0)
        assert by_hand <= found.delta(delta_of, epsilon) <= by_hand * (1 + 2e-9)


def test_the_bound_knows_where_it_is_tight() -> None:
    # Pure ε-DP runs: geometric costs 3ε, logarithmic 2ε (Papernot & Steinke 2022, Corollary 4).
    def pure(epsilon: float) -> float:
        return max(0.0, (exp(0.5) - exp(epsilon)) / (exp(0.5) + 1))

    for law, times in ((GEOMETRIC, 3), (LOGARITHMIC, 2)):
        found = shift_of(law, pure)
        assert found.shift == pytest.approx((times - 1) * 0.5, rel=1e-6)
        assert found.delta(pure, times * 0.5 + 1e-6) == 0.0


def test_a_sampler_that_learns_pays_for_its_ratio() -> None:
    delta_of = profile(CIFAR, 2000).delta
    none, some, more = (shift_of(GEOMETRIC, delta_of, ratio=ratio) for ratio in ((1.0, 1.0), (0.8, 1.2), (0.5, 2.0)))
    assert none.shift < some.shift < more.shift
    assert more.factor == pytest.approx(2.0 * 20, rel=2e-9)
    low, high, gamma = 0.5, 2.0, GEOMETRIC.gamma
    by_hand = [
        log(high / low) + 2 * log(high / low * exp(first) + (1 - gamma) / gamma * high * delta_of(first))
        for first in np.linspace(0.0, 3.0, 601)
    ]
    assert more.shift <= min(by_hand) * (1 + 1e-8)
    assert more.shift == pytest.approx(min(by_hand), rel=2e-3)
    epsilons = [epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=r) for r in ((1.0, 1.0), (0.5, 2.0))]
    assert epsilons[0] < epsilons[1]


@pytest.mark.parametrize("ratio", [(0.0, 1.0), (1.1, 2.0), (0.5, 0.9), (nan, 1.0), (0.5, inf), (-1.0, 1.0)])
def test_a_ratio_that_is_none_is_refused(ratio: tuple[float, float]) -> None:
    with raises_code(InputError, "filter-invalid"):
        epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=ratio)


def test_a_learning_sampler_has_no_bound_for_poisson() -> None:
    with raises_code(InputError, "poisson-not-adaptive"):
        epsilon_selection(POISSON, RUNS, 1e-5, at_most=UNCUT, ratio=(0.5, 2.0))


@pytest.mark.parametrize("law", [GEOMETRIC, LOGARITHMIC, BINOMIAL, POISSON], ids=str)
def test_renyi_of_the_winner_is_the_librarys(law: RunLaw) -> None:
    orders = [2.0, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0]
    single = {order: 2000 * divergence(CIFAR, order) for order in orders}
    found = winner_divergences(law, single, lambda _: 0.0)
    shape = inf if law.shape is None else law.shape
    library = _compute_rdp_repeat_and_select(orders, list(single.values()), law.mean, shape)
    if law.shape is not None:  # theirs also takes what a higher order says of a lower one
        assert [min(list(found.values())[i:]) for i in range(len(orders))] == pytest.approx(library, rel=1e-6)
    else:  # their δ of one run is read from Rényi DP; ours is given, and none here
        assert all(ours <= theirs for ours, theirs in zip(found.values(), library, strict=True))
        for order in orders:
            assert found[order] == pytest.approx(single[order] + log(law.mean) / (order - 1), rel=1e-6)


@pytest.mark.parametrize("law", [GEOMETRIC, LOGARITHMIC, BINOMIAL], ids=str)
def test_epsilon_by_renyi_is_near_the_librarys_repeat_and_select(law: RunLaw) -> None:
    event = dp_event.RepeatAndSelectDpEvent(CIFAR.event(2000), law.mean, law.shape)
    library = RdpAccountant().compose(event).get_epsilon(1e-5)
    bounds = selection._bounds(law, RUNS, (1.0, 1.0))
    ours = min(epsilon_of_divergence(order, spent, 1e-5) for order, spent in bounds.renyi)
    assert ours == pytest.approx(library, rel=5e-3)


def delta_selection(law: RunLaw, runs: selection.Runs, epsilon: float, *, at_most: int) -> float:
    """δ at `epsilon`: the least of the bounds, and what the cut of the law adds."""
    return selection._bounds(law, runs, (1.0, 1.0)).delta(epsilon) + (1 + exp(epsilon)) * law.tail(at_most)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_claim_is_the_least_of_both_and_delta_says_the_same(law: RunLaw) -> None:
    found = epsilon_selection(law, RUNS, 1e-5, at_most=UNCUT)
    bounds = selection._bounds(law, RUNS, (1.0, 1.0))
    by_profile = bounds.shift.shift + profile(CIFAR, 2000).epsilon(1e-5 / bounds.shift.factor)
    by_renyi = min(epsilon_of_divergence(order, spent, 1e-5) for order, spent in bounds.renyi)
    assert found == pytest.approx(min(by_profile, by_renyi), rel=1e-6)
    assert (
        delta_selection(law, RUNS, found, at_most=UNCUT)
        <= 1e-5
        < delta_selection(law, RUNS, found * 0.999, at_most=UNCUT)
    )


def test_renyi_counts_where_it_is_the_less() -> None:
    # Where δ is below what the profile's rounding margin leaves, Rényi DP still says something.
    run = ((SampledGaussian(1.0, 40.0), 1000),)
    found = epsilon_selection(GEOMETRIC, run, 1e-11, at_most=UNCUT)
    bounds = selection._bounds(GEOMETRIC, run, (1.0, 1.0))
    by_profile = bounds.shift.shift + profile(*run[0]).epsilon(1e-11 / bounds.shift.factor)
    assert found < by_profile
    assert delta_selection(GEOMETRIC, run, found, at_most=UNCUT) <= 1e-11


def test_renyi_has_no_proof_for_a_sampler_that_learns() -> None:
    run, ratio = ((SampledGaussian(1.0, 40.0), 1000),), (0.99, 1.01)
    assert epsilon_selection(GEOMETRIC, run, 1e-11, at_most=UNCUT) < inf, "by Rényi divergence alone"
    assert epsilon_selection(GEOMETRIC, run, 1e-11, at_most=UNCUT, ratio=ratio) == inf
    bounds = selection._bounds(GEOMETRIC, RUNS, ratio)
    by_profile = bounds.shift.shift + profile(CIFAR, 2000).epsilon(1e-5 / bounds.shift.factor)
    assert epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=ratio) == pytest.approx(by_profile, rel=1e-6)


@pytest.mark.parametrize("law", [GEOMETRIC, LOGARITHMIC, HEAVY], ids=str)
def test_selection_costs_more_than_one_run_and_less_than_all(law: RunLaw) -> None:
    found = epsilon_selection(law, RUNS, 1e-5, at_most=UNCUT)
    assert accounting.epsilon(CIFAR, 2000, 1e-5) < found < accounting.epsilon(CIFAR, 20 * 2000, 1e-5)


def test_several_configurations_cost_what_the_worst_of_them_does_or_more() -> None:
    other = (SampledGaussian(128 / 50_000, 0.9), 3000)
    alone = [epsilon_selection(GEOMETRIC, (run,), 1e-5, at_most=UNCUT) for run in (RUNS[0], other)]
    both = epsilon_selection(GEOMETRIC, (RUNS[0], other), 1e-5, at_most=UNCUT)
    assert max(alone) <= both <= max(alone) * 1.05
    assert epsilon_selection(GEOMETRIC, (RUNS[0], RUNS[0]), 1e-5, at_most=UNCUT) == alone[0]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_cut_costs_what_it_moves(law: RunLaw) -> None:
    whole = epsilon_selection(law, RUNS, 1e-5, at_most=UNCUT)
    at_most = at_most_for(law, epsilon=whole * 1.1, delta=1e-5)
    cut = epsilon_selection(law, RUNS, 1e-5, at_most=at_most)
    assert whole <= cut < whole * 1.01
    added = (1 + exp(cut)) * law.tail(at_most)
    assert 0 < added <= 1e-7 * (1 + 1e-9)
    assert delta_selection(law, RUNS, cut, at_most=at_most) <= 1e-5
    assert delta_selection(law, RUNS, cut, at_most=at_most) >= added
    # One run less in the cut and it takes more than its hundredth.
    assert (1 + exp(whole * 1.1)) * law.tail(at_most - 1) > 1e-7
    # A cut that alone takes all of δ leaves nothing to claim.
    assert epsilon_selection(law, RUNS, 1e-5, at_most=5) == inf


def test_claims_fall_with_delta_and_rise_with_the_runs() -> None:
    by_delta = [epsilon_selection(GEOMETRIC, RUNS, delta, at_most=UNCUT) for delta in (1e-7, 1e-6, 1e-5, 1e-4)]
    assert by_delta == sorted(by_delta, reverse=True)
    by_mean = [
        epsilon_selection(RunLaw(name="geometric", mean=mean), RUNS, 1e-5, at_most=UNCUT) for mean in (2, 5, 20, 100)
    ]
    assert by_mean == sorted(by_mean)


@pytest.mark.parametrize(
    ("law", "menu", "epsilon"),
    [
        (GEOMETRIC, [(256 / 50_000, 2000)], 2.0),
        (LOGARITHMIC, [(256 / 50_000, 2000), (512 / 50_000, 700)], 4.0),
        (POISSON, [(0.1, 100)], 1.0),
        (BINOMIAL, [(1.0, 10)], 8.0),
    ],
)
def test_calibrated_noise_is_the_smallest_of_five_digits(
    law: RunLaw, menu: list[tuple[float, int]], epsilon: float
) -> None:
    at_most = at_most_for(law, epsilon=epsilon, delta=1e-5)
    noise = calibrate_selection(law, menu, epsilon=epsilon, delta=1e-5, at_most=at_most)
    assert float(f"{noise:.4e}") == noise
    less = float(previous(Decimal(f"{noise:.4e}")))
    found = [
        epsilon_selection(law, [(SampledGaussian(q, n), t) for q, t in menu], 1e-5, at_most=at_most)
        for n in (noise, less)
    ]
    assert found[0] <= epsilon < found[1]


def test_calibration_says_no_where_no_noise_helps() -> None:
    with raises_code(BudgetRefusedError, "no-noise-fits"):
        calibrate_selection(GEOMETRIC, [(1.0, 1000)], epsilon=1e-7, delta=1e-9, at_most=5000)


def test_input_that_is_none_is_refused() -> None:
    with raises_code(InputError, "delta-out-of-range"):
        epsilon_selection(GEOMETRIC, RUNS, nan, at_most=100)
    with raises_code(InputError, "epsilon-out-of-range"):
        at_most_for(GEOMETRIC, epsilon=nan, delta=1e-5)
    with raises_code(InputError, "menu-empty"):
        epsilon_selection(GEOMETRIC, (), 1e-5, at_most=100)
    with raises_code(InputError, "menu-empty"):
        calibrate_selection(GEOMETRIC, [], epsilon=1.0, delta=1e-5, at_most=100)


def test_a_sealed_filter_claims_the_same_and_survives_the_ledger() -> None:
    filter = Sealed(GEOMETRIC, 700, RUNS)
    assert filter.claim(1e-5) == epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=700)
    assert from_body(filter.body()) == filter
    assert filter.left({}, CIFAR) == 0


def test_poisson_of_a_mean_that_a_search_refuses_is_still_bounded() -> None:
    found = poisson_shift(30, profile(CIFAR, 2000).delta)
    assert found.shift > shift_of(POISSON, profile(CIFAR, 2000).delta).shift
    with raises_code(InputError, "run-mean-out-of-range"):
        RunLaw(name="poisson", mean=30)
