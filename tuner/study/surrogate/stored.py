"""What the surrogate takes from a stored study, and the configuration that it gives the final run.

This module only reads, and imports no Optuna.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.surrogate.axes import Axes
from tuner.study.surrogate.observations import PRIVATE, Observation, Prior, Proposal
from tuner.study.surrogate.setting import SearchSetting
from tuner.study.surrogate.surrogate import Surrogate
from tuner.study.types import TrialStatus

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.suggest import Space

__all__ = ["choose_by_proxy", "choose_final", "observations", "parameters_of", "surrogate_of", "with_reference"]


def choose_final(study: Study, space: Space, setting: SearchSetting, *, seed: int = 0) -> Proposal | None:
    """Return the configuration of the final run, with the mean and the standard deviation of its score.

    The choice depends on released scores and public values only, so it costs nothing. Parameters that are not searched
    are not in it.

    Args:
        study: the study of the search.
        space: search space.
        setting: facts about the search and the final run.
        seed: public seed of the search.

    Returns:
        The configuration, or None if no trial has a score.
    """
    axes, setting = Axes.of(space), with_reference(setting, Axes.of(space))
    if not observations(study, setting):
        return None
    found = surrogate_of(study, axes, setting, seed=seed).best(setting.final)
    return found if study.direction.name == "MAXIMIZE" else replace(found, mean=-found.mean)


def choose_by_proxy(study: Study, space: Space, setting: SearchSetting, *, seed: int = 0) -> Proposal | None:
    """Return the configuration of a private run of which only a search on public records is known.

    It has the greatest expected score on the private records, whose best rate may be another one. The arguments are
    those of `choose_final`, for the study of the public search, and the mean of the result is never a loss.
    """
    axes, setting = Axes.of(space), with_reference(setting, Axes.of(space))
    known = observations(study, setting)
    return Surrogate.fit(axes, known, setting.prior, seed=seed).best(setting.final) if known else None


def surrogate_of(study: Study, axes: Axes, setting: SearchSetting, *, seed: int) -> Surrogate:
    """Return the surrogate of a study's scores so far. The setting is one of `with_reference`."""
    return Surrogate.fit(axes, observations(study, setting), setting.prior, seed=seed)


def with_reference(setting: SearchSetting, axes: Axes) -> SearchSetting:
    """Return the setting with a prior that holds for the noise of the final run, unless it says for which it holds.

    The scores of a public proxy become a part of the prior.
    """
    prior = setting.prior or Prior()
    if prior.noise is None:
        prior = replace(prior, noise=setting.final(axes.at([0.5] * axes.size)))
    if setting.public:
        prior = Surrogate.taught(axes, setting.public, prior)
    return replace(setting, prior=prior, public=())


def observations(study: Study, setting: SearchSetting, source: str = PRIVATE) -> list[Observation]:
    """Return the last score of each trial of a study. With `source` PUBLIC, the study is one of a proxy.

    Earlier scores of a trial share its noise, so they add little, and a trial that was lucky would count for several.
    A training that failed without a score has the worst finite score of all, as one whose model is useless.
    """
    sign = 1.0 if study.direction.name == "MAXIMIZE" else -1.0
    found, failed = [], []
    for trial in study.get_trials(deepcopy=False):
        if not trial.params:  # a run that no sampler has drawn, or a trial that has no values yet
            continue
        for step, score in _scores(trial, setting.last_step)[-1:]:
            found.append(_observation(trial, setting, step, sign * score, source))
        if trial.user_attrs.get(views.OUTCOME) == TrialStatus.FAILED.value and not _scores(trial, setting.last_step):
            failed.append(trial)
    if found and failed:
        worst = min(each.score for each in found)
        found.extend(_observation(trial, setting, setting.last_step, worst, source) for trial in failed)
    return found


def _observation(trial: FrozenTrial, setting: SearchSetting, step: int, score: float, source: str) -> Observation:
    parameters = parameters_of(trial)
    fraction = setting.length * min(step / setting.last_step, 1.0)
    noise = setting.noise_of(parameters)
    return Observation(parameters, noise, fraction, source, score, setting.error(abs(score)), f"{trial.number}")


def _scores(trial: FrozenTrial, last_step: int) -> list[tuple[int, float]]:
    """Return pairs (step, score) of a trial, with finite scores only."""
    scores = dict(trial.intermediate_values)
    if trial.state.name == "COMPLETE" and trial.value is not None:
        scores[last_step] = trial.value
    return [(step, score) for step, score in sorted(scores.items()) if step > 0 and isfinite(score)]


def parameters_of(trial: FrozenTrial) -> dict[str, object]:
    """Return the flat parameters of a trial, or only the searched ones if the driver has not stored the others."""
    return dict(trial.params) | dict(trial.user_attrs.get(views.PARAMETERS, {}))
