"""Loader of experiment files. It reports all mistakes at once: wrong syntax, wrong types and refusals by gates."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from search_spaces.domains import as_yaml
from trainables.suggestions import meant, near, near_files
from tuner.errors import ExperimentError, InputError, Problem
from tuner.experiment import yamlfile
from tuner.experiment.gates import GATES, Draft
from tuner.experiment.model import Experiment
from tuner.experiment.shipped_files import shipped
from tuner.experiment.wording import broken_rule
from tuner.experiment.yamlfile import Document

__all__ = ["find_file", "load_experiment", "parse_experiment"]

_LARGEST_FILE = 1_000_000
_PLACEHOLDERS: dict[yamlfile.Path, object] = {
    ("name",): "placeholder",
    ("dataset", "name"): "digits",
    ("trainable", "method"): "placeholder",
    ("privacy", "epsilon"): 1.0,
}


def find_file(name: str) -> tuple[Path, Literal["local", "shipped"]]:
    """Return the path of an experiment file. A local file takes precedence over a shipped file of the same name.

    Raises:
        InputError: neither a local nor a shipped file has this name.
    """
    local = Path(name).expanduser()
    if local.is_file():
        return local, "local"
    files = shipped()
    stem = local.name.removesuffix(".yaml").removesuffix(".yml")
    if local.parent in (Path(), Path("experiments")) and stem in files:
        return files[stem], "shipped"
    found = "is a folder, not an experiment file" if local.is_dir() else "is neither a file nor a shipped experiment"
    fix = meant([*near_files(local, kinds=(".yaml", ".yml")), *(f"{each}.yaml" for each in near(stem, files))])
    fix += " `tune ls --shipped` lists the shipped experiments, and `tune init` writes a file to start from."
    raise InputError("experiment-not-found", f"{name} {found}.{fix}")


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load the experiment of a file. The overrides (``path.to.key=value``) are applied in their order.

    Raises:
        ExperimentError: all problems of the file in the order of its lines, followed by those of the overrides.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            rule, fix = (
                f"an experiment file may have at most {_LARGEST_FILE} bytes",
                "Correct the path.",
            )
            raise _unreadable(path, rule, f"{size} bytes", fix)
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule, fix = "the file must be UTF-8 text", "Save the file as UTF-8."
        raise _unreadable(path, rule, f"an invalid byte at position {error.start}", fix) from error
    except OSError as error:
        fix = "Correct the path or its permissions."
        raise _unreadable(path, "the file cannot be read", error.strerror or str(error), fix) from error
    return parse_experiment(text, overrides, source=str(path))


def parse_experiment(text: str, overrides: Sequence[str] = (), *, source: str = "experiment") -> Experiment:
    """Return the experiment of a file's text (see `load_experiment`). `source` is the file's name in messages."""
    document = yamlfile.parse(text, source=source)
    if document.values is None:
        raise ExperimentError(document.problems)
    document.override(overrides)
    experiment, malformed = _validate(document)
    draft = Draft(experiment)
    _apply_gates(document, draft, malformed)
    if document.problems or draft.resolved is None:
        raise ExperimentError(document.problems)
    # The default domains of `accounting: auto` depend on what will be chosen, so its space stays as written.
    return experiment if experiment.is_auto else experiment.with_space(draft.resolved)


def _unreadable(path: Path, rule: str, value: str, fix: str) -> ExperimentError:
    problem = Problem(code="file-unreadable", where=str(path), key="file", rule=rule, value=value, fix=fix)
    return ExperimentError([problem])


def _validate(document: Document) -> tuple[Experiment, set[yamlfile.Path]]:
    """Return the experiment after replacing malformed values by valid ones, and the paths of the malformed values.

    Each malformed value is reported as a problem of the document. The gates can then examine all other values.
    """
    values = copy.deepcopy(document.values) or {}
    malformed: set[yamlfile.Path] = set()
    while True:
        try:
            return Experiment.model_validate(values), malformed
        except ValidationError as invalid:
            # Missing keys are handled last, because the whole section of a missing key may be removed.
            for error in sorted(invalid.errors(include_url=False), key=lambda each: each["type"] == "missing"):
                code, rule, fix = broken_rule(error)
                missing = error["type"] == "missing"
                path = error["loc"] if missing else _remove(values, error["loc"])
                if missing and path not in _PLACEHOLDERS:
                    # Only optional sections have such keys, so the experiment is valid without the section.
                    _remove(values, path[:-1])
                value = document.spelled(path)
                if error["type"] == "extra_forbidden":
                    value = str(path[-1])
                document.refuse(code, path, rule, "nothing" if value is None else value, fix)
                malformed.add(path)
            for place, placeholder in _PLACEHOLDERS.items():
                _fill(values, place, placeholder)


def _remove(values: dict[str, Any], path: yamlfile.Path) -> yamlfile.Path:
    """Remove a malformed value, and return the longest initial part of `path` that exists in the file."""
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
    """Return whether `path` is a key in `needs`, contains such a key, or lies inside one."""
    return any(path[: len(need)] == need or need[: len(path)] == path for need in needs)


def _apply_gates(document: Document, draft: Draft, malformed: set[yamlfile.Path]) -> None:
    for gate in GATES:
        if any(_touches(path, gate.needs) for path in malformed):
            continue
        for finding in gate.check(draft):
            path = finding.path
            value = finding.value or document.spelled(path) or as_yaml(_value(draft.experiment, path))
            document.refuse(finding.code, path, finding.rule, value, finding.fix)


def _value(experiment: Experiment, path: yamlfile.Path) -> object:
    value: Any = experiment.model_dump(by_alias=True)
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
