"""Private training of one trial: leases and steps, scores, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from search_spaces import Words
from search_spaces.common import CHOSEN
from trainables import data
from trainables.charge import Charge, lease_size
from trainables.checkpoint import hold_to_device, read_state, weights_of, write_state
from trainables.checks import refuse_illegal
from trainables.data import Splits
from trainables.engine.accelerator import device_kind, full_float32, repeatable
from trainables.engine.average import WeightAverage
from trainables.engine.gen import LossProbes
from trainables.engine.layout import Layout, put_untrained, untrained
from trainables.engine.losses import LossPasses
from trainables.engine.noise import add_noise
from trainables.engine.per_sample import pass_samples
from trainables.engine.random import Generator, SecureGenerator, SeededGenerator
from trainables.engine.ranks import NoGenerator, RankedStep, Ranks
from trainables.engine.schedules import rate_factor
from trainables.engine.step import Mechanism, PrivateStep, Stages, noise_variance
from trainables.engine.update import Update
from trainables.errors import DatasetError, GateError, HyperparameterError, TrainableError
from trainables.extrapolation import FACTORS, choose_factor
from trainables.gradients import gradient_source
from trainables.health import HealthCheck
from trainables.hyperparameters import check_augmentation
from trainables.memory import keep_freed_memory
from trainables.methods import from_parameters
from trainables.methods.output_perturbation import OutputPerturbation
from trainables.models import build
from trainables.rungs import writing_checkpoint
from trainables.scoring import (
    Answered,
    answers,
    as_logits,
    check_task,
    exact_scores,
    protected_count,
    protected_size,
)
from trainables.spec import TrainingSpec, check_privacy, require_own_state, spec_fingerprint
from trainables.start import read_start
from trainables.tasks import check_metric

if TYPE_CHECKING:
    from trainables.convex.step import MinimumStep

__all__ = ["PrivateTraining", "TrainingSpec", "device_of"]


_NO_RECORDS: Final = (
    "The {split} split has no usable record: labels or numbers cannot be used, or the split is too small. Look at the "
    "file with `tune data check`, or raise dataset.validation.fraction."
)


class PrivateTraining:
    """Private training of one trial. Every step is leased, and every protected score is charged, in advance.

    Formal guarantee: the model, and its scores on other records, depend on the training records only through
    `noise_draws` subsampled Gaussian mechanisms with the spec's sample_rate and noise_multiplier. With score_noise, the
    model does not depend on the validation records, and the scores depend on them only through Gaussian mechanisms with
    sensitivity 1 and standard deviation score_noise, one for each call of `evaluate`. Only the operator may see the
    state, which contains the secret generator.

    Args:
        spec: specification of the trial.
        charge: payment for steps and scores.
        splits: random records for timing; None loads the records of the spec.
        ranks: the processes that share each batch (`trainables.engine.ranks`). None trains in this process alone.

    Raises:
        HyperparameterError: a value is illegal, or the file of `start` is another one.
        GateError: the training would not be private.
        DatasetError: the records, their users, or validation records for protected scores are missing.
    """

    def __init__(
        self, spec: TrainingSpec, charge: Charge, *, splits: Splits | None = None, ranks: Ranks | None = None
    ) -> None:
        check_privacy(spec)
        self.spec = spec
        self.step = 0
        self._charge = charge
        self._restarts: int | None = None  # None before the first lease
        self._leased = 0  # see `state_dict`
        self._continued: tuple[int, int] | None = None  # (leased, released) of a loaded key, until the first payment
        self._ranks = ranks
        self._agreed = False  # whether every rank has rank 0's buffers and frozen parameters
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
        keep_freed_memory()
        self._device = device_of(spec)
        repeatable(self._device, strictly=spec.replay_key is not None)
        full_float32()
        if spec.replay_on is not None:
            hold_to_device(Path(spec.replay_on), device_kind(self._device))
        about = data.info(spec.dataset)
        self._protected_size = protected_size(spec)
        check_augmentation(self._hyperparameters.augmentation, about.input_shape)
        check_task(about, spec.dataset)
        check_metric(spec.metric, task=about.task, classes=about.classes)
        self._input_shape, self._outputs, self._task = about.input_shape, about.outputs, about.task
        start = spec.start
        build_initial = partial(  # not a method, so that the training is freed with its last reference
            build,
            spec.model,
            input_shape=self._input_shape,
            classes=self._outputs,
            activation=spec.activation,
            normalization=spec.normalization,
            seed=spec.seed,
            weights=None if start is None else read_start(start.path, sha256=start.sha256).weights,
            freeze=spec.freeze,
        )
        self._model = build_initial().to(self._device)
        if spec.initial is not None:
            self._model.load_state_dict(weights_of(Path(spec.initial), like=self._model, of=spec.initial_of))
        self._layout = Layout.of(self._model)
        self._theta = self._layout.flatten(self._model)
        self._untrained = untrained(self._model)
        splits = splits or data.load_records(spec.dataset)
        self._records = _records(splits, self._device)
        self._users = _users(spec, splits, self._device)
        decay = self._hyperparameters.ema_decay
        self._average = WeightAverage(self._theta, decay=decay, steps=spec.steps) if decay else None
        wanted = self._hyperparameters.extrapolation
        self._factor = wanted if isinstance(wanted, float | int) else 0.0  # until it is chosen
        seed = spec.noise_seed
        self._secret: Generator = SecureGenerator(spec.replay_key) if seed is None else SeededGenerator(seed)
        if ranks is not None and ranks.rank > 0:
            self._secret = NoGenerator()
        self._public = torch.Generator().manual_seed(spec.seed)
        mechanism = Mechanism(
            sample_rate=spec.sample_rate,
            noise_multiplier=spec.noise_multiplier,
            max_grad_norm=self._hyperparameters.max_grad_norm,
            expected_batch_size=spec.batch_size,
            clipping=self._hyperparameters.clipping,
            probe_share=self._hyperparameters.schedule.probe_share,
        )
        self._probes = self._make_probes(mechanism)
        stages = self._hyperparameters.stages(self._layout)
        self._update: Update = self._hyperparameters.update(
            self._theta, variance=lambda: noise_variance(mechanism, stages, like=self._theta)
        )
        self._private_step = self._make_step(mechanism, stages)
        self._health = HealthCheck(
            self._private_step,
            initial=build_initial,
            input_shape=about.input_shape,
            classes=about.classes,
        )

    def _make_step(self, mechanism: Mechanism, stages: Stages) -> PrivateStep | MinimumStep:
        """Return the private steps, or the one step of a method that perturbs a minimum."""
        spec = self.spec
        if isinstance(self._hyperparameters, OutputPerturbation):
            if self._ranks is not None:
                raise GateError(
                    "workers-not-shared",
                    f"`workers_per_trial` must be 1 for {spec.method}, because it has no batches that workers "
                    "could share.",
                )
            from trainables.convex.step import MinimumStep  # it imports scipy, which no other method needs

            return MinimumStep(
                self._hyperparameters,
                mechanism=mechanism,
                model=spec.model,
                unit=spec.dataset.unit,
                classes=data.info(spec.dataset).classes,
                outputs=self._outputs,
                secret=self._secret,
            )
        make = PrivateStep if self._ranks is None else partial(RankedStep, ranks=self._ranks)
        return make(
            mechanism=mechanism,
            stages=stages,
            source=gradient_source(
                self._model,
                self._layout,
                self._input_shape,
                precision=spec.precision,
                task=self._task,
                gpu_pass=pass_samples(spec.batch_size),
            ),
            update=self._update,
            secret=self._secret,
            public=self._public,
            probes=self._probes,
        )

    def _make_probes(self, mechanism: Mechanism) -> LossProbes | None:
        """Return the loss probes of `schedule: gen`; None for other schedules."""
        if mechanism.noise.probe is None:
            return None
        return LossProbes(
            passes=LossPasses(
                module=self._model,
                layout=self._layout,
                expected_batch_size=mechanism.expected_batch_size,
                task=self._task,
            ),
            noise_multiplier=mechanism.noise.probe,
            expected_batch_size=mechanism.expected_batch_size,
            rate=self._hyperparameters.learning_rate,
            secret=self._secret,
        )

    @property
    def noise_draws(self) -> int:
        """Number of times that noise was added, including those before a loaded checkpoint."""
        return self._private_step.noise_draws

    @property
    def max_grad_norm(self) -> float:
        """Clipping norm C; of a perturbed minimum, the largest norm of a record's gradient."""
        return self._private_step.mechanism.max_grad_norm

    @property
    def learning_rate(self) -> float:
        """Scheduled learning rate of the next step. With `schedule: gen`, the last step's rate, with any warm-up."""
        settings, steps = self._hyperparameters.schedule, self._hyperparameters.steps
        rate = self._hyperparameters.learning_rate if self._probes is None else self._probes.rate
        return rate * rate_factor(settings, min(self.step, steps - 1), steps, steps_per_epoch=1 / self.spec.sample_rate)

    @property
    def model(self) -> nn.Module:
        """Model that is scored and exported. If ema_decay is above 0, it has the averaged weights.

        After the last step, the average is extrapolated.
        """
        self._write(self._shown)
        return self._model

    def _write(self, theta: Tensor) -> None:
        """Write `theta` into the model, and the public initial values into all else that it holds.

        The gate refuses a model that stores something of a batch. If it missed one, nothing of it is stored or scored.
        """
        put_untrained(self._model, self._untrained)
        self._layout.write(theta, self._model)  # last, because a buffer may be a view of a trained parameter

    @property
    def _shown(self) -> Tensor:
        """Weights that are scored and exported; training continues from `_theta`."""
        if self._average is None or self.step == 0:
            return self._theta
        return self._average.value(self.extrapolation)

    @property
    def extrapolation(self) -> float:
        """Factor a of the extrapolated average; 0 before the last step, or if nothing is averaged."""
        return self._factor if self._average is not None and self.step == self.spec.steps else 0.0

    def run_to(self, step: int) -> None:
        """Lease and take the steps up to `step`. Every restart halves the number of steps in a lease.

        Raises:
            HyperparameterError: `step` is beyond the steps of the spec.
            InfrastructureError: the machine failed on public inputs.
            TrainableError: the model failed on public inputs, at these parameters.
            Exception: the charge refused a lease. The steps of this lease were not taken.
        """
        if step > self.spec.steps:
            raise HyperparameterError(
                "step-beyond-end", f"`step` must be at most {self.spec.steps}, the end of this training (got {step})."
            )
        self._agree()
        inputs, targets = self._records["train"]
        while self.step < step:
            self._health.check(self._theta, step=self.step, at_most_every=lease_size(restarts=0))
            if self._restarts is None:  # a restarted trial is another object
                self._restarts, self._leased = self._charge.restarts(), self._charge.leased()
            leased = min(lease_size(self._restarts), step - self.step)
            used = self._private_step.mechanism
            # The lease is durable before the first of its batches is drawn.
            self._charge.lease(leased, sample_rate=used.sample_rate, noise_multiplier=used.noise_multiplier)
            self._leased += leased
            self._keep_key_or_change_it(leased=leased)
            for _ in range(leased):
                self._theta = self._private_step.take(
                    self._theta, inputs, targets, learning_rate=self.learning_rate, users=self._users["train"]
                )
                if self._average is not None:
                    self._average.update(self._theta)
                self.step += 1
        if self.step == self.spec.steps and self._hyperparameters.extrapolation == CHOSEN:
            self._choose_extrapolation()

    def _keep_key_or_change_it(self, *, leased: int = 0, released: int = 0) -> None:
        """Take a new key if another process has paid since the loaded checkpoint. The arguments are what this one paid.

        Two processes may load one checkpoint before either of them pays. At most one of them keeps its key.
        """
        if self._continued is not None:
            expected = (self._continued[0] + leased, self._continued[1] + released)
            if (self._charge.leased(), self._released()) != expected:
                self._secret.rekey()
        self._continued = None

    def _choose_extrapolation(self) -> None:
        """Choose the factor on the validation records, if they are not protected. This reads no training record."""
        inputs, targets = self._records["validation"]
        if self._average is None or self.spec.score_noise is not None or len(inputs) == 0:
            return
        answered = {}
        for factor in FACTORS:
            self._write(self._average.value(factor))
            answered[factor] = Answered.of(answers(self._model, inputs, targets, outputs=self._outputs), self._task)
        self._factor = choose_factor(answered, metric=self.spec.metric)

    def help(self) -> None:
        """Do this rank's share of every step until rank 0 ends. A rank above 0 does nothing else.

        Raises:
            InfrastructureError: rank 0 is gone.
        """
        if not isinstance(self._private_step, RankedStep):
            raise GateError("rank-draws", "A training without ranks has nothing to share. Please report this as a bug.")
        self._agree()
        self._private_step.help(self._theta, *self._records["train"], users=self._users["train"])

    def _agree(self) -> None:
        """Let every rank have rank 0's buffers and frozen parameters, so that all clip the same model."""
        if self._ranks is None or self._agreed:
            return
        self._agreed = True
        if self._ranks.rank == 0:
            self._ranks.send({"untrained": {name: value.cpu() for name, value in self._untrained.items()}})
            return
        found = self._ranks.receive()["untrained"]
        self._untrained = {name: value.to(self._device) for name, value in found.items()}
        named = self._model.named_parameters, self._model.named_buffers
        held = {name: each for given in named for name, each in given(remove_duplicate=False)}
        with torch.no_grad():
            for name, value in self._untrained.items():
                if not torch.equal(held[name], value):
                    held[name].copy_(value)  # in place, because the source of the gradients shares it

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Return the scores of the task on validation or test records, and the score of the spec's metric.

        With score_noise, a validation score is charged at every call, before it is computed. It is the count of right
        answers (`protected_count`) plus N(0, score_noise²), divided by the PUBLIC number of validation records or
        users. So the score may be slightly outside [0, 1]. The mean loss is not released, because one record can change
        it without limit.

        Args:
            split: 'validation' or 'test'.

        Returns:
            `{split}_accuracy` in [0, 1] and `{split}_loss`, or `{split}_loss` alone for a regression, and any other
            metric of the spec. All are NaN if a parameter or the loss is not finite.
            With score_noise, a validation score has only `validation_accuracy`, which is noise around 0 if a parameter
            is not finite.

        Raises:
            GateError: `split` is neither 'validation' nor 'test'.
            DatasetError: the split has no records.
            Exception: the charge refused the score. The score was not computed.
        """
        if split not in ("validation", "test"):
            raise GateError(
                "training-records-scored",
                f"`split` must be 'validation' or 'test' (got {split!r}). Training records are never scored.",
            )
        protected = split == "validation" and self.spec.score_noise is not None
        inputs, targets = self._records[split]
        if len(inputs) == 0 and not protected:
            raise DatasetError("split-empty", _NO_RECORDS.format(split=split))
        self._agree()
        self._health.check(self._theta, step=self.step)
        if protected:
            self._health.check_scoring(self.model)
            return {"validation_accuracy": self._released_score(float(self.spec.score_noise or 0.0))}
        found = Answered.of(answers(self.model, inputs, targets, outputs=self._outputs), self._task)
        finite = bool(self._shown.isfinite().all())
        return exact_scores(found, split=split, task=self._task, metric=self.spec.metric, finite=finite)

    def _released_score(self, noise: float) -> float:
        self._charge.release(noise=noise)  # durable before a validation record is read
        self._keep_key_or_change_it(released=1)
        finite = bool(self._shown.isfinite().all())  # this depends on the model only, whose steps are charged
        records = self._records["validation"]
        found = answers(self.model, *records, outputs=self._outputs, even=True) if finite else iter(())
        count = torch.tensor(
            [protected_count(as_logits(found, self._task), self._users["validation"])], dtype=torch.float64
        )
        # Rounding to float32 hides the gaps between the possible float64 values of the noise.
        noised = add_noise(count, standard_deviation=noise, generator=self._secret, dtype=torch.float32)
        return float(noised) / self._protected_size

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the training continues bit for bit. It is secret, as it reveals later noise.

        `leased` is the count of the charge at the first lease, plus what this object leased. If another process
        leases for the same trial after this object's first lease, for example one that was taken for dead, the charge
        counts more. Whoever continues from the state then takes a new key.
        """
        self._write(self._theta)  # the model may contain the averaged weights
        state = {
            "spec": spec_fingerprint(self.spec),
            "step": self.step,
            "leased": self._charge.leased() if self._restarts is None else self._leased,
            "released": self._released(),
            "noise_draws": self.noise_draws,
            "model": {name: value.detach().clone().cpu() for name, value in self._model.state_dict().items()},
            "optimizer": _stored(self._update.state_dict()),
            "secret": self._secret.state_dict(),
            "rate": None if self._probes is None else self._probes.state_dict(),
            "public": self._public.get_state(),
        }
        if self._average is None:
            return state
        return {**state, "average": _stored(self._average.state_dict()), "extrapolation": self._factor}

    def state_without_key(self) -> dict[str, Any]:
        """Return the state without the secret generator. Whoever continues from it draws noise of their own.

        Nothing in it reveals later noise. Any number of trainings may continue from it, also with other values.
        """
        return {name: value for name, value in self.state_dict().items() if name != "secret"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a stored state.

        The stored noise stream continues only if the spec is the same, and if no step or score was charged since the
        state was stored. Otherwise the secret generator takes a new key, because a result with noise of this stream may
        be public. The difference of two results with the same noise would contain no noise. After a state without a
        key (`state_without_key`), this training's own generator goes on, which no other training has.

        What another optimizer has stored is not used. The optimizer then starts as in a new training. After a state
        without an average of the weights, the average starts from the loaded weights.
        """
        if self._average is not None and "average" in state:
            self._average.load_state_dict(state["average"])
            if self._hyperparameters.extrapolation == CHOSEN and self.spec.score_noise is None:
                self._factor = state["extrapolation"]  # a fixed one is this spec's, not the state's
        self.step = state["step"]
        self._private_step.noise_draws = state["noise_draws"]
        self._model.load_state_dict(state["model"])
        # The process that stored them may have rounded them differently. The trained weights fit theirs.
        self._untrained = {
            name: state["model"][name].to(value) if name in state["model"] else value
            for name, value in self._untrained.items()
        }
        self._theta = self._layout.flatten(self._model)
        if self._average is not None and "average" not in state:
            self._average = WeightAverage(self._theta, decay=self._average.decay, steps=self.spec.steps)
        if self._update.state_dict().keys() == state["optimizer"].keys():
            self._update.load_state_dict(state["optimizer"])
        if self._probes is not None and state["rate"] is not None:
            self._probes.load_state_dict(state["rate"])
        self._public.set_state(state["public"])
        if "secret" not in state:
            return
        self._secret.load_state_dict(state["secret"])
        charged = (self._charge.leased(), self._released())
        # A sealed search repeats its noise in a repeated run, because nobody saw the first run.
        lost = charged != (state["leased"], state["released"]) and self.spec.replay_key is None
        if lost or state["spec"] != spec_fingerprint(self.spec):
            self._secret.rekey()
        elif self.spec.replay_key is None:
            self._continued = (state["leased"], state["released"])  # asked again at the first payment

    def require_scores(self) -> None:
        """Raise a DatasetError if exact scores are wanted of no validation record, before a step is charged.

        Only validation records decide it, which have no guarantee then. A sealed run ends with the worst score instead.
        """
        exact = self.spec.score_noise is None and self.spec.replay_key is None
        helps = self._ranks is not None and self._ranks.rank > 0  # it scores nothing
        if exact and not helps and not len(self._records["validation"][0]):
            raise DatasetError("split-empty", _NO_RECORDS.format(split="validation"))

    def save(self, path: Path) -> None:
        """Write the state atomically, readable by the owner only. Raise InfrastructureError if it cannot be written."""
        state = self.state_dict()  # outside of what counts as the infrastructure, because it asks the model
        with writing_checkpoint(path.parent):
            write_state(path, state)

    def load(self, path: Path) -> None:
        """Continue from a saved state of a training with the same spec.

        Raises:
            InfrastructureError: the file is damaged.
            TrainableError: another training wrote the state.
        """
        state = read_state(path)
        require_own_state(path, state, self.spec)
        self.load_state_dict(state)

    def _released(self) -> int:
        """Return the number of scores charged so far; 0 if scores are not protected."""
        return 0 if self.spec.score_noise is None else self._charge.released()


def device_of(spec: TrainingSpec) -> torch.device:
    """Return the device of a training in this process. Raise TrainableError if torch does not find it."""
    name = spec.device
    refuse_illegal("device", name, Words(("auto", "cpu", "cuda")))
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainableError("device-missing", "The trial asks for a GPU (`device: cuda`), but torch finds none.")
    # Ray shows a worker only its own GPU, which is the first one there.
    return torch.device("cuda", 0) if name != "cpu" and torch.cuda.is_available() else torch.device("cpu")


def _stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy for saving, with tensors on the CPU."""
    return {name: value.clone().cpu() if isinstance(value, Tensor) else value for name, value in values.items()}


def _records(splits: Splits, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the inputs and labels of each split by name, as contiguous tensors on the device."""
    parts = {
        "train": (splits.x_train, splits.y_train),
        "validation": (splits.x_validation, splits.y_validation),
        "test": (splits.x_test, splits.y_test),
    }
    return {name: (x.to(device).contiguous(), y.to(device).contiguous()) for name, (x, y) in parts.items()}


def _users(spec: TrainingSpec, splits: Splits, device: torch.device) -> dict[str, Tensor | None]:
    """Return the users of each split on the device; None if the unit is a record."""
    if spec.dataset.unit == "record":
        return {"train": None, "validation": None}
    if splits.users_train is None or splits.users_validation is None:
        raise DatasetError(
            "users-missing",
            f"`unit: {spec.dataset.unit}` needs a data set with users, and {spec.dataset.name} has none. Use "
            "`unit: record`.",
        )
    return {"train": splits.users_train.to(device), "validation": splits.users_validation.to(device)}
