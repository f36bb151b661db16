"""The searches that are compared: ours, and Optuna's samplers and pruners with their defaults unless given here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from benchmarks.pruning.curves import DOMAIN, EPOCHS, RUNGS
from benchmarks.pruning.lite import Lite
from tuner.study.protocols import sampler_of
from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

TOLERANCE: Final = 0.2
"""In points: a trial closer than this to the best is as good as the best."""

_R = "R"
_FOUR: Final = (10.0, 30.0, 4.0, 60.0)
STARTS: Final = (10.0, 30.0)
"""First values of R: `tuner.study.unimodal.options.PERTURBATIONS` at the settings of the published tables."""


class Method(Protocol):
    """A method of a simulated sweep. `StudyMethod` explains the calls."""

    def start(self) -> tuple[int, float] | None: ...  # noqa: D102
    def report(self, number: int, rung: int, score: float) -> bool: ...  # noqa: D102
    def drop(self, number: int) -> None: ...  # noqa: D102
    def keep(self) -> int | None: ...  # noqa: D102
    def enough(self) -> bool: ...  # noqa: D102


class StudyMethod:
    """An Optuna study in memory, as a method of a simulated sweep.

    The study's name is its seed, because Hyperband derives the bracket of a trial from the name of the study. With
    `final_only`, the study is not told the scores of earlier rungs.
    """

    def __init__(self, seed: int, sampler: BaseSampler, pruner: BasePruner, *, final_only: bool = False) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        name = f"sweep {seed}"
        self.study = optuna.create_study(study_name=name, direction="maximize", sampler=sampler, pruner=pruner)
        self._trials: dict[int, optuna.Trial] = {}
        self._final_only = final_only

    def start(self) -> tuple[int, float] | None:
        """Return the number and R of a new trial, or None to leave the slot idle until the next report."""
        if sampler_of(self.study).waits(self.study):
            return None
        trial = self.study.ask()
        self._trials[trial.number] = trial
        return trial.number, trial.suggest_float(_R, *DOMAIN, log=False)

    def report(self, number: int, rung: int, score: float) -> bool:
        """Report a score at a rung, and return whether the trial is pruned; at the last rung it is complete."""
        trial = self._trials[number]
        if rung == len(RUNGS) - 1 or not self._final_only:
            trial.report(score, RUNGS[rung])
        if rung == len(RUNGS) - 1:
            self.study.tell(trial, score)
            return False
        if trial.should_prune():
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return True
        return False

    def drop(self, number: int) -> None:
        """Stop a running trial, because the search ends."""
        self.study.tell(self._trials[number], state=optuna.trial.TrialState.PRUNED)

    def keep(self) -> int | None:
        """Return the trial that would be exported now, or None before one is complete."""
        if isinstance(self.study.sampler, UnimodalSampler):
            return self.study.sampler.best_trial(self.study)
        done = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        return max(done, key=lambda trial: trial.value or 0.0).number if done else None

    def enough(self) -> bool:
        """Return whether the search would end now and keep the rest of its budget."""
        return sampler_of(self.study).is_over(self.study)


def _played(sampler: Callable[[int], BaseSampler], pruner: Callable[[], BasePruner]) -> Callable[[int], StudyMethod]:
    def make(seed: int) -> StudyMethod:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return StudyMethod(seed, sampler(seed), pruner())

    return make


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(seed=seed, n_startup_trials=4, constant_liar=True)


def _random(seed: int) -> BaseSampler:
    return RandomSampler(seed=seed)


def _gp(seed: int) -> StudyMethod:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = GPSampler(seed=seed, n_startup_trials=len(_FOUR), deterministic_objective=False)
    method = StudyMethod(seed, sampler, NopPruner())
    for radius in _FOUR:
        method.study.enqueue_trial({_R: radius})
    return method


def _asha() -> BasePruner:
    return SuccessiveHalvingPruner(min_resource=RUNGS[0], reduction_factor=3)


def _hyperband() -> BasePruner:
    return HyperbandPruner(min_resource=RUNGS[0], max_resource=EPOCHS, reduction_factor=3)


class _Audited(UnimodalSampler):
    """Our sampler, with every fourth trial from the eighth on at a place where nothing is known."""

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's signature
        """Return a value of R."""
        if trial.number < 7 or trial.number % 4 != 3:
            return super().sample_independent(study, trial, param_name, param_distribution)
        known = np.log1p([each.params[_R] for each in study.get_trials(deepcopy=False) if _R in each.params])
        drawn = np.random.default_rng([self._seed, trial.number]).uniform(0.0, np.log1p(DOMAIN[1]), 8)
        return float(np.expm1(drawn[np.abs(drawn[:, None] - known[None, :]).min(1).argmax()]))


def _ours(
    *,
    prunes: bool = True,
    final_only: bool = False,
    sampler: type[UnimodalSampler] = UnimodalSampler,
    **rules: Any,  # noqa: ANN401 - Rules
) -> Callable[[int], StudyMethod]:
    known: dict[str, Any] = {"tolerance": TOLERANCE, "last_step": EPOCHS, "starts": STARTS, **rules}
    return lambda seed: StudyMethod(
        seed,
        sampler(_R, seed=seed, base=RandomSampler(seed=seed), **known),
        UnimodalPruner(_R, **known) if prunes else NopPruner(),
        final_only=final_only,
    )


METHODS: Final[Mapping[str, Callable[[int], Method]]] = {
    "ours": _ours(),
    "lite": lambda seed: Lite(seed, tolerance=TOLERANCE, starts=STARTS),
    "random": _played(_random, NopPruner),
    "tpe": _played(_tpe, NopPruner),
    "tpe+median": _played(_tpe, lambda: MedianPruner(n_startup_trials=4)),
    "asha": _played(_random, _asha),
    "tpe+asha": _played(_tpe, _asha),
    "hyperband": _played(_random, _hyperband),
    "bohb": _played(_tpe, _hyperband),
    "gp": _gp,
}  # fmt: skip
"""Methods by name, each made from a seed.

`bohb` is TPE with Hyperband. `gp` is Optuna's Gaussian process sampler, started at four radii. `lite` is a plain
Gaussian process without a shape and without a pruner (`benchmarks/pruning/lite.py`).
"""

ABLATIONS: Final[Mapping[str, Callable[[int], Method]]] = {
    "ours": METHODS["ours"],
    "any shape": _ours(doubt=1.0),
    "one top for certain": _ours(doubt=0.0),
    "as much doubt when searching": _ours(searching_doubt=0.3),
    "gaps unchecked": _ours(widest=1.0),
    "no pruner": _ours(prunes=False),
    "strict pruner": _ours(strict=True),
    "final scores only": _ours(final_only=True),
    "every fourth an audit": _ours(sampler=_Audited),
    "one at a time": _ours(at_once=1),
    "four at a time": _ours(at_once=4),
    "third not alone": _ours(enough=2),
    "starts at thirds": _ours(starts=None),
    "one start": _ours(starts=(STARTS[0],)),
    "lite": METHODS["lite"],
}
"""Our rule with a single change each. `lite` is for comparison."""
