"""Finding an experiment file and loading it: syntax, types and gates in one pass, every problem reported at once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

import tuner
from search_spaces import parse_space
from search_spaces.domains import show
from tuner.errors import ExperimentError, InputError, Problem
from tuner.experiment import yamlfile
from tuner.experiment.gates import GATES
from tuner.experiment.model import Experiment
from tuner.experiment.resolving import resolved_space
from tuner.experiment.wording import rule_and_mend
from tuner.experiment.yamlfile import Document
from tuner.study.unimodal_options import assumed

__all__ = ["find", "load", "loads", "shipped"]

_LARGEST_FILE = 1_000_000
_PLACEHOLDERS: dict[yamlfile.Path, object] = {
    ("name",): "placeholder",
    ("dataset", "name"): "digits",
    ("trainable", "method"): "placeholder",
    ("privacy", "epsilon"): 1.0,
}


def shipped() -> dict[str, Path]:
    """Return the experiment files that come with the project, by name without ``.yaml``.

    In a checkout they stand in ``experiments/`` beside the package, in an installed wheel in ``tuner/shipped``.
    """
    package = Path(tuner.__file__).parent
    checkout = package.parent / "experiments"
    folder = checkout if (package.parent / "pyproject.toml").is_file() and checkout.is_dir() else package / "shipped"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find(name: str) -> tuple[Path, Literal["local", "shipped"]]:
    """Return the file that ``name`` means: a local path first, else the shipped file of that name.

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
    found = "a folder" if local.is_dir() else "no file there"
    raise InputError(f"{name} must be an experiment file, or the name of a shipped one, got {found}. {fix}")


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load an experiment file.

    Args:
        path: the file.
        overrides: ``path.to.key=value`` options of ``--set``, applied in their order.

    Raises:
        ExperimentError: all problems at once, each with its ``file:line``, in file order.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ExperimentError([_whole(path, "the file must be an experiment file", f"{path.stat().st_size} bytes")])
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExperimentError(
            [_whole(path, "the file must be UTF-8 text", f"byte {error.start} that is not")]
        ) from error
    except OSError as error:
        raise ExperimentError([_whole(path, "the file must be readable", error.strerror or str(error))]) from error
    return loads(text, overrides, source=str(path))


def loads(text: str, overrides: Sequence[str] = (), *, source: str = "experiment") -> Experiment:
    """Load an experiment from its text; ``source`` is what the problems call the file.

    Raises:
        ExperimentError: as for `load`.
    """
    document = yamlfile.parse(text, source=source)
    if document.values is None:
        raise ExperimentError(document.problems)
    document.override(overrides)
    experiment, malformed, problems = _validate(document)
    problems = [(_place(problem), problem) for problem in document.problems] + problems
    problems += _gate(document, experiment, malformed)
    if problems:
        raise ExperimentError(problem for _, problem in sorted(problems, key=lambda each: each[0]))
    return _resolved(experiment)


def _resolved(experiment: Experiment) -> Experiment:
    """Write the space out in full; this is what is stored and compared.

    A domain of the noise stands in it with all others, and what is unimodal is declared where that is looked for.
    """
    search, privacy = experiment.search, experiment.privacy
    space = resolved_space(search.space, method=experiment.trainable.method, trials=search.trials)
    if isinstance(privacy.noise_multiplier, dict):
        space["noise_multiplier"] = privacy.noise_multiplier
        privacy = privacy.model_copy(update={"noise_multiplier": "auto"})
    if search.is_unimodal:
        space = assumed(parse_space(space, method=experiment.trainable.method)).to_spec()
    return experiment.model_copy(update={"search": search.model_copy(update={"space": space}), "privacy": privacy})


Placed = tuple[int, Problem]


def _whole(path: Path, rule: str, value: str) -> Problem:
    return Problem(where=str(path), key="file", rule=rule, value=value)


def _place(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdigit() and not problem.where.startswith("--set") else 1_000_000_000


def _problem(document: Document, path: yamlfile.Path, rule: str, value: str, fix: str) -> Placed:
    key = ".".join(map(str, path)) or "file"
    return document.order(path), Problem(where=document.where(path), key=key, rule=rule, value=value, fix=fix)


def _validate(document: Document) -> tuple[Experiment, set[yamlfile.Path], list[Placed]]:
    """Check types and ranges; what is malformed is reported and replaced, so that the gates can judge the rest."""
    values = copy.deepcopy(document.values) or {}
    malformed: set[yamlfile.Path] = set()
    problems: list[Placed] = []
    while True:
        try:
            return Experiment.model_validate(values), malformed, problems
        except ValidationError as invalid:
            # What is missing comes last: it may take the whole section with it.
            for error in sorted(invalid.errors(include_url=False), key=lambda each: each["type"] == "missing"):
                rule, fix = rule_and_mend(error)
                missing = error["type"] == "missing"
                path = error["loc"] if missing else _remove(values, error["loc"])
                if missing and path not in _PLACEHOLDERS:
                    # Of a section that may be left out: the rest is judged without it.
                    _remove(values, path[:-1])
                value = document.spelled(path)
                if error["type"] == "extra_forbidden":
                    value = str(path[-1])
                problems.append(_problem(document, path, rule, "nothing" if value is None else value, fix))
                malformed.add(path)
            for place, stand_in in _PLACEHOLDERS.items():
                _fill(values, place, stand_in)


def _remove(values: dict[str, Any], path: yamlfile.Path) -> yamlfile.Path:
    """Take the malformed value out and return its place: the last key of ``path`` that stands in the file."""
    at: Any = values
    for depth, key in enumerate(path):
        below = at.get(str(key)) if isinstance(at, dict) else None
        if depth + 1 == len(path) or not isinstance(below, dict) or str(path[depth + 1]) not in below:
            at.pop(str(key), None)
            return path[: depth + 1]
        at = below
    return path


def _fill(values: dict[str, Any], path: yamlfile.Path, stand_in: object) -> None:
    at: Any = values
    for key in path[:-1]:
        at = at.setdefault(str(key), {})
        if not isinstance(at, dict):
            return
    at.setdefault(str(path[-1]), stand_in)


def _touches(path: yamlfile.Path, needs: Iterable[yamlfile.Path]) -> bool:
    """Whether a malformed ``path`` lies on, above or below one of ``needs``."""
    return any(path[: len(need)] == need or need[: len(path)] == path for need in needs)


def _gate(document: Document, experiment: Experiment, malformed: set[yamlfile.Path]) -> list[Placed]:
    found = []
    for gate, needs in GATES:
        if any(_touches(path, needs) for path in malformed):
            continue
        for finding in gate(experiment):
            value = finding.value or document.spelled(finding.path) or show(_value(experiment, finding.path))
            found.append(_problem(document, finding.path, finding.rule, value, finding.fix))
    return found


def _value(experiment: Experiment, path: yamlfile.Path) -> object:
    value: Any = experiment.model_dump(by_alias=True)
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
