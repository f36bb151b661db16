"""The accountant against other accountants, at its edges, and on input that must be refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf, isfinite, nan, ulp
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.stats
from covering import pairs
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from errors_helper import raises_code
from gaussian import gaussian_delta
from hypothesis import given, settings
from hypothesis import strategies as st
from independent_bodies import sealed
from published_figures import rows, shuffled_epsilon

from trainables.engine import gaussian
from tuner.errors import InputError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import composed, epsilon, epsilon_composed, epsilon_curve, max_steps
from tuner.privacy.verify.accountant.bounds import epsilon_ranges, epsilon_ranges_of_steps, judge

CIFAR, OTHER = SampledGaussian(256 / 50_000, 1.1), SampledGaussian(0.05, 4.0)
MECHANISMS = [
    (CIFAR, 7006, 1e-5),
    (SampledGaussian(256 / 50_000, 30.0), 100, 1e-5),
    (SampledGaussian(256 / 50_000, 0.5), 1000, 1e-5),
    (SampledGaussian(0.08, 8.0), 120, 1e-5),
    (SampledGaussian(0.01, 5.0), 1000, 1e-6),
    (SampledGaussian(0.1, 1.0), 1, 1e-5),
]


@pytest.mark.parametrize(("steps", "published"), [(7006, 2.0), (36_424, 5.0), (117_577, 10.0)])
def test_published_steps_cost_the_published_epsilon(steps: int, published: float) -> None:
    # Published, rounded to three figures.
    assert epsilon(CIFAR, steps, 1e-5) == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(("mechanism", "steps", "delta"), MECHANISMS)
def test_agrees_with_three_other_accountants(mechanism: SampledGaussian, steps: int, delta: float) -> None:
    """The library's own on a finer grid, the one of `verify`, and Rényi DP as an upper bound."""
    claimed = epsilon(mechanism, steps, delta)
    finer = PLDAccountant(value_discretization_interval=accounting.interval(mechanism, steps) / 4)
    independent = finer.compose(mechanism.event(steps)).get_epsilon(delta)
    error = accounting.discretisation_error(mechanism, steps, delta)
    assert independent - 1e-6 <= claimed <= min(independent + error + 1e-6, independent * 1.001 + 1e-9)
    assert claimed <= RdpAccountant().compose(mechanism.event(steps)).get_epsilon(delta)
    (found,) = epsilon_ranges_of_steps([(mechanism.sample_rate, mechanism.noise_multiplier, steps)], [delta])
    assert judge(claimed, found).ok
    assert judge(claimed * 0.97, found).ok is False, "the control"


def test_full_batch_is_the_analytic_gaussian() -> None:
    mechanism = SampledGaussian(1.0, 10.0)
    found = epsilon(mechanism, 100, 1e-5)
    assert gaussian_delta(1.0, found) <= 1e-5 < gaussian_delta(1.0, found - 1e-4)


def test_zero_only_for_no_steps() -> None:
    assert epsilon(CIFAR, 0, 1e-5) == 0.0
    hidden = SampledGaussian(1e-6, 1000.0)  # δ alone covers it
    assert epsilon(hidden, 1, 1e-2) == accounting.EPSILON_FLOOR


def claims(parts: list[tuple[SampledGaussian, int]], delta: float) -> list[float]:
    """ε of the same steps by every function that reads one."""
    alone = [epsilon(*parts[0], delta)] if len(parts) == 1 else []
    return [*alone, epsilon_composed(parts, delta), *epsilon_curve(parts, [delta])]


@pytest.mark.parametrize("parts", [[(CIFAR, 2000)], [(CIFAR, 1000), (SampledGaussian(0.01, 1.3), 1000)]])
def test_the_rounding_margin_is_taken_from_delta_and_nothing_is_claimed_near_it(
    parts: list[tuple[SampledGaussian, int]],
) -> None:
    margin = 1e-13 + 5e-15 * 2000
    distribution, _ = composed(parts)
    for claimed in claims(parts, 2.5 * margin):
        assert distribution.delta(claimed) <= 1.5 * margin * (1 + 1e-6)
    for delta in (0.5, 1.0, 1.5, 1.99):
        assert set(claims(parts, delta * margin)) == {inf}


@pytest.mark.parametrize("noises", [(1.0,), (1.0, 0.8)])
def test_the_mass_that_a_rounded_step_lacks_is_taken_from_delta(noises: tuple[float, ...]) -> None:
    from math import fsum

    parts = [(SampledGaussian(0.5, noise), 100) for noise in noises]
    grid = max(accounting.interval(mechanism, steps) for mechanism, steps in parts)
    lacking = 0.0
    for mechanism, steps in parts:
        step = accounting._step_distribution(mechanism, grid)
        sides = (step.remove, step.add)
        lacking += steps * max(1 - fsum([*side.masses, side.infinite]) for side in sides)
    assert lacking > 5 * (1e-13 + 5e-15 * 100 * len(parts))  # else the margin for rounding covers it
    distribution, _ = composed(parts)
    for claimed in claims(parts, 3e-11):
        assert distribution.delta(claimed) + lacking <= 3e-11


def test_hopeless_is_infinite_not_small() -> None:
    assert epsilon(SampledGaussian(1.0, 0.01), 1000, 1e-5) == inf
    assert epsilon(CIFAR, 7006, 1e-14) == inf
    assert max_steps(SampledGaussian(1.0, 0.01), epsilon=1.0, delta=1e-5) == 0


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rate=st.floats(1e-3, 1.0),
    noise=st.floats(1.0, 40.0),
    steps=st.integers(1, 2000),
    more=st.integers(1, 2000),
    factor=st.floats(1.01, 3.0),
)
def test_monotone_in_steps_noise_and_rate(rate: float, noise: float, steps: int, more: int, factor: float) -> None:
    here = epsilon(SampledGaussian(rate, noise), steps, 1e-5)
    assert epsilon(SampledGaussian(rate, noise), steps + more, 1e-5) >= here * (1 - 1e-7)
    assert epsilon(SampledGaussian(rate, noise * factor), steps, 1e-5) <= here * (1 + 1e-7)
    assert epsilon(SampledGaussian(rate / factor, noise), steps, 1e-5) <= here * (1 + 1e-7)


@pytest.mark.parametrize(
    ("mechanism", "cap"),
    [
        (CIFAR, 2.0),
        (SampledGaussian(0.07, 9.42), 0.3),
        (SampledGaussian(0.2, 3.0), 8.0),
        (SampledGaussian(0.01, 60.0), 0.01),
    ],
)
def test_max_steps_is_exact_at_the_edge(mechanism: SampledGaussian, cap: float) -> None:
    steps = max_steps(mechanism, epsilon=cap, delta=1e-5)
    assert epsilon(mechanism, steps, 1e-5) <= cap < epsilon(mechanism, steps + 1, 1e-5)


def test_composition_is_between_its_largest_part_and_their_sum() -> None:
    assert epsilon_composed([(CIFAR, 100), (CIFAR, 200)], 1e-5) == epsilon(CIFAR, 300, 1e-5)
    assert epsilon_composed([], 1e-5) == epsilon_composed([(CIFAR, 0)], 1e-5) == 0.0
    parts = [(CIFAR, 500), (OTHER, 300)]
    accountant = PLDAccountant(value_discretization_interval=2.0**-14)
    for mechanism, steps in parts:
        accountant.compose(mechanism.event(steps))
    together = epsilon_composed(parts, 1e-5)
    assert max(epsilon(mechanism, steps, 1e-5) for mechanism, steps in parts) < together
    assert accountant.get_epsilon(1e-5) - 1e-6 <= together <= accountant.get_epsilon(1e-5) * 1.005
    assert together <= epsilon_composed(parts, 1e-5, coarser=8) <= together * 1.2
    assert epsilon(CIFAR, 500, 1e-5) <= epsilon_composed([(CIFAR, 500)], 1e-5, coarser=4)


REFUSED: list[tuple[str, Callable[[Any], object], list[Any]]] = [
    ("noise-out-of-range", lambda noise: SampledGaussian(0.01, noise), [nan, inf, 0, -1.0, "1", None, True]),
    (
        "sample-rate-out-of-range",
        lambda rate: SampledGaussian(rate, 1.0),
        [nan, inf, 0, -0.1, 1.0001, "0.1", None, True],
    ),
    ("delta-out-of-range", lambda delta: epsilon(CIFAR, 10, delta), [nan, inf, 0, -1e-5, 1.0, None]),
    ("count-out-of-range", lambda steps: epsilon(CIFAR, steps, 1e-5), [-1, 1.5, nan, True, "3"]),
    ("epsilon-out-of-range", lambda cap: max_steps(CIFAR, epsilon=cap, delta=1e-5), [nan, inf, 0, -1.0]),
    ("too-many-steps", lambda steps: epsilon(CIFAR, steps, 1e-5), [10**9, accounting.MAX_STEPS + 1]),
    ("too-many-steps", lambda steps: epsilon_composed([(CIFAR, steps), (OTHER, 1)], 1e-5), [accounting.MAX_STEPS]),
]


@pytest.mark.parametrize(
    ("code", "use", "value"), [(code, use, each) for code, use, values in REFUSED for each in values]
)
def test_a_number_out_of_range_is_refused(code: str, use: Callable[[Any], object], value: object) -> None:
    with raises_code(InputError, code):
        use(value)


def spectrum_of_steps(padded: Any, steps: int) -> Any:  # noqa: ANN401 - arrays of 80 bits
    """The spectrum of one step to the power of `steps`, in 80 bits."""
    spectrum, power = scipy.fft.fft(padded), np.ones(len(padded), dtype=np.clongdouble)
    while steps:
        power = power * spectrum if steps & 1 else power
        spectrum, steps = spectrum * spectrum, steps >> 1
    return power


def random_book(seed: int) -> list[tuple[SampledGaussian, int]]:
    rng = random.Random(seed)
    count = rng.randint(2, 12)
    return [
        (SampledGaussian(10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-0.3, 1.5)), int(10 ** rng.uniform(0, 3.5)))
        for _ in range(count)
    ]


SLOW = [
    [(SampledGaussian(0.001, 1.0), accounting.MAX_STEPS)],
    [(SampledGaussian(0.2, 200.0), accounting.MAX_STEPS)],
    *[random_book(seed) for seed in range(2, 24)],
    [(SampledGaussian(0.003, 1.0 + 0.05 * i), 1) for i in range(60)],
]


@pytest.mark.parametrize(
    "parts",
    [
        [(CIFAR, 7006)],
        [(SampledGaussian(0.00034, 0.8437), 13)],  # a long tail and few steps: the error does not start at zero
        [(SampledGaussian(0.0015, 0.7875), 854)],
        [(SampledGaussian(0.01, 1.0 + 0.1 * i), 1) for i in range(8)],
        [(SampledGaussian(batch / 60_000, sigma), 1_500_000 // batch) for sigma in (1.0, 2.0) for batch in (128, 512)],
        *[random_book(seed) for seed in range(2)],
        *[pytest.param(parts, marks=pytest.mark.slow) for parts in SLOW],
    ],
    ids=lambda parts: f"{len(parts)} mechanisms",
)
def test_rounding_margin_is_twice_what_an_80_bit_fft_shows(parts: list[tuple[SampledGaussian, int]]) -> None:
    whole, _ = composed(parts)
    margin = accounting._ROUNDING_ONCE + accounting._ROUNDING * sum(steps for _, steps in parts)
    grid = max(accounting.interval(mechanism, steps) for mechanism, steps in parts)
    for side in ("remove", "add"):
        found = getattr(whole, side)
        size = scipy.fft.next_fast_len(
            found.masses.size * 5 // 4
        )  # what lies outside wraps around: 1e-15 of mass a mechanism
        power, place = np.ones(size, dtype=np.clongdouble), 0
        for mechanism, steps in parts:
            one = getattr(accounting._step_distribution(mechanism, grid), side)
            padded = np.zeros(size, dtype=np.longdouble)
            np.add.at(padded, np.arange(one.masses.size) % size, one.masses.astype(np.longdouble))
            power, place = power * spectrum_of_steps(padded, steps), place + one.lowest * steps
        exact = np.roll(np.real(scipy.fft.ifft(power)), place - found.lowest)[: found.masses.size]
        error = float(np.abs(exact - found.masses).sum())
        assert error > ulp(0.5)  # else the reference is no finer than what it judges
        assert 2 * error < margin


# Very little and very much noise: no accountant may end in a traceback, and none may say less than holds.


@pytest.mark.parametrize(("rate", "noise", "steps"), pairs((0.01, 0.5, 0.999), (0.15, 0.17, 0.2), (1, 10)))
def test_a_claim_with_little_noise_is_confirmed(rate: float, noise: float, steps: int) -> None:
    claimed = epsilon(SampledGaussian(rate, noise), steps, 1e-5)
    (found,) = epsilon_ranges_of_steps([(rate, noise, steps)], [1e-5])
    verdict = judge(claimed, found)
    assert verdict.ok, verdict.why
    assert judge(claimed * 0.98, found).ok is not True


def test_little_noise_is_confirmed_beside_much_and_in_a_sealed_search() -> None:
    steps = [(0.1, 0.15, 10), (0.5, 5.0, 300)]
    claimed = epsilon_composed([(SampledGaussian(rate, noise), count) for rate, noise, count in steps], 1e-5)
    assert judge(claimed, epsilon_ranges_of_steps(steps, [1e-5])[0]).ok
    body = sealed("geometric", 3.0, at_most=500, runs=[{"sample_rate": 0.1, "noise_multiplier": 0.15, "steps": 1}])
    assert judge(from_body(body).claim(1e-5), epsilon_ranges(body, [1e-5])[0]).ok


def wrong_claims(rate: float, steps: int, delta: float) -> int:
    """Count the claims that end where the noise does: a record is seen there more often than δ, at every ε.

    A record that moves one coordinate moves the noise beyond its end with this probability at least.
    """
    wrong = 0
    for noise in np.geomspace(0.06, 0.4, 40):
        seen = rate * float(scipy.stats.norm.cdf(1 / noise - gaussian.LONGEST))
        claimed = isfinite(epsilon_composed([(SampledGaussian(rate, noise), steps)], delta))
        wrong += claimed and -np.expm1(steps * np.log1p(-seen)) > delta
    return wrong


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.01, 50)])
def test_nothing_is_claimed_where_a_record_is_seen_beyond_the_end_of_the_noise(
    rate: float, steps: int, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert accounting.LONGEST <= gaussian.LONGEST
    assert wrong_claims(rate, steps, delta) == 0
    monkeypatch.setattr(accounting, "beyond", lambda _: 0.0)
    monkeypatch.setattr(accounting, "epsilon_on_grid", accounting.epsilon_on_grid.__wrapped__)
    assert wrong_claims(rate, steps, delta) > 0, "the planted fault"


@pytest.mark.parametrize("noise", [5e-324, 1e-300, 1e-4])
def test_next_to_no_noise_has_no_claim(noise: float) -> None:
    mechanism = SampledGaussian(0.1, noise)
    assert accounting.interval(mechanism, 10) == inf
    assert epsilon(mechanism, 10, 1e-5) == inf
    assert max_steps(mechanism, epsilon=8.0, delta=1e-5) == 0


@pytest.mark.parametrize("noise", [1e150, 1e300, 1.7e308])
def test_noise_beyond_all_measure_is_claimed_as_some_that_is_measured(noise: float) -> None:
    mechanism = SampledGaussian(0.1, noise)
    assert epsilon(mechanism, 10, 1e-5) == 1e-6
    assert accounting.interval(mechanism, 10) == accounting.interval(SampledGaussian(0.1, 1e6), 10)
    assert max_steps(mechanism, epsilon=8.0, delta=1e-5) > 10


# Published figures.


@pytest.mark.slow
def test_every_printed_figure_is_reproduced_to_its_digits() -> None:
    assert [(what, printed, shown) for what, printed, shown in rows() if printed != shown] == []


def test_planted_fault_poisson_booked_for_shuffled_batches_is_caught() -> None:
    # What a Poisson booking claims of one shuffled epoch is a ninth of what a plain test realises.
    booked = epsilon(SampledGaussian(256 / 50_000, 1.1), 195, 1e-5)
    realised = shuffled_epsilon(1.1, 195, 1e-5)
    assert booked == pytest.approx(0.35, abs=5e-3)
    assert realised == pytest.approx(3.08, abs=5e-3)
    assert realised > booked
    # The same test finds nothing against what it should be booked as: each batch holds the record, replaced.
    assert realised < epsilon(SampledGaussian(1.0, 1.1 / 2), 1, 1e-5)
