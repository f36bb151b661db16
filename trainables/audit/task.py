"""Canary task: a linear model, one large entry in each record, and a mechanism at which one run shows much of its ε."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trainables.audit.canaries import Canaries, canary_request, one_hot_canaries
from trainables.tasks import CLASSIFICATION
from trainables.training import TrainingSpec

__all__ = ["METHOD_PARAMETERS", "canary_task"]

METHOD_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "dp_sgd": {},
    "dp_lssgd": {"laplacian_sigma": 1.0},
    "dplis": {"smoothing_radius": 5.0, "smoothing_samples": 2},
    "dp_weight_decay": {"weight_decay": 0.01},
    "composed": {"laplacian_sigma": 1.0, "smoothing_radius": 5.0, "smoothing_samples": 2, "weight_decay": 0.01},
}
"""Method name → parameters with which the method differs from DP-SGD. A test checks that every method is in it."""

_CLASSES: Final = 2


def canary_task(
    folder: Path,
    method: str,
    *,
    canaries: int,
    noise_multiplier: float = 3.0,
    sample_rate: float = 0.5,
    steps: int = 20,
    task: str = CLASSIFICATION,
    **changes: Any,  # noqa: ANN401 - fields of `TrainingSpec`
) -> tuple[TrainingSpec, Canaries]:
    """Return the specification of an audited training of logistic regression, and its canaries.

    Args:
        folder: an empty folder for the file with the public shape.
        method: key of `METHOD_PARAMETERS`.
        canaries: m.
        noise_multiplier: noise of a step.
        sample_rate: probability with which a canary that entered is in a batch.
        steps: number of steps.
        task: task of the labels.
        **changes: other fields of the specification.
    """
    records = one_hot_canaries(input_shape=(canaries,), classes=_CLASSES, most=canaries, task=task)
    request = canary_request(folder, input_shape=(canaries,), classes=_CLASSES, public_size=canaries // 2, task=task)
    values: dict[str, Any] = {
        "method": method,
        "dataset": request,
        "batch_size": max(1, round(sample_rate * canaries / 2)),
        "steps": steps,
        "noise_multiplier": noise_multiplier,
        "sample_rate": sample_rate,
        "parameters": METHOD_PARAMETERS[method],
        "metric": "validation_loss",
        "device": "cpu",
    }
    return TrainingSpec(**(values | changes)), records
