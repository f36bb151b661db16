"""Accounting modes. The mode of a search decides what the search may show and what it is charged for."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.privacy.modes.base import Mode
from tuner.privacy.modes.composition import COMPOSITION
from tuner.privacy.modes.public import PUBLIC
from tuner.privacy.modes.release import RELEASE
from tuner.privacy.modes.selection import SELECTION
from tuner.privacy.modes.votes import VOTES

__all__ = ["COMPOSITION", "MODES", "PUBLIC", "RELEASE", "SELECTION", "VOTES", "Mode", "mode_of_charges"]

MODES: Mapping[str, Mode] = {mode.name: mode for mode in (COMPOSITION, SELECTION, PUBLIC, RELEASE, VOTES)}
"""All accounting modes by name."""


def mode_of_charges(mode: str, *, searched_publicly: bool) -> Mode:
    """Return the accounting mode of a search, given how the ledger charged the search.

    Args:
        mode: mode that the search's filter names (`Filter.mode`).
        searched_publicly: whether the configuration of its one charged run was searched on public records.
    """
    return PUBLIC if searched_publicly and mode == COMPOSITION.name else MODES[mode]
