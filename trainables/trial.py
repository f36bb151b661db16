"""Ray Tune trainable that runs trials. No other module of `trainables` imports Ray.

Each `step` trains up to the next rung, writes the checkpoint to the sweep's folder and returns the scores. Ray's own
checkpoints are off. If a training raises an error, `step` returns that it failed, and if the infrastructure fails, the
cause. It raises nothing, so Ray retries a trial only if its worker was lost.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from ray.tune import Trainable

from trainables.errors import WalledError
from trainables.rungs import TrainingLoop, stops_sweep, why_lost

__all__ = ["AGAIN", "FAILED", "LOST", "METRICS", "REQUEST", "STEP", "STOPS", "TrialTrainable"]

REQUEST = "request"
STEP = "trial_step"
METRICS = "trial_metrics"
FAILED = "trial_failed"
LOST = "trial_lost"
AGAIN = "trial_again"
STOPS = "trial_stops"

_PASSING = ("charge-actor-lost", "ledger-busy", "ledger-unavailable", "rank-lost")
"""Codes of errors after which the trial may continue from its checkpoint, as after the loss of its worker."""


class TrialTrainable(Trainable):  # type: ignore[misc]  # Ray has no types
    """Ray actor that runs the `TrainingLoop` of one trial (``config["request"]``), then the loop of the next trial."""

    def setup(self, config: Mapping[str, TrainingLoop]) -> None:
        """Store the loop of a trial. The first `step` creates the training."""
        self._loop: TrainingLoop | None = replace(config[REQUEST])  # a copy, which `cleanup` can release

    def step(self) -> dict[str, object]:
        """Train up to the next rung. Return the steps taken and the scores, or that the trial failed or was lost."""
        if self._loop is None:
            raise RuntimeError("The trial was stopped. Call setup() before the next step.")
        loop = self._loop
        try:
            rung = loop.advance()
        except WalledError:
            return {FAILED: True}
        except Exception as error:  # noqa: BLE001 - it cannot depend on a record (`TrainingLoop.advance`)
            code = str(getattr(error, "code", ""))
            if code == "accelerator-failed":
                # Ray would give the next trial to this process. The bridge takes its end as the loss of a worker.
                os._exit(1)
            again = code in _PASSING
            return {LOST: why_lost(error), AGAIN: again, STOPS: not again and stops_sweep(error)}
        return {STEP: rung.step, METRICS: rung.metrics}

    def reset_config(self, new_config: Mapping[str, TrainingLoop]) -> bool:
        """Replace the stored loop by the loop of the next trial, in the same process."""
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """Release the model and the accelerator's memory."""
        self._loop = None
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            gc.collect()  # a tenth of a second, which the main memory is not worth: Python frees that by itself
            torch.cuda.empty_cache()
