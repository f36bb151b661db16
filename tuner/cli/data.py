"""Commands of `tune data`: a check of the user's own data, for the operator alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from tuner.cli.options import json_option, print_answer
from tuner.errors import InputError

__all__ = ["tune_data"]


@click.group("data", short_help="Check your own data file, for people who may see its records.")
def tune_data() -> None:
    """Check your own data files. The output is only for people who may see the records."""


@tune_data.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--unit",
    type=click.Choice(["record", "user"]),
    help="What the searches will protect. Default: user if the file has the array user_train, else record.",
)
@click.option(
    "--task",
    type=click.Choice(["classification", "binary", "regression"]),
    default="classification",
    show_default=True,
    help="Task of the searches (trainable.task), which decides what labels are valid: classes, two classes or numbers.",
)
@json_option
def data_check(file: Path, unit: Literal["record", "user"] | None, task: str, as_json: bool) -> None:
    """Check an npz FILE with your own records: types, labels, scale, duplicates, users.

    The output is EXACT: it has no noise, and no guarantee covers it. Do not share the output, and do not use it to
    choose settings of a search that others will see. Nothing is charged, and no file is written.

    Exit codes: 0 if `tune run` can use the file, 2 if `tune run` would refuse it.
    """
    from tuner.report.data_check import check_values, data_text

    values = check_values(file, unit=unit, task=task)
    print_answer(values, data_text(values), as_json=as_json)
    sys.exit(0 if values["usable"] else InputError.exit_code)
