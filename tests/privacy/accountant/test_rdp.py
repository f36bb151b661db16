"""Rényi divergences against a reference of 40 digits, and the conversions of the filter at one order."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext
from math import inf, nan

import pytest
from dp_accounting.rdp import compute_epsilon
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import InputError
from tuner.privacy.accountant import rdp
from tuner.privacy.accountant.filters import FixedOrder
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import ORDER_RANGE, ORDERS, divergence, epsilon_of_divergence

CIFAR = SampledGaussian(256 / 50_000, 1.1)


def reference(mechanism: SampledGaussian, order: float, *, swapped: bool = False) -> Decimal:
    """The divergence by the trapezoidal rule in 40 digits, from the definition and with a finer and longer grid.

    `swapped` takes the other direction of adjacency, that of adding a record.
    """
    with localcontext() as context:
        context.prec = 40
        rate, noise, power = Decimal(mechanism.sample_rate), Decimal(mechanism.noise_multiplier), Decimal(order)
        step = min(Decimal("0.1"), noise / 6)
        far = power / noise if not swapped else Decimal(0)
        total, z = Decimal(0), Decimal(-18) - (power / noise if swapped else 0)
        while z < far + 18:
            ratio = 1 - rate + rate * (z / noise - 1 / (2 * noise * noise)).exp()
            likelihood = (-z * z / 2).exp()
            if swapped:
                total += (ratio * likelihood) * ((-power * ratio.ln()).exp() - 1 + power * (1 - 1 / ratio))
            else:
                total += likelihood * ((power * ratio.ln()).exp() - 1 - power * (ratio - 1))
            z += step
        area = total * step / Decimal("6.283185307179586476925286766559005768394").sqrt()
        return (1 + area).ln() / (power - 1)


def settings_of(seed: int, count: int) -> list[tuple[SampledGaussian, float]]:
    rng = random.Random(seed)
    found = []
    while len(found) < count:
        mechanism = SampledGaussian(10 ** rng.uniform(-5, 0), 10 ** rng.uniform(-0.52, 2))
        order = rng.choice([rng.choice(ORDERS), float(rng.randint(2, 200)), 1.05 + 10 ** rng.uniform(-3, 2)])
        if order / mechanism.noise_multiplier < 60 and order <= ORDER_RANGE[1]:  # what 40 digits integrate in a moment
            found.append((mechanism, order))
    return found


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 40), pytest.param(2, 400, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_is_an_upper_bound_within_two_parts_in_a_billion(seed: int, count: int) -> None:
    for mechanism, order in settings_of(seed, count):
        exact = reference(mechanism, order)
        found = Decimal(divergence(mechanism, order))
        assert exact <= found <= exact * (1 + Decimal("2e-9")), (mechanism, order)
        # What is computed before the margin is right to one part in 10¹¹, a hundredth of it.
        assert abs(found / (1 + Decimal(rdp._MARGIN)) / exact - 1) < Decimal("1e-11"), (mechanism, order)


def test_removing_a_record_is_the_larger_direction() -> None:
    for mechanism, order in settings_of(3, 12):
        assert reference(mechanism, order, swapped=True) <= reference(mechanism, order)


def test_without_sampling_it_is_the_gaussian_and_next_to_no_noise_has_no_bound() -> None:
    for order in (1.05, 2.0, 7.3, 1024.0):
        assert order / 18 <= divergence(SampledGaussian(1.0, 3.0), order) <= order / 18 * (1 + 2e-9)
    for noise in (0.299, 1e-200):
        assert divergence(SampledGaussian(0.5, noise), 4.0) == inf


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rate=st.floats(1e-5, 1.0), noise=st.floats(0.3, 300.0), order=st.floats(1.05, 900.0), factor=st.floats(1.001, 4.0)
)
def test_monotone_in_rate_noise_and_order(rate: float, noise: float, order: float, factor: float) -> None:
    here = divergence(SampledGaussian(rate, noise), order)
    assert here >= 0
    assert divergence(SampledGaussian(rate / factor, noise), order) <= here * (1 + 1e-8)
    assert divergence(SampledGaussian(rate, noise * factor), order) <= here * (1 + 1e-8)
    assert divergence(SampledGaussian(rate, noise), min(order * factor, 1024.0)) >= here * (1 - 1e-8)


@pytest.mark.parametrize("order", [1.0, 1.04, 1025.0, nan, inf, -2.0, True, "8", None])
def test_orders_that_were_not_verified_are_refused(order: object) -> None:
    for use in (lambda: divergence(CIFAR, order), lambda: FixedOrder(order, 1000)):  # type: ignore[arg-type]
        with raises_code(InputError, "order-out-of-range"):
            use()


@pytest.mark.parametrize(("order", "spent", "delta"), [(2.0, 0.5, 1e-5), (8.0, 3.0, 1e-6), (1.5, 0.01, 1e-2)])
def test_conversion_is_the_librarys_rounded_up(order: float, spent: float, delta: float) -> None:
    library, _ = compute_epsilon([order], [spent], delta)
    assert library <= epsilon_of_divergence(order, spent, delta) <= library * (1 + 1e-9) + 1e-9
    assert epsilon_of_divergence(order, 0.0, 0.9) == 1e-6
    assert epsilon_of_divergence(order, inf, delta) == inf


@pytest.mark.parametrize(("order", "spent"), [(1.0, 1.0), (nan, 1.0), (2.0, nan), (2.0, -1.0), (inf, 1.0)])
def test_conversion_refuses_what_is_no_divergence(order: float, spent: float) -> None:
    with raises_code(InputError, "order-out-of-range"):
        epsilon_of_divergence(order, spent, 1e-5)


@pytest.mark.parametrize("rate", [1e-11, 1e-14])
@pytest.mark.parametrize(("noise", "order"), [(0.3, 1.5), (0.3, 2.5)])
def test_where_a_rare_record_would_be_seen_from_far(rate: float, noise: float, order: float) -> None:
    """The losses that count lie far out there: none of them may be cut off."""
    mechanism = SampledGaussian(rate, noise)
    exact = reference(mechanism, order)
    assert exact <= Decimal(divergence(mechanism, order)) <= exact * (1 + Decimal("1e-6"))
