"""Commands that show and control sweeps: status, watch, show, stop, rm, sync, report, compare, ui, ls, cp."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli.options import json_option, name_argument, print_answer, print_json, storage_option
from tuner.cli.ray import ray_command

__all__ = [
    "tune_compare",
    "tune_cp",
    "tune_ls",
    "tune_report",
    "tune_rm",
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
    """Ask a running sweep to stop: running trials finish, no new trial starts, and `tune resume` continues the sweep.

    A sealed search that is stopped releases nothing, but stays charged as a whole. `tune resume` completes the search.
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


@click.command("watch", short_help="Show the progress of a sweep until it ends.")
@name_argument
@storage_option
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Polling interval in seconds."
)
def tune_watch(name: str, storage: str, every: float) -> None:
    """Show the progress of a sweep that runs in another process, until the sweep ends."""
    from tuner.report.status import follow_sweep
    from tuner.sweep.folder import find_sweep

    follow_sweep(find_sweep(Path(storage), name), every=every)


@click.command("show", short_help="List the trials of a sweep, or show one trial with its scores.")
@name_argument
@click.argument("trial", required=False)
@storage_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the trials as comma-separated values.")
def tune_show(name: str, trial: str | None, storage: str, as_json: bool, as_csv: bool) -> None:
    """List the trials of a sweep, or show one TRIAL (number or id) with its scores.

    For a sealed sweep, only the winner is shown.
    """
    from tuner.report.status import trial_csv, trial_text, trial_values
    from tuner.sweep.folder import find_sweep

    if as_csv and as_json:
        raise click.UsageError("Choose one of --csv and --json.")
    values = trial_values(find_sweep(Path(storage), name), trial)
    if as_csv:
        click.echo(trial_csv(values), nl=False)
        return
    print_answer(values, trial_text(values), as_json=as_json)


@click.command("rm", short_help="Remove a sweep's folder. Its charges stay in the ledger.")
@name_argument
@storage_option
@click.option("--yes", is_flag=True, help="Also remove a sweep that can be resumed or has a result.")
def tune_rm(name: str, storage: str, yes: bool) -> None:
    """Remove the folder of a sweep: trials, checkpoints, study and unsent entries.

    The ledger keeps what was charged, MLflow keeps its runs, and exported files stay.
    """
    from tuner.sweep.folder import find_sweep
    from tuner.sweep.removal import finish_removal, remove

    click.echo(finish_removal(Path(storage), name) or remove(find_sweep(Path(storage), name), yes=yes))


@click.command("sync", short_help="Upload a sweep's unsent entries to MLflow.")
@name_argument
@storage_option
@click.option(
    "--uri", help="Upload ALL entries to this MLflow address. Default: unsent entries, to the sweep's own address."
)
def tune_sync(name: str, storage: str, uri: str | None) -> None:
    """Upload those entries of a sweep that the MLflow server has not acknowledged yet."""
    from tuner.runner.commands import sync_tracking
    from tuner.sweep.folder import find_sweep

    click.echo(sync_tracking(find_sweep(Path(storage), name), uri))


@click.command("ls", short_help="List the sweeps and the shipped experiments.")
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


@click.command("cp", short_help="Copy a shipped experiment file into this folder.")
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
    """Write one interactive HTML page with the trials, the plots and the budget. The page needs no other file."""
    from tuner.report.status import write_report
    from tuner.sweep.folder import find_sweep

    click.echo(f"wrote {write_report(find_sweep(Path(storage), name), out)}")


@click.command("compare", short_help="Write an interactive page about one sweep, or several side by side.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="compare.html",
    show_default=True,
    help="The page to write.",
)
@storage_option
def tune_compare(names: tuple[str, ...], out: Path, storage: str) -> None:
    """Write an interactive page about the sweeps NAME: ε against score, settings that differ, and charts of all trials.

    The page needs no other file. Point at a trial to see it, drag to zoom, and click on a heading to sort.
    """
    from tuner.report.status import write_comparison
    from tuner.sweep.folder import find_sweep

    click.echo(f"wrote {write_comparison([find_sweep(Path(storage), name) for name in names], out)}")


@click.command("ui", short_help="Serve MLflow's web pages on this machine.")
@click.argument("name", required=False)
@storage_option
@click.option(
    "--uri", help="MLflow store to show (default: the store of the sweep NAME, or mlflow.db in the folder of sweeps)."
)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
def tune_ui(name: str | None, storage: str, uri: str | None, port: int) -> None:
    """Serve MLflow's web pages on this machine. With NAME, show only runs of this sweep. Ctrl-C stops the server."""
    from tuner.recorder.ui import serve_ui
    from tuner.sweep.folder import find_sweep
    from tuner.sweep.status import tracked_runs

    runs = None if name is None else tracked_runs(find_sweep(Path(storage), name))
    sys.exit(serve_ui(uri or (f"sqlite:///{storage}/mlflow.db" if runs is None else runs.uri), port=port, runs=runs))
