"""Every planted fault, from all parts of the catalogue."""

from __future__ import annotations

from benchmarks.planted import (
    accountant,
    audit,
    cluster,
    ledger,
    minima,
    release,
    search,
    selection,
    sharing,
    step,
    training,
    verification,
    votes,
)
from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    *step.FAULTS,
    *training.FAULTS,
    *audit.FAULTS,
    *sharing.FAULTS,
    *accountant.FAULTS,
    *selection.FAULTS,
    *ledger.FAULTS,
    *verification.FAULTS,
    *search.FAULTS,
    *release.FAULTS,
    *votes.FAULTS,
    *cluster.FAULTS,
    *minima.FAULTS,
)
"""In the order in which a reader meets the code: from the private step to what leaves a search."""
