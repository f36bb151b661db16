"""A sweep's Optuna study: its storage, sampler and pruner as the experiment names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.plan import Plan
    from tuner.sweeps import SweepFolder

__all__ = ["open_sweep_study"]


def open_sweep_study(sweep: SweepFolder, experiment: Experiment, plan: Plan) -> Study:
    """The sweep's study, made when it is not there.

    Raises:
        tuner.errors.InputError: Optuna refuses an option of the sampler or the pruner.
        tuner.errors.TunerError: the storage is there and cannot be read.
    """
    from tuner.search.pruners import make_pruner
    from tuner.search.samplers import make_sampler
    from tuner.search.storage import open_storage, open_study

    search = experiment.search
    return open_study(
        open_storage(sweep.root),
        sweep.id,
        mode=search.metric.mode,
        sampler=lambda before: make_sampler(
            search.sampler.name,
            search.sampler.options,
            seed=experiment.seed,
            trials_before=before,
            space=experiment.space,
        ),
        pruner=make_pruner(search.pruner.name, search.pruner.options, rung_steps=plan.rungs),
    )
