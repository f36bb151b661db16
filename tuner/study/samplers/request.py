"""Request for a sampler, and its seed. Imports no Optuna.

A sealed search must not reveal the number of its runs. Anyone who knows a seed can count the candidates up to the
winner, so a secret sampler takes its randomness from the operating system.
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
    """Facts and options from which a sampler is made.

    Attributes:
        name: the name that the user wrote, for messages.
        options: checked names with values as the user wrote them.
        trials_before: number of trials already in the storage.
        space: needed by ``grid``.
        secret: whether all randomness comes from the operating system and none from `seed`, as in a sealed search.
        unimodality: needed by ``unimodal``.
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
        """Seed of the sampler, which changes at every resume."""
        return seed_after(self.seed, self.trials_before)


def seed_after(seed: int, trials_before: int) -> int:
    """Return the seed of a sampler that starts after `trials_before` trials; `seed` itself for a new sweep.

    The state of a sampler's generator is not stored. With an unchanged seed, a resumed sweep would propose its first
    points again and pay for them again.
    """
    if trials_before == 0:
        return seed
    return random.Random(f"{seed}/{trials_before}").getrandbits(32)
