"""Status and trials of sweeps, as values and as text."""

from __future__ import annotations

import csv
import io
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tuner.errors import InputError, TunerError
from tuner.files import require_page_path, write_text
from tuner.privacy.ledger.amounts import amount
from tuner.report.facts import read_sweep
from tuner.report.sweep_report import SweepReport
from tuner.report.wording import (
    budget_line,
    expected_text,
    format_value,
    parameters_text,
    plural,
    tied_text,
    trial_name,
    with_error,
)
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.sealed import WINNER
from tuner.sweep.status import FINISHED, RESUMABLE, RUNNING, SweepState, resume_command, state_of

__all__ = [
    "follow_sweep",
    "status_text",
    "status_values",
    "trial_csv",
    "trial_text",
    "trial_values",
    "write_comparison",
    "write_report",
]

_WITHOUT_LEDGER = {"ledger-not-found": "ledger missing", "ledger-behind": "ledger lacks entries of this sweep"}
"""State of a sweep that can be read, but whose charges cannot, by the code of the error."""


def status_values(storage: Path, name: str | None, *, compose: bool = True) -> dict[str, Any]:
    """Return the status of one sweep, or of all sweeps. `compose` is that of `read_sweep`: text shows no ε spent.

    Raises:
        InputError: no sweep has that name.
    """
    if name is not None:
        return {"storage": str(storage), "sweeps": [_status(sweeps.find_sweep(storage, name), compose=compose)]}
    found = [_status_or_why(sweep, compose=compose) for sweep in sweeps.list_sweeps(storage)]
    return {"storage": str(storage), "sweeps": found}


def _status_or_why(sweep: SweepFolder, *, compose: bool) -> dict[str, Any]:
    """Return a sweep's status, or the error if the status cannot be read. One broken sweep must not hide the others."""
    try:
        return _status(sweep, compose=compose)
    except TunerError as error:
        return {**_nothing(sweep, _WITHOUT_LEDGER.get(error.code, "unreadable")), "problem": str(error)}


def _nothing(sweep: SweepFolder, state: str) -> dict[str, Any]:
    return {"sweep": sweep.id, "state": state, "trials": {}, "best": None, "budget": None}


def _status(sweep: SweepFolder, *, compose: bool) -> dict[str, Any]:
    if not sweep.whole and not sweep.started:  # it ended while its folder was being created
        return _nothing(sweep, "never started")
    sweep.require_whole()
    report = read_sweep(sweep, compose=compose)
    best = report.winner or report.best
    next_step = {
        "resume": resume_command(sweep) if report.state in RESUMABLE or _lacks_charged_run(sweep) else None,
        "stop_requested": report.state in RUNNING and sweep.stop_request.exists(),
    }
    if report.runs_hidden:
        return {
            **_nothing(sweep, report.state),
            **next_step,
            "claim": report.headline,
            "sealed": True,
            "metric": report.metric,
            "best": None if best is None else {"score": best.score, "error": best.error},
            "winner": "released" if best is not None else report.without_winner,
        }
    return {
        "sweep": sweep.id,
        "state": report.state,
        **next_step,
        "claim": report.headline,
        "trials": {
            "planned": report.trials_planned,
            **Counter(row.state for row in report.trials if not row.committed),
        },
        **({"committed_run": _committed_run(report)} if report.commits else {}),
        "metric": report.metric,
        "best": None
        if best is None
        else {"trial": best.number, "score": best.score, "error": best.error, "committed": best.committed},
        "budget": None if report.budget is None else asdict(report.budget),
        "curves": [curve.line for curve in report.curves],
    }


def _lacks_charged_run(sweep: SweepFolder) -> bool:
    """Return whether a public search has ended, but not yet started its charged run."""
    charged = sweep.charged_run
    over = sweep.mode.searches_public and state_of(sweep) in FINISHED
    return over and (charged is None or not charged.whole)


def _committed_run(report: SweepReport) -> str:
    """Return the state of the committed run."""
    return next((row.state for row in report.trials if row.committed), "not started")


def status_text(values: dict[str, Any]) -> str:
    """Return the status as text, one line per sweep."""
    lines = [f"Sweeps in {values['storage']}, each with its own claim:"]
    for sweep in values["sweeps"]:
        state = f"{sweep['state']}{' (stop requested)' if sweep.get('stop_requested') else ''}"
        lines.append(f"  {sweep['sweep']}  {state}  {_state_line(sweep)}".rstrip())
        lines += [f"    {sweep['claim']}"] if "claim" in sweep else []
        lines += [f"    {line}" for line in sweep.get("curves", ())]
        if sweep.get("resume"):
            fixed = ", once the cause is fixed" if sweep["state"] == SweepState.FAILED else ""
            lines.append(f"    to continue{fixed}: {sweep['resume']}")
        if "problem" in sweep:
            lines.append(f"    {sweep['problem']}")
    none = "none yet" if Path(values["storage"]).is_dir() else "none: this folder does not exist"
    return "\n".join(lines if values["sweeps"] else [*lines, f"  {none}"])


def _state_line(sweep: dict[str, Any]) -> str:
    if "winner" in sweep:
        best = sweep["best"]
        return f"sealed  winner {with_error(best['score'], best['error'])}" if best else f"sealed  {sweep['winner']}"
    counts = ", ".join(f"{count} {state}" for state, count in sweep["trials"].items())
    if "committed_run" in sweep:
        counts += f"; committed run {sweep['committed_run']}"
    best, budget = sweep["best"], sweep["budget"]
    score = "no complete trial"
    if best:
        named = trial_name(best["trial"], committed=best["committed"])
        score = f"best {with_error(best['score'], best['error'])} ({named})"
    if not budget:
        return f"{counts}  {score}"
    cap = budget["step_cap"]
    spent = f"{budget['spent_steps']}{f'/{cap}' if cap else ''} steps"
    return f"{counts}  {score}  {spent}, cap ε = {amount(budget['epsilon_cap'])}"


def trial_values(sweep: SweepFolder, trial: str | None) -> dict[str, Any]:
    """Return all trials of a sweep, or the one with this number or id.

    Raises:
        InputError: no such trial exists, or the sweep is sealed.
    """
    report = read_sweep(sweep)
    if report.runs_hidden:
        return _winner_values(sweep, report, trial)
    rows = report.trials
    if trial is not None:
        rows = tuple(row for row in rows if trial in {str(row.number), row.id})
        if not rows:
            raise InputError(
                "trial-not-found",
                f"{sweep.name} has no trial {trial!r}. Give a number or an id from: {sweep.command('show')}.",
            )
    values: dict[str, Any] = {"sweep": sweep.id, "claim": report.headline, "trials": [vars(row) for row in rows]}
    if trial is None:
        values |= {"left_out": report.left_out, "tied": list(report.tied), "expected": report.expected}
        values |= {"metric": report.metric, "columns": list(report.parameters)}
        values |= {"chosen": report.chosen, "curves": [curve.as_dict() for curve in report.curves]}
    return values


def _winner_values(sweep: SweepFolder, report: SweepReport, trial: str | None) -> dict[str, Any]:
    if trial not in (None, WINNER):
        raise InputError(
            "sealed-runs-hidden",
            f"{sweep.name} is a sealed search, so trial {trial!r} cannot be shown. To see the winner "
            f"use: {sweep.command('show')}",
        )
    best = report.best
    winner = None if best is None else {"score": best.score, "error": best.error, "parameters": dict(best.parameters)}
    without = "" if best is not None else report.without_winner
    return {
        "sweep": sweep.id,
        "claim": report.headline,
        "sealed": True,
        "metric": report.metric,
        "winner": winner,
        "without": without,
    }


def trial_text(values: dict[str, Any]) -> str:
    """Return trials as text: the claim, then one line per trial, or all facts if there is only one."""
    if "winner" in values:
        return "\n".join([values["claim"], *_winner_lines(values)])
    rows = values["trials"]
    if len(rows) == 1:
        return "\n".join([values["claim"], *_trial_lines(rows[0])])
    lines = [values["claim"], values["sweep"]]
    scores = [with_error(row["score"], row["error"]) for row in rows]
    wide = max(len(values["metric"]), *map(len, scores)) if rows else 0
    if rows:
        lines.append(f"  trial  {'state':<9} {'steps':>9}  {values['metric']:>{wide}}  searched parameters")
    for row, score in zip(rows, scores, strict=True):
        steps = f"{row['step']}/{row['steps_planned']}"
        chosen = parameters_text(row["parameters"], values["columns"])
        lines.append(
            f"  {row['number']:>5}  {row['state']:<9} {steps:>9}  "
            f"{score:>{wide}}  {'committed run: ' if row['committed'] else ''}{chosen}"
        )
    if values.get("tied"):
        lines.append(f"  best: trial {values['chosen']}; {tied_text(values['tied'])}")
    if values.get("expected") is not None:
        lines.append(f"  expected: {expected_text(values['expected'])}")
    if values.get("left_out"):
        lines.append(f"  {values['left_out']}")
    lines += [f"  {sentence}" for curve in values.get("curves", ()) for sentence in curve["sentences"]]
    return "\n".join(lines if rows else [*lines, "  no trial yet"])


def trial_csv(values: dict[str, Any]) -> str:
    """Return trials as comma-separated values with a heading: facts of the trial, then its parameters."""
    sealed = values.get("sealed", False)
    rows = [values["winner"]] if sealed and values["winner"] else values.get("trials", [])
    facts: tuple[str, ...] = ("number", "committed", "state", "step", "steps_planned", "score", "error", "epsilon")
    facts = ("score", "error") if sealed else facts
    names = list(dict.fromkeys(name for row in rows for name in row["parameters"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*facts, *names])
    for row in rows:
        writer.writerow([*(row[fact] for fact in facts), *(row["parameters"].get(name, "") for name in names)])
    return text.getvalue()


def _trial_lines(row: dict[str, Any]) -> Iterable[str]:
    name = trial_name(row["number"], committed=row["committed"])
    yield f"{name} ({row['id']}): {row['state']}{': ' + row['reason'] if row['reason'] else ''}"
    yield f"  steps {row['step']} of {row['steps_planned']}, score {with_error(row['score'], row['error'])}"
    if row["epsilon"] is not None:
        yield f"  ε of this trial's steps alone: {row['epsilon']:.6g} (the guarantee is the search's cap)"
    for name, value in row["parameters"].items():
        yield f"  {name}: {value}"
    for step, score in row["curve"]:
        yield f"  step {step}: {format_value(score)}"


def _winner_lines(values: dict[str, Any]) -> Iterable[str]:
    winner = values["winner"]
    if winner is None:
        yield f"{values['sweep']}: sealed, {values['without']}"
        return
    yield f"{values['sweep']}: sealed; its winner has {values['metric']} {with_error(winner['score'], winner['error'])}"
    for name, value in winner["parameters"].items():
        yield f"  {name}: {value}"


def follow_sweep(sweep: SweepFolder, *, every: float) -> None:
    """Print a line whenever the sweep changes, until the sweep ends."""
    last = ""
    click.echo(read_sweep(sweep).headline)
    while True:
        report = read_sweep(sweep)
        leader = report.winner or report.best
        best = with_error(leader.score, leader.error) if leader else "none yet"
        line = f"{report.state}: {report.ended} of {plural(report.trials_planned, 'trial')} ended, best {best}"
        if report.runs_hidden:
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
    """Write the report as an HTML page, by default to the sweep's folder."""
    from tuner.report.sweep_page import sweep_page

    path = out or sweep.root / "report.html"
    require_page_path(path)
    write_text(path, sweep_page(read_sweep(sweep, spent=True)))
    return path


def write_comparison(compared: Sequence[SweepFolder], out: Path) -> Path:
    """Write an interactive page about the sweeps."""
    from tuner.report.compare_page import compare_page

    require_page_path(out)
    write_text(out, compare_page([read_sweep(sweep, spent=True) for sweep in compared]))
    return out
