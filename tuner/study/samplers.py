"""Optuna samplers by name, seeded so that a resumed sweep does not repeat its first proposals."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from search_spaces.domains import Scalar
from tuner.errors import InputError
from tuner.study import names
from tuner.study.prior import BoundedSampler, PriorSampler
from tuner.study.ratio import ratio_of
from tuner.study.unimodal_options import DEFAULT_OTHERS, Along, Unimodality, check_options

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from tuner.study.suggest import Space

__all__ = ["GridPointSampler", "grid_points", "make_sampler", "seed_after"]

GRID_POINTS = 5
"""How many points a continuous domain gets in a grid when the file does not say."""

_GRID_LIMIT = 100_000


def make_sampler(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    seed: int,
    trials_before: int = 0,
    space: Space | None = None,
    secret: bool = False,
    unimodality: Unimodality | None = None,
) -> BaseSampler:
    """A sampler by its name.

    Args:
        name: one of `names.SAMPLERS` or its Optuna class name.
        options: constructor options, checked against `names.SAMPLERS`.
        seed: the public seed of the search.
        trials_before: trials already in the storage; see `seed_after`.
        space: what is searched; needed by ``grid``, which asks it for ``grid(points)``.
        secret: whether every value comes from the operating system and none from `seed`, as in a sealed search.
        unimodality: needed by ``unimodal``.

    Raises:
        tuner.errors.InputError: unknown name or option, a value that is refused, a grid without a space, a sampler
            that cannot be secret, or nothing is known of what is unimodal.
    """
    options = dict(options or {})
    problems = names.sampler_problems(name, options)
    if problems:
        raise InputError("; ".join(problems))
    canonical = names.canonical_sampler(name)
    if secret and canonical not in ("random", "bounded"):
        raise InputError(f"a sealed search takes the sampler random or bounded, got {name!r}")
    if canonical == "grid":
        return _grid(options, seed=seed, space=space)
    if canonical == "unimodal":
        return _unimodal(options, seed=seed, trials_before=trials_before, unimodality=unimodality)
    seed = seed_after(seed, trials_before)
    if secret or canonical == "bounded":
        generator = random.SystemRandom() if secret else random.Random(seed)
        return BoundedSampler(ratio_of(options), generator) if canonical == "bounded" else PriorSampler(generator)
    settings: dict[str, Any] = {"seed": seed, **options}
    try:
        with warnings.catch_warnings():
            # multivariate/group are marked experimental; the choice is the user's and is recorded in the file.
            warnings.simplefilter("ignore", ExperimentalWarning)
            if canonical == "tpe":
                # Conditional schedules change the space from trial to trial; group=True still models it jointly.
                return TPESampler(**{"group": True, "multivariate": True, **settings})
            if canonical == "gp":
                return GPSampler(**{"warn_independent_sampling": False, **settings})
            return RandomSampler(**settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"sampler {name!r} refuses its options {options}: {error}") from error


def seed_after(seed: int, trials_before: int) -> int:
    """The seed of a sampler that starts after `trials_before` trials; `seed` itself for a new sweep.

    A sampler's own generator is not stored: with the same seed a resumed sweep would propose, and pay for, its first
    points again.
    """
    if trials_before == 0:
        return seed
    return random.Random(f"{seed}/{trials_before}").getrandbits(32)


class GridPointSampler(BaseSampler):
    """Trial number i takes point i of a list of points; stateless, so it survives any interruption.

    Optuna's own GridSampler multiplies conditional parameters that are not active, and stops the study by a call that
    fails outside `optimize`.

    Args:
        points: flat parameters of each point, free ones only.
    """

    def __init__(self, points: Sequence[Mapping[str, object]]) -> None:
        self._points = tuple(dict(point) for point in points)
        self.grid_size = len(self._points)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing is sampled jointly: every value comes from the point."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing is sampled jointly."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """The point's value of one parameter."""
        return self._points[trial.number % self.grid_size][param_name]


def grid_points(space: Space, grid: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Every distinct point of a space with conditional parameters, in the order in which it asks.

    Args:
        space: what is searched.
        grid: the values of each parameter that the space may ask for.

    Raises:
        tuner.errors.InputError: the space asks for a parameter that has no values, or there are too many points.
    """
    points: list[dict[str, object]] = []
    prefix: list[int] = []  # which value was taken at each question of the current walk
    while True:
        walk = _GridWalk(grid, prefix)
        space.sample(walk)
        points.append(walk.taken)
        if len(points) > _GRID_LIMIT:
            raise InputError(f"the grid must have at most {_GRID_LIMIT} points; give `points` a smaller number")
        prefix = walk.choices
        while prefix and prefix[-1] + 1 == walk.sizes[len(prefix) - 1]:
            prefix.pop()
        if not prefix:
            return points
        prefix[-1] += 1


class _GridWalk:
    """`Suggest` that answers from a prefix of choices and takes the first value after it."""

    def __init__(self, grid: Mapping[str, Sequence[object]], prefix: Sequence[int]) -> None:
        self._grid = grid
        self._prefix = tuple(prefix)
        self.choices: list[int] = []
        self.sizes: list[int] = []
        self.taken: dict[str, object] = {}

    def _answer(self, name: str) -> Any:  # noqa: ANN401 - a value of any parameter
        values = self._grid.get(name, ())
        if len(values) == 0:
            raise InputError(f"a grid search needs values for {name!r}, got none")
        place = len(self.choices)
        choice = self._prefix[place] if place < len(self._prefix) else 0
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


def _grid(
    options: Mapping[str, object],
    *,
    seed: int,
    space: Space | None,
) -> GridPointSampler:
    if space is None:
        raise InputError("sampler 'grid' needs the search space")
    count = options.get("points", GRID_POINTS)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"sampler 'grid': points must be a whole number of at least 1, got {count!r}")
    points = grid_points(space, space.grid(count))  # type: ignore[attr-defined]  # only grids need it
    # Shuffled by the public seed, so that a budget that ends early leaves a spread of points and not one corner.
    random.Random(seed).shuffle(points)
    return GridPointSampler(points)


def _unimodal(
    options: Mapping[str, Any], *, seed: int, trials_before: int, unimodality: Unimodality | None
) -> BaseSampler:
    check_options("sampler", options)
    if unimodality is None or not unimodality.parameters:
        raise InputError("sampler 'unimodal' needs a parameter along which the score has one top, got none")
    from tuner.study.unimodal_optuna import UnimodalSampler
    from tuner.study.unimodal_study import UnimodalSamplers

    tolerance, last_step = options.get("tolerance", unimodality.tolerance), unimodality.last_step
    rules = {name: value for name, value in options.items() if name not in ("tolerance", "others")}

    def make(along: Along, base: BaseSampler) -> UnimodalSampler:
        own = rules if along.starts is None else {**rules, "starts": along.starts}
        # The plain seed: its draws depend on the trial's number, and are the same after a resume.
        return UnimodalSampler(
            along.name, tolerance=tolerance, last_step=last_step, scales=along.scales, base=base, seed=seed, **own
        )

    others = make_sampler(options.get("others", DEFAULT_OTHERS), seed=seed, trials_before=trials_before)
    return UnimodalSamplers(unimodality.parameters, others, make)
