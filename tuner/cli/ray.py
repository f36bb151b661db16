"""Ray Tune's own commands, carried along: relative paths will do, and what goes wrong is a message."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner.errors import InputError
from tuner.sweep.folder import list_sweeps

__all__ = ["RAY", "ray_command"]

RAY = ("list-trials", "list-experiments", "lsx", "add-note")
"""Those that stand beside ours; Ray's `ls` is reached by ours, with a path."""

_PATHS = {"list-experiments": "project_path", "lsx": "project_path", "add-note": "path"}


def ray_command(name: str) -> click.Command:
    """Ray's command of that name; Ray is imported only here."""
    from ray.tune.cli.scripts import cli as ray_cli

    command: click.Command = copy.copy(ray_cli.commands[name])
    if command.callback is not None:
        command.callback = partial(_called, name, command.callback)
    return command


def _called(name: str, callback: Callable[..., Any], **values: Any) -> None:  # noqa: ANN401 - whatever Ray takes
    key = _PATHS.get(name, "experiment_path")
    folder = Path(values[key]).expanduser().resolve()
    if not folder.is_dir():
        raise InputError(f"{name} takes a folder that is there, got {values[key]}. See: tune ls")
    if key == "experiment_path" and not any(folder.glob("experiment_state-*.json")):
        # Of a sweep of ours nothing of Ray's is kept: its records would say more than ours may.
        raise InputError(
            f"{name} reads what Ray Tune itself wrote, got {values[key]} without it. For a sweep of this program: "
            f"tune show {folder.name}"
        )
    try:
        if key == "project_path":
            _list_experiments(folder, callback, values)
        else:
            callback(**{**values, key: str(folder)})
    except (click.ClickException, click.Abort):
        raise
    except Exception as error:  # Ray's and its libraries', of any kind
        raise InputError(f"{name} cannot read {values[key]}: {type(error).__name__}: {error}") from error


def _list_experiments(folder: Path, callback: Callable[..., Any], values: dict[str, Any]) -> None:
    """Ray takes every folder for an experiment, MLflow's artifacts too: it is shown those that are one."""
    ours = {sweep.root: sweep.is_sealed for sweep in list_sweeps(folder)}
    theirs = {path.resolve() for path in folder.iterdir() if path.is_dir() and any(path.rglob("experiment_state-*"))}
    with tempfile.TemporaryDirectory() as shown:
        for root in ours.keys() | theirs:
            place = Path(shown) / root.name
            if ours.get(root):
                place.mkdir()  # how many runs a sealed search has made so far is nobody's to count
            else:
                place.symlink_to(root, target_is_directory=True)
        callback(**{**values, "project_path": shown})
    if ours:
        click.echo("Sweeps of this program are told in full by: tune ls", err=True)
