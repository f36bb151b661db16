"""What is seen of sweeps from outside: status, trials, following, stopping, syncing, the report page."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.errors import InputError, TunerError
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
from tuner.report.sweep_report import SweepReport, TrialRow, budget_line, count, format_value, with_error
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import CHARGED
from tuner.sweep.sealed import WINNER, read_winner
from tuner.sweep.status import RUNNING, SweepState, state_of
from tuner.sweep.winner import choose_winner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.search_budget import SearchBudget
    from tuner.study.types import TrialView
    from tuner.study.unimodal.inference.picture import CurvePicture
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.winner import Chosen

__all__ = [
    "follow",
    "read_sweep",
    "status_text",
    "status_values",
    "trial_text",
    "trial_values",
    "write_report",
]


def read_sweep(sweep: SweepFolder, *, spent: bool = False) -> SweepReport:
    """A sweep as its storage and its ledger tell it.

    Args:
        sweep: the sweep.
        spent: whether what was spent for the best score is told too, which takes the accountant a second.

    Raises:
        InputError: it died while its folder was being made.
        TunerError: its ledger or its storage cannot be read.
    """
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.search_budget import SearchBudget

    sweep.require_whole()
    experiment = load_experiment(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    status = sweep.read_status()
    public = plan.accounting == "public"
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
    if plan.accounting == "selection":
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
    """The trials, how many candidates were no trial, the curves of a unimodal search, and the trial that wins."""
    from tuner.study.views import REJECTED, TRIAL_ID, learning_curve, view_of
    from tuner.sweep.sweep_study import open_sweep_study

    rows: list[TrialRow] = []
    views: list[TrialView] = []
    if not sweep.journal.exists():  # looking makes nothing: a sweep that died before its first trial has no study yet
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
    """The privacy card that was exported of it and the picture beside it, or nothing."""
    from tuner.privacy.card.page import CURVE_FILE

    for name in (sweep.name, sweep.name.removesuffix(CHARGED), sweep.id):
        page = Path("exports") / name / "privacy_card.md"
        text = page.read_text() if page.exists() else ""
        if sweep.id in text:
            picture = page.with_name(CURVE_FILE)
            return text, picture.read_text() if picture.exists() else ""
    return "", ""


def status_values(storage: Path, name: str | None) -> dict[str, Any]:
    """How one sweep stands, or all of them.

    Raises:
        InputError: there is no sweep of that name.
    """
    if name is not None:
        return {"storage": str(storage), "sweeps": [_status(sweeps.find_sweep(storage, name))]}
    return {"storage": str(storage), "sweeps": [_status_or_why(sweep) for sweep in sweeps.list_sweeps(storage)]}


def _status_or_why(sweep: SweepFolder) -> dict[str, Any]:
    """One sweep that cannot be read must not hide the others."""
    try:
        return _status(sweep)
    except TunerError as error:
        return {**_nothing(sweep, "unreadable"), "problem": str(error)}


def _nothing(sweep: SweepFolder, state: str) -> dict[str, Any]:
    return {"sweep": sweep.id, "state": state, "trials": {}, "best": None, "budget": None}


def _status(sweep: SweepFolder) -> dict[str, Any]:
    if not sweep.whole:  # it died while its folder was being made
        return _nothing(sweep, "never started")
    report = read_sweep(sweep)
    best = report.best
    if report.sealed:
        return {
            **_nothing(sweep, report.state),
            "sealed": True,
            "metric": report.metric,
            "best": None if best is None else {"score": best.score},
            "winner": "released" if best is not None else report.without_winner,
        }
    counts: dict[str, int] = {}
    for row in report.trials:
        counts[row.state] = counts.get(row.state, 0) + 1
    return {
        "sweep": sweep.id,
        "state": report.state,
        "trials": {"planned": report.trials_planned, **counts},
        "metric": report.metric,
        "best": None if best is None else {"trial": best.number, "score": best.score},
        "budget": None if report.budget is None else asdict(report.budget),
        "curves": [curve.line for curve in report.curves],
    }


def status_text(values: dict[str, Any]) -> str:
    """The same, a line a sweep."""
    lines = [f"Sweeps in {values['storage']}:"]
    for sweep in values["sweeps"]:
        lines.append(f"  {sweep['sweep']}  {sweep['state']}  {_sealed(sweep) or _open(sweep)}".rstrip())
        lines += [f"    {line}" for line in sweep.get("curves", ())]
        if "problem" in sweep:
            lines.append(f"    {sweep['problem']}")
    return "\n".join(lines if values["sweeps"] else [*lines, "  none yet"])


def _sealed(sweep: dict[str, Any]) -> str:
    if not sweep.get("sealed"):
        return ""
    return f"sealed  winner {format_value(sweep['best']['score'])}" if sweep["best"] else f"sealed  {sweep['winner']}"


def _open(sweep: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in sweep["trials"].items())
    best, budget = sweep["best"], sweep["budget"]
    score = f"best {format_value(best['score'])} (trial {best['trial']})" if best else "no complete trial"
    if not budget:
        return f"{counts}  {score}"
    cap = budget["step_cap"]
    spent = f"{budget['spent_steps']}{f'/{cap}' if cap else ''} steps"
    return f"{counts}  {score}  {spent}, cap ε = {budget['epsilon_cap']:g}"


def trial_values(sweep: SweepFolder, trial: str | None) -> dict[str, Any]:
    """The trials of a sweep, or one by its number or id.

    Raises:
        InputError: there is no such trial.
    """
    report = read_sweep(sweep)
    if report.sealed:
        return _winner_values(sweep, report, trial)
    rows = report.trials
    if trial is not None:
        rows = tuple(row for row in rows if trial in {str(row.number), row.id})
        if not rows:
            raise InputError(f"a trial must be named by its number or id, got {trial!r}. See: tune show {sweep.name}")
    told: dict[str, Any] = {"sweep": sweep.id, "trials": [vars(row) for row in rows]}
    if trial is not None:
        return told
    return {**told, "left_out": report.left_out, "curves": [curve.as_dict() for curve in report.curves]}


def _winner_values(sweep: SweepFolder, report: SweepReport, trial: str | None) -> dict[str, Any]:
    if trial not in (None, WINNER):
        raise InputError(f"the runs of a sealed search are not told, got {trial!r}. See: tune show {sweep.name}")
    best = report.best
    told = None if best is None else {"score": best.score, "parameters": dict(best.parameters)}
    why = "" if best is not None else report.without_winner
    return {"sweep": sweep.id, "sealed": True, "metric": report.metric, "winner": told, "without": why}


def trial_text(values: dict[str, Any]) -> str:
    """The same in words: a line a trial, or all of one."""
    if values.get("sealed"):
        return "\n".join(_the_winner(values))
    rows = values["trials"]
    if len(rows) == 1:
        return "\n".join(_one(rows[0]))
    lines = [values["sweep"]]
    for row in rows:
        chosen = "  ".join(f"{name}={format_value(value)}" for name, value in row["parameters"].items())
        lines.append(
            f"  {row['number']:>4}  {row['state']:<9} {row['step']:>6}/{row['steps_planned']}  "
            f"{format_value(row['score']):>8}  {chosen}"
        )
    if values.get("left_out"):
        lines.append(f"  {values['left_out']}")
    lines += [f"  {sentence}" for curve in values.get("curves", ()) for sentence in curve["sentences"]]
    return "\n".join(lines if rows else [*lines, "  no trial yet"])


def _one(row: dict[str, Any]) -> Iterable[str]:
    yield f"trial {row['number']} ({row['id']}): {row['state']}{': ' + row['reason'] if row['reason'] else ''}"
    yield f"  steps {row['step']} of {row['steps_planned']}, score {format_value(row['score'])}"
    if row["epsilon"] is not None:
        yield f"  ε of its own steps, as if it were alone: {row['epsilon']:.6g} (the guarantee is the search's cap)"
    for name, value in row["parameters"].items():
        yield f"  {name}: {value}"
    for step, score in row["curve"]:
        yield f"  step {step}: {format_value(score)}"


def _the_winner(values: dict[str, Any]) -> Iterable[str]:
    winner = values["winner"]
    if winner is None:
        yield f"{values['sweep']}: sealed, {values['without']}"
        return
    yield f"{values['sweep']}: sealed; its winner has {values['metric']} {format_value(winner['score'])}"
    for name, value in winner["parameters"].items():
        yield f"  {name}: {value}"


def follow(sweep: SweepFolder, *, every: float) -> None:
    """Print a line whenever something changed, until the sweep ends."""
    last = ""
    while True:
        report = read_sweep(sweep)
        best = with_error(report.best.score, report.score_error) if report.best else "none yet"
        line = f"{report.state}: {report.ended} of {count(report.trials_planned, 'trial')} ended, best {best}"
        if report.sealed:
            line = f"{report.state}: sealed, {f'winner {best}' if report.best else report.without_winner}"
        elif report.budget is not None:
            line += f"; {budget_line(report.budget)}"
        line = "; ".join([line, *(curve.line for curve in report.curves)])
        if line != last:
            click.echo(line)
            last = line
        if report.state not in RUNNING:
            return
        time.sleep(every)


def write_report(sweep: SweepFolder, out: Path | None) -> Path:
    """Write the report page; it lies in the sweep's folder when no path is given."""
    from tuner.report.page import write

    path = out or sweep.root / "report.html"
    write(read_sweep(sweep, spent=True), path)
    return path
