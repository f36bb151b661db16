"""Curves that a report shows for a study. Each curve shows how the score depends on one unimodal parameter."""

from __future__ import annotations

from optuna.study import Study

from tuner.study.protocols import CurveModel, pruner_of, sampler_of
from tuner.study.unimodal.along import ranking
from tuner.study.unimodal.inference.picture import CurvePicture, picture

__all__ = ["believed_order", "curves_of"]


def curves_of(study: Study, *, fallback: str = "") -> tuple[CurvePicture, ...]:
    """Return a picture of the estimated curve along each unimodal parameter that has trials.

    Args:
        study: any study. The result is empty unless its sampler or its pruner is ``unimodal``.
        fallback: name of the pruner that decides for a parameter if the scores along it have several maxima.
    """
    maximize = study.direction.name == "MAXIMIZE"
    return tuple(
        picture(believed, model.parameter, maximize=maximize, fallback=fallback, scaled_by=model.scales)
        for model in _curve_models(study)
        if (believed := model.beliefs(study)) is not None and believed.seen.trials
    )


def believed_order(study: Study) -> tuple[int, ...]:
    """Return the numbers of the complete trials, best first, ordered by the estimated curves instead of by score.

    The result is empty if the scores show more than one maximum along at least one parameter.
    """
    every = [believed for model in _curve_models(study) if (believed := model.beliefs(study)) is not None]
    return ranking(every) if all(believed.unimodal for believed in every) else ()


def _curve_models(study: Study) -> tuple[CurveModel, ...]:
    """Return the curve models of the sampler or, if the sampler has none, of the pruner. Both give the same curves."""
    return sampler_of(study).curve_models() or pruner_of(study).curve_models()
