"""Accounting modes: every mode is complete in every room, and the ledger tells which one was used."""

from __future__ import annotations

import pytest

from tuner.plan.modes import PLANNERS
from tuner.privacy.accountant.filters import FILTERS
from tuner.privacy.modes import COMPOSITION, MODES, PUBLIC, SELECTION, Mode, mode_of_charges
from tuner.report.plan_modes import MODE_ROWS
from tuner.runner.start import RUNNERS
from tuner.study.names import SECRET_SAMPLERS


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
    assert mode_of_charges(charged_whole=True, searched_publicly=searched_publicly) is SELECTION
    expected = PUBLIC if searched_publicly else COMPOSITION
    assert mode_of_charges(charged_whole=False, searched_publicly=searched_publicly) is expected
