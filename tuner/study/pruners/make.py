"""Function that creates a pruner from its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.study import names

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from tuner.study.unimodal.options import Unimodality

__all__ = ["PrunerRequest", "make_pruner"]


@dataclass(frozen=True, kw_only=True)
class PrunerRequest:
    """Arguments of a pruner's `build` function.

    Attributes:
        name: the pruner's name as the user wrote it, for messages.
        canonical: the pruner's key in `names.PRUNERS`.
        options: options with checked names and unchecked values.
        rung_steps: steps at which a complete trial reports.
        unimodality: facts about the search that only the pruner ``unimodal`` needs.
    """

    name: str
    canonical: str
    options: Mapping[str, Any]
    rung_steps: tuple[int, ...]
    unimodality: Unimodality | None


def make_pruner(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    rung_steps: Sequence[int] = (),
    unimodality: Unimodality | None = None,
) -> BasePruner:
    """Create a pruner from its name. See `PrunerRequest` for the arguments.

    Raises:
        tuner.errors.InputError: the name or an option is unknown, a value is invalid, or a required argument is
            missing.
    """
    options = dict(options or {})
    canonical = names.canonical_pruner(name)
    problems = names.pruner_problems(name, options)
    if canonical is None:
        raise InputError("pruner-unknown", " ".join(problems))
    if problems:
        raise InputError("option-invalid", " ".join(problems))
    module = "of_optuna" if canonical in names.PRUNER_CLASSES else canonical
    build: Callable[[PrunerRequest], BasePruner] = import_module(f"tuner.study.pruners.{module}").build
    return build(
        PrunerRequest(
            name=name, canonical=canonical, options=options, rung_steps=tuple(rung_steps), unimodality=unimodality
        )
    )
