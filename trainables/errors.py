"""The exceptions of the trainables; every message gives the rule, the value and the mend.

TrainableError
├── HyperparameterError   a hyper-parameter is unknown, not finite or out of its range
├── DatasetError          a data set is unknown, missing or not what its checksum says
└── GateError             what was asked would break the privacy guarantee
"""

from __future__ import annotations

__all__ = ["DatasetError", "GateError", "HyperparameterError", "TrainableError"]


class TrainableError(Exception):
    """Anything that a trainable refuses or cannot do."""


class HyperparameterError(TrainableError, ValueError):
    """A hyper-parameter is unknown, not finite or out of its range."""


class DatasetError(TrainableError):
    """A data set is unknown, missing, or differs from its checksum."""


class GateError(TrainableError):
    """What was asked would break the privacy guarantee, so nothing was started."""
