"""Known faults of the libraries, each pinned: when one of these tests fails, that fault was fixed.

Then our workaround may go.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, nan

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian
from errors_helper import raises_code

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.accountant.rdp import divergence

CIFAR = SampledGaussian(256 / 50_000, 1.1)
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


@contextmanager
def opacus_is_quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_rdp_answers_zero_for_nan_noise_and_ours_refuses_it() -> None:
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(nan))
    assert RdpAccountant().compose(event, 100).get_epsilon(1e-5) == 0
    with raises_code(InputError, "noise-out-of-range"):
        SampledGaussian(0.01, nan)


def test_rdp_replace_one_omits_the_factor_two_of_the_sensitivity() -> None:
    event = dp_accounting.GaussianDpEvent(5.0)
    replace = RdpAccountant(neighboring_relation=REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert replace == RdpAccountant().compose(event).get_epsilon(1e-5)
    # Replacing moves a clipped sum by 2C, as half the noise would: the PLD accountant knows that.
    true = PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5)
    half = PLDAccountant().compose(dp_accounting.GaussianDpEvent(2.5)).get_epsilon(1e-5)
    assert true == pytest.approx(half, rel=1e-3)
    assert replace < 0.6 * true


def test_pld_ignores_the_count_of_a_self_composed_randomized_response() -> None:
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    once = PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-6)
    many = PLDAccountant(REPLACE_ONE).compose(dp_accounting.SelfComposedDpEvent(event, 10)).get_epsilon(1e-6)
    assert once == many
    assert isfinite(once)


def test_pld_does_not_take_repeat_and_select() -> None:
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(5.0), 30.0, 1.0)
    assert RdpAccountant().supports(event)
    assert not PLDAccountant().supports(event)
    with pytest.raises(Exception, match="Unsupported event"):
        PLDAccountant().compose(event)


def test_rdp_is_far_too_large_at_fractional_orders_of_little_loss() -> None:
    # Its series drops the signs of the binomial coefficients. Safe, but no price list for a filter: ours is its own.
    mechanism = SampledGaussian(0.214, 26.8)
    (library,) = _compute_rdp_poisson_subsampled_gaussian(mechanism.sample_rate, mechanism.noise_multiplier, [1.12])
    assert library > 100 * divergence(mechanism, 1.12)


def test_rdp_prints_that_orders_did_not_converge(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="absl"):
        RdpAccountant().compose(SampledGaussian(0.1, 1.0).event(1))
    assert "failed to converge" in caplog.text


def test_rdp_is_too_small_at_whole_orders_of_hardly_any_loss() -> None:
    # log(A) near 0 is a sum of logarithms there: it cancels, and what is left may lie below the truth.
    mechanism = SampledGaussian(1.11e-5, 47.8)
    (library,) = _compute_rdp_poisson_subsampled_gaussian(mechanism.sample_rate, mechanism.noise_multiplier, [56])
    assert library < divergence(mechanism, 56) * (1 - 1e-8)


def test_the_gdp_accountant_under_reports() -> None:
    # One epoch of CIFAR-10, 0.271 where 0.347 is claimed and PRV's LOWER estimate is above 0.33.
    accountants = pytest.importorskip("opacus.accountants")
    with pytest.warns(UserWarning, match="underestimate"):
        gdp = accountants.GaussianAccountant()
    gdp.history = [(CIFAR.noise_multiplier, CIFAR.sample_rate, 195)]
    said = gdp.get_epsilon(1e-5)
    assert said == pytest.approx(0.271, abs=5e-4)
    assert epsilon(CIFAR, 195, 1e-5) == pytest.approx(0.347, abs=5e-4)
    prv = accountants.PRVAccountant()
    prv.history = gdp.history
    with opacus_is_quiet():
        lower, _, _ = prv._get_dprv(eps_error=0.01, delta_error=1e-8).compute_epsilon(1e-5, 1e-8, 0.01)
    assert said + 0.05 < lower <= epsilon(CIFAR, 195, 1e-5)


def test_prv_needs_seven_gigabytes_at_1_1_million_steps() -> None:
    # Its grid grows as √steps · ε. Only its points are counted here; at 20 000 and at 100 000 steps the process grew by
    # 176 bytes a point.
    prv = pytest.importorskip("opacus.accountants.prv")
    step = prv.PoissonSubsampledGaussianPRV(CIFAR.sample_rate, CIFAR.noise_multiplier)
    domain = prv.PRVAccountant()._get_domain(
        prvs=[step], num_self_compositions=[1_100_000], eps_error=0.01, delta_error=1e-8
    )
    assert domain.size * 176 == pytest.approx(7e9, rel=0.02)


@pytest.mark.filterwarnings("ignore")
def test_opacus_books_shuffled_batches_as_poisson_and_says_nothing() -> None:
    # One shuffled epoch is at least ε = 3.08 where Poisson accounting prints 0.35. Opacus' engine takes
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


def test_opacus_secure_mode_needs_a_package_that_no_longer_installs() -> None:
    opacus = pytest.importorskip("opacus")
    assert importlib.util.find_spec("torchcsprng") is None
    with pytest.raises(ImportError, match="torchcsprng"):
        opacus.PrivacyEngine(secure_mode=True)
