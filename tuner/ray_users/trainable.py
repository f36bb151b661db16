"""Trainable for anybody's `tune.Tuner`, whose trials pay for their private steps in a ledger.

    from ray import tune
    trainable = dp_trainable(method="dp_sgd", dataset="digits", ledger="sqlite:////srv/ledger.db", epsilon=3.0,
                             delta=1e-5, batch_size=256, steps=60, full_runs=4)
    space = {"learning_rate": tune.loguniform(0.05, 5), "max_grad_norm": tune.loguniform(0.1, 10)}
    try:
        tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(num_samples=12)).fit()
    finally:
        trainable.budget.close()

`docs/ray_users.md` says what is claimed.
"""

from __future__ import annotations

import gc
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import ray
from ray.tune import Trainable

from trainables.checks import near_name_hint
from trainables.data import DatasetRequest, as_it_is, check_present, info, public_train_size, public_validation_size
from trainables.errors import DatasetError, TrainableError, WalledError
from trainables.methods import STEP_METHODS, from_parameters
from trainables.model_sizes import is_perceptron
from trainables.rungs import Payment, private_training
from trainables.spec import TrainingSpec
from trainables.tasks import check_metric
from trainables.wall import behind, operator_log
from tuner.errors import InputError, LedgerError
from tuner.privacy.accountant.filters import TotalSteps, steps_of_runs
from tuner.privacy.accountant.mechanism import SampledGaussian, is_real_number, require_steps
from tuner.privacy.accountant.pld import calibrate_noise
from tuner.ray_users.budget import Claim, RayBudget, RunCharge, open_budget

__all__ = ["CHECKPOINT", "DPTrainable", "dp_trainable"]

CHECKPOINT = "training.pt"
"""File in a checkpoint of Ray. `trainables.checkpoint.read_state(path)["model"]` returns the model's weights."""


def dp_trainable(
    *,
    method: str,
    dataset: str | DatasetRequest,
    ledger: str,
    epsilon: float,
    delta: float,
    batch_size: int,
    steps: int,
    full_runs: float,
    reports: int = 4,
    search: str | None = None,
    model: str = "logistic_regression",
    optimizer: str = "sgd",
    momentum: float = 0.0,
    metric: str = "validation_accuracy",
    precision: str = "float32",
    seed: int = 0,
) -> type[DPTrainable]:
    """Open a search in the ledger, and return its trainable, which takes a flat `config` and works with any scheduler.

    The configuration of a trial has the parameters of the method. Batch size, steps and noise decide the ε of a trial,
    so they are the same for all trials, and no configuration has them. A trial makes `reports` reports, each with
    `metric`, `trial_step` and `learning_rate`. A trial that does not fit the rest of the cap takes no
    step and ends with `BudgetRefusedError`.

    Formal guarantee:
        All models, their configurations, and what is computed from them without the records, together are (ε, δ)-DP
        for each training record, add or remove one. Their scores on the validation records are not protected.

    Args:
        method: name of a method that trains by private steps, such as 'dp_sgd', 'dplis' or 'dp_lssgd'.
        dataset: name of a shipped data set, or a request for your own file. The unit must be a record.
        ledger: URL of the ledger, `sqlite:///FILE` or `postgresql://…`. It is created if it does not exist.
        epsilon: total ε of all trials together.
        delta: δ of the claim.
        batch_size: EXPECTED batch size under Poisson sampling.
        steps: private steps of a trial that is not stopped.
        full_runs: number of whole trials that the cap pays for, at least 1. Stopped trials leave room for more.
        reports: number of reports of a whole trial, at equal distances. A report is one `training_iteration`.
        search: name of the search in the ledger. The name of an existing search continues this search. Its arguments
            must be the same, and only one driver at a time may continue it. By default, a new name is made.
        model: name of a model, or `package.module:function`.
        optimizer: optimizer of a trial whose configuration names none.
        momentum: momentum of SGD in a trial whose configuration names none.
        metric: name of the score that decides, `validation_accuracy`, or another one of the task.
        precision: 'float32' or 'bfloat16', used in the forward and backward passes only.
        seed: PUBLIC seed of the initialisation, which is the same for all trials.

    Raises:
        InputError: an argument cannot be used.
        TrainableError: the data set or the model is unknown, files are missing, or the model mixes samples. An error
            that the code of your model raises is not changed.
        BudgetRefusedError: the claim does not fit the cap of the data set.
        TunerError: the search exists with other arguments.
    """
    request = DatasetRequest(name=dataset) if isinstance(dataset, str) else dataset
    _check(method, request, steps=steps, reports=reports, full_runs=full_runs, seed=seed)
    check_present(request)
    request = as_it_is(request)
    if public_validation_size(request) < 1:
        raise DatasetError(
            "split-empty",
            "The validation split has no records, but reports have its scores. Raise `validation_fraction`.",
        )
    size = public_train_size(request)
    rate = batch_size / size
    SampledGaussian(rate, 1.0)  # raises InputError for a batch size out of range, before the noise is calibrated
    most = steps_of_runs(full_runs, steps)
    noise = calibrate_noise(sample_rate=rate, steps=most, epsilon=epsilon, delta=delta)
    if not delta < 1 / size:
        raise InputError(
            "delta-too-large",
            f"`delta` must be below 1/n = {1 / size:.3g}, where n = {size} is the public number of training records "
            f"(got {delta!r}). With a delta of 1/n, publishing a random record would be allowed. Use at most "
            f"{size**-1.1:.1g}.",
        )
    spec = TrainingSpec(
        method=method,
        model=model,
        dataset=request,
        batch_size=batch_size,
        steps=steps,
        noise_multiplier=noise,
        sample_rate=rate,
        optimizer=optimizer,
        momentum=momentum,
        metric=metric,
        precision=precision,
        parameters={},
        seed=seed,
    )
    about = info(request)
    check_metric(metric, task=about.task, classes=about.classes)
    from_parameters(
        method, {}, batch_size=batch_size, steps=steps, noise_multiplier=noise, optimizer=optimizer, momentum=momentum
    )
    _check_model(spec)
    claim = Claim(epsilon=float(epsilon), delta=float(delta), filter=TotalSteps(SampledGaussian(rate, noise), most))
    name = f"ray-{method}-{uuid.uuid4().hex[:8]}" if search is None else search
    rungs = tuple(round(steps * (number + 1) / reports) for number in range(reports))
    budget = open_budget(ledger, name, spec, claim, full_runs=full_runs, rungs=rungs)
    # By this name Ray finds the trainable, also when it starts a trial or restores a Tuner, and names folders.
    return type(re.sub(r"[^\w.-]", "_", name), (DPTrainable,), {"budget": budget, "spec": spec, "rungs": rungs})


def _check(method: str, request: DatasetRequest, *, steps: int, reports: int, full_runs: float, seed: int) -> None:
    if not isinstance(request, DatasetRequest):
        raise InputError("ray-dataset", f"`dataset` must be a name or a DatasetRequest (got {request!r}).")
    if method not in STEP_METHODS:
        raise InputError(
            "ray-method",
            f"`method` must be one of {', '.join(STEP_METHODS)} (got {method!r}).{near_name_hint(method, STEP_METHODS)}"
            " Other methods are not charged by steps; use `tune run` for them.",
        )
    if request.unit != "record":
        raise InputError(
            "ray-unit", f"The unit of `dp_trainable` must be a record (got {request.unit!r}). Use `tune run` for users."
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError("ray-seed", f"`seed` must be an integer from 0 to 2**32 - 1 (got {seed!r}).")
    require_steps(steps, minimum=1)
    require_steps(reports, minimum=1, name="reports")
    if reports > steps:
        raise InputError("ray-reports", f"`reports` must be at most `steps`, which is {steps} (got {reports}).")
    if not (is_real_number(full_runs) and 1 <= full_runs < float("inf")):
        raise InputError(
            "ray-full-runs",
            f"`full_runs` must be finite and at least 1 (got {full_runs!r}). It is the number of whole trials that the "
            "cap pays for.",
        )


def _check_model(spec: TrainingSpec) -> None:
    """Raise a TrainableError if the model cannot be trained privately, as found on public random inputs.

    `tuner.sweep.preflight.check_model` does the same for an experiment file.
    """
    from trainables.audit.sensitivity import check_sensitivity
    from trainables.engine.layout import Layout
    from trainables.gradients import gradient_source
    from trainables.models import build

    if is_perceptron(spec.model) and spec.precision == "float32":
        return  # takes every input, so this process need not load torch

    about = info(spec.dataset)
    module = build(spec.model, input_shape=about.input_shape, classes=about.outputs, seed=spec.seed)
    source = gradient_source(module, Layout.of(module), about.input_shape, precision=spec.precision, task=about.task)
    if ":" in spec.model:
        check_sensitivity(module, source, input_shape=about.input_shape, classes=about.classes)


class DPTrainable(Trainable):  # type: ignore[misc]  # Ray has no types
    """Base class of what `dp_trainable` returns. The attributes are those of the class.

    Attributes:
        budget: budget of all trials together.
        spec: specification of a trial, without its configuration.
        rungs: rising numbers of steps at which a trial reports.
    """

    budget: ClassVar[RayBudget]
    spec: ClassVar[TrainingSpec]
    rungs: ClassVar[tuple[int, ...]]
    _earlier: dict[str, int]  # leased steps of the runs whose checkpoints this run continues, by run

    def setup(self, config: Mapping[str, object]) -> None:
        """Store the configuration. The first `step` creates the training."""
        self._values = {str(name): _plain(value) for name, value in config.items()}
        self._forget()

    def reset_config(self, new_config: Mapping[str, object]) -> bool:
        """End this run, and store the configuration of the next trial."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, object]:
        """Train up to the next report, every step leased before its batch is drawn, and return the scores.

        Raises:
            BudgetRefusedError: the rest of the run does not fit the cap. It took no step.
            WalledError: the training raised an error, whose cause is in the operator's log. All that the run had
                reserved is charged, so that no count tells when it failed.
            LedgerError: the training took steps that it had not leased.
        """
        try:
            scores = self._behind_wall(self._advance)
        except WalledError:
            self._end(forfeits=True)
            raise
        except Exception:  # Ray stops the worker without a word to it
            self._end()
            raise
        self._require_leased()
        self._reported = self._draws
        taken = self._training.step
        return {"trial_step": taken, **scores, "done": taken >= self.spec.steps}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the state without the key of its noise: whoever reads or copies it learns no later noise.

        The state says to which runs of which search its steps were charged.
        """
        from trainables.checkpoint import write_state

        def save() -> None:
            state = self._started().state_without_key()
            runs = {**self._earlier, self._charge.name(): state["leased"]}
            write_state(Path(checkpoint_dir) / CHECKPOINT, {**state, **self._search, "runs": runs})

        self._behind_wall(save)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Begin a new run from a checkpoint, of this trial or of another one, with noise of its own.

        The run pays for every step that it takes, also for those that were taken after the checkpoint before.

        Raises:
            TrainableError: the checkpoint is of another search, whose claim may be larger.
            TunerError: the ledger does not know all steps of the checkpoint, so it is an older copy.
        """
        from trainables.checkpoint import read_state

        path = Path(checkpoint) / CHECKPOINT
        state = read_state(path)
        if {name: state.get(name) for name in self._search} != self._search:
            raise TrainableError(
                "checkpoint-foreign",
                f"The checkpoint {path} is of another search, so its weights may have another privacy cost. Continue "
                "the search that wrote it: call `dp_trainable` with its name as `search`, and with its ledger.",
            )
        self.cleanup()
        self._charge.require_charged(state["runs"])

        def load() -> None:
            self._started().load_state_dict(state)
            self._drawn_before = self._training.noise_draws

        try:
            self._behind_wall(load)
            self._earlier = dict(state["runs"])
        except Exception:
            self._forget()  # a part of the state may be loaded
            raise

    def cleanup(self) -> None:
        """End this run, and free what it reserved and did not use, and the model."""
        self._end()
        self._forget()
        gc.collect()

    def _forget(self) -> None:
        self._training: Any = None
        self._payment: Payment | None = None
        self._reserved = self._forfeits = False
        self._drawn_before = self._reported = 0
        self._earlier = {}

    @property
    def _search(self) -> dict[str, object]:
        """Search that pays for the steps, as a checkpoint names it."""
        return {"ledger": self.budget.ledger_id, "search": self.budget.search}

    @property
    def _draws(self) -> int:
        """Number of times that this run has drawn noise."""
        return 0 if self._training is None else self._training.noise_draws - self._drawn_before

    def _started(self) -> Any:  # noqa: ANN401 - a `trainables.training.PrivateTraining`, whose module imports torch
        """Return the training, and create it for a new run."""
        if self._training is None:
            from trainables.data.shared import SharedRecords

            values = dict(self._values)
            optimizer = str(values.get("optimizer", self.spec.optimizer))
            spec = replace(
                self.spec,
                activation=str(values.pop("activation", self.spec.activation)),
                optimizer=optimizer,
                momentum=self.spec.momentum if optimizer == "sgd" else 0.0,
                parameters=values,
                device="auto" if ray.get_gpu_ids() else "cpu",
            )
            self._training = SharedRecords(private_training, self.budget.actor)(spec, self._charge)
        return self._training

    def _advance(self) -> dict[str, float]:
        taken = 0 if self._training is None else self._training.step
        if not self._reserved and taken < self.spec.steps:  # before torch is imported, so that a refusal costs little
            used = {"sample_rate": self.spec.sample_rate, "noise_multiplier": self.spec.noise_multiplier}
            self._charge.reserve(self.spec.steps - taken, **used)
            self._reserved = True
        training = self._started()
        training.run_to(next((rung for rung in self.rungs if rung > training.step), self.rungs[-1]))
        return {**training.evaluate(), "learning_rate": training.learning_rate}

    @property
    def _charge(self) -> Any:  # noqa: ANN401 - a `RunCharge` inside a `Payment`
        """Charge of this run, which is a new one after `_forget`."""
        if self._payment is None:
            trial = None if self._trial_info is None else self.trial_id
            self._payment = Payment(RunCharge.of(self.budget, trial))
        return self._payment

    def _behind_wall(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - the work's result
        # Not in the trial's folder, which Ray may copy to a storage that others read.
        return behind(operator_log(), work, lets_out=self._cannot_depend_on_records)

    def _cannot_depend_on_records(self, error: Exception) -> bool:
        """Decide by the place of an error: what the charge raised, or a refusal before there was a training."""
        if self._payment is not None and error is self._payment.raised:
            return True
        return self._training is None and isinstance(error, TrainableError) and not isinstance(error, WalledError)

    def _require_leased(self) -> None:
        """Compare the number of noise draws with the ledger. A subclass might train without its charge."""
        leased = self._charge.leased()
        if self._draws > leased:
            raise LedgerError(
                "steps-not-leased",
                f"The trial drew noise {self._draws} times, but only {leased} steps were charged. Discard all "
                "results of this trial, and remove the code that trains without the charge.",
            )

    def _end(self, *, forfeits: bool = False) -> None:
        self._forfeits |= forfeits
        if not self._reserved:
            return
        # If the actor or the ledger is out of reach, the next call tries again. If there is none, the reservation stays
        # until the search is closed or the trial runs again. Steps that were leased stay charged in any case.
        with suppress(Exception):
            if self._forfeits:
                self._charge.forfeit(self._reported, self.rungs)
            else:
                self._charge.settle(self._draws)
            self._reserved = False


def _plain(value: object) -> object:
    """Return a number of numpy, which some searchers give, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
