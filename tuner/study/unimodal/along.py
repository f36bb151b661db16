"""Common base of the unimodal sampler and pruner, and the ranking of trials along several parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study

from tuner.study.protocols import CurveModel
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules, believe
from tuner.study.unimodal.view import Told, View, last_step

__all__ = ["AlongParameter", "believed_best", "ranking"]


class AlongParameter:
    """Model of the score along one parameter. It is the base class of the unimodal sampler and pruner.

    Args:
        parameter: name of a float or integer parameter.
        tolerance: smallest difference between scores that matters, in the unit of the score.
        last_step: step at which trials end. The default is the largest step that a complete trial has reported.
        scales: names of other parameters that multiply this parameter. The model is a function of the product.
        rules: further arguments, which are fields of `inference.beliefs.Rules`.
    """

    def __init__(
        self,
        parameter: str,
        *,
        tolerance: float,
        last_step: int | None = None,
        scales: Sequence[str] = (),
        **rules: Any,  # noqa: ANN401 - fields of Rules
    ) -> None:
        if not (isinstance(parameter, str) and parameter):
            raise ValueError(f"`parameter` must be the name of a searched parameter (got {parameter!r}).")
        if last_step is not None and not last_step > 0:
            raise ValueError(f"`last_step` must be positive (got {last_step!r}).")
        self.parameter, self.scales, self._last_step = parameter, tuple(scales), last_step
        # This axis is replaced as soon as the bounds of the parameter are known.
        self.rules = Rules(axis=ParameterAxis(0.0, 1.0), tolerance=tolerance, **rules)
        # Cache of the records of ended trials. These records never change.
        self._ended: tuple[object, dict[tuple[int, str, int], Told]] = (None, {})

    def beliefs(self, study: Study) -> Beliefs | None:
        """Return the conclusions from the trials of the study, or None if the parameter's bounds are still unknown."""
        known = self.known(study)
        return None if known is None else known[1]

    def known(self, study: Study, distribution: BaseDistribution | None = None) -> tuple[View, Beliefs] | None:
        """Return the view of the study, and the conclusions from the trials of the study.

        Return None if the parameter's bounds are still unknown.
        """
        distributions = {
            name: found for trial in study.get_trials(deepcopy=False) for name, found in trial.distributions.items()
        }
        view = View.of(self.parameter, distribution or distributions.get(self.parameter), distributions, self.scales)
        if view is None:
            return None
        last = last_step(study, self._last_step)
        of = (id(study._storage), study.study_name, view, last)
        if self._ended[0] != of:
            self._ended = (of, {})
        seen = view.seen(study, last, self._ended[1])
        return view, believe(seen, replace(self.rules, axis=view.axis))

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return a tuple that contains only this model."""
        return (self,)


def ranking(beliefs: Sequence[Beliefs]) -> tuple[int, ...]:
    """Return the numbers of the complete trials, best first.

    Each trial has one rank along each parameter. Trials are ordered by the sum of these ranks.
    """
    orders = [believed.ranked() for believed in beliefs]
    every = {number for order in orders for number in order}
    return tuple(sorted(every, key=lambda number: (sum(_rank(order, number) for order in orders), number)))


def believed_best(beliefs: Sequence[Beliefs]) -> tuple[int, float] | None:
    """Return the number of the probably best trial, and a lower bound on its probability of being near the optimum.

    The bound is 1 − Σ pᵢ, where pᵢ is the probability that the trial is not near the optimum along parameter i. Return
    None if no trial is complete.
    """
    ranked = ranking(beliefs)
    if not ranked:
        return None
    missed = 0.0
    for believed in beliefs:
        standing = next((each for each in believed.seen.trials if each.trial == ranked[0]), None)
        missed += 1.0 if standing is None else 1.0 - believed.near_trial(standing)
    return ranked[0], max(0.0, 1.0 - missed)


def _rank(order: tuple[int, ...], number: int) -> int:
    return order.index(number) if number in order else len(order)
