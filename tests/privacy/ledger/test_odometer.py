"""What was spent: an upper bound for the steps that were leased, and never called a guarantee."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import pytest
from ledgers import CHEAP, MECHANISM, RELEASE, SEALED, chained, folded, open_search, opening, took

from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.filters import Filter, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger import odometer
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import Odometer, Reading, read_dataset, read_search, rounded_up

SPLIT = {"split": {"seed": 1}}
OWN = {"split": {"seed": 1, "fraction": 0.1}, "own": "sha256:a"}  # a user's own records, with this checksum


def composed(*parts: tuple[SampledGaussian, int], delta: float = 1e-5) -> float:
    return accounting.epsilon_composed(parts, delta)


def test_it_reads_the_composition_of_what_was_leased(ledger: Ledger, search: str) -> None:
    assert read_dataset(ledger.dataset_state("digits")).epsilon == 0.0
    took(ledger, search, 120)
    ledger.reserve(search, "promised", 500)
    assert read_dataset(ledger.dataset_state("digits")).epsilon == accounting.epsilon(MECHANISM, 120, 1e-5)
    reading = read_search(ledger.search_state(search))
    assert reading.training == Reading(accounting.epsilon(MECHANISM, 120, 1e-5), 1e-5)
    assert reading.validation is None


def test_it_reads_at_the_cap_of_the_data_set_or_at_what_is_committed(ledger: Ledger, search: str) -> None:
    took(ledger, search, 10)
    open_search(ledger, "second", delta=3e-6)
    assert read_dataset(ledger.dataset_state("digits")).delta == pytest.approx(1.3e-5)
    ledger.set_cap("digits", 100.0, 2e-6)
    state = ledger.dataset_state("digits")
    assert read_dataset(state).delta == 2e-6
    assert read_dataset(state).epsilon == accounting.epsilon(MECHANISM, 10, 2e-6)
    assert read_dataset(ledger.dataset_state("never used")).epsilon == 0.0


def test_several_searches_are_composed_and_not_added_up(ledger: Ledger) -> None:
    for name, mechanism in (("one", MECHANISM), ("two", CHEAP), ("three", MECHANISM)):
        open_search(ledger, name, mechanism=mechanism, delta=1e-5 / 3)
        took(ledger, name, 10)
    ledger.set_cap("digits", 100.0, 1e-5)
    found = read_dataset(ledger.dataset_state("digits")).epsilon
    assert found == composed((MECHANISM, 20), (CHEAP, 10))
    assert found < composed((MECHANISM, 10)) * 2 + composed((CHEAP, 10))


def test_a_fixed_order_with_many_mechanisms_reads_an_upper_bound_near_the_composition(ledger: Ledger) -> None:
    many = [SampledGaussian(0.01 + number / 2000, 2.0 + number / 7) for number in range(12)]
    filter = FixedOrder(8.0, 10**15)
    open_search(ledger, "s", 4.0, filter=filter)
    for number, mechanism in enumerate(many):
        took(ledger, "s", 40, f"t{number}", mechanism=mechanism)
    exact = composed(*((mechanism, 40) for mechanism in many))
    found = read_search(ledger.search_state("s")).training.epsilon
    assert exact <= found <= 1.5 * exact
    assert found < 4.0


def test_a_sealed_search_is_composed_with_the_others(ledger: Ledger) -> None:
    """(ε, δ)-DP is dominated by one pair, which is composed with the steps."""
    open_search(ledger, "sealed", 2.0, filter=SEALED, delta=1e-6)
    assert read_dataset(ledger.dataset_state("digits")).epsilon == 0.0
    ledger.begin_sealed("sealed", "0" * 64)
    assert read_dataset(ledger.dataset_state("digits")).epsilon == 2.0
    open_search(ledger, "s", step_cap=200, epsilon=4.0)
    took(ledger, "s", 200)
    ledger.set_cap("digits", 100.0, 1e-5)
    found = read_dataset(ledger.dataset_state("digits")).epsilon
    alone = accounting.epsilon(MECHANISM, 200, 1e-5)
    basic = 2.0 + accounting.epsilon(MECHANISM, 200, 9e-6)
    assert max(alone, 2.0) < found < basic


@pytest.mark.parametrize("filter", [TotalSteps(MECHANISM, 100), SEALED], ids=["steps", "sealed"])
def test_every_reading_is_finite(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, filter: Filter) -> None:
    open_search(ledger, "s", filter=filter)
    if filter is SEALED:
        ledger.begin_sealed("s", "0" * 64)
    else:
        took(ledger, "s", 5)
    ledger.set_cap("digits", 100.0, 1e-6)  # below what is committed
    odometer._composed_epsilon.cache_clear()
    monkeypatch.setattr(odometer, "read_epsilon", lambda *_: inf)
    state = ledger.dataset_state("digits")
    assert read_dataset(state) == Reading(4.0, 1e-5)
    assert isfinite(read_search(ledger.search_state("s")).training.epsilon)
    odometer._composed_epsilon.cache_clear()


def test_more_steps_than_the_accountant_takes_read_as_the_claims() -> None:
    rows: list[tuple[str, dict[str, Any]]] = []
    for search in "st":
        asked = {"search": search, "trial": "a", "steps": 1_500_000, "pool": "training", "mechanism": CHEAP.body()}
        claimed = opening(TotalSteps(CHEAP, 1_500_000), search=search, epsilon=30.0, delta=1e-6)
        rows += [claimed, ("reserve", asked), ("lease", asked)]
    assert read_dataset(folded(chained(rows))).epsilon == 60.0


# Two sides of a split.


def scored(ledger: Ledger, name: str, details: dict[str, Any], **more: Any) -> None:  # noqa: ANN401
    more = {"fingerprint": details.get("own"), "step_cap": 50, **more}
    open_search(ledger, name, validation=TotalSteps(RELEASE, 90), details=details, **more)


def test_a_record_is_on_one_side_of_a_split(ledger: Ledger) -> None:
    scored(ledger, "s", SPLIT)
    took(ledger, "s", 10)
    took(ledger, "s", 80, pool="validation")
    reading = read_search(ledger.search_state("s"))
    assert reading.validation is not None
    assert reading.training.epsilon == accounting.epsilon(MECHANISM, 10, 1e-5)
    assert reading.validation.epsilon == accounting.epsilon(RELEASE, 80, 1e-5) > reading.training.epsilon
    assert read_dataset(ledger.dataset_state("digits")) == reading.validation


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        (SPLIT, SPLIT, True),
        (SPLIT, {"split": {"seed": 2}}, False),
        (SPLIT, {}, False),
        ({}, {}, False),
        (OWN, {**OWN, "own": "sha256:b"}, False),
        (OWN, OWN, True),
    ],
    ids=["same", "other", "unsaid", "never said", "changed file", "same file"],
)
def test_sides_add_up_where_the_searches_split_otherwise(
    ledger: Ledger, first: dict[str, Any], second: dict[str, Any], apart: bool
) -> None:
    ledger.set_cap("digits", 100.0, 2e-5)
    for name, details in (("one", first), ("two", second)):
        scored(ledger, name, details)
        took(ledger, name, 40)
        took(ledger, name, 40, pool="validation")
    either = max(composed((MECHANISM, 80), delta=2e-5), composed((RELEASE, 80), delta=2e-5))
    everything = composed((MECHANISM, 80), (RELEASE, 80), delta=2e-5)
    assert read_dataset(ledger.dataset_state("digits")) == Reading(either if apart else everything, 2e-5)
    assert everything > either


def test_a_sealed_search_counts_once_for_either_side(ledger: Ledger) -> None:
    sealed_scores = Sealed(SEALED.law, 60, ((RELEASE, 1),))
    open_search(ledger, "s", 2.0, filter=SEALED, validation=sealed_scores, validation_claim=(1.0, 1e-6), details=SPLIT)
    ledger.begin_sealed("s", "0" * 64)
    scored(ledger, "t", {"split": "another"})
    assert read_search(ledger.search_state("s")) == Odometer(Reading(2.0, 1e-5), Reading(1.0, 1e-6))
    assert read_dataset(ledger.dataset_state("digits")).epsilon == 2.0


def test_a_live_reading_is_an_upper_bound_and_composes_seldom() -> None:
    steps = [*range(1, 70), 99, 100, 1000, 1023, 1024, 1025, 77_777]
    for each in steps:
        assert each <= rounded_up(each) <= each * (1 + 1 / 16)
        assert rounded_up(rounded_up(each)) == rounded_up(each)
    assert len({rounded_up(each) for each in range(1, 2049)}) <= 16 * 8
    # ε is concave where it grows like the root of the steps: the chord between two readings is below it.
    low, middle, high = (composed((MECHANISM, each)) for each in (64, 66, 68))
    assert middle <= composed((MECHANISM, rounded_up(66))) <= middle * 1.035
    assert (low + high) / 2 < middle, "the control: an interpolation is no bound"


def test_without_composing_the_reading_is_the_claim(ledger: Ledger, search: str) -> None:
    state = ledger.search_state(search)
    assert read_search(state, compose=False).training.epsilon == 0.0
    took(ledger, search, 10)
    state = ledger.search_state(search)
    loose, exact = read_search(state, compose=False).training, read_search(state).training
    assert loose == Reading(state.epsilon, state.delta)
    assert exact.epsilon < loose.epsilon
