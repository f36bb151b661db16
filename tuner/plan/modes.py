"""Planning for each accounting mode and for protected scores. Planning reads no record and runs no step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING

from trainables.data import info, public_train_size, public_validation_size
from trainables.release.published import published_noise
from tuner.errors import BudgetRefusedError
from tuner.plan.caps import ChosenFilter, compose, total_steps
from tuner.plan.commit import CommitPlan, plan_commit
from tuner.plan.full_runs import Bought, planned_runs
from tuner.privacy.accountant.filters import OneRelease, Sealed, TotalSteps, VotedLabels
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.noisy_records import NoisyRecords, calibrate_release
from tuner.privacy.accountant.pld import calibrate_noise, epsilon, max_steps
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.shuffled_rows import calibrate_shuffled
from tuner.privacy.accountant.voted_labels import calibrate_votes
from tuner.privacy.modes import COMPOSITION, PUBLIC, RELEASE, SELECTION, VOTES
from tuner.study.names import canonical_sampler
from tuner.study.samplers.ratio import ratio_of

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.shapes import Choices

__all__ = ["PLANNERS", "PlannedMode", "PublicData", "ScorePlan", "SealedFacts", "plan_scores"]

_CLEAR = 700.0
"""ε of a randomised response that reports every label as it is, for the noise of the paper, which protects no label."""
_QUANTILES = (("50", 0.5), ("90", 0.9), ("99", 0.99))


@dataclass(frozen=True, kw_only=True)
class SealedFacts:
    """Facts about a sealed search: its number of runs, and its price in ε.

    Attributes:
        quantiles: quantiles of the number of runs, with the keys ``50``, ``90`` and ``99`` (per cent), and the maximum
            number of runs with the key ``at_most``.
    """

    quantiles: Mapping[str, int]
    truncation_share: float  # share of δ that pays for stopping at the maximum number of runs
    price: float  # ε of the search divided by ε of one run
    price_without_ratio: float  # this price if the sampler ignored the scores

    @classmethod
    def of(cls, sealed: Sealed, *, claim: float, delta: float) -> SealedFacts:
        """Return the facts of a sealed search. `claim` is the search's ε at `delta`."""
        law = sealed.law
        one = max(epsilon(mechanism, steps, delta) for mechanism, steps in sealed.runs)
        quantiles = {name: min(law.quantile(part), sealed.at_most) for name, part in _QUANTILES}
        plain = claim
        if sealed.ratio != (1.0, 1.0):
            plain = Sealed(law, sealed.at_most, sealed.runs).claim(delta)
        return cls(
            quantiles={**quantiles, "at_most": sealed.at_most},
            truncation_share=(1 + exp(claim)) * law.tail(sealed.at_most) / delta,
            price=claim / one,
            price_without_ratio=plain / one,
        )


@dataclass(frozen=True, kw_only=True)
class PublicData:
    """Public facts about the public records of a search.

    Attributes:
        proxy_trials: number of trials on them before a charged search; None in public mode.
    """

    name: str
    train_size: int
    sample_rate: float
    proxy_trials: int | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> PublicData:
        """Return the facts about the public records that an experiment declares."""
        request = experiment.public_request()
        size, declared = public_train_size(request), experiment.search.public
        asked = None if declared is None else declared.trials
        return cls(
            name=request.name,
            train_size=size,
            sample_rate=experiment.trainable.batch_size / size,
            proxy_trials=(asked or experiment.search.trials) if experiment.has_proxy else None,
        )


@dataclass(frozen=True, kw_only=True)
class PlannedMode:
    """The filter of a search.

    `commit` is set if a committed run follows, `selection` for a sealed search, `public` if public records are
    searched, and `rung_wise` for a search that reserves rung by rung.
    """

    chosen: ChosenFilter
    commit: CommitPlan | None = None
    rung_wise: Bought | None = None
    selection: SealedFacts | None = None
    public: PublicData | None = None


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """Budget and noise of the protected scores.

    A released score is a count of correct answers plus Gaussian noise. The count has sensitivity 1. Its privacy cost
    is therefore that of one full-batch step whose noise multiplier is the standard deviation of the noise.

    Attributes:
        epsilon, delta: budget of all scores together.
        noise: standard deviation of a released count.
        releases: number of scores that may be released.
        size: public number of validation records.
    """

    epsilon: float
    delta: float
    noise: float
    releases: int
    size: int

    @property
    def standard_error(self) -> float:
        """Standard error of a score due to its noise."""
        return self.noise / self.size

    @property
    def filter(self) -> TotalSteps:
        """The filter that limits how many scores are released."""
        return TotalSteps(SampledGaussian(1.0, self.noise), self.releases)


def _plan_composition(experiment: Experiment, choices: Choices) -> PlannedMode:
    asked, public = experiment.search.commit, PublicData.of(experiment) if experiment.has_proxy else None
    if asked is not None:
        filter, choices, commit = plan_commit(experiment, asked, choices)
        reason = (
            "the trials and the committed run each have their own noise and number of steps; ε covers both together"
        )
        return PlannedMode(chosen=ChosenFilter(filter, choices, reason), commit=commit, public=public)
    found = planned_runs(experiment, choices)
    runs = experiment.search.trials if found is None else found.full_runs
    return PlannedMode(chosen=compose(choices, runs, experiment.privacy), rung_wise=found, public=public)


def _plan_sealed(experiment: Experiment, choices: Choices) -> PlannedMode:
    """Plan a sealed search: the distribution and the maximum of the number of runs, and the noise of each run.

    Raises:
        BudgetRefusedError: the search exceeds ε with the noise in the file.
    """
    from tuner.privacy.accountant.selection import at_most_for, calibrate_selection

    privacy, search = experiment.privacy, experiment.search
    law = RunLaw(name=privacy.runs.law, mean=float(search.trials), shape=privacy.runs.shape)
    target, delta, at_most = privacy.epsilon, privacy.delta, privacy.runs.at_most
    if isinstance(at_most, str):
        at_most = at_most_for(law, epsilon=target, delta=delta)
    ratio = _ratio(experiment)
    if choices.calibrates:
        menu = [(choice.sample_rate, choice.longest) for choice in choices.menu]
        noise = calibrate_selection(law, menu, epsilon=target, delta=delta, at_most=at_most, ratio=ratio)
        choices = replace(choices, noise=noise)
    runs = tuple((choice.mechanism, choice.longest) for choice in choices.menu)
    sealed = Sealed(law, at_most, runs, ratio)
    claim = sealed.claim(delta)
    if not claim <= target:
        raise BudgetRefusedError(
            "budget-too-small",
            f"A sealed search with {law.mean:g} runs on average has ε = {claim:.4g}, but `privacy.epsilon` is "
            f"{target:g}. Raise `privacy.noise_multiplier` (or set it to auto), lower `search.trials` or "
            "`trainable.epochs`, or raise `privacy.epsilon`.",
        )
    chosen = ChosenFilter(
        sealed, choices, "the whole cost is charged when the search begins, because the number of runs is hidden"
    )
    return PlannedMode(chosen=chosen, selection=SealedFacts.of(sealed, claim=claim, delta=delta))


def _ratio(experiment: Experiment) -> tuple[float, float]:
    sampler = experiment.search.sampler
    if canonical_sampler(sampler.name) != "bounded":
        return 1.0, 1.0
    ratio = ratio_of(sampler.options)
    return ratio.low, ratio.high


def _plan_public(experiment: Experiment, choices: Choices) -> PlannedMode:
    """Plan the one private run that follows a search on public records.

    Raises:
        BudgetRefusedError: the run exceeds ε with the noise in the file.
    """
    filter, choices = total_steps(choices, 1, experiment.privacy)
    reason = "the search on public records costs nothing; only the private run after it is charged"
    return PlannedMode(chosen=ChosenFilter(filter, choices, reason), public=PublicData.of(experiment))


def _plan_release(experiment: Experiment, choices: Choices) -> PlannedMode:
    """Plan one release: its noise, calibrated for the privacy of each row. The trials on it cost nothing."""
    privacy = experiment.privacy
    if privacy.release.guarantee == "published":
        return _plan_published(experiment, choices)
    asked = {
        "clip": privacy.release.clip,
        "label_share": privacy.release.label_share,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
    }
    classes, clone = info(experiment.dataset_request()).classes, None
    if privacy.release.trust == "central":
        randomiser, clone = calibrate_shuffled(classes=classes, rows=choices.train_size, **asked)
    else:
        randomiser = calibrate_release(classes=classes, **asked)
    reason = "one noisy copy of the records is charged before it is drawn; trials and later searches on it cost nothing"
    # The plan's noise multiplier is the noise on a feature, in units of the largest distance of two records.
    filled = replace(choices, noise=1 / randomiser.shift)
    return PlannedMode(chosen=ChosenFilter(OneRelease(randomiser, choices.train_size, clone), filled, reason))


def _plan_published(experiment: Experiment, choices: Choices) -> PlannedMode:
    """Plan a study of the input perturbation paper: its noise, and labels in the clear. Nothing is guaranteed.

    The norm bound of the records bounds the gradient of a logistic loss.
    """
    privacy, release, n = experiment.privacy, experiment.privacy.release, choices.train_size
    steps = max(choice.longest for choice in choices.menu)
    noise = published_noise(
        records=n,
        steps=steps,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        gradient_norm=release.clip,
        strong_convexity=release.strong_convexity,
        constant=release.constant,
    )
    classes = info(experiment.dataset_request()).classes
    randomiser = NoisyRecords(clip=release.clip, noise=noise, label_epsilon=_CLEAR, classes=classes)
    filled = replace(choices, noise=1 / randomiser.shift)
    reason = "the noise of the input perturbation paper; this noise gives no guarantee"
    return PlannedMode(chosen=ChosenFilter(OneRelease(randomiser, n), filled, reason))


def _plan_votes(experiment: Experiment, choices: Choices) -> PlannedMode:
    """Plan one draw of voted labels: its noise, whatever the votes are. The students on them cost nothing."""
    privacy, asked = experiment.privacy, experiment.privacy.votes
    queries = min(choices.train_size, asked.queries or choices.train_size)
    noise = calibrate_votes(
        queries=queries,
        answers=min(asked.answers, queries),
        threshold_share=asked.threshold_share,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
    )
    reason = "the labels are charged before a vote is read; students and later searches on these labels cost nothing"
    # The plan's noise multiplier is that of all tests and answers as one Gaussian mechanism.
    filled = replace(choices, noise=1 / noise.shift)
    return PlannedMode(chosen=ChosenFilter(VotedLabels(noise, asked.threshold), filled, reason))


PLANNERS: Mapping[str, Callable[[Experiment, Choices], PlannedMode]] = {
    COMPOSITION.name: _plan_composition,
    SELECTION.name: _plan_sealed,
    PUBLIC.name: _plan_public,
    RELEASE.name: _plan_release,
    VOTES.name: _plan_votes,
}
"""Functions that plan a search, by mode. They raise `BudgetRefusedError` if no run fits the budget."""


def plan_scores(experiment: Experiment, request: DatasetRequest, *, planned: int, spare: int) -> ScorePlan | None:
    """Plan the protected scores. Return None if the scores are outside the guarantee.

    `planned` scores belong to the planned trials. `spare` scores are added for restored trials, which score their
    checkpoint again.

    Raises:
        BudgetRefusedError: not even one score fits its budget with the noise in the file.
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
            one = epsilon(SampledGaussian(1.0, noise), 1, delta)
            raise BudgetRefusedError(
                "validation-budget-too-small",
                f"One protected score with noise {noise:g} has ε = {one:.4g}, but the budget of the scores is "
                f"{target:g}. Raise `dataset.validation.noise`, or set it to auto.",
            )
    size = public_validation_size(request)
    return ScorePlan(epsilon=target, delta=delta, noise=noise, releases=releases, size=size)
