"""Tasks and scores: which loss a model is trained with, and by which scores trials can be compared. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainables.errors import HyperparameterError

__all__ = ["BINARY", "CLASSIFICATION", "METRICS", "REGRESSION", "TASKS", "Metric", "check_metric", "outputs_of"]

CLASSIFICATION, BINARY, REGRESSION = "classification", "binary", "regression"

TASKS: Final[Mapping[str, str]] = {
    CLASSIFICATION: "one logit for each class, and the cross-entropy",
    BINARY: "one logit f, labels y = ±1, and the logistic loss log(1 + e^(−y·f))",
    REGRESSION: "one number f, and the squared loss (f − y)²",
}
"""Task → outputs and loss of a sample."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Score of validation records.

    Attributes:
        mode: 'max' or 'min'.
        tasks: tasks that have this score.
        two_classes: whether there must be exactly two classes.
        sensitivity: how far one record moves the score's count, or None if no bound is stated. Only a score with a
            bound can be protected.
    """

    mode: str
    tasks: tuple[str, ...] = (CLASSIFICATION, BINARY)
    two_classes: bool = False
    sensitivity: int | None = None


METRICS: Final[Mapping[str, Metric]] = {
    "validation_accuracy": Metric(mode="max", sensitivity=1),
    "validation_loss": Metric(mode="min", tasks=tuple(TASKS)),
    "validation_perplexity": Metric(mode="min"),
    "validation_balanced_accuracy": Metric(mode="max"),
    "validation_auc": Metric(mode="max", two_classes=True),
}
"""Scores by name. `validation_loss` is the mean loss of the task: the mean squared error of a regression."""


def check_metric(metric: str, *, task: str, classes: int) -> None:
    """Raise HyperparameterError if records with these labels have no such score."""
    known = METRICS.get(metric)
    if known is None or task not in known.tasks:
        scores = ", ".join(
            name for name, each in METRICS.items() if task in each.tasks and (classes == 2 or not each.two_classes)
        )
        raise HyperparameterError("metric-of-task", f"The task {task} has no score {metric}. Use one of: {scores}.")
    if known.two_classes and classes != 2:
        raise HyperparameterError(
            "metric-of-task", f"`{metric}` needs two classes (got {classes}). Use validation_balanced_accuracy."
        )


def outputs_of(task: str, classes: int) -> int:
    """Return the number of outputs of a model."""
    return classes if task == CLASSIFICATION else 1
