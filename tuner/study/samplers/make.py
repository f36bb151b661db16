"""Creation of a sampler by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.study import names
from tuner.study.samplers.request import SamplerRequest

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from tuner.study.suggest import GridSpace
    from tuner.study.unimodal.options import Unimodality

__all__ = ["make_sampler"]


def make_sampler(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    seed: int,
    trials_before: int = 0,
    space: GridSpace | None = None,
    secret: bool = False,
    unimodality: Unimodality | None = None,
) -> BaseSampler:
    """Create a sampler by its name. See `SamplerRequest` for the arguments.

    Raises:
        tuner.errors.InputError: the name or an option is unknown, a value is invalid, a required argument is missing,
            or a sealed search cannot use this sampler.
    """
    options = dict(options or {})
    canonical = names.canonical_sampler(name)
    problems = names.sampler_problems(name, options)
    if canonical is None:
        raise InputError("sampler-unknown", " ".join(problems))
    if problems:
        raise InputError("option-invalid", " ".join(problems))
    if secret and canonical not in names.SECRET_SAMPLERS:
        raise InputError(
            "sampler-not-secret",
            f"The sampler {name!r} cannot be used in a sealed search. Use {' or '.join(names.SECRET_SAMPLERS)}.",
        )
    build: Callable[[SamplerRequest], BaseSampler] = import_module(f"tuner.study.samplers.{canonical}").build
    return build(
        SamplerRequest(
            name=name,
            options=options,
            seed=seed,
            trials_before=trials_before,
            space=space,
            secret=secret,
            unimodality=unimodality,
        )
    )
