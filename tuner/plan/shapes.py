"""Steps, sample rate and noise of a trial, and of the longest and shortest trials that a search space allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import expm1, sqrt
from typing import TYPE_CHECKING

from search_spaces import Categorical, Domain, Fixed
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.study.rungs import scaled_rungs
from tuner.study.types import TrialShape

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = ["Choice", "Choices", "rung_steps", "steps_per_trial"]

_POINTS = 9
"""To find the most expensive trial, this many batch sizes of a searched range are compared."""


def steps_per_trial(*, epochs: float, train_size: int, batch_size: int) -> int:
    """Return the number of steps of one trial. In one epoch, each record is sampled once in expectation."""
    return max(1, round(epochs * train_size / batch_size))


def rung_steps(rungs: int | Sequence[float], steps: int) -> tuple[int, ...]:
    """Return the steps at which a trial of `steps` steps reports, in increasing order. The last one is `steps`.

    `rungs` is the number of equally spaced reports, or a list of fractions of the trial's steps.
    """
    fractions = [(i + 1) / rungs for i in range(rungs)] if isinstance(rungs, int) else list(rungs)
    return tuple(sorted({max(1, min(steps, round(fraction * steps))) for fraction in fractions} | {steps}))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One batch size and noise that a trial may have, with the numbers of steps of the longest and shortest trial."""

    batch_size: int  # expected
    sample_rate: float
    noise: float | None  # None before it is calibrated
    longest: int
    shortest: int

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of each step. The noise must be calibrated."""
        return SampledGaussian(self.sample_rate, self.noise)  # type: ignore[arg-type]  # it refuses None

    @property
    def weight(self) -> float:
        """Estimated cost of the longest trial, by the central limit theorem (Dong et al. 2019). No claim uses it."""
        spread = sqrt(expm1(min(self.noise**-2, 40.0))) if self.noise else 1.0
        return self.sample_rate * sqrt(self.longest) * spread


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Parameters that determine a trial's privacy cost: fixed values from the file, and domains of searched ones."""

    train_size: int  # public
    batch_size: int
    epochs: float
    noise: float | None  # None if it is searched, and before it is calibrated
    searched: Mapping[str, Domain]

    @classmethod
    def of(cls, experiment: Experiment, train_size: int) -> Choices:
        """Return the choices of an experiment. `train_size` is the public number of training records."""
        noise, commit = experiment.privacy.noise_multiplier, experiment.search.commit
        return cls(
            train_size=train_size,
            batch_size=experiment.trainable.batch_size,
            # With a committed run, a trial is a whole short run.
            epochs=experiment.trainable.epochs * (1.0 if commit is None else commit.length),
            noise=float(noise) if isinstance(noise, int | float) else None,
            searched=experiment.priced,
        )

    @property
    def one_mechanism(self) -> bool:
        """Whether every step of every trial has the same mechanism."""
        return len({(choice.sample_rate, choice.noise) for choice in self.menu}) == 1

    @property
    def finite(self) -> bool:
        """Whether the number of possible mechanisms is finite."""
        domains = (domain for name, domain in self.searched.items() if name != "epochs")
        return all(isinstance(domain, Fixed | Categorical) for domain in domains)

    @property
    def calibrates(self) -> bool:
        """Whether the noise has not been calibrated yet."""
        return self.noise is None and "noise_multiplier" not in self.searched

    @cached_property
    def menu(self) -> tuple[Choice, ...]:
        """Every pair of batch size and noise. A range contributes its ends, and some batch sizes between them."""
        batches = self._values("batch_size", self.batch_size, points=_POINTS)
        noises = [None] if self.calibrates else self._values("noise_multiplier", self.noise, points=2)
        # Between two points of a range of batch sizes rounding may give a trial one step more than at either.
        between = 0 if isinstance(self.searched.get("batch_size", Fixed(1)), Fixed | Categorical) else 1
        epochs = [float(value) for value in self._values("epochs", self.epochs, points=2)]
        return tuple(
            Choice(
                batch_size=int(batch),
                sample_rate=int(batch) / self.train_size,
                noise=None if noise is None else float(noise),
                longest=self.steps(int(batch), max(epochs)) + between,
                shortest=self.steps(int(batch), min(epochs)),
            )
            for batch, noise in product(batches, noises)
        )

    @property
    def nominal(self) -> tuple[int, int, float]:
        """Batch size, steps and noise of the longest trial. If the noise is searched, the smallest noise is used."""
        first = min(self.menu, key=lambda choice: (choice.batch_size, choice.noise or 0.0))
        epochs = max(float(value) for value in self._values("epochs", self.epochs, points=2))
        return first.batch_size, self.steps(first.batch_size, epochs), first.mechanism.noise_multiplier

    @property
    def dearest(self) -> tuple[Choice, ...]:
        """Up to three choices whose longest trials cost most, according to `weight`. The most expensive is first."""
        return tuple(sorted(self.menu, key=lambda choice: -choice.weight)[:3])

    def steps(self, batch_size: int, epochs: float) -> int:
        """Return the number of steps of a trial with this batch size and number of epochs."""
        return steps_per_trial(epochs=epochs, train_size=self.train_size, batch_size=batch_size)

    def shape(self, parameters: Mapping[str, object], *, rungs: Sequence[int], released: bool) -> TrialShape:
        """Return the shape of a trial with these flat parameters.

        `rungs` are the rungs of the longest trial. If `released`, the scores are protected, and each rung releases one.
        """
        chosen = {name: parameters[name] for name in self.searched}
        batch = int(chosen.get("batch_size", self.batch_size))  # type: ignore[call-overload]  # domains hold numbers
        noise = float(chosen.get("noise_multiplier", self.noise))  # type: ignore[arg-type]
        steps = self.steps(batch, float(chosen.get("epochs", self.epochs)))  # type: ignore[arg-type]
        own = tuple(scaled_rungs(rungs, steps))
        return TrialShape(
            batch_size=batch,
            sample_rate=batch / self.train_size,
            noise_multiplier=noise,
            steps=steps,
            rungs=own,
            releases=len(own) if released else 0,
        )

    def ends(self, *, rungs: Sequence[int], released: bool) -> tuple[TrialShape, ...]:
        """Return the shapes of all trials whose parameters are options of a list or ends of a range."""
        names = list(self.searched)
        every = (domain.grid(2) for domain in self.searched.values())
        found = {
            self.shape(dict(zip(names, values, strict=True)), rungs=rungs, released=released)
            for values in product(*every)
        }
        return tuple(sorted(found, key=lambda shape: (shape.steps, shape.batch_size, shape.noise_multiplier or 0.0)))

    def _values(self, name: str, otherwise: float | None, *, points: int) -> Sequence[float]:
        """Return a parameter's options, or `points` values of its range including both ends, or its fixed value."""
        domain = self.searched.get(name)
        return [otherwise] if domain is None else domain.grid(points)  # type: ignore[return-value, list-item]
