"""Ray Tune trainable that runs trials. No other module of `trainables` imports Ray.

Each `step` trains up to the next rung, writes the checkpoint to the sweep's folder and returns the scores. Ray's own
checkpoints are off. If a training raises an error, `step` returns the class of the error instead of raising it. So Ray
retries a trial only if its worker was lost.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from dataclasses import replace

from ray.tune import Trainable

from trainables.rungs import TrainingLoop, log_for_operator, why_failed

__all__ = ["FAILED", "METRICS", "REQUEST", "STEP", "TrialTrainable"]

REQUEST = "request"
STEP = "trial_step"
METRICS = "trial_metrics"
FAILED = "trial_failed"


class TrialTrainable(Trainable):  # type: ignore[misc]  # Ray has no types
    """Ray actor that runs the `TrainingLoop` of one trial (``config["request"]``), then the loop of the next trial."""

    def setup(self, config: Mapping[str, TrainingLoop]) -> None:
        """Store the loop of a trial. The first `step` creates the training."""
        self._loop: TrainingLoop | None = replace(config[REQUEST])  # a copy, which `cleanup` can release

    def step(self) -> dict[str, object]:
        """Train up to the next rung. Return the steps taken, with the scores or the reason of a failure."""
        if self._loop is None:
            raise RuntimeError("The trial was stopped. Call setup() before the next step.")
        loop = self._loop
        try:
            rung = loop.advance()
        except Exception as error:  # noqa: BLE001 - an error of a model ends this trial only; it is logged and recorded
            log_for_operator(loop.folder, loop.trial_id, error)
            return {STEP: loop.step, FAILED: why_failed(error)}
        return {STEP: rung.step, METRICS: rung.metrics}

    def reset_config(self, new_config: Mapping[str, TrainingLoop]) -> bool:
        """Replace the stored loop by the loop of the next trial, in the same process."""
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """Release the model and the accelerator's memory."""
        self._loop = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
