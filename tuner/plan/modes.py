"""Pure: sealed searches, searches on public data, and protected scores."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

from trainables.data import public_train_size, public_validation_size
from tuner.errors import BudgetRefusedError
from tuner.privacy.accountant.filters import Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, max_steps
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.study.names import canonical_sampler
from tuner.study.ratio import ratio_of

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.shapes import Choices

__all__ = ["plan_public", "plan_scores", "plan_sealed", "proxy", "sealed_facts"]

_QUANTILES = (("50", 0.5), ("90", 0.9), ("99", 0.99))


def plan_sealed(experiment: Experiment, choices: Choices) -> tuple[Sealed, Choices]:
    """The sealed search that a file asks for: its law, where it is cut off, and the noise of every run.

    Raises:
        BudgetRefusedError: the noise that the file gives costs more than ε.
    """
    from tuner.privacy.accountant.selection import at_most_for, calibrate_selection

    privacy, search = experiment.privacy, experiment.search
    law = RunLaw(name=privacy.runs.law, mean=float(search.trials), shape=privacy.runs.shape)
    at_most = (
        at_most_for(law, epsilon=privacy.epsilon, delta=privacy.delta)
        if isinstance(privacy.runs.at_most, str)
        else privacy.runs.at_most
    )
    ratio = _ratio(experiment)
    if choices.calibrates:
        menu = [(choice.sample_rate, choice.longest) for choice in choices.menu]
        noise = calibrate_selection(
            law, menu, epsilon=privacy.epsilon, delta=privacy.delta, at_most=at_most, ratio=ratio
        )
        choices = choices.with_noise(noise)
    runs = tuple((choice.mechanism, choice.longest) for choice in choices.menu)
    sealed = Sealed(law, at_most, runs, ratio)
    claim = sealed.claim(privacy.delta)
    if not claim <= privacy.epsilon:
        raise BudgetRefusedError(
            f"the best of {law.mean:g} runs in the mean must fit privacy.epsilon, got ε = {claim:.4g} where "
            f"{privacy.epsilon:g} is the cap. Raise noise_multiplier (or write auto), lower search.trials or "
            "trainable.epochs, or raise privacy.epsilon."
        )
    return sealed, choices


def _ratio(experiment: Experiment) -> tuple[float, float]:
    sampler = experiment.search.sampler
    if canonical_sampler(sampler.name) != "bounded":
        return 1.0, 1.0
    ratio = ratio_of(sampler.options)
    return ratio.low, ratio.high


def sealed_facts(sealed: Sealed, *, claim: float, delta: float) -> dict[str, Any]:
    """What a plan tells of a sealed search beside its allowance: compute in runs, the cut's part of δ, the price.

    Args:
        sealed: the search.
        claim: ε of it.
        delta: δ of it.
    """
    law = sealed.law
    one = max(epsilon(mechanism, steps, delta) for mechanism, steps in sealed.runs)
    quantiles = {name: min(law.quantile(part), sealed.at_most) for name, part in _QUANTILES}
    plain = claim
    if sealed.ratio != (1.0, 1.0):
        plain = Sealed(law, sealed.at_most, sealed.runs).claim(delta)
    return {
        "law": law.name,
        "mean": law.mean,
        "shape": law.shape,
        "at_most": sealed.at_most,
        "quantiles": {**quantiles, "at_most": sealed.at_most},
        "truncation_share": _cut(sealed, claim) / delta,
        "ratio": list(sealed.ratio),
        "price": claim / one,
        "price_without_ratio": plain / one,
    }


def _cut(sealed: Sealed, claim: float) -> float:
    return (1 + exp(claim)) * sealed.law.tail(sealed.at_most)


def plan_public(experiment: Experiment, choices: Choices) -> tuple[TotalSteps, Choices]:
    """The one private run after a search on public data.

    Raises:
        BudgetRefusedError: it does not fit with the noise that the file gives.
    """
    privacy, (choice,) = experiment.privacy, choices.menu
    if choices.calibrates:
        noise = calibrate_noise(
            sample_rate=choice.sample_rate, steps=choice.longest, epsilon=privacy.epsilon, delta=privacy.delta
        )
        choices = choices.with_noise(noise)
        return TotalSteps(choices.menu[0].mechanism, choice.longest), choices
    steps = max_steps(choice.mechanism, epsilon=privacy.epsilon, delta=privacy.delta)
    if steps < choice.longest:
        raise BudgetRefusedError(
            f"one run of {choice.longest} steps at noise_multiplier {choice.noise:g} must fit privacy.epsilon, got ε = "
            f"{epsilon(choice.mechanism, choice.longest, privacy.delta):.4g} where {privacy.epsilon:g} is the cap. "
            "Raise noise_multiplier (or write auto), lower trainable.epochs, or raise privacy.epsilon."
        )
    return TotalSteps(choice.mechanism, steps), choices


def proxy(experiment: Experiment) -> dict[str, Any]:
    """What a plan tells of the public records on which a search runs."""
    request = experiment.public_request()
    size = public_train_size(request)
    return {"name": request.name, "train_size": size, "sample_rate": experiment.trainable.batch_size / size}


def plan_scores(experiment: Experiment, request: DatasetRequest, *, planned: int, spare: int) -> dict[str, Any] | None:
    """The protected scores: their noise, how many may be released, and what the noise does; None where unprotected.

    A released count of right answers has sensitivity 1 and noise of standard deviation s, which is one full-batch
    Gaussian step of noise multiplier s.

    Args:
        experiment: the search.
        request: its private records.
        planned: scores of all planned trials.
        spare: scores beside these, for trials that are restored and score their checkpoint again.

    Raises:
        BudgetRefusedError: the planned scores do not fit with the noise that the file gives.
    """
    validation, privacy = experiment.dataset.validation, experiment.privacy
    if not validation.protected:
        return None
    target, delta = validation.epsilon or privacy.epsilon, validation.delta or privacy.delta
    if isinstance(validation.noise, str):
        releases = planned + spare
        noise = calibrate_noise(sample_rate=1.0, steps=releases, epsilon=target, delta=delta)
    else:
        noise = float(validation.noise)
        releases = max_steps(SampledGaussian(1.0, noise), epsilon=target, delta=delta)
        if releases < 1:
            raise BudgetRefusedError(
                f"one protected score with noise {noise:g} must fit dataset.validation.epsilon, got ε = "
                f"{epsilon(SampledGaussian(1.0, noise), 1, delta):.4g} where {target:g} is the cap. Raise "
                "dataset.validation.noise, or write auto."
            )
    size = public_validation_size(request)
    return {
        "epsilon": target,
        "delta": delta,
        "noise": noise,
        "releases": releases,
        "size": size,
        "standard_error": noise / size,
        "allowance": TotalSteps(SampledGaussian(1.0, noise), releases).body(),
    }
