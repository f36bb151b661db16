"""Commands that check and price an experiment without running it: plan, validate."""

from __future__ import annotations

import sys

import click

from tuner.cli.options import data_option, file_argument, json_option, print_json, set_option
from tuner.errors import InputError

__all__ = ["tune_plan", "tune_validate"]


@click.command("validate")
@click.argument("files", nargs=-1, required=True)
@set_option
def tune_validate(files: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Check experiment files and report all problems at once. Nothing is run."""
    from tuner.runner.file_check import check_file

    checked = [check_file(name, overrides) for name in files]
    for file in checked:
        click.echo(file.text, err=not file.valid)
        for warning in file.warnings:
            click.echo(warning, err=True)
    sys.exit(0 if all(file.valid for file in checked) else InputError.exit_code)


@click.command("plan", short_help="Show what a search will cost. No trial is run.")
@file_argument
@set_option
@data_option
@json_option
@click.option(
    "--timing/--no-timing",
    default=True,
    help="Measure the time of a few steps on random numbers, to estimate the wall time.",
)
def tune_plan(file: str, overrides: tuple[str, ...], data_dir: str | None, as_json: bool, timing: bool) -> None:
    """Show what a search will cost: trials, steps, ε of one trial and of all trials, noise, time. No trial is run."""
    from tuner.runner.planning import plan_command

    values, refusal = plan_command(
        file, overrides, data_dir=data_dir, timing=timing, say=None if as_json else click.echo
    )
    if as_json:
        print_json(values)
    if refusal is not None:
        raise refusal
