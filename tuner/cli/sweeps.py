"""Commands that show and control sweeps: status, watch, show, stop, sync, report, ui, ls, cp."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli.options import json_option, name_argument, print_answer, print_json, storage_option
from tuner.cli.ray import ray_command

__all__ = [
    "tune_cp",
    "tune_ls",
    "tune_report",
    "tune_show",
    "tune_status",
    "tune_stop",
    "tune_sync",
    "tune_ui",
    "tune_watch",
]


@click.command("stop", short_help="Ask a running sweep to stop, and keep its results.")
@name_argument
@storage_option
def tune_stop(name: str, storage: str) -> None:
    """Ask a running sweep to stop: running trials finish, no new trial starts, and the unspent budget is kept.

    A stopped sealed search releases nothing, but it stays charged. `tune resume` completes the search.
    """
    from tuner.sweep.folder import find_sweep
    from tuner.sweep.status import request_stop

    click.echo(request_stop(find_sweep(Path(storage), name)))


@click.command("status")
@click.argument("name", required=False)
@storage_option
@json_option
def tune_status(name: str | None, storage: str, as_json: bool) -> None:
    """Show the status of sweeps: state, trials, best score, budget."""
    from tuner.report.status import status_text, status_values

    values = status_values(Path(storage), name, compose=as_json)
    print_answer(values, status_text(values), as_json=as_json)


@click.command("watch")
@name_argument
@storage_option
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Polling interval in seconds."
)
def tune_watch(name: str, storage: str, every: float) -> None:
    """Show the progress of a sweep in another process, until the sweep ends."""
    from tuner.report.status import follow_sweep
    from tuner.sweep.folder import find_sweep

    follow_sweep(find_sweep(Path(storage), name), every=every)


@click.command("show", short_help="List the trials of a sweep, or show one trial with its scores.")
@name_argument
@click.argument("trial", required=False)
@storage_option
@json_option
def tune_show(name: str, trial: str | None, storage: str, as_json: bool) -> None:
    """List the trials of a sweep, or show one TRIAL (number or id) with its scores.

    For a sealed sweep, only the winner is shown.
    """
    from tuner.report.status import trial_text, trial_values
    from tuner.sweep.folder import find_sweep

    values = trial_values(find_sweep(Path(storage), name), trial)
    print_answer(values, trial_text(values), as_json=as_json)


@click.command("sync", short_help="Upload a sweep's unsent entries to MLflow.")
@name_argument
@storage_option
@click.option("--uri", help="Upload all entries, to this tracking address instead of the sweep's own address.")
def tune_sync(name: str, storage: str, uri: str | None) -> None:
    """Upload those entries of a sweep that the MLflow server has not acknowledged yet."""
    from tuner.runner.commands import sync_tracking
    from tuner.sweep.folder import find_sweep

    click.echo(sync_tracking(find_sweep(Path(storage), name), uri))


@click.command("ls")
@click.argument("path", required=False)
@storage_option
@json_option
@click.option("--shipped", is_flag=True, help="List only the experiments that come with the program.")
@click.pass_context
def tune_ls(ctx: click.Context, path: str | None, storage: str, as_json: bool, shipped: bool) -> None:
    """List the sweeps, and the experiments that come with the program. With a PATH, call Ray Tune's `ls` for it."""
    if path is not None:
        ctx.invoke(ray_command("ls"), experiment_path=str(Path(path).resolve()))
        return
    from tuner.experiment.shipped_files import shipped as shipped_files
    from tuner.experiment.shipped_files import shipped_text
    from tuner.report.status import status_text, status_values

    sweeps = None if shipped else status_values(Path(storage), None, compose=as_json)
    if as_json:
        print_json({"shipped": {path.name: str(path) for path in shipped_files().values()}, **(sweeps or {})})
        return
    click.echo(shipped_text() if sweeps is None else f"{shipped_text()}\n\n{status_text(sweeps)}")


@click.command("cp")
@name_argument
@click.argument("destination", type=click.Path(), default=".")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def tune_cp(name: str, destination: str, force: bool) -> None:
    """Copy an experiment file that comes with the program into this folder, so that you can edit it."""
    from tuner.experiment.shipped_files import copy_shipped

    click.echo(f"wrote {copy_shipped(name, Path(destination), force=force)}")


@click.command("report", short_help="Write an HTML page with the trials, the plots and the budget.")
@name_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The page to write (default: report.html in the sweep's folder).",
)
@storage_option
def tune_report(name: str, out: Path | None, storage: str) -> None:
    """Write one self-contained HTML page with the trials, the plots and the budget."""
    from tuner.report.status import write_report
    from tuner.sweep.folder import find_sweep

    click.echo(f"wrote {write_report(find_sweep(Path(storage), name), out)}")


@click.command("ui")
@click.option("--uri", default="sqlite:///runs/mlflow.db", show_default=True, help="Tracking store to show.")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
def tune_ui(uri: str, port: int) -> None:
    """Serve MLflow's web pages on this machine. Ctrl-C stops the server."""
    from tuner.recorder.ui import serve_ui

    sys.exit(serve_ui(uri, port=port))
