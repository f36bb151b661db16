"""Made-up response surfaces: a score by learning rate, clip, noise and training, whose best rate moves with noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np

from search_spaces import SearchSpace
from search_spaces.domains import LogUniform

SPACE = SearchSpace.of({"learning_rate": LogUniform(0.1, 10.0), "max_grad_norm": LogUniform(0.1, 10.0)})
GRID = [
    {"learning_rate": exp(rate), "max_grad_norm": exp(clip)}
    for rate in np.linspace(log(0.1), log(10), 41)
    for clip in np.linspace(log(0.1), log(10), 9)
]


@dataclass(frozen=True)
class Surface:
    """Accuracy in points. The best log rate is `best` − slope·log noise − q·log fraction − coupling·log clip.

    The drop from the top saturates at 60 points, as an accuracy does at chance, and its sides differ in width.
    """

    slope: float
    q: float
    best: float
    coupling: float
    left: float
    right: float
    steep: float

    @classmethod
    def drawn(cls, random: np.random.Generator, slope: float) -> Surface:
        return cls(
            slope=slope,
            q=random.uniform(0.0, 0.9),
            best=random.uniform(-1.0, 1.0),
            coupling=random.uniform(0.6, 1.0),
            left=random.uniform(0.8, 2.0),
            right=random.uniform(1.0, 2.5),
            steep=random.uniform(2.0, 5.0),
        )

    def score(self, at: Mapping[str, object], noise: float, fraction: float = 1.0) -> float:
        rate, clip = (log(float(str(at[name]))) for name in ("learning_rate", "max_grad_norm"))
        gap = rate + self.coupling * clip - (self.best - self.slope * log(noise) - self.q * log(fraction))
        drop = self.steep * (gap / (self.left if gap < 0 else self.right)) ** 2
        level = 90.0 - 6.0 * log(1.0 + noise) + 3.0 * log(fraction)
        return level - 60.0 * (1.0 - exp(-drop / 60.0)) - (clip / 3.0) ** 2

    def regret(self, at: Mapping[str, object], noise: float) -> float:
        """Return the points that a configuration loses to the best one of a fine grid, when trained to the end."""
        return max(self.score(each, noise) for each in GRID) - self.score(at, noise)
