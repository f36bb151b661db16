"""A trial as a Ray Tune trainable: the only place in `trainables` that knows Ray.

Each `step` goes to the next rung, writes the trial's checkpoint in the sweep's folder and returns the scores. The
checkpoint is ours, at a place that resume and export find without Ray, so Ray's own checkpointing is left off. A
training that raises does not raise here: its class name is returned, so that Ray's retries are kept for lost workers.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ray.tune import Trainable

from trainables.rungs import MakeTraining, TrainingLoop, log_for_operator, why_failed

__all__ = ["FAILED", "METRICS", "REQUEST", "STEP", "TrialRequest", "TrialTrainable"]

REQUEST = "request"
STEP = "trial_step"
METRICS = "trial_metrics"
FAILED = "trial_failed"

_STATE_FILE = "state.pt"


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """All that a worker needs for one trial; picklable, holds no data.

    Attributes:
        trial_id: the trial's name in the sweep's folder.
        spec: given to `make_training`.
        charge: given to `make_training`; must work from the worker's machine.
        make_training: importable on the worker, or pickled by value.
        folder: the sweep's folder, at the same path on every machine.
        rung_steps: the steps at which the trial reports; the last is its end.
    """

    trial_id: str
    spec: object
    charge: object
    make_training: MakeTraining
    folder: str
    rung_steps: tuple[int, ...]


class TrialTrainable(Trainable):  # type: ignore[misc]  # Ray has no types
    """Runs one `TrialRequest` (``config["request"]``), rung by rung; the actor is used again for the next trial."""

    def setup(self, config: Mapping[str, object]) -> None:
        """Take the request. The training is made by the first `step`, so that what fails there fails as the trial."""
        request = config[REQUEST]
        if not isinstance(request, TrialRequest):
            raise TypeError(f"config[{REQUEST!r}] must be a TrialRequest, got {type(request).__name__}")
        self._request = request
        self._loop: TrainingLoop | None = TrainingLoop(
            request.make_training,
            request.spec,
            request.charge,
            folder=Path(request.folder),
            trial_id=request.trial_id,
            rung_steps=request.rung_steps,
        )

    def step(self) -> dict[str, object]:
        """Go to the next rung.

        Returns:
            The trial's step, with its scores, or with the reason for which it failed.
        """
        loop = self._running_loop()
        try:
            rung = loop.advance()
        except Exception as error:  # noqa: BLE001 - whatever a model raises ends this trial only; it is logged and recorded
            log_for_operator(Path(self._request.folder), self._request.trial_id, error)
            return {STEP: loop.step, FAILED: why_failed(error)}
        return {STEP: rung.step, METRICS: rung.metrics}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the whole state, generators included, for a caller of Ray's own `save`."""
        self._running_loop().save(Path(checkpoint_dir) / _STATE_FILE)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Continue from what `save_checkpoint` wrote."""
        self._running_loop().load(Path(checkpoint) / _STATE_FILE)

    def reset_config(self, new_config: Mapping[str, object]) -> bool:
        """Take the next trial's request in the same process."""
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """Let go of the model, and of the accelerator's memory that it held."""
        self._loop = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _running_loop(self) -> TrainingLoop:
        if self._loop is None:
            raise RuntimeError("the trial was stopped; setup() must come before it goes on")
        return self._loop
