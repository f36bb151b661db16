"""Specification of a trial for the worker that trains it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from trainables.spec import TrainingSpec
from trainables.start import StartWeights
from tuner.plan.plan import mechanism_of
from tuner.study.promotion import with_steps

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.sweep.releases import StoredRelease

__all__ = ["on_release", "seed_of", "training_spec"]


def training_spec(
    experiment: Experiment,
    request: DatasetRequest,
    plan: Plan,
    *,
    parameters: dict[str, object],
    number: int,
    seed: int | None = None,
    committed: bool = False,
) -> TrainingSpec:
    """Return the specification of a trial with these parameters, or of the committed run.

    Without a `seed`, the trial's number is added to the experiment's seed, so that trials also differ in their
    initialisation. A sealed search uses a random seed (`tuner.sweep.sealed.SealedRuns.seed_of`), because a seed that
    counts up would reveal which of its runs won.
    """
    trainable, privacy, resources = experiment.trainable, experiment.privacy, experiment.resources
    optimizer = str(parameters.get("optimizer", trainable.optimizer))
    shape = plan.shape_of(parameters, committed=committed)
    start = trainable.start
    return TrainingSpec(
        method=trainable.method,
        model=trainable.model,
        activation=str(parameters.get("activation", trainable.activation)),
        normalization=trainable.normalization,
        optimizer=optimizer,
        momentum=trainable.momentum if optimizer == "sgd" else 0.0,
        precision=trainable.precision,
        dataset=request,
        batch_size=shape.batch_size,
        steps=shape.steps,
        **asdict(mechanism_of(shape)),
        parameters=with_steps(
            {name: value for name, value in parameters.items() if name not in plan.priced and name != "activation"},
            rungs=plan.rungs,
            steps=shape.steps,
        ),
        seed=seed_of(experiment, number) if seed is None else seed,
        private=privacy.private,
        noise_seed=None if privacy.noise_seed is None else (privacy.noise_seed + number) % 2**32,
        threads=max(1, int(resources.cpus_per_trial / resources.workers_per_trial)),
        device="cuda" if resources.gpus_per_trial else "cpu",
        score_noise=plan.score_noise,
        metric=experiment.search.metric.name,
        start=None if start is None else StartWeights(path=start.path, sha256=str(start.sha256)),
        freeze=trainable.freeze,
    )


def on_release(spec: TrainingSpec, release: StoredRelease) -> TrainingSpec:
    """Return the specification of a trial that trains on a stored release."""
    return replace(spec, release=str(release.path), release_sha256=release.sha256, labels_kept=release.kept)


def seed_of(experiment: Experiment, number: int) -> int:
    """Return the seed of a trial in a search that is not sealed: the experiment's seed plus the trial's number."""
    return (experiment.seed + number) % 2**32
