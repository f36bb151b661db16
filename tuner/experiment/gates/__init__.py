"""Gates, which refuse values that have the right type but are not allowed together or in a private search."""

from __future__ import annotations

from tuner.experiment.gates.auto import AUTO_GATES
from tuner.experiment.gates.caps import CAP_GATES
from tuner.experiment.gates.commit import COMMIT_GATES
from tuner.experiment.gates.data import DATA_GATES
from tuner.experiment.gates.finding import Draft, Gate
from tuner.experiment.gates.minima import MINIMA_GATES
from tuner.experiment.gates.modes import MODE_GATES
from tuner.experiment.gates.privacy import PRIVACY_GATES
from tuner.experiment.gates.release import RELEASE_GATES
from tuner.experiment.gates.search import SEARCH_GATES
from tuner.experiment.gates.training import TRAINING_GATES
from tuner.experiment.gates.unimodal import UNIMODAL_GATES

__all__ = ["GATES", "Draft"]

GATES: tuple[Gate, ...] = (
    *DATA_GATES,
    *TRAINING_GATES,
    *PRIVACY_GATES,
    *SEARCH_GATES,
    *CAP_GATES,
    *COMMIT_GATES,
    *MODE_GATES,
    *RELEASE_GATES,
    *MINIMA_GATES,
    *AUTO_GATES,
    *UNIMODAL_GATES,
)
"""All gates. Problems on the same line of a file are reported in the order of these gates."""
