"""Facts of a sweep for its report, and suggested next commands. This module writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError, TunerError
from tuner.experiment import Experiment, load_experiment
from tuner.plan.plan import Plan, plan_from
from tuner.privacy.accountant.filters import OneRelease, VotedLabels
from tuner.privacy.card.claims import NOTHING_CLAIMED, PUBLIC_SEARCH, Total, claim_line, release_claim
from tuner.privacy.ledger.amounts import amounts
from tuner.privacy.ledger.history import void_text
from tuner.privacy.ledger.stores import default_url
from tuner.report.curve_watch import curves_of_sweep
from tuner.report.spending import charges, spending
from tuner.report.sweep_report import SweepReport
from tuner.report.trial_row import CUT_OFF, TrialRow
from tuner.report.wording import plural
from tuner.study.types import StopReason
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import CHARGED, SweepFolder
from tuner.sweep.ledger_head import charged_search
from tuner.sweep.releases import release_name
from tuner.sweep.sealed import WINNER, SealedWinner, read_winner
from tuner.sweep.status import RESUMABLE, RUNNING, SweepState, resume_command, state_of
from tuner.sweep.winner import Chosen, choose_winner

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.plan.commit import CommitPlan
    from tuner.plan.comparison import CandidateRow
    from tuner.plan.modes import PublicData
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import BudgetView, SearchBudget
    from tuner.privacy.ledger.state import DatasetState

__all__ = [
    "PUBLIC_CLAIM",
    "claim_headline",
    "dataset_line",
    "ledger_option",
    "on_public",
    "public_records",
    "read_sweep",
    "sealed_report",
    "sweep_report",
    "unique_name",
]

PUBLIC_CLAIM = (
    "This search uses records that the experiment file declares public. It charges nothing and guarantees nothing for "
    "them. The run or search that follows on private records is charged."
)
"""Sentence about a search on public records, which has no guarantee."""


def claim_headline(plan: Plan, datasets: Sequence[DatasetState], *, ledger: str, owners: Sequence[str] = ()) -> str:
    """Return the first line of every view of a search: what is claimed, of this search and of all on its records.

    Args:
        plan: the search's plan.
        datasets: states in the ledger of the data set, or of each block; empty if there is no ledger yet.
        ledger: URL of the ledger.
        owners: the ledger's names of the records, needed if there is no ledger yet.
    """
    if not plan.private:
        return NOTHING_CLAIMED
    option = ledger_option(ledger)
    totals = [Total.of_state(dataset, ledger_option=option) for dataset in datasets]
    totals = totals or [Total(dataset=owner, ledger_option=option) for owner in owners]
    protected = plan.validation is not None
    return claim_line(plan.epsilon, plan.delta, totals, mode=plan.mode, unit=plan.unit, protected=protected)


def ledger_option(url: str) -> str:
    """Return the option that names a ledger for the budget commands; empty for the ledger that they use anyway."""
    return "" if url == default_url() else f" --ledger {shlex.quote(url)}"


def dataset_line(state: DatasetState) -> str:
    """Return the committed total of all searches on a data set, and the data set's cap, as text."""
    counted = sum(search.counts for search in state.searches)
    cap = f"cap {amounts(state.cap.epsilon, state.cap.delta)}" if state.cap else "no cap set"
    committed = f"committed {amounts(state.committed_epsilon, state.committed_delta)}"
    void = "".join(f"; {void_text(void)}" for void in state.voids)
    return f"{plural(counted, 'search')}, {committed}; {cap}{void}"


def unique_name(sweep: SweepFolder) -> str:
    """Return the experiment's name for use in commands, or the sweep's id if a newer sweep has the same name."""
    try:
        found = sweeps.find_sweep(sweep.root.parent, sweep.name)
    except InputError:
        return sweep.id
    return sweep.name if found.root == sweep.root else sweep.id


def _next_commands(sweep: SweepFolder, *, has_best: bool, state: str, private: bool = True) -> tuple[str, ...]:
    """Return suggested next commands, the most likely first."""
    name = unique_name(sweep)

    def command(verb: str) -> str:
        return sweep.command(verb, name=name)

    if state in RUNNING:
        return command("watch"), command("show")
    show = (command("show"), *((command("report"),) if has_best else ()))
    if state in RESUMABLE:  # nothing can be exported before it ends
        return (resume_command(sweep), *show)
    if not has_best:  # a sealed search gets no more runs, and a spent budget no more trials
        ended = sweep.mode.runs_hidden or state == StopReason.BUDGET
        return show if ended else (*show, resume_command(sweep))
    if not private:  # nothing of it can be exported
        return show
    out = "" if name == sweep.name else f" --out exports/{name}"  # next to the export of the newer one
    verify = f"tune verify exports/{name}/privacy_card.json"
    return command("export") + out, verify, command("report"), command("ui")


def public_records(plan: Plan) -> PublicData:
    """Return the public records of a public search."""
    if plan.public is None:
        raise TunerError(
            "plan-incomplete",
            "The plan of this public search does not name its public records. Restore plan.json from a copy.",
        )
    return plan.public


def on_public(plan: Plan) -> Plan:
    """Return the plan of the search on public records. Its steps and noise are those of the private run."""
    records = public_records(plan)
    nominal = replace(plan.nominal, sample_rate=records.sample_rate)
    return replace(plan, dataset=records.name, train_size=records.train_size, nominal=nominal, validation=None)


def read_sweep(sweep: SweepFolder, *, spent: bool = False, compose: bool = True) -> SweepReport:
    """Return the report of a sweep from its folder, its study and its ledger.

    With `spent`, the report includes the best score as a function of the spending, which takes about a second to
    compute, and the exported privacy card. Without `compose`, the ε that was spent is not computed: the budget shows
    the claim in its place, and trials have none.

    Raises:
        InputError: the sweep stopped while its folder was being created, or its exported card was changed.
        TunerError: its ledger or its storage cannot be read.
    """
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.sweep.sweep_study import open_sweep_study

    sweep.require_whole()
    experiment = load_experiment(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    status = sweep.read_status()
    charged = plan.private and plan.mode.charges_trials
    entered = charged and status.get("state", SweepState.STARTING) != SweepState.STARTING
    ledger = Ledger.open(experiment.ledger, create=False) if entered else None
    search = None if ledger is None else charged_search(sweep, ledger, sweep.id)
    budget = None if ledger is None else SearchBudget(ledger, sweep.id)
    shown: dict[str, Any] = {
        "state": state_of(sweep),
        "budget": None if budget is None else budget.view(compose=compose),
        "datasets": () if ledger is None or search is None else ledger.states_of(search.datasets),
    }
    name = release_name(sweep) if plan.private and plan.mode.on_release else ""
    if name:
        of_release = Ledger.open(experiment.ledger, create=False)
        shown["datasets"] = of_release.states_of(charged_search(sweep, of_release, name).datasets)
    if plan.mode.runs_hidden:
        report = sealed_report(sweep, experiment, plan, winner=read_winner(sweep), **shown)
    else:
        # Reading creates nothing: before the first trial there is no study.
        study = open_sweep_study(sweep, experiment, plan) if sweep.journal.exists() else None
        rows, chosen = _trials(study, experiment, plan, budget if compose else None)
        reason = str(status.get("detail", ""))
        report = sweep_report(sweep, experiment, plan, reason=reason, trials=rows, chosen=chosen, study=study, **shown)
        if spent:
            _, excluded = _not_started(study)
            found = spending(rows, mode=report.mode, budget=budget, excluded=excluded, whole=plan.steps_per_trial)
            from tuner.study.importance import importances  # it imports scikit-learn

            found_importances = {} if study is None else importances(study, seed=experiment.seed)
            report = replace(
                report,
                spending=found,
                importances=found_importances,
                charges=() if budget is None else charges(rows, budget),
                prices=_prices(sweep, experiment, plan),
                chosen_by_auto="" if experiment.chosen_by_auto is None else experiment.chosen_by_auto.reason,
            )
    if spent and ledger is not None:
        card, picture = _card(sweep, ledger)
        report = replace(report, card=card, card_picture=picture)
    return report


def _prices(sweep: SweepFolder, experiment: Experiment, plan: Plan) -> tuple[CandidateRow, ...]:
    """Return what each way to search was expected to cost, which follows from public facts alone.

    It is what `auto` compared, or else what it would compare now. It is empty for a search without privacy, and where
    the data set or the model is not here any more.
    """
    from trainables.errors import TrainableError
    from tuner.plan.comparison import CandidateRow, compare

    if sweep.comparison.exists():
        stored: Any = sweeps.read_json(sweep.comparison)["rows"]
        return tuple(map(CandidateRow.of, stored))
    if not plan.private:
        return ()
    try:
        return compare(experiment, experiment.dataset_request(), plan).rows
    except (TrainableError, TunerError):
        return ()


def _trials(
    study: Study | None, experiment: Experiment, plan: Plan, budget: SearchBudget | None
) -> tuple[list[TrialRow], Chosen | None]:
    """Return the trials and the winner."""
    from tuner.study.views import learning_curve, read_trials

    if study is None:
        return [], None
    views = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    stored = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
    rows = []
    for view in views:
        cost = None if budget is None else budget.trial_epsilon(view.id, budget.charged_steps(view.id))
        rows.append(TrialRow.of(view, curve=learning_curve(stored[view.number]), epsilon=cost))
    return rows, choose_winner(study, views, experiment, plan.score_error(experiment))


def _card(sweep: SweepFolder, ledger: Ledger) -> tuple[str, str]:
    """Return the exported privacy card and its picture, drawn anew, as texts. Both are empty if nothing was exported.

    Raises:
        InputError: the card or its page was changed after the export.
    """
    from tuner.privacy.card.curve import render_svg
    from tuner.privacy.verify.exports import require_unchanged
    from tuner.sweep.start_weights import exported_search

    for name in (sweep.name, sweep.name.removesuffix(CHARGED), sweep.id):
        page = Path("exports") / name / "privacy_card.md"
        text = page.read_text("utf-8") if page.exists() else ""
        if sweep.id in text and exported_search(page.parent) in (None, sweep.id):  # a card lists other searches too
            return text, render_svg(require_unchanged(page.parent, ledger, names=(), page=True))
    return "", ""


def _not_started(study: Study | None) -> tuple[int, int]:
    """Return how many candidates did not fit the remaining budget, and how many the pruner excluded."""
    from tuner.study.candidates import excluded_because
    from tuner.study.views import REJECTED

    trials = [] if study is None else study.get_trials(deepcopy=False)
    rejected = [trial for trial in trials if REJECTED in trial.user_attrs]
    excluded = sum(bool(excluded_because(trial)) for trial in rejected)
    return len(rejected) - excluded, excluded


def sweep_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    state: str,
    trials: Sequence[TrialRow],
    budget: BudgetView | None,
    datasets: Sequence[DatasetState],
    reason: str = "",
    chosen: Chosen | None = None,
    study: Study | None = None,
) -> SweepReport:
    """Return the report of a sweep. The curves and the candidates that never started come from the study."""
    score_error = plan.score_error(experiment)
    rows = tuple(row.with_error(score_error) for row in trials)
    if state not in RUNNING:
        rows = tuple(replace(row, state=CUT_OFF) if row.state == "running" else row for row in rows)
    facts, headline = [], claim_headline(plan, datasets, ledger=experiment.ledger)
    if plan.mode.searches_public:
        headline = PUBLIC_SEARCH
        plan = on_public(plan)
        facts.append(("searched on", f"{plan.dataset} (declared public)"))
    noise = "searched" if "noise_multiplier" in plan.priced else f"{plan.nominal.noise_multiplier:g}"
    rate = "searched" if "batch_size" in plan.priced else f"{plan.nominal.sample_rate:.6g}"
    cap = f", cap {plan.cap.replace('_', ' ') if plan.step_cap is None else plan.step_cap}"
    if plan.commit is not None:
        cap = f", cap {plan.commit.search_steps} for all trials"
    if not plan.mode.caps:  # the cap does not count the steps of all runs
        cap = ""
    drawn = f"noise multiplier {noise}, sample rate {rate}"
    if isinstance(plan.training_filter, OneRelease):
        drawn, cap = f"standard deviation {plan.training_filter.randomiser.noise:g} on each feature of the release", ""
    if isinstance(plan.training_filter, VotedLabels):
        each = plan.training_filter.noise
        drawn, cap = (
            f"standard deviation of {each.threshold_noise:g} votes in each test whether an input is labelled, and of "
            f"{each.answer_noise:g} votes on the count of each class",
            "",
        )
    facts += [
        ("noise", drawn),
        ("steps", f"{'up to ' if plan.priced else ''}{plan.steps_per_trial} a trial{cap}"),
    ]
    if plan.commit is not None:
        facts.append(("committed run", _commit_fact(plan.commit, rows)))
    if plan.validation is not None:
        facts.append(("score noise", f"± {100 * plan.validation.standard_error:.2g} points (standard error)"))
    for dataset in datasets:
        facts.append(("data set" if len(datasets) == 1 else "block", f"{dataset.dataset}: {dataset_line(dataset)}"))
    misfits, excluded = _not_started(study)
    if excluded:
        facts.append(("excluded", f"{plural(excluded, 'configuration')} before their first step, at no cost"))
    facts.append(("folder", str(sweep.root)))
    return SweepReport(
        name=experiment.name,
        sweep=sweep.id,
        state=state,
        reason=reason,
        trials=rows,
        trials_planned=plan.trials,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        budget=budget,
        headline=headline,
        subtitle=f"{plan.method}, {plan.model} on {plan.dataset}",
        next_commands=_next_commands(
            sweep,
            has_best=_has_winner(rows, commits=plan.commit is not None),
            state=state,
            private=plan.private,
        ),
        facts=tuple(facts),
        experiment=sweep.experiment.read_text("utf-8"),
        searched=plan.searched,
        claim=PUBLIC_CLAIM
        if plan.mode.searches_public
        else release_claim(plan.mode)
        if plan.mode.on_release and plan.private
        else "",
        accounting=plan.mode,
        unit=plan.unit,
        dataset=plan.dataset,
        domains={name: domain for name, domain in experiment.space.parameters if name in plan.searched},
        not_started=misfits,
        curves=() if study is None else curves_of_sweep(study, experiment),
        chosen=None if chosen is None else chosen.trial.number,
        why="" if chosen is None else chosen.why,
        tied=() if chosen is None else chosen.tied,
        expected=None if chosen is None else chosen.expected,
        commits=plan.commit is not None,
    )


def _has_winner(rows: Sequence[TrialRow], *, commits: bool) -> bool:
    return any(row.state == "complete" and (row.committed or not commits) for row in rows)


def _commit_fact(commit: CommitPlan, rows: Sequence[TrialRow]) -> str:
    """Return the noise and the state of the committed run."""
    run = next((row for row in rows if row.committed), None)
    state = "not started yet: it follows the search" if run is None else f"trial {run.number}, {run.state}"
    return f"{state}; {plural(commit.steps, 'step')}, noise multiplier {commit.noise_multiplier:g}"


def sealed_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    winner: SealedWinner | None,
    **shown: Any,  # noqa: ANN401
) -> SweepReport:
    """Return the report of a sealed sweep. It shows the released winner, if any, and nothing about the other runs.

    `shown` contains the arguments of `sweep_report` for the state, the budget and the data sets.
    """
    rows, reason = [], ""
    if winner is not None and winner.found:
        rows = [TrialRow(number=0, state="complete", parameters=winner.parameters, score=winner.score, id=WINNER)]
        if not winner.trained:
            reason = "no run ended with a score, so the winner is an untrained model with the worst score"
    elif winner is not None:
        reason = "no winner: no run was made"
    report = sweep_report(sweep, experiment, plan, reason=reason, trials=rows, **shown)
    return replace(report, winner_lost=winner is None and not sweep.hides_runs)
