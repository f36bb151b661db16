"""Options that several commands share, and the output of values as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

__all__ = [
    "address_option",
    "data_option",
    "file_argument",
    "json_option",
    "local_option",
    "name_argument",
    "notify_option",
    "notifying",
    "print_answer",
    "print_json",
    "quiet_option",
    "run_options",
    "set_option",
    "storage_option",
]

file_argument = click.argument("file", type=str)
name_argument = click.argument("name")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one value of the experiment file, for example search.trials=4. Repeatable.",
)
data_option = click.option(
    "--data-dir", type=click.Path(), envvar="DP_TUNER_DATA", help="Folder with the data sets (default ./data)."
)
storage_option = click.option(
    "--storage",
    type=click.Path(),
    default="runs",
    envvar="DP_TUNER_STORAGE",
    show_default=True,
    help="Folder that contains the sweeps.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object to standard output.")
local_option = click.option("--local", is_flag=True, help="Run in this process, one trial at a time, without Ray.")
address_option = click.option("--address", help="Address of a Ray cluster (default: this machine only).")
quiet_option = click.option("--quiet", is_flag=True, help="Print only important lines, without the live view.")


notify_option = click.option(
    "--notify",
    metavar="COMMAND",
    help="Shell command to run when the sweep ends or fails. The variable DP_TUNER_EXIT_CODE has the exit code.",
)


@contextmanager
def notifying(command: str | None) -> Iterator[None]:
    """Run a shell command at the end of the block, with the exit code of this program in its environment."""
    code = 0
    try:
        yield
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        raise
    except BaseException as error:
        code = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1)
        raise
    finally:
        if command is not None:
            subprocess.run(command, shell=True, env={**os.environ, "DP_TUNER_EXIT_CODE": str(code)}, check=False)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every training command has."""
    for option in (json_option, quiet_option, local_option, data_option, set_option):
        command = option(command)
    return command


def print_json(values: object) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(values, indent=2, default=str))


def print_answer(values: object, text: str, *, as_json: bool) -> None:
    """Print the answer of a command, as JSON or as text."""
    print_json(values) if as_json else click.echo(text)
