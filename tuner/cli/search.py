"""Commands that train: init, run, resume, train, export."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import click

from tuner.cli.options import (
    address_option,
    data_option,
    file_argument,
    json_option,
    name_argument,
    notify_option,
    notifying,
    run_options,
    storage_option,
)

__all__ = ["tune_export", "tune_init", "tune_resume", "tune_run", "tune_train"]


_OUT = "Output folder (default: exports/NAME, or exports/ID if the first has other files)."


@contextmanager
def _sender() -> Iterator[None]:
    """Let the process that sends the records load MLflow while this one plans."""
    from tuner.recorder.sender_process import end_early, start_early

    start_early()
    try:
        yield
    finally:
        end_early()


@click.command("init")
@click.argument("path", type=click.Path(dir_okay=False), default="experiment.yaml")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def tune_init(path: str, force: bool) -> None:
    """Write a commented experiment file to start from."""
    from tuner.experiment.shipped_files import write_template

    write_template(Path(path), force=force)
    click.echo(f"wrote {path}. Next: tune plan {shlex.quote(path)}")


@click.command("run")
@file_argument
@run_options
@address_option
@click.option("--resume", is_flag=True, help="Resume the newest sweep of this experiment.")
@click.option("--dry-run", is_flag=True, help="Check everything and print the plan, but start nothing.")
@click.option(
    "--void-total",
    metavar="REASON",
    help="Run a public or non-private search although its records may be private. The guarantee for all searches on "
    "these records together is then void. The ledger keeps REASON for ever, and every view shows it.",
)
@click.option(
    "--dataset-cap",
    metavar="EPSILON[,DELTA]",
    help="Before this search starts, set a cap on ALL searches on the data set together, for example 3,1e-5. If the "
    "data set has a cap already, both must be equal. Default of DELTA: privacy.delta. Only the ledger's owner can set "
    "a cap.",
)
@notify_option
def tune_run(
    file: str,
    overrides: tuple[str, ...],
    resume: bool,
    dry_run: bool,
    dataset_cap: str | None,
    notify: str | None,
    **run: Any,  # noqa: ANN401
) -> None:
    """Run a search. FILE is a path or the name of a shipped experiment (`tune ls` lists them)."""
    with nullcontext() if dry_run else _sender(), notifying(notify):
        from tuner.runner.commands import RunOptions, run_file

        sys.exit(run_file(file, overrides, RunOptions(**run), resume=resume, dry_run=dry_run, cap=dataset_cap))


@click.command("resume", short_help="Resume an interrupted sweep, or extend a finished one.")
@name_argument
@run_options
@address_option
@storage_option
@notify_option
def tune_resume(name: str, overrides: tuple[str, ...], storage: str, notify: str | None, **run: Any) -> None:  # noqa: ANN401
    """Resume an interrupted sweep, or extend a finished one with more trials (--set search.trials=N).

    The noise, the data and the cap do not change, so additional trials can only use what is left of the cap. With
    `noise_multiplier: auto`, something is left only if trials were pruned or stopped early.
    """
    with _sender(), notifying(notify):
        from tuner.runner.commands import RunOptions, resume_sweep
        from tuner.sweep.folder import find_sweep

        sys.exit(resume_sweep(find_sweep(Path(storage), name), overrides, RunOptions(**run)))


@click.command("train", short_help="Train one exported configuration, and charge this run to the ledger.")
@file_argument
@run_options
@click.option("--out", type=click.Path(path_type=Path), help=_OUT)
def tune_train(file: str, overrides: tuple[str, ...], out: Path | None, **run: Any) -> None:  # noqa: ANN401
    """Train one exported configuration, charge this run to the ledger, and export its model and privacy card."""
    from tuner.runner.commands import RunOptions, train_file

    sys.exit(train_file(file, overrides, RunOptions(**run), out=out))


@click.command("export", short_help="Export the best trial's model, configuration and privacy card.")
@name_argument
@click.option("--out", type=click.Path(path_type=Path), help=_OUT)
@click.option(
    "--by",
    type=click.Choice(["curve", "score"]),
    help="How to choose the trial: `score` takes the best score. `curve` takes the top of the curve that a unimodal "
    "search fits. `curve` is refused if the scores contradict a single top. Default: the committed run if there is "
    "one, else `score`.",
)
@storage_option
@data_option
@json_option
def tune_export(
    name: str, out: Path | None, by: Literal["curve", "score"] | None, storage: str, data_dir: str | None, as_json: bool
) -> None:
    """Export the best trial: its model, its configuration as an experiment file, and its privacy card."""
    from tuner.runner.commands import RunOptions, export_command
    from tuner.sweep.folder import find_sweep

    options = RunOptions(data_dir=data_dir, as_json=as_json)
    sys.exit(export_command(find_sweep(Path(storage), name), out, options, by=by))
