"""Curves of a study for people: what its unimodal sampler, or else its pruner, believes along each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.protocols import CurveModel, pruner_of, sampler_of
from tuner.study.unimodal.inference.picture import CurvePicture, picture
from tuner.study.unimodal.ranking import ranking

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["believed_order", "curves_of"]


def curves_of(study: Study, *, fallback: str = "") -> tuple[CurvePicture, ...]:
    """Return one picture for each unimodal parameter; none before its first trial has a value.

    Args:
        study: with its sampler and pruner.
        fallback: name of the pruner used where the score has more than one top.
    """
    found = []
    for model in _curve_models(study):
        believed = model.beliefs(study)
        if believed is not None and believed.seen.trials:
            maximize = study.direction.name == "MAXIMIZE"
            made = picture(believed, model.parameter, maximize=maximize, fallback=fallback, scaled_by=model.scales)
            found.append(made)
    return tuple(found)


def believed_order(study: Study) -> tuple[int, ...]:
    """Return the numbers of the complete trials, the one believed to be the best first.

    Empty where the scores show more than one top along any parameter: the beliefs are then about curves of any shape.
    """
    every = [believed for model in _curve_models(study) if (believed := model.beliefs(study)) is not None]
    return ranking(every) if all(believed.unimodal for believed in every) else ()


def _curve_models(study: Study) -> tuple[CurveModel, ...]:
    """Return the sampler's models where it has any: the pruner of the same search has the same."""
    return sampler_of(study).curve_models() or pruner_of(study).curve_models()
