"""Functions for the commands `run`, `train`, `resume`, `export` and `sync`. They return an exit code or a text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.errors import InputError, SweepInterrupted, TrackingError
from tuner.experiment import find_file, load_experiment
from tuner.plan.candidates import as_stored
from tuner.privacy.ledger.amounts import amount
from tuner.privacy.modes import COMPOSITION
from tuner.report.text import sign_of_life
from tuner.runner.planning import show_plan
from tuner.runner.proxy import ask_for_public
from tuner.runner.public import charged_run, resume_public, run_public
from tuner.runner.run import RunOptions, RunResult, check_machines
from tuner.runner.start import continue_sweep, start_sweep
from tuner.sweep import folder as sweeps
from tuner.sweep.addresses import check_tracking
from tuner.sweep.dataset_cap import set_first_cap
from tuner.sweep.preflight import check_ledger_folder, check_scores, check_startable, prepare
from tuner.sweep.registration import preview, require_origin
from tuner.sweep.sealed import read_winner
from tuner.sweep.settings import changes_nothing
from tuner.sweep.status import is_finished

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch
    from tuner.sweep.winner import By

__all__ = [
    "RunOptions",
    "check",
    "export_command",
    "export_to",
    "go_on",
    "resume_sweep",
    "run_file",
    "start",
    "sync_tracking",
    "train_file",
]

_EXPORTS = Path("exports")


def run_file(
    file: str,
    overrides: Sequence[str],
    options: RunOptions,
    *,
    resume: bool = False,
    dry_run: bool = False,
    cap: str | None = None,
) -> int:
    """Run `tune run` and return its exit code. `cap` is the value of `--dataset-cap`."""
    if resume and dry_run:
        raise InputError(
            "options-conflict",
            "`--dry-run` cannot be combined with `--resume`. To see the state of a sweep use: tune status",
        )
    if cap is not None and (resume or dry_run):
        raise InputError(
            "options-conflict",
            f"`--dataset-cap` cannot be combined with {'`--resume`' if resume else '`--dry-run`'}. To set only "
            "a cap use: tune budget set",
        )
    if resume:  # the sweep has its own plan
        wanted = load_experiment(find_file(file)[0], overrides)
        sweep = sweeps.find_sweep(Path(wanted.storage), wanted.name)
        sweep.require_whole()
        stored = load_experiment(sweep.experiment)
        wanted = as_stored(wanted, stored)
        if changes_nothing(stored, wanted):
            return resume_sweep(sweep, (), options)
        return _answer(_resume(sweep, wanted, options), options)
    with sign_of_life("planning, and checking the model and the data"):
        prepared = prepare(file, overrides, data_dir=options.data_dir)
        if options.void_total is not None:
            _require_open_use(prepared, options.void_total)
        check(prepared, options)
    if cap is not None:
        set_first_cap(prepared, cap, say=options.say)
    seen = preview(prepared)
    if not options.as_json:
        show_plan(prepared, seen.states, comparison=prepared.compared)
    if dry_run:
        if options.as_json:
            click.echo(json.dumps(prepared.plan.as_dict(), indent=2))
        if seen.refusal is not None:
            raise seen.refusal
        return 0
    return _answer(start(prepared, options), options)


def check(prepared: ReadySearch, options: RunOptions) -> None:
    """Raise an InputError or a LedgerError if the search would fail after it was charged."""
    check_startable(prepared)
    if prepared.experiment.search.public is not None:
        ask_for_public(prepared, options)
    require_origin(prepared)
    check_ledger_folder(prepared)
    check_scores(prepared)
    check_machines(prepared, options)


def start(prepared: ReadySearch, options: RunOptions) -> RunResult:
    """Run a search that was checked, in its mode, as a new sweep."""
    if prepared.plan.mode.searches_public:
        return run_public(prepared, options)
    return start_sweep(prepared, options)[1]


def _require_open_use(prepared: ReadySearch, reason: str) -> None:
    """Refuse `--void-total` where it has no effect, or without a reason."""
    if prepared.plan.private and prepared.experiment.search.public is None:
        raise InputError(
            "options-conflict",
            f"`--void-total` is for public and non-private searches, but {prepared.path} is a private search, which is "
            "charged. Leave the option out.",
        )
    if not reason.strip():
        raise InputError(
            "value-empty",
            f"`--void-total` needs a reason, which the ledger keeps for ever (got {reason!r}). Write why the guarantee "
            "for all searches together is given up.",
        )


def train_file(file: str, overrides: Sequence[str], options: RunOptions, *, out: Path | None) -> int:
    """Run `tune train` and return its exit code. It trains one configuration, charges it, and exports it."""
    from tuner.export.package import require_free, require_writable

    path = find_file(file)[0]
    _require_as_exported(path)
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    require_origin(prepared)
    _require_card_of_ledger(path, prepared.experiment.ledger, options)
    if not prepared.plan.private:
        raise InputError(
            "train-not-private",
            f"`tune train` needs a private experiment, but {prepared.path} sets `privacy.private: false`. Use "
            "`tune run` for a study without privacy; its model cannot be exported.",
        )
    searched, mode, trials = prepared.experiment.space.searched, prepared.plan.mode, prepared.experiment.search.trials
    if searched or trials != 1 or mode is not COMPOSITION:
        raise InputError(
            "train-not-single",
            f"`tune train` trains one configuration, but {prepared.path} has {trials} "
            f"trials{' over ' + ', '.join(searched) if searched else ''} and `accounting: {mode.name}`. Use `tune "
            "run` to search, then `tune export`.",
        )
    check(prepared, options)
    require_writable(out or _EXPORTS)  # otherwise the run would be charged, and not exported
    if out is not None:
        require_free(out)
    seen = preview(prepared)
    if not options.as_json:
        show_plan(prepared, seen.states)
    try:
        sweep, ended = start_sweep(prepared, replace(options, next_commands=False))
    except SweepInterrupted as error:
        where = "" if out is None else f" --out {shlex.quote(str(out))}"
        text = f"{error.message}; then export with: tune export {prepared.experiment.name}{where}"
        raise SweepInterrupted(error.code, text) from error
    return export_command(sweep, out, options) if ended.code == 0 else ended.code


def _require_as_exported(file: Path) -> None:
    """Raise an InputError if the file is part of an export, and is not the one that the export's card lists."""
    from tuner.privacy.verify.exports import EXPERIMENT_FILE, require_unchanged

    if _is_exported(file):
        require_unchanged(file.parent, None, names=(EXPERIMENT_FILE,))


def _require_card_of_ledger(file: Path, url: str, options: RunOptions) -> None:
    """Raise an InputError if the file is part of an export whose card the ledger did not record."""
    from tuner.privacy.verify.exports import EXPERIMENT_FILE, ledger_to_compare, require_unchanged

    if not _is_exported(file):
        return
    ledger = ledger_to_compare(url)
    if ledger is None:
        options.say(f"the privacy card next to {file} was not compared with its ledger {url}, which cannot be reached")
    else:
        require_unchanged(file.parent, ledger, names=(EXPERIMENT_FILE,))


def _is_exported(file: Path) -> bool:
    """Return whether the file lies next to a privacy card, as `tune export` writes it."""
    from tuner.privacy.verify.exports import CARD_FILE, EXPERIMENT_FILE

    return file.name == EXPERIMENT_FILE and file.with_name(CARD_FILE).is_file()


def export_command(sweep: SweepFolder, out: Path | None, options: RunOptions, *, by: By | None = None) -> int:
    """Run `tune export` and return its exit code."""
    from tuner.export.package import export_text

    values = export_to(sweep, out or _export_folder(sweep), data_dir=options.data_dir, by=by)
    click.echo(json.dumps(values, indent=2)) if options.as_json else click.echo(export_text(values))
    return 0


def _export_folder(sweep: SweepFolder) -> Path:
    """Return the folder exports/NAME, or exports/ID if the first has other files than an export of this sweep."""
    from tuner.export.package import is_free

    named, exported = _EXPORTS / sweep.name, charged_run(sweep).id
    return named if is_free(named, exported) else named.with_name(exported)


def export_to(sweep: SweepFolder, out: Path, *, data_dir: str | None, by: By | None = None) -> dict[str, Any]:
    """Export the winner into a folder, and register its model in MLflow. The export succeeds even if MLflow is down."""
    from tuner.export.package import export_sweep
    from tuner.recorder.sync import attach, send_unsent

    named, sweep = sweep, charged_run(sweep)
    if by is not None and named.root != sweep.root:
        raise InputError(
            "choice-made",
            f"`--by` cannot be used for {named.id}: its configuration was chosen before its charged run started. "
            "Leave `--by` out.",
        )
    values = export_sweep(sweep, out, data_dir=data_dir or sweep.data_dir, by=by)
    files = [Path(file).resolve() for file in values["files"]]
    test = {name: score for name, score in values["scores"].items() if name.startswith("test_")}
    claim = {name: amount(value) for name, value in values["claim"].items()}
    # MLflow's registry keeps exact times, and when a sealed search ended tells of its number of runs.
    model: dict[str, Any] | None = None
    if not sweep.mode.runs_hidden:
        model = {"name": sweep.name, "about": values["first_line"], "tags": {**claim, "sweep": sweep.id}}
    try:
        attach(sweep.root, files, under="export", tags={"exported": "yes"}, metrics=test, model=model)
        values["tracking"] = str(send_unsent(sweep.root))
    except TrackingError as error:
        values["tracking"] = f"not sent to MLflow ({error}); send it later with: {sweep.command('sync')}"
    return values


def resume_sweep(sweep: SweepFolder, overrides: Sequence[str], options: RunOptions) -> int:
    """Run `tune resume` and return its exit code. If the sweep is finished, nothing changes."""
    ended = go_on(sweep, overrides, options)
    if ended is not None:
        return _answer(ended, options)
    state = str(sweep.read_status()["state"])
    options.say(f"{sweep.id} is already finished ({state}); nothing to do")
    if options.as_json:
        click.echo(json.dumps({"sweep": sweep.id, "state": state, "finished_before": True}, indent=2))
    return 0


def go_on(sweep: SweepFolder, overrides: Sequence[str], options: RunOptions) -> RunResult | None:
    """Resume a sweep, or return None if it is finished and nothing changes."""
    if is_finished(sweep, overrides):
        return None
    sweep = sweep.charged_search or sweep  # a proxy is resumed with the search that it belongs to
    sweep.require_whole()
    return _resume(sweep, load_experiment(sweep.experiment, overrides), options)


def _resume(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> RunResult:
    sweep.require_whole()
    return (resume_public if sweep.mode.searches_public else continue_sweep)(sweep, wanted, options)


def _answer(ended: RunResult, options: RunOptions) -> int:
    """Print the result as JSON if the user asked for JSON. Always return the exit code."""
    if options.as_json:
        click.echo(json.dumps(ended.values, indent=2))
    return ended.code


def sync_tracking(sweep: SweepFolder, uri: str | None) -> str:
    """Upload the entries that MLflow has not acknowledged. If `uri` is given, upload all entries to that address.

    Raises:
        InputError: the address is malformed, or the sweep is sealed and has not ended.
        TrackingError: the server does not answer. No entry is lost.
    """
    from tuner.recorder.mlflow_store import absolute_uri
    from tuner.recorder.sync import send_unsent

    if sweep.hides_runs and read_winner(sweep) is None:
        raise InputError(
            "sweep-not-finished",
            f"A sealed sweep is uploaded to MLflow only after its end, but {sweep.id} has not ended. Resume it.",
        )
    if uri is not None:
        check_tracking(uri)
        uri = absolute_uri(uri)
    return f"{sweep.id}, MLflow: {send_unsent(sweep.root, uri=uri)}"
