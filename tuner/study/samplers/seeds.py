"""Seeds and random generators of samplers; imports no Optuna.

In a sealed search nothing may tell which of its runs won, because that would tell something about how many there were.
A seed would: whoever knows it can count the candidates up to the winner. Each value is therefore drawn from the
operating system, and so is the public seed of every run.
"""

from __future__ import annotations

import random

__all__ = ["seed_after"]


def seed_after(seed: int, trials_before: int) -> int:
    """Return the seed of a sampler that starts after `trials_before` trials; `seed` itself for a new sweep.

    The state of a sampler's generator is not stored. With the same seed a resumed sweep would propose its first points
    again, and pay for them again.
    """
    if trials_before == 0:
        return seed
    return random.Random(f"{seed}/{trials_before}").getrandbits(32)
