"""Optuna study of a sweep: its storage, and the sampler and pruner of the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.study.unimodal.options import Unimodality
    from tuner.sweep.folder import SweepFolder

__all__ = ["check_search", "open_sweep_study"]


def open_sweep_study(sweep: SweepFolder, experiment: Experiment, plan: Plan) -> Study:
    """Open the sweep's study, or create it. The sampler of a sealed search has a secret seed.

    Raises:
        InputError: Optuna refuses an option of the sampler or the pruner.
        TunerError: the storage exists and cannot be read.
    """
    from tuner.study.storage import open_storage, open_study

    return open_study(
        open_storage(sweep.work),
        sweep.id,
        mode=experiment.search.metric.mode,
        sampler=lambda before: _sampler(experiment, plan.rungs, before, plan),
        pruner=_pruner(experiment, plan.rungs, plan),
    )


def check_search(experiment: Experiment, rungs: Sequence[int]) -> None:
    """Raise an InputError if Optuna refuses an option of the sampler or the pruner.

    Optuna checks some options only when it uses them. Therefore this function runs two trials of a study in memory,
    which report at `rungs`.
    """
    import optuna

    from tuner.study.suggest import OptunaSuggest

    sampler, pruner = _sampler(experiment, rungs, 0), _pruner(experiment, rungs)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    maximize = experiment.search.metric.mode == "max"
    study = optuna.create_study(direction="maximize" if maximize else "minimize", sampler=sampler, pruner=pruner)
    try:
        for _ in range(2):  # the second trial has one before it to be compared with
            trial = study.ask()
            experiment.space.sample(OptunaSuggest(trial))
            for step in rungs:
                trial.report(0.5, step)
                trial.should_prune()
            study.tell(trial, 0.5)
    except (TypeError, ValueError, ArithmeticError) as error:
        used = f"sampler {experiment.search.sampler.name} or pruner {experiment.search.pruner.name}"
        raise InputError("search-option-invalid", f"Optuna refuses the options of {used}: {error}.") from error


def _sampler(experiment: Experiment, rungs: Sequence[int], trials_before: int, plan: Plan | None = None) -> BaseSampler:
    from tuner.study.samplers.make import make_sampler

    search = experiment.search
    return make_sampler(
        search.sampler.name,
        search.sampler.options,
        seed=experiment.seed,
        trials_before=trials_before,
        space=experiment.space,
        secret=experiment.mode.runs_hidden,
        unimodality=_unimodality(experiment, rungs, plan),
    )


def _pruner(experiment: Experiment, rungs: Sequence[int], plan: Plan | None = None) -> BasePruner:
    from tuner.study.pruners.make import make_pruner

    pruner = experiment.search.pruner
    assumed = _unimodality(experiment, rungs, plan)
    return make_pruner(pruner.name, pruner.options, rung_steps=rungs, unimodality=assumed)


def _unimodality(experiment: Experiment, rungs: Sequence[int], plan: Plan | None) -> Unimodality:
    """Return the assumption of unimodality. A tolerance of the sampler or of the pruner applies to both."""
    from tuner.study.promotion import full_fidelity_from
    from tuner.study.unimodal.options import Unimodality, unimodal_parameters, usual_tolerance

    search = experiment.search
    tolerances = (part.options.get("tolerance") for part in (search.sampler, search.pruner))
    error = None if plan is None else plan.score_error(experiment)
    scored, blurred = (None, 0.0) if error is None else (error.records, error.noise)
    usual = usual_tolerance(search.metric.name, scored, blurred)
    return Unimodality(
        parameters=unimodal_parameters(experiment.space),
        last_step=rungs[-1],
        tolerance=next((float(each) for each in tolerances if each is not None), usual),
        full_from=full_fidelity_from(experiment.space, rungs),
    )
