"""One trial's private training: leases its steps, takes them, scores the model, is saved and continued."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from trainables import data
from trainables.data import Splits
from trainables.engine.average import WeightAverage
from trainables.engine.layout import Layout
from trainables.engine.per_sample import PerSampleSource
from trainables.engine.random import Generator, SecureGenerator, SeededGenerator
from trainables.engine.schedules import factor
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Mechanism, PrivateStep
from trainables.engine.update import Adam, Sgd, Update
from trainables.errors import DatasetError, GateError, HyperparameterError, TrainableError
from trainables.hyperparameters import check_augmentation, from_parameters
from trainables.methods import METHODS
from trainables.model_gate import public_inputs
from trainables.models import build
from trainables.spec import TrainingSpec, check_privacy, fingerprint

__all__ = ["LEASE_STEPS", "Charge", "PrivateTraining", "TrainingSpec", "gradient_source"]

# What a crash can cost at most: steps that were charged and never taken.
LEASE_STEPS: Final = 200
_SCORING_BATCH: Final = 2048
_AUTOCAST: Final[Mapping[str, torch.dtype | None]] = {"float32": None, "bfloat16": torch.bfloat16}


class Charge(Protocol):
    """How a trial pays for its steps."""

    def lease(self, steps: int) -> None:
        """Charges `steps` durably, BEFORE they are taken; raises when they are refused."""
        ...

    def leased(self) -> int:
        """Steps charged so far to this trial, over all its attempts."""
        ...


class PrivateTraining:
    """A training that takes no step that was not leased first.

    Formal guarantee: what this object shows of the training records (parameters, scores on other records) is a
    function of `noise_draws` subsampled Gaussian mechanisms with the spec's sample_rate and noise_multiplier. Its
    state, which holds the secret generator, is for the operator's eyes only.

    Args:
        spec: what to train.
        charge: how to pay.
        splits: records to use in the place of the spec's, for timing on random numbers; None reads the spec's.

    Raises:
        HyperparameterError: a value is out of its range.
        GateError: what is asked for would not be private.
        DatasetError: the records are not there.
    """

    def __init__(self, spec: TrainingSpec, charge: Charge, *, splits: Splits | None = None) -> None:
        check_privacy(spec)
        self.spec = spec
        self.step = 0
        self._charge = charge
        self._hyperparameters = from_parameters(
            spec.method,
            spec.parameters,
            batch_size=spec.batch_size,
            steps=spec.steps,
            noise_multiplier=spec.noise_multiplier,
            optimizer=spec.optimizer,
            momentum=spec.momentum,
        )
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        self._device = _device(spec.device)
        about = data.info(spec.dataset)
        check_augmentation(self._hyperparameters.augmentation, about.input_shape)
        self._model = build(
            spec.model,
            input_shape=about.input_shape,
            classes=about.classes,
            activation=spec.activation,
            normalization=spec.normalization,
            seed=spec.seed,
        ).to(self._device)
        self._layout = Layout.of(self._model)
        source = gradient_source(self._model, self._layout, about.input_shape, precision=spec.precision)
        self._theta = self._layout.flatten(self._model)
        self._records = _records(splits or data.load(spec.dataset), self._device)
        self._update = self._make_update()
        decay = self._hyperparameters.ema_decay
        self._average = WeightAverage(self._theta, decay=decay) if decay else None
        self._secret: Generator = SecureGenerator() if spec.noise_seed is None else SeededGenerator(spec.noise_seed)
        self._public = torch.Generator().manual_seed(spec.seed)
        self._private_step = PrivateStep(
            mechanism=Mechanism(
                sample_rate=spec.sample_rate,
                noise_multiplier=spec.noise_multiplier,
                max_grad_norm=self._hyperparameters.max_grad_norm,
                expected_batch_size=spec.batch_size,
                clipping=self._hyperparameters.clipping,
            ),
            stages=METHODS[spec.method](self._hyperparameters, self._layout),
            source=source,
            update=self._update,
            secret=self._secret,
            public=self._public,
        )

    @property
    def noise_draws(self) -> int:
        """How often noise was added, counting what a loaded checkpoint had."""
        return self._private_step.noise_draws

    @property
    def max_grad_norm(self) -> float:
        """The clipping norm C of this trial."""
        return self._hyperparameters.max_grad_norm

    @property
    def learning_rate(self) -> float:
        """The scheduled rate of the next step."""
        settings, steps = self._hyperparameters.schedule, self._hyperparameters.steps
        return self._hyperparameters.learning_rate * factor(settings, min(self.step, steps - 1), steps)

    @property
    def model(self) -> nn.Module:
        """The model as it is scored and exported: with the average of the weights where ema_decay asks for it."""
        self._layout.write(self._shown, self._model)
        return self._model

    @property
    def _shown(self) -> Tensor:
        """The weights that are scored and exported; training goes on from `_theta`. Both come after the noise."""
        return self._theta if self._average is None or self.step == 0 else self._average.value()

    def run_to(self, step: int) -> None:
        """Takes steps until `step` of them are done, leasing LEASE_STEPS at most at a time.

        Raises:
            HyperparameterError: `step` lies beyond the spec's steps.
            Exception: whatever the charge raises when it refuses; then none of the steps refused were taken.
        """
        if step > self.spec.steps:
            raise HyperparameterError(f"step must be at most steps = {self.spec.steps}; got {step}")
        inputs, targets = self._records["train"]
        while self.step < step:
            leased = min(LEASE_STEPS, step - self.step)
            self._charge.lease(leased)  # durable before the first of these batches is drawn
            for _ in range(leased):
                self._theta = self._private_step.take(self._theta, inputs, targets, learning_rate=self.learning_rate)
                if self._average is not None:
                    self._average.update(self._theta)
                self.step += 1

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Accuracy and mean cross-entropy on records that are not trained on.

        Args:
            split: 'validation' or 'test'.

        Returns:
            `{split}_accuracy` in [0, 1] and `{split}_loss`; both NaN when a parameter or the loss is not finite.

        Raises:
            GateError: another split. Nothing is ever told of the training records.
            DatasetError: the split has no records.
        """
        if split not in ("validation", "test"):
            raise GateError(f"only 'validation' and 'test' are scored, never training records; got {split!r}")
        inputs, targets = self._records[split]
        if len(inputs) == 0:
            raise DatasetError(f"the {split} split has no records: raise dataset.validation.fraction above 0")
        correct, loss = self._score(inputs, targets)
        if not (isfinite(loss) and bool(self._shown.isfinite().all())):
            return {f"{split}_accuracy": nan, f"{split}_loss": nan}
        return {f"{split}_accuracy": correct / len(inputs), f"{split}_loss": loss / len(inputs)}

    def _score(self, inputs: Tensor, targets: Tensor) -> tuple[int, float]:
        """(number of right answers, summed cross-entropy)."""
        model = self.model
        correct, loss = 0, 0.0
        with torch.no_grad():
            for x, y in zip(*(torch.split(each, _SCORING_BATCH) for each in (inputs, targets)), strict=True):
                logits = model(x).double()
                correct += int((logits.argmax(1) == y).sum())
                loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
        return correct, loss

    def state_dict(self) -> dict[str, Any]:
        """Everything from which the training continues bit for bit. Secret: it foretells the noise to come."""
        self._layout.write(self._theta, self._model)  # the average may stand there
        state = {
            "spec": fingerprint(self.spec),
            "step": self.step,
            "leased": self._charge.leased(),
            "noise_draws": self.noise_draws,
            "model": {name: value.detach().clone().cpu() for name, value in self._model.state_dict().items()},
            "optimizer": _stored(self._update.state_dict()),
            "secret": self._secret.state_dict(),
            "public": self._public.get_state(),
        }
        return state if self._average is None else {**state, "average": _stored(self._average.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a stored state.

        The stored stream of noise goes on only when nothing was leased since it was stored, and for the same spec.
        Otherwise some of its noise may be out already, on other parameters perhaps, and two steps under one noise
        would cancel it: then the secret generator takes a fresh key, and the steps that are repeated are leased again.

        Raises:
            TrainableError: the spec averages the weights, and the state has no average. Nothing was taken from it.
        """
        if self._average is not None:
            if "average" not in state:
                raise TrainableError(
                    "a checkpoint must hold the average of the weights where ema_decay is above 0; got one without for "
                    f"ema_decay {self._hyperparameters.ema_decay:g}: go on with the settings that it was saved with"
                )
            self._average.load_state_dict(state["average"])
        self.step = state["step"]
        self._private_step.noise_draws = state["noise_draws"]
        self._model.load_state_dict(state["model"])
        self._theta = self._layout.flatten(self._model)
        self._update.load_state_dict(state["optimizer"])
        self._public.set_state(state["public"])
        self._secret.load_state_dict(state["secret"])
        if self._charge.leased() != state["leased"] or state["spec"] != fingerprint(self.spec):
            self._secret.rekey()

    def save(self, path: Path) -> None:
        """Writes the state, whole or not at all, readable by its owner only."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                torch.save(self.state_dict(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def load(self, path: Path) -> None:
        """Continues from a saved state; nothing in the file is executed."""
        self.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))

    def _make_update(self) -> Update:
        if self._hyperparameters.optimizer == "adam":
            return Adam(self._theta)
        return Sgd(self._theta, momentum=self._hyperparameters.momentum)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise HyperparameterError(f"device must be auto, cpu or cuda; got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainableError("device is cuda, and torch finds no GPU here: take auto or cpu")
    return torch.device(name)


def gradient_source(
    model: nn.Module, layout: Layout, input_shape: tuple[int, ...], *, precision: str
) -> PerSampleSource:
    """What computes a model's per-sample gradients, held against autograd on random inputs before any record is read.

    Args:
        model: on its device.
        layout: of its parameters.
        input_shape: of one input, without the batch.
        precision: 'float32' or 'bfloat16'.

    Raises:
        HyperparameterError: another precision.
        GateError: the model's per-sample gradients cannot be had, or not in this precision.
    """
    if precision not in _AUTOCAST:
        raise HyperparameterError(f"precision must be one of {', '.join(_AUTOCAST)}; got {precision!r}")
    example = public_inputs(input_shape).to(next(model.parameters()).device)
    return per_sample_source(model, layout, example=example, autocast=_AUTOCAST[precision])


def _stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a part's memory as it is saved: tensors on the CPU, whatever trains on."""
    return {name: value.clone().cpu() if isinstance(value, Tensor) else value for name, value in values.items()}


def _records(splits: Splits, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    """All records on the device, each in one piece: a batch is gathered from them at every step."""
    parts = {
        "train": (splits.x_train, splits.y_train),
        "validation": (splits.x_validation, splits.y_validation),
        "test": (splits.x_test, splits.y_test),
    }
    return {name: (x.to(device).contiguous(), y.to(device).contiguous()) for name, (x, y) in parts.items()}
