"""ε of a release whose rows are in a secret, uniformly random order: each record hides among rows that are its clones.

Formal guarantees:
    Let the randomiser of a row be (ε₀, δ₀)-DP for any two records (local). With m rows in a uniformly random order, the
    release is (ε, δ)-DP for every ε, with δ = δ_c(ε) + (1 + e^ε)·(m − 1)·e^−ε₀·δ₀. δ_c is the hockey-stick divergence
    of the numbers of clones: N ~ Bin(m − 1, e^−ε₀) rows, each like one of the two values of the record by a fair coin
    (Feldman, McMillan & Talwar 2021, the standard clone; with δ₀ > 0 by the proof below).

Their Theorem 3.1 needs δ₀ = 0, which Gaussian noise does not have. Their Theorem 3.8 is for δ₀ > 0; the part for δ₀
here is smaller, because A and B are kept and the differing row costs no δ₀.

    Proof. D and D′ (a mixture of such pairs) have the same m − 1 other rows, and in one row the law A or B. A, B and
    the laws R_i of the others are each the randomiser of a record or a mixture of such, so by convexity
    ∫(A − e^ε₀·R_i)₊ <= δ₀, and so for B. Let S = e^−ε₀·(A + B)/2. Then τ = ∫(S − R_i)₊ <= e^−ε₀·δ₀. Let R̃_i be
    max(R_i, S) less the mass τ, taken from the part above S, which has the mass 1 + τ − e^−ε₀ >= τ. So R̃_i is a law,
    R̃_i >= S, and its distance from R_i in total variation is at most τ. With R̃_i for all others, on D and on D′, each
    law moves by at most (m − 1)·e^−ε₀·δ₀, and δ by (1 + e^ε) times that. Now
    R̃_i = e^−ε₀·(A/2 + B/2) + (1 − e^−ε₀)·L_i: each other row is a clone with probability e^−ε₀, independently, and a
    clone is A or B by a coin. The rows are in uniformly random order, so they are a random function of the numbers of
    rows that are A and B: given N + 1 = their sum, a uniformly random set of N others are the clones, the rest follow
    the L_i, and all are put into a random order. With k′ ~ Bin(N, 1/2) these numbers are (k′ + 1, N − k′) on D and
    (k′, N + 1 − k′) on D′. The second pair in the other direction is the same by symmetry.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, floor, inf, sqrt

from tuner.privacy.accountant.mechanism import require_delta
from tuner.privacy.accountant.noisy_records import MARGIN, NoisyRecords, calibrate_release, smallest_epsilon

__all__ = ["calibrate_shuffled", "clones_delta", "shuffled_delta", "shuffled_epsilon"]

_SPREAD = 12.0
"""Range of the number of clones over which is summed, in standard deviations. The tails outside are added to δ."""
_LARGEST = 700.0  # ε of a shuffled claim; above it, e^ε is no float, and the local claim is taken
_TRIED = 48
_PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


@lru_cache(maxsize=1)
def _grid() -> tuple[float, ...]:
    import numpy as np

    return tuple(float(each) for each in np.geomspace(1e-3, 60, 200))


@lru_cache(maxsize=4096)
def clones_delta(epsilon: float, *, rows: int, clone_epsilon: float) -> float:
    """Return δ_c(ε): how well the number of rows like each of the two values tells which value the record has.

    Given N clones, k of the N + 1 rows are like the first value. k − 1 ~ Bin(N, 1/2) with the one value, and
    k ~ Bin(N, 1/2) with the other, so the likelihood ratio is k/(N + 1 − k), which rises in k.
    """
    import numpy as np
    from scipy.stats import binom

    others, rate = rows - 1, exp(-clone_epsilon)
    mean, spread = others * rate, sqrt(others * rate * (1 - rate))
    low = max(floor(mean - _SPREAD * spread - 40), 0)
    high = min(ceil(mean + _SPREAD * spread + 40), others)
    clones = np.arange(low, high + 1)
    factor = exp(epsilon) / (1 + exp(epsilon)) if epsilon < _LARGEST else 1.0
    # k = N + 1 has no counterpart under the other value, so it always counts, even where the factor rounds to 1.
    first = np.minimum(np.floor((clones + 1) * factor) + 1, clones + 1)
    told = binom.sf(first - 2, clones, 0.5) - exp(min(epsilon, _LARGEST)) * binom.sf(first - 1, clones, 0.5)
    outside = float(binom.cdf(low - 1, others, rate)) + float(binom.sf(high, others, rate))
    return float((binom.pmf(clones, others, rate) * np.clip(told, 0.0, 1.0)).sum()) + outside


def shuffled_delta(epsilon: float, randomiser: NoisyRecords, *, rows: int, clone_epsilon: float) -> float:
    """Return δ of the release at ε. `clone_epsilon` is ε₀, at which the local δ₀ of the randomiser is taken."""
    lost = (1 + exp(min(epsilon, _LARGEST))) * (rows - 1) * exp(-clone_epsilon) * randomiser.delta(clone_epsilon)
    return clones_delta(epsilon, rows=rows, clone_epsilon=clone_epsilon) + lost


def shuffled_epsilon(randomiser: NoisyRecords, delta: float, *, rows: int, clone_epsilon: float) -> float:
    """Return ε of the release at `delta`, rounded up: the smaller of the shuffled and the local one."""
    require_delta(delta)
    local = randomiser.epsilon(delta)

    def at(epsilon: float) -> float:
        return shuffled_delta(epsilon, randomiser, rows=rows, clone_epsilon=clone_epsilon)

    # δ_c falls with ε and the other term rises, so the first ε of a grid that fits is looked for, not the last.
    first = next((each for each in _grid() if each < local and at(each) <= delta - MARGIN), None)
    return local if first is None else min(local, smallest_epsilon(at, delta, at_most=first))


def calibrate_shuffled(
    *, clip: float, label_share: float, classes: int, epsilon: float, delta: float, rows: int
) -> tuple[NoisyRecords, float | None]:
    """Return the randomiser with the least noise with which the release is (ε, δ)-DP, and its ε₀.

    ε₀ is None if the local guarantee needs less noise, as with few rows.

    Args:
        clip: clipping norm.
        label_share: share of ε₀ (or of the local ε) that the labels use.
        classes: number of classes.
        epsilon: ε of the release.
        delta: δ of the release.
        rows: public number of rows.
    """
    import numpy as np

    best: tuple[NoisyRecords, float | None] = (
        calibrate_release(clip=clip, label_share=label_share, classes=classes, epsilon=epsilon, delta=delta),
        None,
    )
    most = _most_clone_epsilon(epsilon, delta, rows=rows) if epsilon < _LARGEST else -inf
    for tried in np.linspace(min(epsilon, most), most, _TRIED) if most > 0 else ():
        clone = float(round(float(tried), 6))
        # Below the ε that is asked for, the clones leave less of δ, but a smaller factor takes it.
        local = max(
            (delta - 2 * MARGIN - clones_delta(each, rows=rows, clone_epsilon=clone))
            / ((1 + exp(each)) * (rows - 1) * exp(-clone))
            for each in (float(epsilon * part) for part in _PARTS)
        )
        local = min(local, 0.5)
        if not local > 2 * MARGIN:
            continue
        found = calibrate_release(clip=clip, label_share=label_share, classes=classes, epsilon=clone, delta=local)
        if found.noise < best[0].noise:
            best = found, clone
    return best


def _most_clone_epsilon(epsilon: float, delta: float, *, rows: int) -> float:
    """Return about the largest ε₀ at which the clones alone leave some of δ."""
    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = clones_delta(epsilon, rows=rows, clone_epsilon=middle) < delta
        low, high = (middle, high) if fits else (low, middle)
    return low if low > 0 else -inf
