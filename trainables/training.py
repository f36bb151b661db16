"""One trial's private training: leases its steps, takes them, scores the model, is saved and continued."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from trainables import data
from trainables.data import DatasetRequest, Splits
from trainables.engine.layout import Layout
from trainables.engine.linear import per_sample_source
from trainables.engine.random import Generator, SecureGenerator, SeededGenerator
from trainables.engine.schedules import factor
from trainables.engine.step import Mechanism, PrivateStep
from trainables.engine.update import Adam, Sgd, Update
from trainables.errors import DatasetError, GateError, HyperparameterError, TrainableError
from trainables.hyperparameters import from_parameters
from trainables.methods import METHODS
from trainables.models import build

__all__ = ["LEASE_STEPS", "Charge", "PrivateTraining", "TrainingSpec"]

# What a crash can cost at most: steps that were charged and never taken.
LEASE_STEPS: Final = 200
_SCORING_BATCH: Final = 2048


class Charge(Protocol):
    """How a trial pays for its steps."""

    def lease(self, steps: int) -> None:
        """Charges `steps` durably, BEFORE they are taken; raises when they are refused."""
        ...

    def leased(self) -> int:
        """Steps charged so far to this trial, over all its attempts."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """All that a worker needs to train one trial; plain and picklable.

    Attributes:
        method: a key of HYPERPARAMETERS.
        model: a key of MODELS, or `package.module:function`.
        activation: of the model.
        normalization: of the model.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD.
        dataset: which records.
        batch_size: expected.
        steps: of the whole trial.
        noise_multiplier: of the whole search.
        sample_rate: batch_size over the PUBLIC number of records.
        parameters: what the search chose, flat.
        seed: public: initialisation and DPLIS' perturbations.
        private: False is a study without a guarantee, and the only case in which noise may be 0 or seeded.
        noise_seed: of noise and sampling, only when not private.
        threads: of torch in this process; None leaves them as they are.
        device: 'auto', 'cpu' or 'cuda'.
    """

    method: str
    dataset: DatasetRequest
    batch_size: int
    steps: int
    noise_multiplier: float
    sample_rate: float
    model: str = "logistic_regression"
    activation: str = "relu"
    normalization: str = "none"
    optimizer: str = "sgd"
    momentum: float = 0.0
    parameters: dict[str, object]
    seed: int = 0
    private: bool = True
    noise_seed: int | None = None
    threads: int | None = None
    device: str = "auto"


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
        _check_privacy(spec)
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
        self._model = build(
            spec.model,
            input_shape=about.input_shape,
            classes=about.classes,
            activation=spec.activation,
            normalization=spec.normalization,
            seed=spec.seed,
        ).to(self._device)
        self._layout = Layout.of(self._model)
        self._theta = self._layout.flatten(self._model)
        self._records = _records(splits or data.load(spec.dataset), self._device)
        self._update = self._make_update()
        self._secret: Generator = SecureGenerator() if spec.noise_seed is None else SeededGenerator(spec.noise_seed)
        self._public = torch.Generator().manual_seed(spec.seed)
        self._private_step = PrivateStep(
            mechanism=Mechanism(
                sample_rate=spec.sample_rate,
                noise_multiplier=spec.noise_multiplier,
                max_grad_norm=self._hyperparameters.max_grad_norm,
                expected_batch_size=spec.batch_size,
            ),
            stages=METHODS[spec.method](self._hyperparameters, self._layout),
            source=per_sample_source(self._model, self._layout),
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
        """The model with the parameters of now."""
        self._layout.write(self._theta, self._model)
        return self._model

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
        if not (isfinite(loss) and bool(self._theta.isfinite().all())):
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
        return {
            "spec": _fingerprint(self.spec),
            "step": self.step,
            "leased": self._charge.leased(),
            "noise_draws": self.noise_draws,
            "model": {name: value.detach().clone().cpu() for name, value in self.model.state_dict().items()},
            "optimizer": {name: value.clone().cpu() for name, value in self._update.state_dict().items()},
            "secret": self._secret.state_dict(),
            "public": self._public.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a stored state.

        The stored stream of noise goes on only when nothing was leased since it was stored, and for the same spec.
        Otherwise some of its noise may be out already, on other parameters perhaps, and two steps under one noise
        would cancel it: then the secret generator takes a fresh key, and the steps that are repeated are leased again.
        """
        self.step = state["step"]
        self._private_step.noise_draws = state["noise_draws"]
        self._model.load_state_dict(state["model"])
        self._theta = self._layout.flatten(self._model)
        self._update.load_state_dict(state["optimizer"])
        self._public.set_state(state["public"])
        self._secret.load_state_dict(state["secret"])
        if self._charge.leased() != state["leased"] or state["spec"] != _fingerprint(self.spec):
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


def _check_privacy(spec: TrainingSpec) -> None:
    """The gates of a private run."""
    if not spec.private:
        return
    if not 0 < spec.noise_multiplier < inf:
        raise GateError(
            f"noise_multiplier must be finite and greater than 0; got {spec.noise_multiplier!r}: "
            "a study without noise says private: false"
        )
    if spec.noise_seed is not None:
        raise GateError("noise_seed makes the noise known, so it needs private: false; leave it out of a private run")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise HyperparameterError(f"device must be auto, cpu or cuda; got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainableError("device is cuda, and torch finds no GPU here: take auto or cpu")
    return torch.device(name)


def _records(splits: Splits, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    return {
        "train": (splits.x_train.to(device), splits.y_train.to(device)),
        "validation": (splits.x_validation.to(device), splits.y_validation.to(device)),
        "test": (splits.x_test.to(device), splits.y_test.to(device)),
    }


def _fingerprint(spec: TrainingSpec) -> str:
    """Of all that a step depends on. Where it runs, and where the files lie, is not part of it."""
    values = asdict(spec)
    for name in ("threads", "device"):
        del values[name]
    values["dataset"].pop("data_dir", None)
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()
