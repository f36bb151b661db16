"""Create a pruner by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study import names
from tuner.study.pruners.request import PrunerRequest

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from tuner.study.unimodal.options import Unimodality

__all__ = ["make_pruner"]


def make_pruner(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    rung_steps: Sequence[int] = (),
    unimodality: Unimodality | None = None,
) -> BasePruner:
    """Create a pruner by its name: one of Optuna's, or with the module of that name in this package.

    Args:
        name: one of `names.PRUNERS`, an alias (``asha``) or an Optuna class name.
        options: constructor options, checked against `names.PRUNERS`.
        rung_steps: the steps at which trials report.
        unimodality: along which parameters the score has one top; needed by ``unimodal``.

    Raises:
        tuner.errors.InputError: the name or an option is unknown, a value is refused, or a fact that the pruner needs
            is missing.
    """
    options = dict(options or {})
    canonical = names.canonical_pruner(name)
    problems = names.pruner_problems(name, options)
    if canonical is None:
        raise InputError("pruner-unknown", " ".join(problems))
    if problems:
        raise InputError("option-invalid", " ".join(problems))
    place = "of_optuna" if canonical in names.PRUNER_CLASSES else canonical
    build: Callable[[PrunerRequest], BasePruner] = import_module(f"tuner.study.pruners.{place}").build
    return build(
        PrunerRequest(
            name=name, canonical=canonical, options=options, rung_steps=tuple(rung_steps), unimodality=unimodality
        )
    )
