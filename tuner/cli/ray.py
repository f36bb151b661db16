"""Ray Tune's own commands. They accept relative paths here, and print error messages instead of tracebacks."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner.errors import InputError

__all__ = ["RAY", "ray_command"]

RAY = ("list-trials", "list-experiments", "lsx", "add-note")
"""Names of Ray's commands that our program offers. Ray's `ls` is missing here, because our own `ls` calls it."""

_PATHS = {"list-experiments": "project_path", "lsx": "project_path", "add-note": "path"}


def ray_command(name: str) -> click.Command:
    """Return Ray's command of this name. Ray is imported only when this function is called."""
    from ray.tune.cli.scripts import cli as ray_cli

    command: click.Command = copy.copy(ray_cli.commands[name])
    if command.callback is not None:
        command.callback = partial(_called, name, command.callback)
    return command


def _called(name: str, callback: Callable[..., Any], **values: Any) -> None:  # noqa: ANN401 - Ray's options
    key = _PATHS.get(name, "experiment_path")
    folder = Path(values[key]).expanduser().resolve()
    if not folder.is_dir():
        raise InputError(
            "folder-not-found", f"No folder {values[key]} found for `tune {name}`. List sweeps with: tune ls"
        )
    if key == "experiment_path" and not any(folder.glob("experiment_state-*.json")):
        # Our sweeps keep no records of Ray, because these could show what our own records must hide.
        raise InputError(
            "no-ray-experiment",
            f"{values[key]} contains no files of Ray Tune, which `tune {name}` needs. For a sweep of this program use: "
            f"tune show {folder.name}",
        )
    try:
        if key == "project_path":
            _list_experiments(folder, callback, values)
        else:
            callback(**{**values, key: str(folder)})
    except (click.ClickException, click.Abort):
        raise
    except Exception as error:  # Ray and its libraries raise errors of any kind
        raise InputError(
            "no-ray-experiment", f"`tune {name}` cannot read {values[key]} ({type(error).__name__}: {error})."
        ) from error


def _list_experiments(folder: Path, callback: Callable[..., Any], values: dict[str, Any]) -> None:
    """Let Ray list only folders of experiments. Ray itself would also list the folders of MLflow's artifacts."""
    from tuner.sweep.folder import list_sweeps

    ours = {sweep.root: sweep.hides_runs for sweep in list_sweeps(folder)}
    theirs = {path.resolve() for path in folder.iterdir() if path.is_dir() and any(path.rglob("experiment_state-*"))}
    with tempfile.TemporaryDirectory() as shown:
        for root in ours.keys() | theirs:
            place = Path(shown) / root.name
            if ours.get(root):
                place.mkdir()  # an empty folder, so that nobody can count the runs of a sealed search
            else:
                place.symlink_to(root, target_is_directory=True)
        callback(**{**values, "project_path": shown})
    if ours:
        click.echo("For the sweeps of this program use: tune ls", err=True)
