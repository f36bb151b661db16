"""From a suggested configuration to what a worker trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.study.promotion import with_steps

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from trainables.training import TrainingSpec
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan

__all__ = ["training_spec"]


def training_spec(
    experiment: Experiment,
    request: DatasetRequest,
    plan: Plan,
    *,
    parameters: dict[str, object],
    number: int,
    seed: int | None = None,
) -> TrainingSpec:
    """Return what a worker needs to train one trial.

    Args:
        experiment: the search.
        request: which records.
        plan: what a trial with these parameters takes.
        parameters: the trial's configuration, including the priced parameters.
        number: the trial's number, added to the public seed, so that trials differ in initialisation too.
        seed: the public seed itself, instead of the experiment's seed plus the number. A sealed search draws it
            (`tuner.sweep.sealed.SealedRuns.seed_of`): a seed that counts up would reveal which of its runs won.
    """
    from trainables.training import TrainingSpec

    trainable, privacy, resources = experiment.trainable, experiment.privacy, experiment.resources
    shape = plan.shape_of(parameters)
    return TrainingSpec(
        method=trainable.method,
        model=trainable.model,
        activation=trainable.activation,
        normalization=trainable.normalization,
        optimizer=trainable.optimizer,
        momentum=trainable.momentum,
        precision=trainable.precision,
        dataset=request,
        batch_size=shape.batch_size,
        steps=shape.steps,
        noise_multiplier=_given(shape.noise_multiplier),
        sample_rate=_given(shape.sample_rate),
        parameters=with_steps(
            {name: value for name, value in parameters.items() if name not in plan.priced},
            rungs=plan.rungs,
            steps=shape.steps,
        ),
        # No larger than an experiment file allows, so that an export of the trial can be loaded and trained again.
        seed=(experiment.seed + number) % 2**32 if seed is None else seed,
        private=privacy.private,
        noise_seed=None if privacy.noise_seed is None else (privacy.noise_seed + number) % 2**32,
        threads=max(1, int(resources.cpus_per_trial)),
        device="auto" if resources.gpus_per_trial else "cpu",
        score_noise=plan.score_noise,
    )


def _given(value: float | None) -> float:
    if value is None:
        raise TunerError(
            "internal-error", "A private trial has no sample rate or no noise multiplier. Please report this."
        )
    return value
