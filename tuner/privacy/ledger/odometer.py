"""Odometer: an estimate of what was spent so far, for information. It refuses nothing; filters refuse.

A search decides by what it saw when to read on, so no reading is a guarantee: the guarantee is the cap. As a number,
each reading is an upper bound of ε for the steps that were leased, had they been fixed in advance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, inf, log
from typing import Any

from tuner.privacy.accountant.filters import UNITS, Part
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import EPSILON_FLOOR, MAX_STEPS, composed, epsilon, interval
from tuner.privacy.accountant.rdp import epsilon_of_divergence
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.state import DatasetState, PoolState, SearchState, exact_sum

__all__ = ["LABEL", "LABEL_WITHOUT_CAP", "Odometer", "Reading", "read_dataset", "read_search", "read_steps"]

LABEL = "odometer, not a guarantee: the guarantee is the cap"
LABEL_WITHOUT_CAP = "odometer, not a guarantee: no cap bounds all searches together"

_MOST_MECHANISMS = 4
_DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Reading:
    """ε at δ of what was leased until now.

    Attributes:
        epsilon: finite.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Odometer:
    """Readings of a search or of a data set, for a record on either side of the split.

    Attributes:
        training: for a record that trains.
        validation: for a record that validates; None where no score is inside the guarantee.
        whole: for every record of the training file.
    """

    training: Reading
    validation: Reading | None
    whole: Reading

    @property
    def epsilon(self) -> float:
        """ε for every record of the training file."""
        return self.whole.epsilon

    @property
    def delta(self) -> float:
        """δ for every record of the training file."""
        return self.whole.delta


def read_search(search: SearchState) -> Odometer:
    """Return what one search has spent, at its own δ; a record is on one side, so the larger side counts."""
    training = _read([_Spent.of(search.training, search, (search.epsilon, search.delta))], search.delta)
    if search.validation is None or search.validation_claim is None:
        return Odometer(training, None, training)
    claim = search.validation_claim
    validation = _read([_Spent.of(search.validation, search, claim)], claim[1])
    return Odometer(training, validation, Reading(max(training.epsilon, validation.epsilon), search.delta))


def read_dataset(state: DatasetState) -> Odometer:
    """Return what all searches on a data set have spent, at the δ of its cap, or without a cap at the committed δ.

    Searches with the same split keep a record on one side, so the larger side counts. Where splits differ or are not
    noted, a record may have trained in one search and validated in another: then both sides are composed.
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
        # A search that is charged as a whole counts once, with the claim that covers either side.
        open_scores = [spent.unclaimed() for spent in scored if not spent.whole]
        whole = _read([*trained, *open_scores], delta)
    return Odometer(training, validation, whole)


def read_steps(parts: Mapping[SampledGaussian, int], delta: float) -> Reading:
    """Return ε of these steps of each mechanism, had they been fixed in advance; `inf` where none can be computed."""
    counted = Counter({mechanism: steps for mechanism, steps in parts.items() if steps})
    found = _composed_epsilon(tuple(_fewer(counted)), (), delta) if counted else 0.0
    return Reading(found, delta)


@dataclass(frozen=True)
class _Spent:
    """What one pool has spent, and the claim that holds for it in any case.

    Attributes:
        parts: steps that were leased one by one.
        claim: (ε, δ); zero where nothing was charged.
        whole: whether the search was charged as a whole.
        renyi: order and leased Rényi units, where steps are priced.
    """

    parts: tuple[Part, ...]
    claim: tuple[float, float]
    whole: bool
    renyi: tuple[float, int] | None = None

    @classmethod
    def of(cls, pool: PoolState, search: SearchState, claim: tuple[float, float]) -> _Spent:
        if pool.filter.charged_whole:
            return cls((), claim if search.begun else (0.0, 0.0), whole=search.begun)
        parts = tuple((mechanism, steps) for mechanism, steps in pool.leased.items() if steps)
        order = pool.filter.renyi_order
        renyi = None if order is None else (order, pool.leased_units)
        return cls(parts, claim if parts else (0.0, 0.0), whole=False, renyi=renyi)

    @property
    def anything(self) -> bool:
        return self.whole or bool(self.parts)

    def unclaimed(self) -> _Spent:
        """Return the same without the claim, where that is counted with the other pool."""
        return _Spent(self.parts, (0.0, 0.0), self.whole, self.renyi)


def _read(spent: list[_Spent], delta: float) -> Reading:
    """Return the least of three bounds: one composition of all, the sum of the claims, a single Rényi divergence."""
    spent = [each for each in spent if each.anything]
    if not spent:
        return Reading(0.0, delta)
    parts: Counter[SampledGaussian] = Counter()
    for each in spent:
        parts.update(dict(each.parts))
    whole = tuple(sorted(each.claim for each in spent if each.whole))
    found = _composed_epsilon(tuple(_fewer(parts)), whole, delta) if delta < 1 else inf
    if len(spent) == 1 and spent[0].renyi is not None:
        order, units = spent[0].renyi
        found = min(found, epsilon_of_divergence(order, units / UNITS * (1 + 1e-12), delta))
    claimed = float(exact_sum(*(each.claim[0] for each in spent)))
    claimed_delta = exact_sum(*(each.claim[1] for each in spent))
    if claimed_delta <= exact_sum(delta):
        return Reading(min(found, claimed), delta)
    # At this δ nothing can be computed; the claims hold at their own.
    return Reading(found, delta) if found < inf else Reading(claimed, float(claimed_delta))


@lru_cache(maxsize=512)
def _composed_epsilon(parts: tuple[Part, ...], claims: tuple[tuple[float, float], ...], delta: float) -> float:
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


def _fewer(parts: Counter[SampledGaussian]) -> Iterable[Part]:
    """Merge neighbouring mechanisms into one with their largest rate and least noise, until few are left.

    The result is an upper bound: more noise is post-processing, and the hockey-stick divergence of a sampled step is
    convex in the rate and least at rate 0, so it does not fall with the rate.
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
        return sorted(parts.items())
    grouped: Counter[SampledGaussian] = Counter()
    for group in cells.values():
        worst = SampledGaussian(max(m.sample_rate for m in group), min(m.noise_multiplier for m in group))
        grouped[worst] += sum(parts[mechanism] for mechanism in group)
    return sorted(grouped.items())
