"""The curves of a study for people: what its unimodal sampler, or else its pruner, believes of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.unimodal.picture import CurvePicture, picture

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.study.unimodal_optuna import UnimodalPruner, UnimodalSampler

__all__ = ["believed_order", "curves_of"]


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


def believed_order(study: Study) -> tuple[int, ...]:
    """Numbers of the complete trials, the one that is believed to be the best first.

    None where one top was rejected along any parameter: what is believed then is of curves of any shape.
    """
    from tuner.study.unimodal_study import ranking

    every = [believed for each in _believers(study) if (believed := each.beliefs(study)) is not None]
    return ranking(every) if all(believed.unimodal for believed in every) else ()


def _believers(study: Study) -> tuple[UnimodalSampler | UnimodalPruner, ...]:
    """The sampler's where there are any: a pruner of the same search believes the same."""
    from tuner.study.unimodal_optuna import UnimodalPruner, UnimodalSampler
    from tuner.study.unimodal_study import UnimodalPruners, UnimodalSamplers

    for each in (study.sampler, study.pruner):
        if isinstance(each, UnimodalSamplers | UnimodalPruners):
            return each.each
        if isinstance(each, UnimodalSampler | UnimodalPruner):
            return (each,)
    return ()
