"""Base of the unimodal sampler and pruner of one parameter: from a study to beliefs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules, believe
from tuner.study.unimodal.view import Told, View, last_step

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

    from tuner.study.protocols import CurveModel

__all__ = ["AlongParameter"]


class AlongParameter:
    """Beliefs along one parameter, shared by its sampler and its pruner.

    Args:
        parameter: name of the parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        last_step: step at which trials end; None for the largest that a complete trial has reported.
        scales: names of the parameters that multiply it.
        rules: see `inference.beliefs.Rules`.

    Raises:
        ValueError: a value is out of range.
        TypeError: a rule is unknown.
    """

    def __init__(
        self, parameter: str, tolerance: float, last_step: int | None, scales: Sequence[str], rules: dict[str, Any]
    ) -> None:
        if not (isinstance(parameter, str) and parameter):
            raise ValueError(f"`parameter` must be the name of a searched parameter (got {parameter!r}).")
        if not 0 < tolerance < math.inf:
            raise ValueError(f"`tolerance` must be positive and finite, in the score's own unit (got {tolerance!r}).")
        if last_step is not None and not last_step > 0:
            raise ValueError(f"`last_step` must be positive (got {last_step!r}).")
        self._parameter, self._tolerance, self._last_step, self._rules = parameter, tolerance, last_step, rules
        self._scales = tuple(scales)
        # Records of ended trials, which cannot change: a cache, no state. Every decision follows from the study.
        self._ended: tuple[object, dict[int, Told]] = (None, {})
        Rules(
            axis=ParameterAxis(0.0, 1.0), tolerance=tolerance, **rules
        )  # report an unknown rule now, not at the first trial

    @property
    def parameter(self) -> str:
        """Name of the parameter."""
        return self._parameter

    @property
    def scales(self) -> tuple[str, ...]:
        """Names of the parameters that multiply it."""
        return self._scales

    def beliefs(self, study: Study, distribution: BaseDistribution | None = None) -> Beliefs | None:
        """Return what follows from the study; None before the bounds of the parameter are known."""
        view = self.view(study, distribution)
        if view is None:
            return None
        last = last_step(study, self._last_step)
        of = (id(study._storage), study.study_name, view, last)
        if self._ended[0] != of:
            self._ended = (of, {})
        seen = view.seen(study, last, self._ended[1])
        return believe(seen, Rules(axis=view.axis, tolerance=self._tolerance, **self._rules))

    def view(self, study: Study, distribution: BaseDistribution | None = None) -> View | None:
        """Return the trials of the study as records along the parameter; None before its bounds are known."""
        distributions = {
            name: found for trial in study.get_trials(deepcopy=False) for name, found in trial.distributions.items()
        }
        return View.of(self._parameter, distribution or distributions.get(self._parameter), distributions, self._scales)

    def curve_models(self) -> tuple[CurveModel, ...]:
        """Return this one."""
        return (self,)
