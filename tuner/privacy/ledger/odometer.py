"""The odometer: what was spent so far. It watches and refuses nothing; what refuses is the allowance.

When to look was decided by what was seen, so that no reading is a guarantee: the guarantee is the cap. As a number each
reading is an upper bound of ε for the steps that were leased, had they been fixed in advance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, inf, log
from typing import Any

from tuner.privacy.accountant.filters import UNITS, FixedOrder, Sealed
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import EPSILON_FLOOR, MAX_STEPS, composed, epsilon, interval
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.state import DatasetState, PoolState, SearchState, exact_sum

__all__ = ["LABEL", "LABEL_WITHOUT_CAP", "Odometer", "Reading", "read_dataset", "read_search", "read_steps"]

LABEL = "odometer, not a guarantee: the guarantee is the cap"
LABEL_WITHOUT_CAP = "odometer, not a guarantee: no cap bounds all searches together"

_MOST_MECHANISMS = 4
_DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Reading:
    """ε of what was leased until now, at δ.

    Attributes:
        epsilon: finite.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Odometer:
    """What was spent of a search or of a data set, for a record on either side of the split.

    Attributes:
        training: for a record that trains.
        validation: for a record that validates; None where no score is inside the guarantee.
        whole: for any record of the training file.
    """

    training: Reading
    validation: Reading | None
    whole: Reading

    @property
    def epsilon(self) -> float:
        """Of the whole."""
        return self.whole.epsilon

    @property
    def delta(self) -> float:
        """Of the whole."""
        return self.whole.delta


def read_search(search: SearchState) -> Odometer:
    """What one search has spent, at its own δ; a record is on one side of its split, so that the larger side counts."""
    training = _read([_Spent.of(search.training, search, (search.epsilon, search.delta))], search.delta)
    if search.validation is None or search.validation_claim is None:
        return Odometer(training, None, training)
    claim = search.validation_claim
    validation = _read([_Spent.of(search.validation, search, claim)], claim[1])
    return Odometer(training, validation, Reading(max(training.epsilon, validation.epsilon), search.delta))


def read_dataset(state: DatasetState) -> Odometer:
    """What all searches on a data set have spent, at the δ of its cap (without one: at that which is committed).

    Searches that split alike keep a record on one side, so that the larger side counts. Where they split otherwise, or
    do not say, a record may have trained in one and validated in another: then both sides are composed.
    """
    delta = state.cap.delta if state.cap else state.committed_delta or _DEFAULT_DELTA
    touched = [search for search in state.searches if search.touched]
    trained = [_Spent.of(search.training, search, (search.epsilon, search.delta)) for search in touched]
    scored = [
        _Spent.of(search.validation, search, search.validation_claim)
        for search in touched
        if search.validation is not None and search.validation_claim is not None
    ]
    training = _read(trained, delta)
    if not any(spent.anything for spent in scored):
        return Odometer(training, None, training)
    validation = _read(scored, delta)
    splits = {canonical(search.details.get("split")) for search in touched}
    if len(splits) == 1 and splits != {"null"}:
        whole = Reading(max(training.epsilon, validation.epsilon), max(training.delta, validation.delta))
    else:
        # A sealed search counts once, with the claim that covers either side.
        open_scores = [spent.unclaimed() for spent in scored if not spent.sealed]
        whole = _read([*trained, *open_scores], delta)
    return Odometer(training, validation, whole)


def read_steps(parts: Mapping[SampledGaussian, int], delta: float) -> Reading:
    """What so many steps of each mechanism would cost, had they been fixed in advance; `inf` where none can tell."""
    counted = Counter({mechanism: steps for mechanism, steps in parts.items() if steps})
    found = _composed_epsilon(tuple(_fewer(counted)), (), delta) if counted else 0.0
    return Reading(found, delta)


@dataclass(frozen=True)
class _Spent:
    """What one pool has spent, and the claim that holds for it whatever comes."""

    parts: tuple[tuple[SampledGaussian, int], ...]
    claim: tuple[float, float]
    sealed: bool
    renyi: tuple[float, int] | None = None

    @classmethod
    def of(cls, pool: PoolState, search: SearchState, claim: tuple[float, float]) -> _Spent:
        if isinstance(pool.allowance, Sealed):
            return cls((), claim if search.begun else (0.0, 0.0), sealed=search.begun)
        parts = tuple((mechanism, steps) for mechanism, steps in pool.leased.items() if steps)
        renyi = (pool.allowance.order, pool.leased_units) if isinstance(pool.allowance, FixedOrder) else None
        return cls(parts, claim if parts else (0.0, 0.0), sealed=False, renyi=renyi)

    @property
    def anything(self) -> bool:
        return self.sealed or bool(self.parts)

    def unclaimed(self) -> _Spent:
        """Of a search whose claim is counted with its other pool."""
        return _Spent(self.parts, (0.0, 0.0), self.sealed, self.renyi)


def _read(spent: list[_Spent], delta: float) -> Reading:
    """The least of the bounds: one composition of all, the claims added up, or the divergence of a single filter."""
    spent = [each for each in spent if each.anything]
    if not spent:
        return Reading(0.0, delta)
    parts: Counter[SampledGaussian] = Counter()
    for each in spent:
        parts.update(dict(each.parts))
    sealed = tuple(sorted(each.claim for each in spent if each.sealed))
    found = _composed_epsilon(tuple(_fewer(parts)), sealed, delta) if delta < 1 else inf
    if len(spent) == 1 and spent[0].renyi is not None:
        from tuner.privacy.accountant.rdp import epsilon_of_divergence

        order, units = spent[0].renyi
        found = min(found, epsilon_of_divergence(order, units / UNITS * (1 + 1e-12), delta))
    claimed = float(exact_sum(*(each.claim[0] for each in spent)))
    claimed_delta = exact_sum(*(each.claim[1] for each in spent))
    if claimed_delta <= exact_sum(delta):
        return Reading(min(found, claimed), delta)
    # Nothing can be told at this δ, but for the claims at theirs.
    return Reading(found, delta) if found < inf else Reading(claimed, float(claimed_delta))


@lru_cache(maxsize=512)
def _composed_epsilon(
    parts: tuple[tuple[SampledGaussian, int], ...], claims: tuple[tuple[float, float], ...], delta: float
) -> float:
    if not claims and len(parts) == 1:
        mechanism, steps = parts[0]
        return epsilon(mechanism, steps, delta) if steps <= MAX_STEPS else inf
    if not parts or sum(steps for _, steps in parts) > MAX_STEPS:
        return inf
    distribution, margin = composed(parts)
    if distribution is None:
        return inf
    grid = max(interval(mechanism, steps) for mechanism, steps in parts)
    for claim in claims:
        distribution = distribution.compose(_claimed(claim, grid))
    if not delta - margin > delta / 2:
        return inf
    try:
        return max(float(distribution.get_epsilon_for_delta(delta - margin)), EPSILON_FLOOR)
    except OverflowError:
        return inf


def _claimed(claim: tuple[float, float], grid: float) -> Any:  # noqa: ANN401 - the library is untyped
    from dp_accounting.pld import common, privacy_loss_distribution

    return privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(*claim), value_discretization_interval=grid
    )


def _fewer(parts: Counter[SampledGaussian]) -> Iterable[tuple[SampledGaussian, int]]:
    """The same steps of few mechanisms, none of them better: neighbours become one of the largest rate and least noise.

    More noise is post-processing, and the hockey-stick divergence of a sampled step is convex in the rate and least at
    rate 0, so that it does not fall with the rate.
    """
    cells: dict[tuple[int, int], list[SampledGaussian]] = {}
    ratio = 1.0
    while len(parts) > _MOST_MECHANISMS and (ratio == 1.0 or len(cells) > _MOST_MECHANISMS):
        ratio = 1.05 if ratio == 1.0 else ratio**1.5
        cells = {}
        for mechanism in parts:
            place = (mechanism.sample_rate, mechanism.noise_multiplier)
            cells.setdefault(tuple(floor(log(value) / log(ratio)) for value in place), []).append(mechanism)  # type: ignore[arg-type]
    if not cells:
        return sorted(parts.items(), key=_order)
    grouped: Counter[SampledGaussian] = Counter()
    for group in cells.values():
        worst = SampledGaussian(max(m.sample_rate for m in group), min(m.noise_multiplier for m in group))
        grouped[worst] += sum(parts[mechanism] for mechanism in group)
    return sorted(grouped.items(), key=_order)


def _order(part: tuple[SampledGaussian, int]) -> tuple[float, float]:
    return part[0].sample_rate, part[0].noise_multiplier
