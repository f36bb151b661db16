"""Edits of a sweep's files, and commands that must be refused and change no file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml
from command_fakes import Said, Tune


def everything(tune: Tune) -> dict[str, bytes]:
    """Every file of the folder but locks, and the ledger's rows in the place of its pages."""
    kept = (path for path in tune.folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    files = {str(path): path.read_bytes() for path in kept if not path.name.startswith(("ledger.db", "mlflow.db"))}
    return {**files, "ledger": "\n".join(tune.entries).encode()}


def write_named(tune: Tune, name: str, **changes: object) -> str:
    """An experiment file for the data set of that name, and called so itself."""
    return tune.write(f"{name}.yaml", name=name, dataset__name=name, **changes)


def edit_yaml(sweep: Path, changes: Mapping[str, object]) -> None:
    file = sweep / "experiment.yaml"
    values = yaml.safe_load(file.read_text())
    for key, value in changes.items():
        *sections, last = key.split(".")
        place = values
        for section in sections:
            place = place[section]
        assert last in place
        assert place[last] != value
        place[last] = value
    file.write_text(yaml.safe_dump(values, sort_keys=False))


def edit_plan(sweep: Path, changes: Mapping[str, object]) -> None:
    file = sweep / "plan.json"
    values = json.loads(file.read_text())
    assert all(key in values and values[key] != value for key, value in changes.items())
    file.write_text(json.dumps({**values, **changes}, indent=2))


def refused(tune: Tune, scored: list[str], *words: str, code: int = 1) -> Said:
    """Run a command that must be refused, and must leave everything as it is."""
    before, seen = everything(tune), list(scored)
    said = tune(*words, code=code)
    assert everything(tune) == before, "a refusal writes nothing"
    assert scored == seen, "and scores nothing"
    return said
