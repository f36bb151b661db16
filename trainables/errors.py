"""The exception tree of the trainables.

TrainableError
├── HyperparameterError   a hyper-parameter is unknown, not finite or out of range
├── DatasetError          a data set is unknown, missing or differs from its checksum
└── GateError             the request would break the privacy guarantee
"""

from __future__ import annotations

__all__ = ["EXPLANATIONS", "DatasetError", "GateError", "HyperparameterError", "TrainableError"]

EXPLANATIONS: dict[str, str] = {}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


class TrainableError(Exception):
    """Base of every error that a trainable raises on purpose.

    Args:
        code: stable code, a key of `EXPLANATIONS`.
        message: what is wrong with which value, and what to do.
    """

    def __init__(self, code: str, message: str | None = None) -> None:
        if message is None:  # transitional
            code, message = "uncoded", code
        self.code, self.message = code, message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class HyperparameterError(TrainableError, ValueError):
    """A hyper-parameter that is unknown, not finite or out of range."""


class DatasetError(TrainableError):
    """A data set that is unknown, missing, or differs from its checksum."""


class GateError(TrainableError):
    """A request that would break the privacy guarantee. Nothing was started."""
