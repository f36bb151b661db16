"""Gates: what an experiment must not ask for although every value is well formed."""

from __future__ import annotations

from tuner.experiment.gates.caps import CAP_GATES
from tuner.experiment.gates.data import DATA_GATES
from tuner.experiment.gates.finding import Draft, Gate, GateFinding
from tuner.experiment.gates.modes import MODE_GATES
from tuner.experiment.gates.privacy import PRIVACY_GATES
from tuner.experiment.gates.search import SEARCH_GATES
from tuner.experiment.gates.training import TRAINING_GATES
from tuner.experiment.gates.unimodal import UNIMODAL_GATES

__all__ = ["GATES", "Draft", "Gate", "GateFinding"]

GATES: tuple[Gate, ...] = (
    *DATA_GATES,
    *TRAINING_GATES,
    *PRIVACY_GATES,
    *SEARCH_GATES,
    *CAP_GATES,
    *MODE_GATES,
    *UNIMODAL_GATES,
)
"""Every gate, in the order in which problems of the same line are reported."""
