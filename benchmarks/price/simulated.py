"""Searches that are simulated on tables of measured trainings, and the file of prices that the product ships.

The surrogate, the samplers and the division of the budget are those of the product. Only the trainings are looked up:
between the measured points, accuracies are interpolated. A trial deviates from the mean as one measured sequence of
batches and noise did, and its score has the error of its validation records. The oracle takes the best of the grid on
one half of the sequences and is judged on the other half. No test set is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import optuna
from scipy.interpolate import RegularGridInterpolator

from benchmarks.price.tables import FRACTIONS, MULTIPLES, Case, Measured, grid, noise_at
from search_spaces import SearchSpace
from search_spaces.domains import LogUniform, Uniform
from search_spaces.prior import Setting, leaving_out, recommend
from search_spaces.prior.features import noise_to_signal
from tuner.experiment.sections import Component, SearchSection
from tuner.plan.full_runs import recommended, search_levels
from tuner.study.pauses import reached
from tuner.study.samplers.make import make_sampler
from tuner.study.suggest import OptunaSuggest
from tuner.study.surrogate.observations import Prior
from tuner.study.surrogate.setting import SearchSetting
from tuner.study.surrogate.stored import choose_final

__all__ = ["ARMS", "TRIALS", "Lookup", "Simulated", "price"]

TRIALS = 12
SHARE, LENGTH = 0.05, 0.25
_RUNGS = 5
_SEALED = 2.15  # noise of a sealed search of 12 trials on average, as a multiple of one run's (shared look, ε = 0.3)
_OWN = 0.5  # part of the variance of a score's binomial error that is not common to all trials
_HALVING = SearchSection(
    trials=TRIALS,
    full_runs="auto",
    rungs=(0.125, 0.25, 0.5, 1.0),
    pruner=Component(name="asha", options={"reduction_factor": 2}),
)
_STEPS = 1000  # of a whole run, in the plan of a halving search


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """One arm in one case.

    Attributes:
        arm: name of the arm.
        noise: r·√T of one run with the whole budget.
        price: mean price in points of accuracy.
    """

    arm: str
    noise: float
    price: float
    seconds: float = 0.0


@dataclass
class Lookup:
    """The tables of a case as functions of noise, fraction and configuration."""

    case: Case
    measured: Measured
    oracle: float = field(init=False)

    def __post_init__(self) -> None:
        values = grid(self.case.axes)
        self._names = tuple(values)
        shape = tuple(len(each) for each in values.values())
        table = np.array(self.measured.accuracies)  # (multiples, sequences, fractions, configurations)
        first, second = table[0, 0::2, -1].mean(0), table[0, 1::2, -1].mean(0)
        self.oracle = float(second[first.argmax()] + first[second.argmax()]) / 2
        self._sequences = table.shape[1]
        table = table.reshape(*table.shape[:3], *shape)
        mean = table.mean(1)
        apart = (table - mean[:, None]) * math.sqrt(self._sequences / (self._sequences - 1))
        places = [
            np.log(MULTIPLES),
            np.log(FRACTIONS),
            *(self._coordinates(name, each) for name, each in values.items()),
        ]
        self._low = np.array([each[0] for each in places])
        self._high = np.array([each[-1] for each in places])
        self._mean = RegularGridInterpolator(places, mean)
        self._apart = RegularGridInterpolator(places, np.moveaxis(apart, 1, -1))

    @property
    def records(self) -> float:
        """Number of validation records: a tenth of the records is held out for scores."""
        return self.measured.train_size / 9

    @property
    def noise(self) -> float:
        """r·√T of one run with the whole budget."""
        found = self.measured
        ratio = noise_to_signal(
            noise_multiplier=found.noise_multiplier, batch_size=found.batch_size, dimension=found.dimension
        )
        return ratio * math.sqrt(found.steps)

    @property
    def space(self) -> SearchSpace:
        """The searched space: two decades of rate and clip, and σ from 0 to 3."""
        space = {name: LogUniform(0.1, 10.0) for name in self._names[:2]}
        return SearchSpace.of({**space, **{name: Uniform(0.0, 3.0) for name in self._names[2:]}})

    def setting(self, multiple: float) -> Setting:
        """Return the public facts of a whole run at a multiple of one run's noise."""
        found = self.measured
        return Setting(
            noise_multiplier=noise_at(found.noise_multiplier, multiple),
            batch_size=found.batch_size,
            steps=found.steps,
            train_size=found.train_size,
            dimension=found.dimension,
            classes=found.classes,
            family=self.case.family,
        )

    def ratio(self, multiple: float) -> float:
        """Return the noise of a step divided by the batch size."""
        return noise_at(self.measured.noise_multiplier, multiple) / self.measured.batch_size

    def accuracy(self, parameters: Mapping[str, object], multiple: float = 1.0) -> float:
        """Return the mean accuracy of a whole run in percent."""
        return float(self._mean(self._places(parameters, multiple, [1.0]))[0])

    def trial(
        self, parameters: Mapping[str, object], multiple: float, fractions: Sequence[float], rng: np.random.Generator
    ) -> tuple[list[float], float]:
        """Return the validation scores of one trial at some fractions, and its last true accuracy in percent."""
        places = self._places(parameters, multiple, fractions)
        apart = self._apart(places)[:, rng.integers(self._sequences)] * rng.choice([-1, 1])
        true = np.clip((self._mean(places) + apart) / 100, 0.5 / self.records, 1 - 0.5 / self.records)
        error = np.sqrt(_OWN * true * (1 - true) / self.records)
        common, own = rng.normal(), rng.normal(size=len(true))
        scores = np.clip(true + error * math.sqrt(0.5) * (common + own), 0.0, 1.0)
        rounded = np.round(scores * self.records) / self.records
        return [float(each) for each in rounded], 100 * float(true[-1])

    def _places(self, parameters: Mapping[str, object], multiple: float, fractions: Sequence[float]) -> np.ndarray:
        own = [float(self._coordinates(name, [parameters[name]])[0]) for name in self._names]
        places = np.array([[math.log(multiple), math.log(fraction), *own] for fraction in fractions])
        clipped: np.ndarray = np.clip(places, self._low, self._high)
        return clipped

    @staticmethod
    def _coordinates(name: str, values: Sequence[object]) -> np.ndarray:
        numbers = np.array(values, dtype=np.float64)
        return numbers if name == "laplacian_sigma" else np.log(numbers)


def _prior(about: Lookup, seed: int) -> float:
    del seed
    with leaving_out(about.case.dataset):
        known = recommend(about.setting(1.0))
    at = {name: known[name].value for name in ("learning_rate", "max_grad_norm")}
    return about.accuracy({**at, "laplacian_sigma": 0.0})


def _middle(about: Lookup, seed: int) -> float:
    del seed
    return about.accuracy({"learning_rate": 1.0, "max_grad_norm": 1.0, "laplacian_sigma": 1.5})


def _commit(about: Lookup, seed: int) -> float:
    multiple, final = math.sqrt(TRIALS * LENGTH / SHARE), 1 / math.sqrt(1 - SHARE)
    setting = commit_setting(about, multiple, final)
    study = optuna.create_study(
        direction="maximize", sampler=make_sampler("surrogate", seed=seed, space=about.space, setting=setting)
    )
    rng = np.random.default_rng([seed, about.case.seed])
    for _ in range(TRIALS):
        trial = study.ask()
        at = about.space.sample(OptunaSuggest(trial))
        scores, _ = about.trial(at, multiple, [LENGTH * (rung + 1) / _RUNGS for rung in range(_RUNGS)], rng)
        for step, score in enumerate(scores, start=1):
            trial.report(score, step)
        study.tell(trial, scores[-1])
    chosen = choose_final(study, about.space, setting, seed=seed)
    assert chosen is not None  # all trials have scores
    return about.accuracy(chosen.parameters, final)


def commit_setting(about: Lookup, multiple: float, final: float) -> SearchSetting:
    """Return what the product tells the surrogate of such a search (`tuner.sweep.sweep_study.search_setting`)."""
    with leaving_out(about.case.dataset):
        known = recommend(about.setting(final))
    return SearchSetting(
        last_step=_RUNGS,
        noise_of=lambda _parameters: about.ratio(multiple),
        final_noise=lambda _parameters: about.ratio(final),
        length=LENGTH,
        records=about.records,
        is_accuracy=True,
        prior=Prior(recommended={name: known[name] for name in ("learning_rate", "max_grad_norm")}),
    )


def _composition(about: Lookup, seed: int) -> float:
    sampler = make_sampler("tpe", {"n_startup_trials": 4}, seed=seed, space=about.space)
    return _whole(about, sampler, TRIALS, math.sqrt(TRIALS), seed)


def _selection(about: Lookup, seed: int) -> float:
    rng = np.random.default_rng([seed, about.case.seed, 1])
    return _whole(about, optuna.samplers.RandomSampler(seed), int(rng.geometric(1 / TRIALS)), _SEALED, seed)


def _whole(about: Lookup, sampler: optuna.samplers.BaseSampler, trials: int, multiple: float, seed: int) -> float:
    """Return the true accuracy of the trial with the best score; all trials are whole."""
    study, rng = (
        optuna.create_study(direction="maximize", sampler=sampler),
        np.random.default_rng([seed, about.case.seed]),
    )
    found = []
    for _ in range(trials):
        trial = study.ask()
        scores, true = about.trial(about.space.sample(OptunaSuggest(trial)), multiple, [1.0], rng)
        study.tell(trial, scores[-1])
        found.append((scores[-1], true))
    return max(found)[1]


def _full_runs(about: Lookup, seed: int) -> float:
    rungs = tuple(round(fraction * _STEPS) for fraction in (0.125, 0.25, 0.5, 1.0))
    runs = recommended(_HALVING, rungs)
    levels = search_levels(_HALVING, rungs, trials=TRIALS, full_runs=runs)
    there = reached(levels, trials=TRIALS, full_runs=runs)
    fractions = [step / levels.steps[-1] for step in levels.steps]
    rng = np.random.default_rng([seed, about.case.seed])
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
    alive = [
        about.trial(about.space.sample(OptunaSuggest(study.ask())), math.sqrt(runs), fractions, rng)
        for _ in range(TRIALS)
    ]
    for level, kept in enumerate((*there[1:], 1)):
        order = np.argsort([-scores[level] for scores, _ in alive], kind="stable")
        alive = [alive[place] for place in order[:kept]]
    return alive[0][1]


ARMS: Mapping[str, Callable[[Lookup, int], float]] = {
    "prior": _prior,
    "middle": _middle,
    "commit": _commit,
    "full_runs": _full_runs,
    "composition": _composition,
    "selection": _selection,
}
"""Arms by name: each returns the accuracy of the released model in percent."""

_CERTAIN = ("prior", "middle")


def price(about: Lookup, arm: str, draws: int) -> Simulated:
    """Simulate an arm in a case."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seeds = range(1 if arm in _CERTAIN else draws)
    accuracies = [ARMS[arm](about, seed) for seed in seeds]
    return Simulated(arm=arm, noise=about.noise, price=about.oracle - float(np.mean(accuracies)))
