"""What is seen of sweeps from outside: status, trials, following, stopping, syncing, the report page."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner import sweeps
from tuner.checking import check_tracking
from tuner.entering import STARTING
from tuner.errors import InputError, TunerError
from tuner.experiment import load
from tuner.plan import plan_from
from tuner.presenting import sweep_report
from tuner.report.model import SweepReport, TrialRow, budget_line, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.sweeps import SweepFolder

__all__ = [
    "follow",
    "read_sweep",
    "request_stop",
    "serve_ui",
    "status_text",
    "status_values",
    "sync_tracking",
    "trial_text",
    "trial_values",
    "write_report",
]


def read_sweep(sweep: SweepFolder) -> SweepReport:
    """A sweep as its storage and its ledger tell it.

    Raises:
        InputError: it died while its folder was being made.
        TunerError: its ledger or its storage cannot be read.
    """
    from tuner.privacy.budget import SearchBudget
    from tuner.privacy.ledger import Ledger
    from tuner.search.views import TRIAL_ID, view_of
    from tuner.study import open_sweep_study

    sweep.require_whole()
    experiment = load(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    status = sweep.read_status()
    state = sweep_state(sweep)
    entered = plan.private and status.get("state", STARTING) != STARTING
    ledger = Ledger.open(experiment.ledger, create=False) if entered else None
    budget = None if ledger is None else SearchBudget(ledger, sweep.id)
    rows = []
    # Looking makes nothing: a sweep that died before its first trial has no study yet.
    begun = sweep.journal.exists()
    for stored in open_sweep_study(sweep, experiment, plan).get_trials(deepcopy=False) if begun else ():
        if TRIAL_ID not in stored.user_attrs:
            continue
        view = view_of(stored, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
        cost = None if budget is None else budget.trial_epsilon(budget.charged_steps(view.id))
        rows.append(TrialRow.of(view, curve=sorted(stored.intermediate_values.items()), epsilon=cost))
    card = Path("exports") / sweep.name / "privacy_card.md"
    dataset = None if ledger is None else ledger.dataset_state(ledger.search_state(sweep.id).dataset)
    return sweep_report(
        sweep,
        experiment,
        plan,
        state=state,
        reason=str(status.get("detail", "")),
        trials=rows,
        budget=None if budget is None else budget.view(),
        dataset=dataset,
        card=card.read_text() if card.exists() and sweep.id in card.read_text() else "",
    )


def sweep_state(sweep: SweepFolder) -> str:
    """The state that the sweep noted, or ``crashed`` when it says it runs and nobody drives it."""
    state = str(sweep.read_status().get("state", STARTING))
    if state in {"running", STARTING} and not sweeps.is_held(sweep):
        return "crashed"
    return state


def status_values(storage: Path, name: str | None) -> dict[str, Any]:
    """How one sweep stands, or all of them.

    Raises:
        InputError: there is no sweep of that name.
    """
    if name is not None:
        return {"storage": str(storage), "sweeps": [_status(sweeps.find(storage, name))]}
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
    counts: dict[str, int] = {}
    for row in report.trials:
        counts[row.state] = counts.get(row.state, 0) + 1
    return {
        "sweep": sweep.id,
        "state": report.state,
        "trials": {"planned": report.trials_planned, **counts},
        "metric": report.metric,
        "best": None if report.best is None else {"trial": report.best.number, "score": report.best.score},
        "budget": None if report.budget is None else vars(report.budget),
    }


def status_text(values: dict[str, Any]) -> str:
    """The same, a line a sweep."""
    lines = [f"Sweeps in {values['storage']}:"]
    for sweep in values["sweeps"]:
        counts = ", ".join(f"{count} {state}" for state, count in sweep["trials"].items())
        best = sweep["best"]
        score = f"best {format_value(best['score'])} (trial {best['trial']})" if best else "no complete trial"
        budget = sweep["budget"]
        spent = (
            f"{budget['spent_steps']}/{budget['step_cap']} steps, cap ε = {budget['epsilon_cap']:g}" if budget else ""
        )
        lines.append(f"  {sweep['sweep']}  {sweep['state']}  {counts}  {score}  {spent}".rstrip())
        if "problem" in sweep:
            lines.append(f"    {sweep['problem']}")
    return "\n".join(lines if values["sweeps"] else [*lines, "  none yet"])


def trial_values(sweep: SweepFolder, trial: str | None) -> dict[str, Any]:
    """The trials of a sweep, or one by its number or id.

    Raises:
        InputError: there is no such trial.
    """
    rows = read_sweep(sweep).trials
    if trial is not None:
        rows = tuple(row for row in rows if trial in {str(row.number), row.id})
        if not rows:
            raise InputError(f"a trial must be named by its number or id, got {trial!r}. See: tune show {sweep.name}")
    return {"sweep": sweep.id, "trials": [vars(row) for row in rows]}


def trial_text(values: dict[str, Any]) -> str:
    """The same in words: a line a trial, or all of one."""
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


def follow(sweep: SweepFolder, *, every: float) -> None:
    """Print a line whenever something changed, until the sweep ends."""
    last = ""
    while True:
        report = read_sweep(sweep)
        ended = sum(row.state != "running" for row in report.trials)
        best = format_value(report.best.score) if report.best else "none yet"
        line = f"{report.state}: {ended} of {report.trials_planned} trials ended, best {best}"
        if report.budget is not None:
            line += f"; {budget_line(report.budget)}"
        if line != last:
            click.echo(line)
            last = line
        if report.state not in {"running", STARTING}:
            return
        time.sleep(every)


def request_stop(sweep: SweepFolder) -> str:
    """Ask a running sweep to stop; it sees the request at its next report."""
    state = sweep_state(sweep)
    if state not in {"running", STARTING}:
        return f"{sweep.id} is not running ({state}); nothing to stop"
    sweep.stop_request.touch()
    return f"{sweep.id}: trials that run now finish, no new one starts, and what is left of the budget is kept"


def sync_tracking(sweep: SweepFolder, uri: str | None = None) -> str:
    """Send what MLflow has not got, or all of it to another address.

    Raises:
        InputError: the address is malformed.
        TrackingError: it does not answer; nothing is lost.
    """
    from tuner.tracking.replay import replay
    from tuner.tracking.store import absolute_uri

    if uri is not None:
        check_tracking(uri)
        uri = absolute_uri(uri)
    return f"{sweep.id}: {replay(sweep.root, uri=uri)}"


def write_report(sweep: SweepFolder, out: Path | None) -> Path:
    """Write the report page; it lies in the sweep's folder when no path is given."""
    from tuner.report.html import write

    path = out or sweep.root / "report.html"
    write(read_sweep(sweep), path)
    return path


def serve_ui(uri: str, *, port: int) -> int:
    """MLflow's own pages for a tracking store, on this machine only; the exit code of its server.

    Raises:
        InputError: the store is a file that is not there; looking must not make it.
    """
    from tuner.tracking.store import absolute_uri, connect

    store = absolute_uri(uri)
    if store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).exists():
        raise InputError(f"a tracking store must be there to be shown, got {uri}. Run a search first, or give --uri.")
    connect(store)  # makes or migrates the database alone, before the server's several processes open it
    click.echo(f"http://127.0.0.1:{port}   (training runs: experiment, then Runs; Ctrl-C ends)")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store, "--host", "127.0.0.1"]
    try:
        return subprocess.call([*command, "--port", str(port)])
    except KeyboardInterrupt:
        return 0
