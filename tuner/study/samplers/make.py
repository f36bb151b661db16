"""Function that creates a sampler from its name. This module does not import Optuna."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.study import names

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from tuner.study.suggest import GridSpace
    from tuner.study.surrogate.setting import SearchSetting
    from tuner.study.unimodal.options import Unimodality

__all__ = ["SamplerRequest", "make_sampler"]


@dataclass(frozen=True, kw_only=True)
class SamplerRequest:
    """Arguments of a sampler's `build` function.

    Attributes:
        name: the sampler's name as the user wrote it, for messages.
        options: options with checked names and unchecked values.
        seed: public seed of the search.
        trials_before: number of trials that are already in the storage.
        space: search space, which only the samplers ``grid`` and ``surrogate`` need.
        secret: whether all randomness must come from a secret key instead of `seed`. A sealed search needs
            this, because anyone who knows the seed could find out how many candidates came before the winner.
        unimodality: facts about the search that only the sampler ``unimodal`` needs.
        setting: facts about the search that only the sampler ``surrogate`` needs.
    """

    name: str
    options: Mapping[str, Any]
    seed: int
    trials_before: int
    space: GridSpace | None
    secret: bool
    unimodality: Unimodality | None
    setting: SearchSetting | None = None

    @property
    def next_seed(self) -> int:
        """Seed of a sampler that starts after `trials_before` trials. For a new sweep, it equals `seed`.

        The state of a sampler's random generator is not stored. With an unchanged seed, a resumed sweep would propose
        its first configurations again and be charged for them again.
        """
        if self.trials_before == 0:
            return self.seed
        return random.Random(f"{self.seed}/{self.trials_before}").getrandbits(32)


def make_sampler(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    seed: int,
    trials_before: int = 0,
    space: GridSpace | None = None,
    secret: bool = False,
    unimodality: Unimodality | None = None,
    setting: SearchSetting | None = None,
) -> BaseSampler:
    """Create a sampler from its name. See `SamplerRequest` for the arguments.

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
            setting=setting,
        )
    )
