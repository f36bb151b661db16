"""The accountant against other accountants, at its edges, and on input that must be refused."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isfinite, nan, ulp

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy import accounting
from tuner.privacy.accounting import calibrate_noise, epsilon, epsilon_composed, epsilon_curve, max_steps
from tuner.privacy.events import SampledGaussian
from tuner.privacy.inverses import previous, round_up
from tuner.privacy.verify import _gaussian_epsilon, _lower

CIFAR = SampledGaussian(256 / 50_000, 1.1)
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
    # privacy.md §2, first column, rounded there to three figures.
    assert epsilon(CIFAR, steps, 1e-5) == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(("mechanism", "steps", "delta"), MECHANISMS)
def test_agrees_with_the_librarys_own_accountant_on_a_finer_grid(
    mechanism: SampledGaussian, steps: int, delta: float
) -> None:
    accountant = PLDAccountant(value_discretization_interval=accounting.interval(mechanism, steps) / 4)
    independent = accountant.compose(mechanism.event(steps)).get_epsilon(delta)
    claimed = epsilon(mechanism, steps, delta)
    assert (
        independent - 1e-6 <= claimed <= independent + accounting.discretisation_error(mechanism, steps, delta) + 1e-6
    )
    assert claimed <= independent * 1.001 + 1e-9


@pytest.mark.parametrize(("mechanism", "steps", "delta"), MECHANISMS)
def test_lies_between_prv_lower_estimate_and_rdp(mechanism: SampledGaussian, steps: int, delta: float) -> None:
    claimed = epsilon(mechanism, steps, delta)
    rdp = RdpAccountant().compose(mechanism.event(steps)).get_epsilon(delta)
    assert claimed <= rdp
    check = _lower(mechanism, steps, delta, claimed)
    assert check.ok, check.detail


def test_prv_notices_a_claim_that_is_too_low() -> None:
    truth = epsilon(CIFAR, 7006, 1e-5)
    assert not _lower(CIFAR, 7006, 1e-5, truth * 0.97).ok


def test_full_batch_is_the_analytic_gaussian() -> None:
    mechanism = SampledGaussian(1.0, 10.0)
    exact = _gaussian_epsilon(100**0.5 / 10.0, 1e-5)
    assert exact <= epsilon(mechanism, 100, 1e-5) <= exact + 1e-4


def test_zero_only_for_no_steps() -> None:
    assert epsilon(CIFAR, 0, 1e-5) == 0.0
    hidden = SampledGaussian(1e-6, 1000.0)  # δ alone covers it
    assert epsilon(hidden, 1, 1e-2) == accounting.EPSILON_FLOOR


def test_hopeless_is_infinite_not_small() -> None:
    assert epsilon(SampledGaussian(1.0, 0.01), 1000, 1e-5) == inf
    assert epsilon(CIFAR, 7006, 1e-14) == inf
    assert max_steps(SampledGaussian(1.0, 0.01), epsilon=1.0, delta=1e-5) == 0


@settings(max_examples=12, deadline=None, derandomize=True)
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


def test_max_steps_at_a_cost_is_that_many_steps() -> None:
    mechanism = SampledGaussian(0.05, 2.0)
    assert max_steps(mechanism, epsilon=epsilon(mechanism, 123, 1e-5), delta=1e-5) == 123


@pytest.mark.parametrize(
    ("rate", "steps", "cap"),
    [
        (4096 / 60_000, 146, 0.3),
        (4096 / 60_000, 146, 0.1),
        (0.1, 500, 8.0),
        (1.0, 10, 1.0),
        (0.005, 1000, 1.0),  # long tails and many steps: other terms of the grid bind
        (0.01, 100_000, 0.1),
        (0.2, 1, 3.0),
        (1e-4, 50, 0.01),
    ],
)
def test_calibrated_noise_is_the_smallest_of_five_digits(rate: float, steps: int, cap: float) -> None:
    noise = calibrate_noise(sample_rate=rate, steps=steps, epsilon=cap, delta=1e-5)
    assert float(f"{noise:.4e}") == noise
    assert epsilon(SampledGaussian(rate, noise), steps, 1e-5) <= cap
    less = float(previous(Decimal(f"{noise:.4e}")))
    assert epsilon(SampledGaussian(rate, less), steps, 1e-5) > cap


def test_rounding_is_up_and_to_five_digits() -> None:
    assert float(round_up(1.234501)) == 1.2346
    assert float(round_up(0.999991)) == 1.0
    assert float(previous(Decimal("1.0000"))) == 0.99999


def test_calibration_asks_the_claims_own_grid_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(mechanism: SampledGaussian, steps: int, delta: float, *, grid: float) -> float:
        asked.append(grid == accounting.interval(mechanism, steps))
        return whole(mechanism, steps, delta, grid=grid)

    whole = accounting.epsilon_on_grid.__wrapped__
    monkeypatch.setattr(accounting, "epsilon_on_grid", counted)
    for rate, steps, cap in ((0.07, 1000, 1.0), (0.2, 1000, 8.0), (0.1, 500, 8.0), (0.05, 300, 0.1)):
        asked.clear()
        calibrate_noise(sample_rate=rate, steps=steps, epsilon=cap, delta=1e-5)
        assert 2 <= sum(asked) <= 4, (rate, steps, cap, len(asked))


def test_calibration_does_not_depend_on_where_it_looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = calibrate_noise(sample_rate=0.1, steps=500, epsilon=8.0, delta=1e-5)
    for guess in ((0.06, -1.0), (9e4, -0.1), (wanted * 1.01, -50.0), (wanted, -1e-3)):
        monkeypatch.setattr(accounting, "_guess_noise_on_coarse_grid", lambda *_, guess=guess: guess)
        assert calibrate_noise(sample_rate=0.1, steps=500, epsilon=8.0, delta=1e-5) == wanted


def test_calibration_of_a_loose_cap_is_the_least_noise() -> None:
    assert calibrate_noise(sample_rate=1e-5, steps=1, epsilon=300.0, delta=1e-4) == 0.05


def test_steps_are_refused_where_the_rounding_was_not_measured() -> None:
    with pytest.raises(InputError, match="must be at most 2000000 in all"):
        epsilon(CIFAR, accounting.MAX_STEPS + 1, 1e-5)
    with pytest.raises(InputError, match="must be at most 2000000 in all"):
        epsilon_composed([(CIFAR, accounting.MAX_STEPS), (SampledGaussian(0.1, 1.0), 1)], 1e-5)


def test_calibration_says_no_where_no_noise_helps() -> None:
    with pytest.raises(BudgetRefusedError, match="any noise_multiplier"):
        calibrate_noise(sample_rate=1.0, steps=1000, epsilon=1e-7, delta=1e-9)


def test_composition_of_equal_parts_is_one_composition() -> None:
    assert epsilon_composed([(CIFAR, 100), (CIFAR, 200)], 1e-5) == epsilon(CIFAR, 300, 1e-5)
    assert epsilon_composed([], 1e-5) == 0.0
    assert epsilon_composed([(CIFAR, 0)], 1e-5) == 0.0


def test_composition_of_different_parts_is_between_its_largest_part_and_their_sum() -> None:
    other = SampledGaussian(0.05, 4.0)
    parts = [(CIFAR, 500), (other, 300)]
    alone = [epsilon(mechanism, steps, 1e-5) for mechanism, steps in parts]
    accountant = PLDAccountant(value_discretization_interval=2.0**-14)
    for mechanism, steps in parts:
        accountant.compose(mechanism.event(steps))
    together = epsilon_composed(parts, 1e-5)
    assert max(alone) < together
    assert accountant.get_epsilon(1e-5) - 1e-6 <= together <= accountant.get_epsilon(1e-5) * 1.005


def test_curve_falls_with_delta() -> None:
    curve = epsilon_curve(CIFAR, 1000, (1e-4, 1e-5, 1e-6))
    assert curve[0] < curve[1] < curve[2]


@pytest.mark.parametrize("noise", [nan, inf, 0, -1.0, "1", None, True])
def test_noise_must_be_a_positive_number(noise: object) -> None:
    with pytest.raises(InputError, match="noise_multiplier must be"):
        SampledGaussian(0.01, noise)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [nan, inf, 0, -0.1, 1.0001, "0.1", None, True])
def test_rate_must_be_a_probability(rate: object) -> None:
    with pytest.raises(InputError, match="sample_rate must be"):
        SampledGaussian(rate, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [nan, inf, 0, -1e-5, 1.0, None])
def test_delta_must_be_a_probability(delta: object) -> None:
    with pytest.raises(InputError, match="delta must be"):
        epsilon(CIFAR, 10, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, nan, True, "3", 10**9])
def test_steps_must_be_a_sensible_whole_number(steps: object) -> None:
    with pytest.raises(InputError, match="steps must be"):
        epsilon(CIFAR, steps, 1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", [nan, inf, 0, -1.0])
def test_epsilon_asked_for_must_be_finite_and_positive(cap: float) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        max_steps(CIFAR, epsilon=cap, delta=1e-5)
    with pytest.raises(InputError, match="epsilon must be"):
        calibrate_noise(sample_rate=0.1, steps=10, epsilon=cap, delta=1e-5)


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        (CIFAR, 7006),
        (SampledGaussian(0.00034, 0.8437), 13),  # a long tail and few steps: the error does not start at zero
        (SampledGaussian(0.0015, 0.7875), 854),
        pytest.param(SampledGaussian(0.001, 1.0), accounting.MAX_STEPS, marks=pytest.mark.slow),
        pytest.param(SampledGaussian(0.2, 200.0), accounting.MAX_STEPS, marks=pytest.mark.slow),
    ],
)
def test_rounding_margin_is_twice_what_an_80_bit_fft_shows(mechanism: SampledGaussian, steps: int) -> None:
    import numpy as np
    import scipy.fft
    from dp_accounting.pld import common

    margin = accounting._ROUNDING_ONCE + accounting._ROUNDING * steps
    whole = accounting._step_distribution(mechanism, accounting.interval(mechanism, steps))
    for one in (whole._pmf_remove.to_dense_pmf(), whole._pmf_add.to_dense_pmf()):
        composed = one.self_compose(steps)
        low, high = common.compute_self_convolve_bounds(one._probs, steps, 1e-15)
        size = scipy.fft.next_fast_len(max(high - low + 1, len(one._probs)))
        padded = np.zeros(size, dtype=np.longdouble)
        padded[: len(one._probs)] = one._probs
        spectrum, power, left = scipy.fft.fft(padded), np.ones(size, dtype=np.clongdouble), steps
        while left:
            power = power * spectrum if left & 1 else power
            spectrum, left = spectrum * spectrum, left >> 1
        exact = np.roll(np.real(scipy.fft.ifft(power)), -low)[: high - low + 1]
        error = float(np.abs(exact - composed._probs).sum())
        assert error > ulp(0.5)  # else the reference is no finer than what it judges
        assert 2 * error < margin


def test_library_fault_rdp_answers_zero_for_nan_noise() -> None:
    # Pinned: when this fails the library has been mended and privacy.md §5 can say so.
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(nan))
    assert RdpAccountant().compose(event, 100).get_epsilon(1e-5) == 0


def test_library_fault_pld_ignores_the_count_of_randomized_response() -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    once = PLDAccountant(relation).compose(event).get_epsilon(1e-6)
    many = PLDAccountant(relation).compose(dp_accounting.SelfComposedDpEvent(event, 10)).get_epsilon(1e-6)
    assert once == many
    assert isfinite(once)


def test_library_fault_rdp_replace_one_omits_the_factor_two() -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.GaussianDpEvent(5.0)
    replace = RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(1e-5)
    assert replace == RdpAccountant().compose(event).get_epsilon(1e-5)


def test_library_fault_pld_does_not_take_repeat_and_select() -> None:
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(5.0), 30.0, 1.0)
    assert RdpAccountant().supports(event)
    assert not PLDAccountant().supports(event)


def test_library_fault_the_gdp_accountant_under_reports() -> None:
    # privacy.md §5: one epoch of CIFAR-10, 0.271 where no less than 0.34 is true (PRV's lower estimate says so too).
    accountants = pytest.importorskip("opacus.accountants")
    with pytest.warns(UserWarning, match="underestimate"):
        gdp = accountants.GaussianAccountant()
    gdp.history = [(CIFAR.noise_multiplier, CIFAR.sample_rate, 195)]
    said = gdp.get_epsilon(1e-5)
    assert said == pytest.approx(0.271, abs=5e-4)
    assert epsilon(CIFAR, 195, 1e-5) == pytest.approx(0.347, abs=5e-4)
    assert not _lower(CIFAR, 195, 1e-5, said).ok


@pytest.mark.filterwarnings("ignore")
def test_library_fault_opacus_books_shuffled_batches_as_poisson() -> None:
    # privacy.md §5: one shuffled epoch is at least ε = 3.08 where Poisson accounting prints 0.35. Opacus' engine takes
    # `poisson_sampling=False` and then charges exactly what it charges with True.
    torch = pytest.importorskip("torch")
    opacus = pytest.importorskip("opacus")
    histories = []
    for poisson in (True, False):
        model = torch.nn.Linear(2, 1)
        data = torch.utils.data.TensorDataset(torch.zeros(64, 2), torch.zeros(64, 1))
        engine = opacus.PrivacyEngine()
        private, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=16, shuffle=True),
            noise_multiplier=1.1,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
        )
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(private(inputs), targets).backward()
            optimizer.step()
        histories.append(engine.accountant.history)
    assert histories[0] == histories[1] == [(1.1, 0.25, 4)]
