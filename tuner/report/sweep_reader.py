"""Reader of a sweep's facts from its folder, its study and its ledger. It writes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.experiment import load_experiment
from tuner.plan.plan import plan_from
from tuner.report.curve_watch import curves_of_sweep, spent_on
from tuner.report.facts import (
    ALL_STARTED,
    PUBLIC_CLAIM,
    NotStarted,
    not_started,
    sealed_report,
    sweep_report,
)
from tuner.report.sweep_report import SweepReport
from tuner.report.trial_row import TrialRow
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import CHARGED
from tuner.sweep.sealed import read_winner
from tuner.sweep.status import SweepState, state_of
from tuner.sweep.winner import choose_winner

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.study.types import TrialView
    from tuner.study.unimodal.inference.picture import CurvePicture
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.winner import Chosen

__all__ = ["read_sweep"]


def read_sweep(sweep: SweepFolder, *, spent: bool = False) -> SweepReport:
    """Return the report of a sweep from its storage and its ledger.

    Args:
        sweep: the sweep.
        spent: whether to include spending against the best score, which takes about a second.

    Raises:
        InputError: the sweep stopped while its folder was being created.
        TunerError: its ledger or its storage cannot be read.
    """
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget

    sweep.require_whole()
    experiment = load_experiment(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    status = sweep.read_status()
    public = plan.mode.searches_public
    entered = plan.private and not public and status.get("state", SweepState.STARTING) != SweepState.STARTING
    ledger = Ledger.open(experiment.ledger, create=False) if entered else None
    budget = None if ledger is None else SearchBudget(ledger, sweep.id)
    card, picture = _card(sweep)
    shown: dict[str, Any] = {
        "state": state_of(sweep),
        "budget": None if budget is None else budget.view(),
        "dataset": None if ledger is None else ledger.dataset_state(ledger.search_state(sweep.id).dataset),
        "card": card,
        "card_picture": picture,
    }
    if plan.mode.runs_hidden:
        return sealed_report(sweep, experiment, plan, winner=read_winner(sweep), **shown)
    rows, left_out, curves, chosen = _rows(sweep, experiment, plan, budget)
    report = sweep_report(
        sweep,
        experiment,
        plan,
        reason=str(status.get("detail", "")),
        trials=rows,
        claim=PUBLIC_CLAIM if public else "",
        not_started=left_out,
        curves=curves,
        chosen=chosen,
        **shown,
    )
    if not (spent and rows):
        return report
    spending = spent_on(rows, mode=report.mode, budget=budget, excluded=left_out.excluded, whole=plan.steps_per_trial)
    return replace(report, spending=spending)


def _rows(
    sweep: SweepFolder, experiment: Experiment, plan: Plan, budget: SearchBudget | None
) -> tuple[list[TrialRow], NotStarted, tuple[CurvePicture, ...], Chosen | None]:
    """Return the trials, the candidates that never started, the curves of a unimodal search, and the winner."""
    from tuner.study.views import REJECTED, TRIAL_ID, learning_curve, view_of
    from tuner.sweep.sweep_study import open_sweep_study

    rows: list[TrialRow] = []
    views: list[TrialView] = []
    if not sweep.journal.exists():  # reading creates nothing: before the first trial there is no study
        return rows, ALL_STARTED, (), None
    study = open_sweep_study(sweep, experiment, plan)
    for stored in study.get_trials(deepcopy=False):
        if TRIAL_ID not in stored.user_attrs or REJECTED in stored.user_attrs:
            continue
        view = view_of(stored, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
        views.append(view)
        cost = None if budget is None else budget.trial_epsilon(view.id, budget.charged_steps(view.id))
        rows.append(TrialRow.of(view, curve=learning_curve(stored), epsilon=cost))
    chosen = choose_winner(study, views, experiment)
    return rows, not_started(study), curves_of_sweep(study, experiment), chosen


def _card(sweep: SweepFolder) -> tuple[str, str]:
    """Return the exported privacy card and its picture; empty if there is none."""
    from tuner.privacy.card.page import CURVE_FILE

    for name in (sweep.name, sweep.name.removesuffix(CHARGED), sweep.id):
        page = Path("exports") / name / "privacy_card.md"
        text = page.read_text() if page.exists() else ""
        if sweep.id in text:
            picture = page.with_name(CURVE_FILE)
            return text, picture.read_text() if picture.exists() else ""
    return "", ""
