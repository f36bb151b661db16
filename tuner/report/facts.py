"""Facts of a sweep for its report, and the commands that come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from search_spaces.domains import Categorical, Integer, LogUniform
from tuner.errors import InputError, TunerError
from tuner.report.sweep_report import Scale, SweepReport
from tuner.report.trial_row import CUT_OFF, TrialRow
from tuner.report.wording import plural
from tuner.sweep import folder as sweeps
from tuner.sweep.sealed import WINNER
from tuner.sweep.status import RESUMABLE, RUNNING, resume_command, storage_option

if TYPE_CHECKING:
    from optuna.study import Study

    from search_spaces.domains import Domain
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.privacy.ledger.state import DatasetState
    from tuner.study.types import TrialView
    from tuner.study.unimodal.inference.picture import CurvePicture
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.sealed import SealedWinner
    from tuner.sweep.winner import Chosen

__all__ = [
    "ALL_STARTED",
    "PUBLIC_CLAIM",
    "NotStarted",
    "dataset_line",
    "next_commands",
    "not_started",
    "on_public",
    "sealed_report",
    "sweep_report",
    "unique_name",
]

PUBLIC_CLAIM = (
    "Searched on records that the experiment file declares public: nothing is charged, and nothing is guaranteed for "
    "them. The best configuration is then trained once on the private records, and that run is charged."
)
"""Sentence shown instead of a guarantee for the public search of public mode."""


def dataset_line(state: DatasetState) -> str:
    """Return the total that all searches on a data set have committed, and its cap, as text."""
    counted = sum(search.counts for search in state.searches)
    cap = f"cap ε = {state.cap.epsilon:g}, δ = {state.cap.delta:g}" if state.cap else "no cap set"
    return (
        f"{plural(counted, 'search')}, committed ε = {state.committed_epsilon:g}, δ = {state.committed_delta:g}; {cap}"
    )


def unique_name(sweep: SweepFolder) -> str:
    """Return the name by which commands find this sweep: the experiment's, or the id if a newer sweep has that name."""
    try:
        found = sweeps.find_sweep(sweep.root.parent, sweep.name)
    except InputError:
        return sweep.id
    return sweep.name if found.root == sweep.root else sweep.id


def next_commands(sweep: SweepFolder, *, has_best: bool, state: str = "done") -> tuple[str, ...]:
    """Return the commands that come next, the most likely first."""
    name, where = unique_name(sweep), storage_option(sweep)
    if state in RUNNING:
        return (f"tune watch {name}{where}", f"tune show {name}{where}")
    show = (f"tune show {name}{where}", *((f"tune report {name}{where}",) if has_best else ()))
    if state in RESUMABLE:  # nothing can be exported before it ends
        return (resume_command(sweep), *show)
    if not has_best:
        return (*show, resume_command(sweep))
    out = "" if name == sweep.name else f" --out exports/{name}"  # next to the export of the newer one
    return (
        f"tune export {name}{where}{out}",
        f"tune verify exports/{name}/privacy_card.json",
        f"tune report {name}{where}",
    )


def on_public(plan: Plan) -> Plan:
    """Return the plan of the search on public records: the same steps and noise, with its sample rate."""
    records = plan.public
    if records is None:
        raise TunerError(
            "plan-incomplete", "The plan of this public search does not name its public records. Restore plan.json."
        )
    return replace(
        plan,
        dataset=records.name,
        train_size=records.train_size,
        nominal=replace(plan.nominal, sample_rate=records.sample_rate),
        validation=None,
    )


class NotStarted(NamedTuple):
    """Numbers of candidates that were drawn and never became trials."""

    misfits: int = 0
    """Did not fit the remaining budget."""
    excluded: int = 0
    """Excluded by the pruner before their first step."""


ALL_STARTED = NotStarted()
"""Every candidate became a trial."""


def not_started(study: Study) -> NotStarted:
    """Count the candidates of a study that never became trials."""
    from tuner.study.candidates import excluded_because
    from tuner.study.views import REJECTED

    rejected = [trial for trial in study.get_trials(deepcopy=False) if REJECTED in trial.user_attrs]
    excluded = sum(bool(excluded_because(trial)) for trial in rejected)
    return NotStarted(len(rejected) - excluded, excluded)


def _scale(domain: Domain) -> Scale:
    if isinstance(domain, Categorical):
        return Scale(options=tuple(domain.options))
    return Scale(log=isinstance(domain, LogUniform) or (isinstance(domain, Integer) and domain.log))


def sweep_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    state: str,
    trials: Sequence[TrialRow] | Sequence[TrialView],
    budget: BudgetView | None,
    dataset: DatasetState | None,
    reason: str = "",
    card: str = "",
    card_picture: str = "",
    claim: str = "",
    not_started: NotStarted = ALL_STARTED,
    curves: tuple[CurvePicture, ...] = (),
    chosen: Chosen | None = None,
) -> SweepReport:
    """Return the report of an open sweep."""
    rows = tuple(trial if isinstance(trial, TrialRow) else TrialRow.of(trial) for trial in trials)
    if state not in RUNNING:
        rows = tuple(replace(row, state=CUT_OFF) if row.state == "running" else row for row in rows)
    searched_on: list[tuple[str, str]] = []
    if plan.mode.searches_public:
        plan = on_public(plan)
        searched_on = [("searched on", f"{plan.dataset} (declared public)")]
    noise = "searched" if "noise_multiplier" in plan.priced else f"{plan.nominal.noise_multiplier:g}"
    rate = "searched" if "batch_size" in plan.priced else f"{plan.nominal.sample_rate:.6g}"
    cap = f", cap {plan.cap.replace('_', ' ') if plan.step_cap is None else plan.step_cap}"
    if not plan.mode.caps:  # the cap does not count the steps of all runs
        cap = ""
    facts = [
        *searched_on,
        ("noise", f"noise multiplier {noise}, sample rate {rate}"),
        ("steps", f"{'up to ' if plan.priced else ''}{plan.steps_per_trial} a trial{cap}"),
    ]
    error = None if plan.validation is None else plan.validation.standard_error
    if error is not None:
        facts.append(("score noise", f"± {100 * error:.2g} points (standard error)"))
    if dataset is not None:
        facts.append(("data set", f"{dataset.dataset}: {dataset_line(dataset)}"))
    if not_started.excluded:
        each = plural(not_started.excluded, "candidate")
        facts.append(("excluded", f"{each} before the first step, which costs nothing"))
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
        subtitle=f"{plan.method}, {plan.model} on {plan.dataset}",
        next_commands=next_commands(sweep, has_best=any(row.state == "complete" for row in rows), state=state),
        facts=tuple(facts),
        card=card,
        experiment=sweep.experiment.read_text(),
        searched=plan.searched,
        claim=claim,
        accounting=plan.mode,
        unit=plan.unit,
        score_error=error,
        scales={name: _scale(domain) for name, domain in experiment.space.parameters if name in plan.searched},
        not_started=not_started.misfits,
        card_picture=card_picture,
        curves=curves,
        chosen=None if chosen is None else chosen.trial.number,
        why="" if chosen is None else chosen.why,
    )


def sealed_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    state: str,
    winner: SealedWinner | None,
    budget: BudgetView | None,
    dataset: DatasetState | None,
    card: str = "",
    card_picture: str = "",
) -> SweepReport:
    """Return the report of a sealed sweep: its winner when it has ended, and nothing about the other runs.

    Args:
        sweep: the sweep.
        experiment: the search.
        plan: its plan, which is public.
        state: ``running``, ``done``, ...
        winner: the released winner; None while the search runs.
        budget: budget of the whole search.
        dataset: state of the data set in the ledger.
        card: the privacy card as text.
        card_picture: the card's curve as SVG.
    """
    rows: tuple[TrialRow, ...] = ()
    reason = ""
    if winner is not None and winner.found:
        rows = (TrialRow(number=0, state="complete", parameters=winner.parameters, score=winner.score, id=WINNER),)
    elif winner is not None:
        reason = "no winner: no run ended with a score"
    report = sweep_report(
        sweep,
        experiment,
        plan,
        state=state,
        reason=reason,
        trials=rows,
        budget=budget,
        dataset=dataset,
        card=card,
        card_picture=card_picture,
    )
    return replace(report, winner_lost=winner is None and not sweep.hides_runs)
