"""Optuna study of a sweep: its storage, and the sampler and pruner of the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search_spaces.domains import is_number
from tuner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.plan.commit import CommitPlan
    from tuner.plan.plan import Plan
    from tuner.study.surrogate.observations import Observation
    from tuner.study.surrogate.setting import SearchSetting
    from tuner.study.unimodal.options import Unimodality
    from tuner.sweep.folder import SweepFolder

__all__ = ["check_search", "open_sweep_study", "search_setting"]


_PRIOR = ("learning_rate", "max_grad_norm")
"""Parameters for which the surrogate takes the shipped prior. For the others it was measured too roughly."""


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
        sampler=lambda before: _sampler(experiment, plan.rungs, before, plan, sweep),
        pruner=_pruner(experiment, plan.rungs, plan),
    )


def check_search(experiment: Experiment, rungs: Sequence[int]) -> None:
    """Raise an InputError if Optuna refuses an option of the sampler or the pruner.

    Optuna checks some options only when it uses them. Therefore this function runs two trials of a study in memory,
    which report at `rungs`. The sampler `surrogate`, which is not Optuna's, checks its options when it is created, and
    its model takes half a second to load; so a random sampler takes its place in the study.
    """
    import optuna

    from tuner.study.names import canonical_sampler
    from tuner.study.suggest import OptunaSuggest

    sampler, pruner = _sampler(experiment, rungs, 0), _pruner(experiment, rungs)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if canonical_sampler(experiment.search.sampler.name) == "surrogate":
        sampler = optuna.samplers.RandomSampler(seed=experiment.seed)
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
        raise InputError(
            "search-option-invalid",
            f"Optuna refuses the options of {used}: {error}. Correct the options; docs/experiment.md lists them.",
        ) from error


def _sampler(
    experiment: Experiment,
    rungs: Sequence[int],
    trials_before: int,
    plan: Plan | None = None,
    sweep: SweepFolder | None = None,
) -> BaseSampler:
    from tuner.study.names import canonical_sampler
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
        setting=search_setting(experiment, rungs, plan, sweep)
        if canonical_sampler(search.sampler.name) == "surrogate"
        else None,
    )


def search_setting(
    experiment: Experiment, rungs: Sequence[int], plan: Plan | None, sweep: SweepFolder | None = None
) -> SearchSetting:
    """Return what the surrogate must know about a search. Its final run is one of its trials, or the committed run.

    The scores of the search's public proxy are in the folder of `sweep`.

    The root of the model's dimension is left out of the noise-to-signal ratio, because it is the same for all trials.
    """
    from tuner.experiment.prior import recommended
    from tuner.study.surrogate.observations import Prior
    from tuner.study.surrogate.setting import SearchSetting

    known = recommended(experiment.space.to_spec(), experiment)
    share = experiment.dataset.validation.fraction
    size, blurred = (None, 0.0) if plan is None else _scored_on(plan)
    sigma, batch = (1.0, 1.0) if plan is None else (plan.nominal.noise_multiplier, plan.batch_size)

    def noise_of(parameters: Mapping[str, object]) -> float:
        own = (parameters.get(name, usual) for name, usual in (("noise_multiplier", sigma), ("batch_size", batch)))
        multiplier, size = (float(value) if is_number(value) else 1.0 for value in own)
        return (multiplier if multiplier > 0 else 1.0) / size  # a study without noise has one level of it

    return SearchSetting(
        last_step=rungs[-1],
        noise_of=noise_of,
        records=None if size is None else size * share / (1 - share),
        blur=blurred,
        is_accuracy=experiment.search.metric.name == "validation_accuracy",
        prior=Prior(recommended={name: each for name, each in known.items() if name in _PRIOR}),
        public=() if sweep is None or not experiment.has_proxy else _of_proxy(sweep.proxy),
        **({} if plan is None or plan.commit is None else _committed(plan.commit)),
    )


def _of_proxy(proxy: SweepFolder) -> tuple[Observation, ...]:
    """Return the scores of a public proxy, whose trials have the noise and the length of the final run."""
    from tuner.experiment import load_experiment
    from tuner.plan.plan import plan_from
    from tuner.study.surrogate.observations import PUBLIC
    from tuner.study.surrogate.stored import observations
    from tuner.sweep.folder import read_json

    if not proxy.journal.exists():
        return ()
    experiment = load_experiment(proxy.experiment)
    plan = plan_from(read_json(proxy.plan), trials=experiment.search.trials)
    study = open_sweep_study(proxy, experiment, plan)
    return tuple(observations(study, search_setting(experiment, plan.rungs, plan), PUBLIC))


def _committed(commit: CommitPlan) -> dict[str, Any]:
    """Return the noise of the committed run, and the length of a trial as a fraction of it."""
    noise = commit.noise_multiplier / commit.batch_size
    return {"final_noise": lambda _parameters: noise, "length": commit.length}


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
    share = experiment.dataset.validation.fraction
    size, blurred = (None, 0.0) if plan is None else _scored_on(plan)
    scored = None if size is None else size * share / (1 - share)
    usual = usual_tolerance(search.metric.name, scored, blurred)
    return Unimodality(
        parameters=unimodal_parameters(experiment.space, _perturbation(experiment, plan)),
        last_step=rungs[-1],
        tolerance=next((float(each) for each in tolerances if each is not None), usual),
        full_from=full_fidelity_from(experiment.space, rungs),
    )


def _perturbation(experiment: Experiment, plan: Plan | None) -> float | None:
    """Return the standard deviation that a smoothing radius of 1 adds to each weight, or None if it is unknown.

    It is η · σ · C / b, and with Adam at most η. Of a searched factor, the geometric mean of the bounds is taken.
    """
    from search_spaces import PARAMETERS
    from tuner.experiment.prior import optimizers_of

    if plan is None or not plan.private:
        return None
    domains, planned = dict(experiment.space.parameters), {"noise_multiplier": plan.nominal.noise_multiplier}
    sgd = optimizers_of(experiment.search.space, experiment)[0] == "sgd"
    found = 1.0 / plan.batch_size if sgd else 1.0
    for name in ("learning_rate", "noise_multiplier", "max_grad_norm") if sgd else ("learning_rate",):
        domain = domains.get(name)
        if domain is None and name in planned:
            found *= planned[name]
            continue
        grid = (domain or PARAMETERS[name].default).grid(2)
        ends = [float(value) for value in grid if isinstance(value, int | float)]
        if not ends or min(ends) <= 0:
            return None
        found *= (ends[0] * ends[-1]) ** 0.5
    return found


def _scored_on(plan: Plan) -> tuple[int, float]:
    """Return the number of training records, and the standard error that noise adds to a score.

    The scores of a public search are computed on public records and have no noise.
    """
    if plan.public is not None and plan.mode.searches_public:
        return plan.public.train_size, 0.0
    return plan.train_size, 0.0 if plan.validation is None else plan.validation.standard_error
