"""Odometer: an estimate of the ε spent so far, for information.

Each reading would be an upper bound of ε if the leased steps had been fixed in advance. But a search chooses its steps
adaptively, so a reading is not a guarantee. The cap is the guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, inf, log

from tuner.privacy.accountant.filters import UNITS, Part
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import MAX_STEPS, composed, interval, read_epsilon
from tuner.privacy.accountant.rdp import epsilon_of_divergence
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.state import DatasetState, PoolState, SearchState, exact_sum

__all__ = [
    "LABEL",
    "LABEL_VOID",
    "LABEL_WITHOUT_CAP",
    "Odometer",
    "Reading",
    "read_dataset",
    "read_search",
    "read_steps",
    "rounded_up",
]

LABEL = "for information, not a guarantee: the guarantee is the cap"
LABEL_WITHOUT_CAP = "for information, not a guarantee: no cap bounds all searches together"
LABEL_VOID = "for information, not a guarantee: the total is void"

_MOST_MECHANISMS = 4
_DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Reading:
    """Odometer reading: the (ε, δ) of the leased steps."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Odometer:
    """Odometer readings of one search. A record is either a training record or a validation record of the search.

    Attributes:
        training: reading for each training record.
        validation: reading for each validation record; None if the guarantee covers no score.
    """

    training: Reading
    validation: Reading | None


def read_search(search: SearchState, *, live: bool = False, compose: bool = True) -> Odometer:
    """Return the ε that each pool of one search has spent, at the δ of the pool's claim.

    With `live`, each number of steps is first rounded up (`rounded_up`), so ε is at most about 3 % higher. A search
    then composes for some dozens of numbers of steps, and not after every report of a trial. Without `compose`, no
    accountant is imported, and ε is the claim wherever steps were leased, which is an upper bound too.
    """
    training = _read([_Spent.of(search.training, begun=search.begun)], search.delta, live=live, compose=compose)
    if search.validation is None:
        return Odometer(training, None)
    scored = _Spent.of(search.validation, begun=search.begun)
    return Odometer(training, _read([scored], search.validation.claim[1], live=live, compose=compose))


def rounded_up(steps: int) -> int:
    """Return `steps` rounded up to four binary digits: by at most a sixteenth, and not at all below 32.

    ε never falls when steps are added, so ε of the result is an upper bound. An interpolation of ε between two numbers
    of steps would not be: ε is concave in the steps where it grows like their root.
    """
    unit = 1 << max(steps.bit_length() - 5, 0)
    return -(-steps // unit) * unit


def read_dataset(state: DatasetState) -> Reading:
    """Return the ε that all searches on a data set together have spent on any one record.

    ε is computed at the δ of the data set's cap. If there is no cap, it is computed at the committed δ.

    If all searches state the same split, a record is a training record in all of them or a validation record in all of
    them. Then the reading has the larger ε of the two pools. Otherwise a record may belong to different pools in
    different searches, so the reading is the composition of both pools.
    """
    delta = state.cap.delta if state.cap else state.committed_delta or _DEFAULT_DELTA
    touched = [search for search in state.searches if search.touched]
    trained = [_Spent.of(search.training, begun=search.begun) for search in touched]
    scored = [_Spent.of(search.validation, begun=search.begun) for search in touched if search.validation]
    if not any(spent.anything for spent in scored):
        return _read(trained, delta)
    splits = {canonical(search.split) for search in touched}
    if len(splits) == 1 and splits != {"null"}:
        training, validation = _read(trained, delta), _read(scored, delta)
        return Reading(max(training.epsilon, validation.epsilon), max(training.delta, validation.delta))
    # The claim of a search covers training and validation records, so each claim counts only once.
    open_scores = [replace(spent, claim=(0.0, 0.0)) for spent in scored if not spent.whole]
    return _read([*trained, *open_scores], delta)


def read_steps(parts: Mapping[SampledGaussian, int], delta: float) -> Reading:
    """Return the odometer reading for the given steps of each mechanism; ε is `math.inf` if no bound is known."""
    counted = Counter({mechanism: steps for mechanism, steps in parts.items() if steps})
    found = _composed_epsilon(tuple(_fewer(counted)), (), delta) if counted else 0.0
    return Reading(found, delta)


@dataclass(frozen=True)
class _Spent:
    """Charges of one pool.

    Attributes:
        parts: leased steps of each mechanism; empty if the search was charged as a whole.
        claim: claimed (ε, δ) of the pool.
        whole: whether the search was charged as a whole.
        renyi: (order, leased Rényi units); None if the filter does not count Rényi units.
    """

    parts: tuple[Part, ...]
    claim: tuple[float, float]
    whole: bool
    renyi: tuple[float, int] | None = None

    @classmethod
    def of(cls, pool: PoolState, *, begun: bool) -> _Spent:
        if pool.filter.charged_whole or begun:  # a mirror's steps are in another data set, so its claim counts
            return cls((), pool.claim, whole=begun)
        parts = tuple((mechanism, steps) for mechanism, steps in pool.leased.items() if steps)
        order = pool.filter.renyi_order
        renyi = None if order is None else (order, pool.leased_units)
        return cls(parts, pool.claim, whole=False, renyi=renyi)

    @property
    def anything(self) -> bool:
        return self.whole or bool(self.parts)


def _read(spent: list[_Spent], delta: float, *, live: bool = False, compose: bool = True) -> Reading:
    """Return the smallest of up to three bounds of ε: composition of the charges, sum of the claims, and Rényi bound.

    The Rényi bound exists only if a single pool has charges and its filter counts Rényi units.
    """
    spent = [each for each in spent if each.anything]
    if not spent:
        return Reading(0.0, delta)
    parts: Counter[SampledGaussian] = Counter()
    for each in spent:
        parts.update(dict(each.parts))
    if live:
        parts = Counter(
            {mechanism: max(steps, min(rounded_up(steps), MAX_STEPS)) for mechanism, steps in parts.items()}
        )
    whole = tuple(sorted(each.claim for each in spent if each.whole))
    found = _composed_epsilon(tuple(_fewer(parts)), whole, delta) if delta < 1 and compose else inf
    if len(spent) == 1 and spent[0].renyi is not None:
        order, units = spent[0].renyi
        found = min(found, epsilon_of_divergence(order, units / UNITS * (1 + 1e-12), delta))
    claimed = float(exact_sum(*(each.claim[0] for each in spent)))
    claimed_delta = exact_sum(*(each.claim[1] for each in spent))
    if claimed_delta <= exact_sum(delta):
        return Reading(min(found, claimed), delta)
    # Without a bound at `delta`, return the sum of the claims, which holds at the sum of their δ.
    return Reading(found, delta) if found < inf else Reading(claimed, float(claimed_delta))


@lru_cache(maxsize=512)
def _composed_epsilon(parts: tuple[Part, ...], claims: tuple[tuple[float, float], ...], delta: float) -> float:
    if not parts or sum(steps for _, steps in parts) > MAX_STEPS:
        return inf
    distribution, margin = composed(parts)
    grid = max(interval(mechanism, steps) for mechanism, steps in parts)
    if distribution is not None:
        from tuner.privacy.accountant.loss_distribution import LossDistribution

        for claim in claims:
            distribution = distribution.compose(LossDistribution.of_claim(*claim, grid=grid))
    return read_epsilon(distribution, margin, delta)


def _fewer(parts: Counter[SampledGaussian]) -> Iterable[Part]:
    """Replace groups of similar mechanisms by one mechanism each, so that at most 4 mechanisms remain.

    The new mechanism has the largest sample rate and the smallest noise multiplier of its group, so ε cannot fall. Less
    noise cannot lower ε, because adding noise is post-processing. A higher rate cannot lower ε, because the
    hockey-stick divergence of a sampled step is convex in the rate and smallest at rate 0.
    """
    if len(parts) <= _MOST_MECHANISMS:
        return sorted(parts.items())
    ratio = 1.05
    while len(cells := _cells(parts, ratio)) > _MOST_MECHANISMS:
        ratio **= 1.5
    grouped: Counter[SampledGaussian] = Counter()
    for group in cells:
        worst = SampledGaussian(max(m.sample_rate for m in group), min(m.noise_multiplier for m in group))
        grouped[worst] += sum(parts[mechanism] for mechanism in group)
    return sorted(grouped.items())


def _cells(mechanisms: Iterable[SampledGaussian], ratio: float) -> Collection[list[SampledGaussian]]:
    """Group similar mechanisms.

    In each group, the sample rates differ by at most the factor `ratio`, and so do the noise multipliers.
    """
    cells: dict[tuple[int, int], list[SampledGaussian]] = {}
    for mechanism in mechanisms:
        rate = floor(log(mechanism.sample_rate) / log(ratio))
        noise = floor(log(mechanism.noise_multiplier) / log(ratio))
        cells.setdefault((rate, noise), []).append(mechanism)
    return cells.values()
