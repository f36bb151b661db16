"""The commands that run something: each from its words to an exit code. How a sweep is run stands in `starting`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.errors import InputError, TrackingError
from tuner.experiment import load_experiment
from tuner.report.plan_facts import plan_text, search_facts
from tuner.report.text import console
from tuner.report.text import plan as plan_panel
from tuner.runner.execution import Ended, RunOptions
from tuner.runner.planning import all_warnings, ledger_state
from tuner.runner.public import charged_run, go_on_public, is_public_search, run_public
from tuner.runner.start import go_on, start
from tuner.sweep import folder as sweeps
from tuner.sweep.preflight import check_startable
from tuner.sweep.ready import Prepared, prepare
from tuner.sweep.resume import is_finished

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.winner import By

__all__ = ["RunOptions", "export_command", "resume_sweep", "run_file", "train_file"]


def run_file(
    file: str, overrides: Sequence[str], options: RunOptions, *, resume: bool = False, dry_run: bool = False
) -> int:
    """`tune run`: returns the exit code."""
    if resume and dry_run:
        raise InputError("--dry-run shows what would be started, got it with --resume. See: tune status")
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    if resume:
        sweep = sweeps.find(Path(prepared.experiment.storage), prepared.experiment.name)
        return _go_on(sweep, prepared.experiment, options)
    check_startable(prepared)
    _show_plan(prepared, options)
    if dry_run:
        if options.as_json:
            click.echo(json.dumps(prepared.plan.as_dict(), indent=2))
        return 0
    if prepared.plan.accounting == "public":
        return _told(run_public(prepared, options), options)
    return _told(start(prepared, options)[1], options)


def train_file(file: str, overrides: Sequence[str], options: RunOptions, *, out: Path | None) -> int:
    """`tune train`: one configuration, charged like any run, exported at its end."""
    prepared = prepare(file, overrides, data_dir=options.data_dir)
    if not prepared.plan.private:
        raise InputError(
            f"a file to train must be private, got privacy.private: false in {prepared.path}. "
            "What is trained so cannot be exported; use `tune run` for a study."
        )
    searched, accounting = prepared.experiment.space.searched, prepared.experiment.privacy.accounting
    if searched or prepared.experiment.search.trials != 1 or accounting != "composition":
        raise InputError(
            f"a file to train must hold one configuration, got {prepared.experiment.search.trials} trials"
            f"{' over ' + ', '.join(searched) if searched else ''}, accounting {accounting}. "
            "Use `tune run` to search, then `tune export`."
        )
    check_startable(prepared)
    _show_plan(prepared, options)
    sweep, ended = start(prepared, replace(options, summary=not options.as_json, next_commands=False))
    return export_command(sweep, out, options) if ended.code == 0 else ended.code


def export_command(sweep: SweepFolder, out: Path | None, options: RunOptions, *, by: By | None = None) -> int:
    """`tune export`: the exit code. A tracking server that is down stops no export.

    Raises:
        InputError: it cannot be exported, or a public search is to choose again, whose charged run has begun.
    """
    from tuner.export.package import export_sweep, export_text
    from tuner.recorder.replay import attach, replay

    out = out or Path("exports") / sweep.name
    named, sweep = sweep, charged_run(sweep)
    if by is not None and named.root != sweep.root:
        raise InputError(
            f"--by chooses among trials on the private records, got {named.id}, which chose before its one charged run "
            "began. Leave it out."
        )
    values = export_sweep(sweep, out, data_dir=options.data_dir or sweep.data_dir, by=by)
    files = [Path(file).resolve() for file in values["files"]]
    test = {name: score for name, score in values["scores"].items() if name.startswith("test_")}
    try:
        attach(sweep.root, files, under="export", tags={"exported": "yes"}, metrics=test)
        values["tracking"] = str(replay(sweep.root))
    except TrackingError as error:
        values["tracking"] = f"not sent ({error}); later: tune sync {sweep.id}"
    click.echo(json.dumps(values, indent=2)) if options.as_json else click.echo(export_text(values))
    return 0


def resume_sweep(sweep: SweepFolder, overrides: Sequence[str], options: RunOptions) -> int:
    """`tune resume`: returns the exit code. One that is finished is left as it is, in its ledger too."""
    if is_finished(sweep, overrides):
        state = str(sweep.read_status()["state"])
        options.say(f"{sweep.id} is already finished ({state}); nothing to do")
        if options.as_json:
            click.echo(json.dumps({"sweep": sweep.id, "state": state, "finished_before": True}, indent=2))
        return 0
    sweep.require_whole()
    return _go_on(sweep, load_experiment(sweep.experiment, overrides), options)


def _go_on(sweep: SweepFolder, wanted: Experiment, options: RunOptions) -> int:
    ended = go_on_public(sweep, wanted, options) if is_public_search(sweep) else go_on(sweep, wanted, options)
    return _told(ended, options)


def _told(ended: Ended, options: RunOptions) -> int:
    """The exit code, and for a program what came of it."""
    if options.as_json and options.summary:
        click.echo(json.dumps(ended.values, indent=2))
    return ended.code


def _show_plan(prepared: Prepared, options: RunOptions) -> None:
    if not options.as_json:
        dataset = ledger_state(prepared)
        words = plan_text(
            prepared.plan,
            source=prepared.source,
            dataset=dataset,
            warnings=all_warnings(prepared, dataset),
            search=search_facts(prepared.experiment),
        )
        console().print(plan_panel(words))
