"""A trial as a Ray Tune trainable: the only module of `trainables` that imports Ray.

Each `step` trains up to the next rung, writes the checkpoint to the sweep's folder and returns the scores. Resume and
export find that checkpoint without Ray, so Ray's own checkpointing is off. When a training raises, `step` returns the
class of the error and does not raise, so that Ray retries only lost workers.
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
    """Request of one trial to a worker; picklable, without data.

    Attributes:
        trial_id: the trial's name in the sweep's folder.
        spec: given to `make_training`.
        charge: given to `make_training`; it must work on the worker's machine.
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
    """Ray actor that runs one `TrialRequest` (``config["request"]``) rung by rung, then the next trial."""

    def setup(self, config: Mapping[str, object]) -> None:
        """Take the request. The first `step` creates the training, so that an error there fails the trial."""
        request = config[REQUEST]
        if not isinstance(request, TrialRequest):
            raise TypeError(f"config[{REQUEST!r}] must be a TrialRequest, not a {type(request).__name__}.")
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
        """Train up to the next rung.

        Returns:
            The step of the trial, with its scores or the reason of its failure.
        """
        loop = self._running_loop()
        try:
            rung = loop.advance()
        except Exception as error:  # noqa: BLE001 - an error of a model ends this trial only; it is logged and recorded
            log_for_operator(Path(self._request.folder), self._request.trial_id, error)
            return {STEP: loop.step, FAILED: why_failed(error)}
        return {STEP: rung.step, METRICS: rung.metrics}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the whole state, generators included, for a caller of Ray's own `save`."""
        self._running_loop().save(Path(checkpoint_dir) / _STATE_FILE)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Continue from a state of `save_checkpoint`."""
        self._running_loop().load(Path(checkpoint) / _STATE_FILE)

    def reset_config(self, new_config: Mapping[str, object]) -> bool:
        """Take the next trial's request in the same process."""
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

    def _running_loop(self) -> TrainingLoop:
        if self._loop is None:
            raise RuntimeError("The trial was stopped. Call setup() before the next step.")
        return self._loop
