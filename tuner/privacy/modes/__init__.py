"""Accounting modes. The mode of a search decides what the search may show and what it is charged for."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.privacy.modes.base import Mode
from tuner.privacy.modes.composition import COMPOSITION
from tuner.privacy.modes.public import PUBLIC
from tuner.privacy.modes.selection import SELECTION

__all__ = ["COMPOSITION", "MODES", "PUBLIC", "SELECTION", "Mode", "mode_of_charges"]

MODES: Mapping[str, Mode] = {mode.name: mode for mode in (COMPOSITION, SELECTION, PUBLIC)}
"""All accounting modes by name."""


def mode_of_charges(*, charged_whole: bool, searched_publicly: bool) -> Mode:
    """Return the accounting mode of a search, given how the ledger charged the search.

    Args:
        charged_whole: whether the search was charged as a whole when it began.
        searched_publicly: whether the configuration of its one charged run was searched on public records.
    """
    facts = (charged_whole, searched_publicly and not charged_whole)
    return next(mode for mode in MODES.values() if (mode.runs_hidden, mode.searches_public) == facts)
