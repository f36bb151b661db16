"""Finding and loading of experiment files: syntax, types and gates, with all problems reported at once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

import tuner
from search_spaces.domains import as_yaml
from tuner.errors import ExperimentError, InputError, Problem
from tuner.experiment import yamlfile
from tuner.experiment.gates import GATES, Draft
from tuner.experiment.model import Experiment
from tuner.experiment.wording import broken_rule
from tuner.experiment.yamlfile import Document

__all__ = ["find_file", "load_experiment", "parse_experiment", "shipped"]

_LARGEST_FILE = 1_000_000
_PLACEHOLDERS: dict[yamlfile.Path, object] = {
    ("name",): "placeholder",
    ("dataset", "name"): "digits",
    ("trainable", "method"): "placeholder",
    ("privacy", "epsilon"): 1.0,
}


def shipped() -> dict[str, Path]:
    """Return the experiment files of the project, by name without ``.yaml``.

    In a checkout they are in ``experiments/`` next to the package, in an installed wheel in ``tuner/shipped``.
    """
    package = Path(tuner.__file__).parent
    checkout = package.parent / "experiments"
    folder = checkout if (package.parent / "pyproject.toml").is_file() and checkout.is_dir() else package / "shipped"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_file(name: str) -> tuple[Path, Literal["local", "shipped"]]:
    """Return the file of this name: a local path first, else the shipped file.

    Raises:
        InputError: there is neither.
    """
    local = Path(name).expanduser()
    if local.is_file():
        return local, "local"
    files = shipped()
    stem = local.name.removesuffix(".yaml").removesuffix(".yml")
    if local.parent in (Path(), Path("experiments")) and stem in files:
        return files[stem], "shipped"
    near = difflib.get_close_matches(stem, files, n=1)
    fix = f"Did you mean {near[0]}.yaml?" if near else f"Shipped are {', '.join(f'{each}.yaml' for each in files)}."
    found = "is a folder, not an experiment file" if local.is_dir() else "is neither a file nor a shipped experiment"
    raise InputError("experiment-not-found", f"{name} {found}. {fix}")


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load an experiment file.

    Args:
        path: the file.
        overrides: ``path.to.key=value`` options of ``--set``, applied in their order.

    Raises:
        ExperimentError: all problems at once, each with its ``file:line``, in file order.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise _unreadable(path, f"an experiment file has at most {_LARGEST_FILE} bytes", f"{size} bytes")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, "the file must be UTF-8 text", f"another byte at {error.start}") from error
    except OSError as error:
        raise _unreadable(path, "the file cannot be read", error.strerror or str(error)) from error
    return parse_experiment(text, overrides, source=str(path))


def parse_experiment(text: str, overrides: Sequence[str] = (), *, source: str = "experiment") -> Experiment:
    """Load an experiment from its text; ``source`` is the file's name in its problems.

    Raises:
        ExperimentError: as for `load_experiment`.
    """
    document = yamlfile.parse(text, source=source)
    if document.values is None:
        raise ExperimentError(document.problems)
    document.override(overrides)
    experiment, malformed, problems = _validate(document)
    problems = [(_place(problem), problem) for problem in document.problems] + problems
    draft = Draft(experiment)
    problems += _gate(document, draft, malformed)
    if problems or draft.resolved is None:
        raise ExperimentError(problem for _, problem in sorted(problems, key=lambda each: each[0]))
    return experiment.with_space(draft.resolved)


Placed = tuple[int, Problem]


def _unreadable(path: Path, rule: str, value: str) -> ExperimentError:
    return ExperimentError([Problem(code="file-unreadable", where=str(path), key="file", rule=rule, value=value)])


def _place(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdigit() and not problem.where.startswith("--set") else 1_000_000_000


def _problem(document: Document, code: str, path: yamlfile.Path, rule: str, value: str, fix: str) -> Placed:
    key = ".".join(map(str, path)) or "file"
    problem = Problem(code=code, where=document.where(path), key=key, rule=rule, value=value, fix=fix)
    return document.order(path), problem


def _validate(document: Document) -> tuple[Experiment, set[yamlfile.Path], list[Placed]]:
    """Check types and ranges. A malformed value is reported and replaced, so that the gates can examine the rest."""
    values = copy.deepcopy(document.values) or {}
    malformed: set[yamlfile.Path] = set()
    problems: list[Placed] = []
    while True:
        try:
            return Experiment.model_validate(values), malformed, problems
        except ValidationError as invalid:
            # Missing keys come last: they may take the whole section with them.
            for error in sorted(invalid.errors(include_url=False), key=lambda each: each["type"] == "missing"):
                code, rule, fix = broken_rule(error)
                missing = error["type"] == "missing"
                path = error["loc"] if missing else _remove(values, error["loc"])
                if missing and path not in _PLACEHOLDERS:
                    # The section is optional: the rest is examined without it.
                    _remove(values, path[:-1])
                value = document.spelled(path)
                if error["type"] == "extra_forbidden":
                    value = str(path[-1])
                problems.append(_problem(document, code, path, rule, "nothing" if value is None else value, fix))
                malformed.add(path)
            for place, placeholder in _PLACEHOLDERS.items():
                _fill(values, place, placeholder)


def _remove(values: dict[str, Any], path: yamlfile.Path) -> yamlfile.Path:
    """Remove the malformed value. Return the longest prefix of `path` that exists in the file."""
    at: Any = values
    for depth, key in enumerate(path):
        below = at.get(str(key)) if isinstance(at, dict) else None
        if depth + 1 == len(path) or not isinstance(below, dict) or str(path[depth + 1]) not in below:
            at.pop(str(key), None)
            return path[: depth + 1]
        at = below
    return path


def _fill(values: dict[str, Any], path: yamlfile.Path, placeholder: object) -> None:
    at: Any = values
    for key in path[:-1]:
        at = at.setdefault(str(key), {})
        if not isinstance(at, dict):
            return
    at.setdefault(str(path[-1]), placeholder)


def _touches(path: yamlfile.Path, needs: Iterable[yamlfile.Path]) -> bool:
    """Whether a malformed ``path`` is on, above or below one of ``needs``."""
    return any(path[: len(need)] == need or need[: len(path)] == path for need in needs)


def _gate(document: Document, draft: Draft, malformed: set[yamlfile.Path]) -> list[Placed]:
    found = []
    for gate in GATES:
        if any(_touches(path, gate.needs) for path in malformed):
            continue
        for finding in gate.check(draft):
            path = finding.path
            value = finding.value or document.spelled(path) or as_yaml(_value(draft.experiment, path))
            found.append(_problem(document, finding.code, path, finding.rule, value, finding.fix))
    return found


def _value(experiment: Experiment, path: yamlfile.Path) -> object:
    value: Any = experiment.model_dump(by_alias=True)
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
