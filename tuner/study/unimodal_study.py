"""The unimodal sampler and pruner of a whole search: several parameters at once, and what is asked where one is not.

Each parameter has a `UnimodalSampler` and a `UnimodalPruner` of its own, which see the other parameters as the context
of a trial. Like these two, nothing here keeps a state: all of it follows from the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from tuner.study.unimodal_optuna import UnimodalPruner, UnimodalSampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

    from tuner.study.unimodal.beliefs import Beliefs
    from tuner.study.unimodal_options import Along

__all__ = ["UnimodalPruners", "UnimodalSamplers", "ranking"]


class UnimodalSamplers(BaseSampler):
    """One `UnimodalSampler` for each parameter, each the base of the next; asked by the driver as one.

    Args:
        parameters: in the order in which they are asked for.
        base: proposes everything else.
        make: makes the sampler of a parameter over another sampler.

    Raises:
        ValueError: there is no parameter.
    """

    def __init__(
        self,
        parameters: Sequence[Along],
        base: BaseSampler,
        make: Callable[[Along, BaseSampler], UnimodalSampler],
    ) -> None:
        if not parameters:
            raise ValueError("at least one parameter must be named, got none")
        layers: list[UnimodalSampler] = []
        for along in parameters:
            layers.append(make(along, layers[-1] if layers else base))
        self._layers = tuple(layers)
        self._sure = max(layer.sure for layer in layers)

    @property
    def each(self) -> tuple[UnimodalSampler, ...]:
        """Of every parameter."""
        return self._layers

    @property
    def left(self) -> float | None:
        """Whole trials that the rest of the budget and of their number allows, the next one included."""
        return self._layers[-1].left

    @left.setter
    def left(self, left: float | None) -> None:
        for layer in self._layers:
            layer.left = left

    def waits(self, study: Study) -> bool:
        """Whether no trial should start before a running one has said more."""
        return any(layer.waits(study) for layer in self._layers)

    def is_over(self, study: Study) -> bool:
        """Whether one complete trial is surely within the tolerance of the best, along all parameters together."""
        best = self.best(study)
        return best is not None and best[1] >= self._sure and all(layer.is_over(study) for layer in self._layers)

    def ranked(self, study: Study) -> tuple[int, ...]:
        """Numbers of the complete trials, the one that is believed to be the best first; none before one is known."""
        return ranking(layer.beliefs(study) for layer in self._layers)

    def best(self, study: Study) -> tuple[int, float] | None:
        """The complete trial that is believed to be the best, and a lower bound on the probability that it is near it.

        Returns:
            Its number, and one minus the sum of the probabilities that it is not, along each parameter.
        """
        ranked = self.ranked(study)
        if not ranked:
            return None
        missed = 0.0
        for believed in filter(None, (layer.beliefs(study) for layer in self._layers)):
            standing = next((each for each in believed.seen.trials if each.trial == ranked[0]), None)
            missed += 1.0 if standing is None else 1.0 - believed.near_trial(standing)
        return ranked[0], max(0.0, 1.0 - missed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """That of the base, without our parameters."""
        return self._layers[-1].infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """From the base; some samplers give more than they were asked for."""
        found = self._layers[-1].sample_relative(study, trial, search_space)
        return {name: value for name, value in found.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Each parameter from its own sampler."""
        return self._layers[-1].sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the others."""
        self._layers[-1].before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the others."""
        self._layers[-1].after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """As Optuna asks of workers in threads."""
        self._layers[-1].reseed_rng()


class UnimodalPruners(BasePruner):
    """Stops a trial when the pruner of any parameter does; one whose assumption was rejected lets another be asked.

    Args:
        pruners: one for each parameter, each with its share of the risk.
        fallback: asked in the place of a pruner that finds more than one top.
        called: the name of the fallback, for people.

    Raises:
        ValueError: there is no pruner.
    """

    def __init__(self, pruners: Sequence[UnimodalPruner], fallback: BasePruner, *, called: str) -> None:
        if not pruners:
            raise ValueError("at least one pruner must be given, got none")
        self._pruners, self._fallback, self._called = tuple(pruners), fallback, called

    @property
    def each(self) -> tuple[UnimodalPruner, ...]:
        """Of every parameter."""
        return self._pruners

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial need not go on; asked before any report, whether it need not start."""
        if any(pruner.prune(study, trial) for pruner in self._pruners if _holds(pruner, study)):
            return True
        # Asked once: some pruners note that they were.
        return not all(_holds(pruner, study) for pruner in self._pruners) and self._fallback.prune(study, trial)

    def why(self, study: Study, trial: FrozenTrial) -> str:
        """Why `prune` has just said so, in words that hold scores and parameters alone."""
        for pruner in self._pruners:
            if _holds(pruner, study) and pruner.prune(study, trial):
                return pruner.why(study, trial)
        return f"the score has more than one top, and the pruner {self._called} stopped the trial"


def ranking(beliefs: Iterable[Beliefs | None]) -> tuple[int, ...]:
    """Numbers of the complete trials, by the sum of their ranks along each parameter, of equals the first one first."""
    orders = [believed.ranked() for believed in beliefs if believed is not None]
    every = {number for order in orders for number in order}
    return tuple(sorted(every, key=lambda number: (sum(_rank(order, number) for order in orders), number)))


def _holds(pruner: UnimodalPruner, study: Study) -> bool:
    """Whether the assumption stands; it does before anything is known."""
    believed = pruner.beliefs(study)
    return believed is None or believed.unimodal


def _rank(order: tuple[int, ...], number: int) -> int:
    return order.index(number) if number in order else len(order)
