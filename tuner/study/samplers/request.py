"""Request for a sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.study.samplers.seeds import seed_after

if TYPE_CHECKING:
    from tuner.study.suggest import GridSpace
    from tuner.study.unimodal.options import Unimodality

__all__ = ["SamplerRequest"]


@dataclass(frozen=True, kw_only=True)
class SamplerRequest:
    """Facts and options from which a sampler is made.

    Attributes:
        name: the name that the user wrote, for messages.
        options: checked names with values as the user wrote them.
        seed: public seed of the search.
        trials_before: trials already in the storage; see `seeds.seed_after`.
        space: what is searched; needed by ``grid``.
        grid: values of each parameter of the grid; by default the space's own ``grid(points)``.
        secret: whether all randomness comes from the operating system and none from `seed`, as in a sealed search.
        unimodality: needed by ``unimodal``.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int
    trials_before: int = 0
    space: GridSpace | None = None
    grid: Mapping[str, Sequence[object]] | None = None
    secret: bool = False
    unimodality: Unimodality | None = None

    @property
    def next_seed(self) -> int:
        """Seed after the trials that are already stored."""
        return seed_after(self.seed, self.trials_before)
