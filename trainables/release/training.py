"""Training of one trial on a release. It reads the stored release in the place of the records, and charges nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainables import data
from trainables.charge import Charge
from trainables.checkpoint import read_state, write_state
from trainables.engine.layout import Layout
from trainables.engine.objective import Plain
from trainables.engine.schedules import rate_factor
from trainables.engine.update import Update
from trainables.errors import DatasetError, GateError, HyperparameterError, TrainableError
from trainables.methods import from_parameters
from trainables.methods.input_perturbation import InputPerturbation
from trainables.methods.pate import Student
from trainables.models import build
from trainables.release.draw import Release, unpacked
from trainables.release.loss import debiased_cross_entropy, label_weights
from trainables.rungs import writing_checkpoint
from trainables.scoring import Answered, answers, exact_scores
from trainables.spec import TrainingSpec, require_own_state, spec_fingerprint
from trainables.tasks import CLASSIFICATION

__all__ = ["ReleasedTraining", "first_linear", "read_release"]


def read_release(path: Path, sha256: str) -> Release:
    """Return a stored release. Raise TrainableError if the file is missing, or is not the one that was charged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TrainableError(
            "release-unreadable",
            f"The charged release {path} cannot be read ({error.strerror}). Restore the file from a copy, or start a "
            "new search. A new search draws a new release and is charged for it.",
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise TrainableError(
            "release-unreadable",
            f"The release {path} is not the one that was charged: its checksum differs. Restore the file from a "
            "copy, or start a new search. A new search draws a new release and is charged for it.",
        )
    return unpacked(content)


def first_linear(model: nn.Module) -> nn.Linear:
    """Return the first layer of a model that has parameters. Raise HyperparameterError if it is not linear."""
    found = next((each for each in model.modules() if list(each.parameters(recurse=False))), None)
    if not isinstance(found, nn.Linear):
        raise HyperparameterError(
            "gain-not-linear",
            f"`feature_gain` must be 1 for a model whose first layer is not linear (got {type(found).__name__}). "
            "Write `feature_gain: 1`, or use logistic_regression or a model whose name starts with mlp.",
        )
    return found


class ReleasedTraining:
    """Gradient descent on a release. The loss is debiased for randomised labels, plus λ/2·‖θ‖².

    A release is one noisy copy of the records, or public inputs with labels that teachers voted for. Voted labels
    are taken as they are, and the loss may be smoothed.

    Formal guarantee: the model depends on the training records only through the release, which was charged before. The
    scores depend on the validation records as they are, which the guarantee does not cover.

    Args:
        spec: specification of the trial. `release`, `release_sha256` and `labels_kept` name the release.
        charge: ignored, because a training on a release costs nothing.

    Raises:
        HyperparameterError: a value is illegal.
        TrainableError: the release is missing, or is not the one that was charged.
    """

    def __init__(self, spec: TrainingSpec, charge: Charge) -> None:
        del charge
        self.spec, self.step = spec, 0
        found = from_parameters(
            spec.method,
            spec.parameters,
            batch_size=spec.batch_size,
            steps=spec.steps,
            noise_multiplier=spec.noise_multiplier,
            optimizer=spec.optimizer,
            momentum=spec.momentum,
        )
        if not isinstance(found, InputPerturbation | Student) or spec.release is None:
            raise HyperparameterError(
                "method-not-on-release",
                f"A training on a release needs the release, and a method that trains on one (got {spec.method!r} "
                f"and {spec.release!r}). Please report this as a bug.",
            )
        self._hyperparameters = found
        self._gain = found.feature_gain if isinstance(found, InputPerturbation) else 1.0
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        about = data.info(spec.dataset)
        self._outputs = about.outputs
        self._model = build(
            spec.model,
            input_shape=about.input_shape,
            classes=about.classes,
            activation=spec.activation,
            normalization=spec.normalization,
            seed=spec.seed,
        )
        if self._gain != 1:
            first_linear(self._model)
        self._layout = Layout.of(self._model)
        self._theta = self._layout.flatten(self._model)
        self._release = read_release(Path(spec.release), spec.release_sha256)
        if len(self._release.y) == 0:
            raise TrainableError(
                "release-empty",
                "The teachers answered no query, so the student has no label to train on. Lower "
                "`privacy.votes.threshold` or raise `privacy.epsilon` in a new search, which is charged again.",
            )
        self._inputs = self._release.x.reshape(-1, *about.input_shape)
        self._weights = label_weights(spec.labels_kept, about.classes)
        self._update: Update = found.update(self._theta, variance=lambda: 0.0)  # the steps have no noise of their own
        self._public = torch.Generator().manual_seed(spec.seed)

    @property
    def learning_rate(self) -> float:
        """Scheduled learning rate of the next step."""
        settings, steps = self._hyperparameters.schedule, self._hyperparameters.steps
        factor = rate_factor(settings, min(self.step, steps - 1), steps, steps_per_epoch=1 / self.spec.sample_rate)
        return self._hyperparameters.learning_rate * factor

    @property
    def extrapolation(self) -> float:
        """Return 0, because nothing is averaged."""
        return 0.0

    @property
    def model(self) -> nn.Module:
        """Model that is scored and exported, with the gain on the weights of its first layer."""
        self._layout.write(self._theta, self._model)
        if self._gain != 1:
            with torch.no_grad():
                first_linear(self._model).weight.mul_(self._gain)
        return self._model

    def run_to(self, step: int) -> None:
        """Take the steps up to `step`, each on a public random choice of `batch_size` rows."""
        rows, size = len(self._inputs), min(self.spec.batch_size, len(self._inputs))
        while self.step < step:
            batch = slice(None) if size == rows else torch.randint(rows, (size,), generator=self._public)
            gradient = self.gradient(self._inputs[batch], self._release.y[batch])
            self._theta = self._theta - self.learning_rate * self._update.direction(gradient)
            self.step += 1

    def gradient(self, inputs: Tensor, reported: Tensor) -> Tensor:
        """Return the gradient of the debiased loss plus λ/2·‖θ‖² at the current parameters, shape (d,).

        The loss may be a mean over perturbed parameters, whose public generator is the training's.
        """
        method = self._hyperparameters
        objective = method.objective(self.step) if isinstance(method, Student) else Plain()
        points = objective.points(self._theta, noise_scale=1.0, public=self._public)
        named = dict(self._model.named_parameters())
        parameters = [named[name] for name in self._layout.names]
        flat = torch.zeros_like(self._theta)
        for index in range(len(points)):
            self._layout.write(points.theta(index), self._model)
            loss = debiased_cross_entropy(self._model(inputs), reported, self._weights)
            flat += torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, parameters)])
        return points.scale * flat + method.weight_decay * self._theta

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Return accuracy and mean cross-entropy on validation or test records, which the guarantee does not cover.

        Raises:
            GateError: `split` is neither 'validation' nor 'test'.
            DatasetError: the split has no records.
        """
        if split not in ("validation", "test"):
            raise GateError(
                "training-records-scored",
                f"`split` must be 'validation' or 'test' (got {split!r}). Training records are never scored.",
            )
        splits = data.load_records(self.spec.dataset)
        inputs, targets = (
            (splits.x_validation, splits.y_validation) if split == "validation" else (splits.x_test, splits.y_test)
        )
        if len(inputs) == 0:
            raise DatasetError("split-empty", f"The {split} split has no records. Raise dataset.validation.fraction.")
        return exact_scores(
            Answered.of(answers(self.model, inputs, targets, outputs=self._outputs), CLASSIFICATION),
            split=split,
            task=CLASSIFICATION,
            metric=self.spec.metric,
            finite=bool(self._theta.isfinite().all()),
        )

    def save(self, path: Path) -> None:
        """Write the state atomically, readable by the owner only. Raise InfrastructureError if it cannot be written."""
        self._layout.write(self._theta, self._model)
        state: dict[str, Any] = {
            "spec": spec_fingerprint(self.spec),
            "step": self.step,
            "leased": 0,
            "released": 0,
            "model": {name: value.detach().clone() for name, value in self._model.state_dict().items()},
            "optimizer": self._update.state_dict(),
            "public": self._public.get_state(),
        }
        with writing_checkpoint(path.parent):
            write_state(path, state)

    def load(self, path: Path) -> None:
        """Continue from a saved state; raise errors as `trainables.training.PrivateTraining.load`."""
        state = read_state(path)
        require_own_state(path, state, self.spec)
        self.step = state["step"]
        self._model.load_state_dict(state["model"])
        self._theta = self._layout.flatten(self._model)
        self._update.load_state_dict(state["optimizer"])
        self._public.set_state(state["public"])
