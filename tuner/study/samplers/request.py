"""Arguments of samplers, and their seeds. Imports no Optuna.

A sealed search must not reveal the number of its runs. Anyone who knows the seed of a sampler can count the candidates
up to the winner. In a sealed search, the sampler therefore takes its randomness from the operating system.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.study.suggest import GridSpace
    from tuner.study.unimodal.options import Unimodality

__all__ = ["SamplerRequest", "seed_after"]


@dataclass(frozen=True, kw_only=True)
class SamplerRequest:
    """Arguments of a sampler's `build` function.

    Attributes:
        name: the sampler's name as the user wrote it, for messages.
        options: options with checked names and unchecked values.
        seed: public seed of the search.
        trials_before: number of trials that are already in the storage.
        space: search space, which only the sampler ``grid`` needs.
        secret: whether all randomness must come from the operating system instead of `seed`, as in a sealed search.
        unimodality: facts about the search that only the sampler ``unimodal`` needs.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int
    trials_before: int = 0
    space: GridSpace | None = None
    secret: bool = False
    unimodality: Unimodality | None = None

    @property
    def next_seed(self) -> int:
        """Seed of the sampler, which differs after every resume."""
        return seed_after(self.seed, self.trials_before)


def seed_after(seed: int, trials_before: int) -> int:
    """Return the seed of a sampler that starts after `trials_before` trials. For a new sweep, this is `seed` itself.

    The state of a sampler's random generator is not stored. With an unchanged seed, a resumed sweep would propose its
    first configurations again and be charged for them again.
    """
    if trials_before == 0:
        return seed
    return random.Random(f"{seed}/{trials_before}").getrandbits(32)
