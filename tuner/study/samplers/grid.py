"""Grid search over a space with conditional parameters."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from search_spaces.domains import Scalar
from tuner.errors import InputError
from tuner.study.samplers.make import SamplerRequest
from tuner.study.samplers.prior import IndependentSampler
from tuner.study.suggest import Space

__all__ = ["GridPointSampler", "build", "grid_points"]

_GRID_POINTS = 5
"""Default number of grid values for a range."""

_GRID_LIMIT = 100_000


def build(request: SamplerRequest) -> GridPointSampler:
    """Create the grid sampler, which proposes the grid points in random order."""
    if request.space is None:
        raise InputError("grid-values-missing", "The sampler 'grid' needs a search space. Pass the argument `space`.")
    count = request.options.get("points", _GRID_POINTS)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(
            "option-invalid", f"`points` of the sampler 'grid' must be a positive whole number (got {count!r})."
        )
    points = grid_points(request.space, request.space.grid(count))
    # The points are shuffled, so that a search that ends early has tried points from all parts of the grid.
    random.Random(request.seed).shuffle(points)
    return GridPointSampler(points)


class GridPointSampler(IndependentSampler):
    """Sampler that gives trial number i the i-th point of a list. The sampler has no state.

    Optuna's GridSampler is not used for two reasons. It repeats points that differ only in inactive conditional
    parameters, and it ends the study with `Study.stop`, which works only inside `Study.optimize`.

    Args:
        points: for each grid point, the values of the searched parameters by flat parameter name.
    """

    def __init__(self, points: Sequence[Mapping[str, object]]) -> None:
        self._points = tuple(dict(point) for point in points)
        self.points = len(self._points)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Return the value of one parameter at the trial's grid point."""
        return self._points[trial.number % len(self._points)][param_name]


def grid_points(space: Space, grid: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Return all grid points of a space. Points do not contain inactive conditional parameters.

    Args:
        space: search space, possibly with conditional parameters.
        grid: grid values of each parameter.
    """
    points: list[dict[str, object]] = []
    prefix: list[int] = []  # index of the value of each parameter, in the order of the space
    while True:
        walk = _GridWalk(grid, prefix)
        space.sample(walk)
        points.append(walk.taken)
        if len(points) > _GRID_LIMIT:
            raise InputError(
                "grid-too-large", f"The grid may have at most {_GRID_LIMIT} points, but it has more. Lower `points`."
            )
        prefix = walk.choices
        while prefix and prefix[-1] + 1 == walk.sizes[len(prefix) - 1]:
            prefix.pop()
        if not prefix:
            return points
        prefix[-1] += 1


class _GridWalk:
    """Implementation of `Suggest` that returns grid values.

    The i-th parameter gets the grid value with index `prefix[i]`. Parameters beyond the prefix get their first value.
    """

    def __init__(self, grid: Mapping[str, Sequence[object]], prefix: Sequence[int]) -> None:
        self._grid = grid
        self._prefix = tuple(prefix)
        self.choices: list[int] = []
        self.sizes: list[int] = []
        self.taken: dict[str, object] = {}

    def _answer(self, name: str) -> Any:  # noqa: ANN401 - a value of any parameter
        values = self._grid.get(name, ())
        if len(values) == 0:
            raise InputError("grid-values-missing", f"The grid needs at least one value for the parameter {name!r}.")
        index = len(self.choices)
        choice = self._prefix[index] if index < len(self._prefix) else 0
        self.choices.append(choice)
        self.sizes.append(len(values))
        self.taken[name] = values[choice]
        return values[choice]

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return float(self._answer(name))

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return int(self._answer(name))

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        chosen: Scalar = self._answer(name)
        return chosen
