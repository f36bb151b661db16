"""Shapes of a search's trials: their steps, the rungs at which they report, and the levels at which they pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.study import views
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape

if TYPE_CHECKING:
    from optuna.trial import Trial

    from tuner.study.committed import Committed
    from tuner.study.pauses import Levels
    from tuner.study.types import Shape

__all__ = ["TrialShapes"]


class TrialShapes:
    """Shapes of a search's trials and of its committed run. See `StudyDriver` for the arguments.

    Attributes:
        rungs: rungs of the longest trial.
        cheapest: the cheapest possible shapes of a trial. Empty if all trials have the same shape.
    """

    def __init__(
        self,
        rungs: Sequence[int],
        *,
        shape_of: Shape | None = None,
        cheapest: Sequence[TrialShape] = (),
        committed: Committed | None = None,
        levels: Levels | None = None,
    ) -> None:
        self.rungs = tuple(rungs)
        self.cheapest = tuple(cheapest)
        nominal = TrialShape(steps=self.rungs[-1], rungs=self.rungs)
        self._shape_of: Shape = shape_of or (lambda _parameters: nominal)
        self._committed = committed
        self._levels = levels

    def of_parameters(self, parameters: Mapping[str, object]) -> TrialShape:
        """Return the shape of a trial of the search with these parameters."""
        return self._shape_of(parameters)

    def of_trial(self, trial: Trial, parameters: Mapping[str, object]) -> TrialShape:
        """Return the planned shape of a trial of the search, or of the committed run."""
        return self.planned(parameters, committed=views.COMMITTED in trial.user_attrs)

    def planned(self, parameters: Mapping[str, object], *, committed: bool) -> TrialShape:
        """Return the planned shape of a trial of the search with these parameters, or of the committed run."""
        if committed and self._committed is not None:
            return self._committed.shape
        return self._shape_of(parameters)

    def nominal(self, shape: TrialShape, planned: TrialShape) -> dict[int, int]:
        """Return the rung of the longest trial for each step at which a trial of this shape reports.

        A trial that ends before its planned end has its last rung there.
        """
        own = scaled_rungs(self.rungs, planned.steps)
        if shape.steps == planned.steps:
            return own
        return {step: rung for step, rung in own.items() if step < shape.steps} | {shape.steps: self.rungs[-1]}

    # A rung-wise search (`search.full_runs`), whose trials pause at levels.

    @property
    def pause(self) -> bool:
        """Whether trials pause at levels. If not, the following methods do not apply."""
        return self._levels is not None

    def own_levels(self, shape: TrialShape) -> tuple[int, ...]:
        """Return a trial's own step for each level."""
        own = scaled_rungs(self.rungs, shape.steps)
        levels = () if self._levels is None else self._levels.steps
        return tuple(next(step for step, nominal in own.items() if nominal >= level) for level in levels)

    def until(self, shape: TrialShape, step: int) -> int:
        """Return the step at which a trial pauses next after `step`. The last is the end of the trial."""
        return next(own for own in self.own_levels(shape) if own > step)

    def level_of(self, shape: TrialShape, step: int) -> int:
        """Return the deepest level that a trial has reached after `step` of its own steps; -1 before the first."""
        return sum(own <= step for own in self.own_levels(shape)) - 1
