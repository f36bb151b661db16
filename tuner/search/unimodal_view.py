"""The curves of a study for people: what its unimodal sampler, or else its pruner, believes of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.search.unimodal.picture import CurvePicture, picture

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.search.unimodal_optuna import UnimodalPruner, UnimodalSampler

__all__ = ["curves_of"]


def curves_of(study: Study, *, fallback: str = "") -> tuple[CurvePicture, ...]:
    """One picture a parameter that is searched as unimodal; none before its first trial has a value.

    Args:
        study: with its sampler and pruner.
        fallback: what prunes where unimodality is rejected.
    """
    found = []
    for each in _believers(study):
        believed = each.beliefs(study)
        if believed is not None and believed.seen.trials:
            maximize = study.direction.name == "MAXIMIZE"
            made = picture(believed, each.parameter, maximize=maximize, fallback=fallback, scaled_by=each.scales)
            found.append(made)
    return tuple(found)


def _believers(study: Study) -> tuple[UnimodalSampler | UnimodalPruner, ...]:
    """The sampler's where there are any: a pruner of the same search believes the same."""
    from tuner.search.unimodal_optuna import UnimodalPruner, UnimodalSampler
    from tuner.search.unimodal_study import UnimodalPruners, UnimodalSamplers

    for each in (study.sampler, study.pruner):
        if isinstance(each, UnimodalSamplers | UnimodalPruners):
            return each.each
        if isinstance(each, UnimodalSampler | UnimodalPruner):
            return (each,)
    return ()
