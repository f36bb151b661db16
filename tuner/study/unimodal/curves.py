"""Curves of a study for people: the beliefs of its unimodal sampler or pruner along each parameter."""

from __future__ import annotations

from optuna.study import Study

from tuner.study.protocols import CurveModel, pruner_of, sampler_of
from tuner.study.unimodal.along import ranking
from tuner.study.unimodal.inference.picture import CurvePicture, picture

__all__ = ["believed_order", "curves_of"]


def curves_of(study: Study, *, fallback: str = "") -> tuple[CurvePicture, ...]:
    """Return one picture for each unimodal parameter that a trial has, given the name of the fallback pruner."""
    maximize = study.direction.name == "MAXIMIZE"
    return tuple(
        picture(believed, model.parameter, maximize=maximize, fallback=fallback, scaled_by=model.scales)
        for model in _curve_models(study)
        if (believed := model.beliefs(study)) is not None and believed.seen.trials
    )


def believed_order(study: Study) -> tuple[int, ...]:
    """Return the numbers of the complete trials in the order of the curves, best first.

    Empty if the scores show more than one top along any parameter, because the curves then have any shape.
    """
    every = [believed for model in _curve_models(study) if (believed := model.beliefs(study)) is not None]
    return ranking(every) if all(believed.unimodal for believed in every) else ()


def _curve_models(study: Study) -> tuple[CurveModel, ...]:
    """Return the models of the sampler, or those of the pruner if the sampler has none. They agree if both have any."""
    return sampler_of(study).curve_models() or pruner_of(study).curve_models()
