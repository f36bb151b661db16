"""Pure: from an experiment to its trials, steps, noise and ε. Nothing is read from private records and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from trainables.data import public_train_size
from tuner.errors import BudgetRefusedError, TunerError
from tuner.privacy.accounting import calibrate_noise, epsilon, max_steps
from tuner.privacy.events import SampledGaussian

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment

__all__ = ["Plan", "make_plan", "plan_from", "rung_steps", "steps_per_trial"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a search will do and what it may cost at most.

    Attributes:
        name: the experiment's name.
        method: training method of every trial.
        model: model of every trial.
        dataset: name of the data set.
        train_size: PUBLIC number of training records after the validation split; the n of `sample_rate`.
        batch_size: expected batch size under Poisson sampling.
        sample_rate: `batch_size` / `train_size`.
        noise_multiplier: noise standard deviation / clipping norm, one for the whole search.
        noise_source: ``calibrated`` (``auto`` in the file) or ``given``.
        trials: trials asked for.
        trials_that_fit: how many of them fit the budget when none is pruned.
        steps_per_trial: steps of a trial that is not pruned.
        rungs: the steps at which a trial reports.
        step_cap: total steps that the search may ever take; the ledger enforces it.
        epsilon: the cap that the file asks for: what is claimed for the whole search.
        delta: δ of every ε here.
        epsilon_trial: ε of one trial that is not pruned, by itself.
        epsilon_planned: ε of all planned steps composed.
        epsilon_at_cap: ε of `step_cap` steps composed, at most `epsilon`.
        private: False when the run carries no guarantee (``privacy.private: false``).
        free: searched parameters that cost the accountant nothing.
    """

    name: str
    method: str
    model: str
    dataset: str
    train_size: int
    batch_size: int
    sample_rate: float
    noise_multiplier: float
    noise_source: str
    trials: int
    trials_that_fit: int
    steps_per_trial: int
    rungs: tuple[int, ...]
    step_cap: int
    epsilon: float
    delta: float
    epsilon_trial: float
    epsilon_planned: float
    epsilon_at_cap: float
    private: bool
    free: tuple[str, ...]

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the search."""
        return SampledGaussian(self.sample_rate, self.noise_multiplier)

    def as_dict(self) -> dict[str, object]:
        """Plain values, for ``--json`` and for the sweep's folder."""
        return asdict(self)


def steps_per_trial(*, epochs: float, train_size: int, batch_size: int) -> int:
    """Steps of one trial: an epoch is as many steps as see each record once in expectation."""
    return max(1, round(epochs * train_size / batch_size))


def rung_steps(rungs: int | Sequence[float], steps: int) -> tuple[int, ...]:
    """The steps at which a trial of `steps` steps reports, ascending; the last is always `steps`.

    Args:
        rungs: how many equally spaced reports, or the fractions of the steps at which to report.
        steps: steps of a trial.
    """
    fractions = [(i + 1) / rungs for i in range(rungs)] if isinstance(rungs, int) else list(rungs)
    return tuple(sorted({max(1, min(steps, round(fraction * steps))) for fraction in fractions} | {steps}))


def make_plan(experiment: Experiment, request: DatasetRequest) -> Plan:
    """Plan the search that an experiment file asks for.

    With ``noise_multiplier: auto`` the noise is the smallest with which all planned trials fit, and they are the cap.
    With a number, the cap is the largest number of steps that fits, whatever was planned.

    Raises:
        BudgetRefusedError: not even one trial fits the search's own ε.
    """
    train_size = public_train_size(request)
    trainable, privacy, search = experiment.trainable, experiment.privacy, experiment.search
    sample_rate = trainable.batch_size / train_size
    steps = steps_per_trial(epochs=trainable.epochs, train_size=train_size, batch_size=trainable.batch_size)
    planned = steps * search.trials
    calibrated = privacy.noise_multiplier == "auto"
    if calibrated:
        noise = calibrate_noise(sample_rate=sample_rate, steps=planned, epsilon=privacy.epsilon, delta=privacy.delta)
    else:
        noise = float(privacy.noise_multiplier)
    mechanism = SampledGaussian(sample_rate, noise)
    cap = planned if calibrated else max_steps(mechanism, epsilon=privacy.epsilon, delta=privacy.delta)
    if cap < steps:
        raise BudgetRefusedError(
            f"one trial of {steps} steps at noise_multiplier {noise:g} must fit privacy.epsilon, "
            f"got ε = {epsilon(mechanism, steps, privacy.delta):.4g} where {privacy.epsilon:g} is the cap. "
            "Raise noise_multiplier (or write auto), lower trainable.epochs, or raise privacy.epsilon."
        )
    return Plan(
        name=experiment.name,
        method=trainable.method,
        model=trainable.model,
        dataset=experiment.dataset.name,
        train_size=train_size,
        batch_size=trainable.batch_size,
        sample_rate=sample_rate,
        noise_multiplier=noise,
        noise_source="calibrated" if calibrated else "given",
        trials=search.trials,
        trials_that_fit=min(search.trials, cap // steps),
        steps_per_trial=steps,
        rungs=rung_steps(search.rungs, steps),
        step_cap=cap,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        epsilon_trial=epsilon(mechanism, steps, privacy.delta),
        epsilon_planned=epsilon(mechanism, planned, privacy.delta),
        epsilon_at_cap=epsilon(mechanism, cap, privacy.delta),
        private=privacy.private,
        free=tuple(experiment.space.free),
    )


def plan_from(values: Mapping[str, object], *, trials: int) -> Plan:
    """A stored plan again, for a sweep that goes on to `trials` trials: noise, steps and cap stay as they were.

    Args:
        values: what `Plan.as_dict` gave, after JSON.
        trials: how many trials the sweep now has in all.

    Raises:
        TunerError: the stored plan lacks a value.
    """
    known = {field.name for field in fields(Plan)}
    if set(values) != known:
        raise TunerError(f"a stored plan must have the values of a plan, got {sorted(set(values) ^ known)} apart.")
    plan = Plan(**{**values, "rungs": tuple(values["rungs"]), "free": tuple(values["free"])})  # type: ignore[arg-type]
    planned = trials * plan.steps_per_trial
    return replace(
        plan,
        trials=trials,
        trials_that_fit=min(trials, plan.step_cap // plan.steps_per_trial),
        epsilon_planned=epsilon(plan.mechanism, planned, plan.delta),
    )
