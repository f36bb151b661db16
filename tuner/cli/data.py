"""Commands of `tune data`: a check of the user's own data, for the operator alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from tuner.cli.options import json_option, print_answer
from tuner.errors import InputError

__all__ = ["tune_data"]


@click.group("data", short_help="Check your own data file before a search (for the operator only).")
def tune_data() -> None:
    """Commands about your own data files. Their output is for the operator only."""


@tune_data.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--unit",
    type=click.Choice(["record", "user"]),
    help="What the searches will protect (default: users if the file has user_train).",
)
@click.option(
    "--task",
    type=click.Choice(["classification", "binary", "regression"]),
    default="classification",
    show_default=True,
    help="What a model learns from the labels.",
)
@json_option
def data_check(file: Path, unit: Literal["record", "user"] | None, task: str, as_json: bool) -> None:
    """Check an npz FILE with your own records: types, labels, scale, duplicates, users.

    The output is EXACT: it has no noise, and no guarantee covers it. Do not share it, and do not use it to
    choose settings of a search that others will see. Nothing is charged, and nothing is written outside the terminal.

    Exit codes: 0 if `tune run` can use the file, 2 if it would refuse it.
    """
    from tuner.report.data_check import check_values, data_text

    values = check_values(file, unit=unit, task=task)
    print_answer(values, data_text(values), as_json=as_json)
    sys.exit(0 if values["usable"] else InputError.exit_code)
