"""Accounting modes and filters: each is complete in every room, and the ledger tells which mode was used."""

from __future__ import annotations

from typing import get_args

import pytest
from ledgers import BOOK, NOISY, SEALED, TRAINING_STEPS, VOTED

from tuner.experiment.privacy_sections import PrivacySection
from tuner.plan.modes import PLANNERS
from tuner.privacy.accountant.filters import FILTERS, Filter, FixedOrder
from tuner.privacy.card.wording import allowed_text
from tuner.privacy.modes import COMPOSITION, MODES, PUBLIC, RELEASE, SELECTION, VOTES, Mode, mode_of_charges
from tuner.privacy.verify.accountant.bounds import epsilon_ranges, judge, within
from tuner.report.plan_modes import MODE_ROWS
from tuner.runner.start import RUNNERS
from tuner.study.names import SECRET_SAMPLERS

RENYI = FixedOrder.of(order=8.0, epsilon=4.0, delta=1e-5)
SAMPLES = {filter.kind: filter for filter in (TRAINING_STEPS, BOOK, SEALED, RENYI, NOISY, VOTED) if filter is not None}


def test_every_filter_has_a_sample_here_and_every_cap_of_a_file_is_one() -> None:
    assert set(SAMPLES) == set(FILTERS)
    assert set(get_args(PrivacySection.model_fields["cap"].annotation)) == {"auto", *COMPOSITION.caps}


@pytest.mark.parametrize("filter", SAMPLES.values(), ids=list(SAMPLES))
def test_every_filter_has_a_phrase_on_the_card_and_a_second_opinion(filter: Filter) -> None:
    body = filter.body()
    assert allowed_text(body)
    (found,) = epsilon_ranges(body, [1e-5])
    assert judge(filter.claim(1e-5), found).ok is True
    assert within(body, ()).ok is True


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_every_mode_is_planned_shown_and_run(mode: Mode) -> None:
    assert mode.name in PLANNERS
    assert mode.name in MODE_ROWS
    assert (mode.name in RUNNERS) is not mode.searches_public, "a search of public mode is two sweeps"
    assert set(mode.caps) <= set(FILTERS)


def test_a_mode_that_hides_its_runs_allows_only_samplers_that_draw_in_secret() -> None:
    for mode in MODES.values():
        assert not mode.runs_hidden or (mode.samplers and set(mode.samplers) <= set(SECRET_SAMPLERS))


def test_only_one_trial_of_a_public_search_is_private() -> None:
    assert [mode.private_trials(7) for mode in (COMPOSITION, SELECTION, PUBLIC)] == [7, 7, 1]


@pytest.mark.parametrize("searched_publicly", [False, True])
def test_the_ledger_tells_the_mode(searched_publicly: bool) -> None:
    assert mode_of_charges(SEALED.mode, searched_publicly=searched_publicly) is SELECTION
    assert mode_of_charges(NOISY.mode, searched_publicly=searched_publicly) is RELEASE
    assert mode_of_charges(VOTED.mode, searched_publicly=searched_publicly) is VOTES
    expected = PUBLIC if searched_publicly else COMPOSITION
    for filter in (TRAINING_STEPS, BOOK):
        assert mode_of_charges(filter.mode, searched_publicly=searched_publicly) is expected
