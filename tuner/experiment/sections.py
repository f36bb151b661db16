"""The sections of the experiment file: their keys, defaults and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer

from tuner.experiment.values import (
    AtMost,
    Count,
    Finite,
    Fraction,
    Noise,
    Order,
    Positive,
    Rungs,
    ScoreNoise,
    Seed,
    Word,
    broken,
    one_value,
)
from tuner.study.names import canonical_pruner, canonical_sampler
from tuner.study.types import WhenSure

__all__ = [
    "Component",
    "DatasetSection",
    "MetricSection",
    "PrivacySection",
    "PublicSection",
    "ResourcesSection",
    "RunsSection",
    "SearchSection",
    "Section",
    "TrackingSection",
    "TrainableSection",
    "ValidationSection",
]


class Section(BaseModel):
    """Base of all sections: frozen, without unknown keys, without silent conversion of types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )


class Component(Section):
    """A sampler or pruner, in a file ``median`` or ``{name: median, n_startup_trials: 3}``."""

    name: Word
    options: dict[str, Any] = {}

    @model_serializer
    def _to_file(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name


class ValidationSection(Section):
    """The records set aside to score trials.

    Attributes:
        fraction: part of the training records, in (0, 1).
        protected: whether the scores are inside the guarantee, as noisy counts with a budget of their own.
        split_seed: public key of the split.
        epsilon: ε of all protected scores together; the default is privacy.epsilon.
        delta: δ of all protected scores together; the default is privacy.delta.
        noise: standard deviation of a released count, or auto: the smallest with which the planned scores fit.
    """

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class DatasetSection(Section):
    """The private records and their split.

    Attributes:
        name: a shipped data set, or any name together with ``path``; the budget is kept under it.
        path: the user's own npz file.
        public_size: PUBLIC number of training records in that file.
        public_users: PUBLIC number of users in that file, for privacy.unit: user.
        records_per_user: the most records of one user that a step uses, for privacy.unit: user.
        validation: the records set aside.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None
    public_users: Count | None = None
    records_per_user: Count = 16
    validation: ValidationSection = ValidationSection()


class TrainableSection(Section):
    """The training of every trial.

    Attributes:
        method: dp_sgd, dp_lssgd, dplis, dp_weight_decay or composed.
        model: a name of `trainables.model_names.MODELS`, or ``package.module:function``.
        activation: relu or tanh.
        normalization: none or group; batch is refused.
        optimizer: sgd or adam.
        momentum: momentum of sgd, in [0, 1).
        precision: precision of the forward and backward passes; norms, sums and noise are always float32 or better.
        batch_size: EXPECTED batch size; sample rate = batch_size / public training size (users with unit: user).
        epochs: expected number of passes over the training records.
        sampling: poisson; nothing else has the guarantee.
    """

    method: Word
    model: Word = "logistic_regression"
    activation: Word = "relu"
    normalization: Word = "none"
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    batch_size: Annotated[Count, one_value("batch_size")] = 256
    epochs: Annotated[Positive, one_value("epochs")] = 10.0
    sampling: Word = "poisson"


class RunsSection(Section):
    """The number of runs of a sealed search: random, hidden, with mean search.trials.

    Attributes:
        law: its distribution: geometric, logarithmic, negative_binomial or poisson.
        shape: shape of the negative binomial law, above -1; the other laws have none.
        at_most: number of runs at which the law is cut off, or auto: the cut-off uses 1 % of delta.
    """

    law: Word = "geometric"
    shape: Finite | None = None
    at_most: AtMost = "auto"


class PrivacySection(Section):
    """The budget of the WHOLE search.

    Attributes:
        epsilon: ε, never exceeded.
        delta: δ, below 1 / training records (users with unit: user).
        unit: what is protected: a record, or all records of a user.
        accounting: composition (all trials are shown), selection (sealed: only the winner is shown) or public (the
            search runs on public data, and one run on the private records).
        cap: the filter of composition, or auto: the tightest that the space allows.
        order: Rényi order of the fixed_order filter, or auto: the best for the plan.
        accountant: pld.
        adjacency: add_or_remove_one.
        noise_multiplier: a number, a domain to search, or auto: the smallest with which the planned trials fit.
        runs: number of runs of a sealed search.
        private: False only for studies; their models cannot be exported as private.
        noise_seed: seed of the noise, only with ``private: false``.
    """

    epsilon: Positive
    delta: Fraction = 1e-5
    unit: Literal["record", "user"] = "record"
    accounting: Word = "composition"
    cap: Literal["auto", "total_steps", "coupon_book", "fixed_order"] = "auto"
    order: Order = "auto"
    accountant: Word = "pld"
    adjacency: Word = "add_or_remove_one"
    noise_multiplier: Noise = "auto"
    runs: RunsSection = RunsSection()
    private: bool = True
    noise_seed: Seed | None = None


def _component(value: object) -> object:
    if isinstance(value, Component):
        return value
    if isinstance(value, str):
        return {"name": value, "options": {}}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return {"name": value["name"], "options": {key: entry for key, entry in value.items() if key != "name"}}
    fix = "Write for example median or {name: median, n_startup_trials: 3}."
    raise broken("value-wrong-type", "must be a name or a name with options", fix)


class MetricSection(Section):
    """The score of a trial.

    Attributes:
        name: validation_accuracy or validation_loss.
        mode: max or min.
    """

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class PublicSection(Section):
    """The PUBLIC records of a search with ``accounting: public``.

    Attributes:
        name: a shipped data set, or any name together with ``path``.
        path: the user's own npz file.
        public_size: number of training records in that file.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None


class SearchSection(Section):
    """The choice and the early stopping of trials.

    Attributes:
        trials: number of trials, with failed and pruned ones; the mean of it with ``accounting: selection``.
        sampler: proposes parameters.
        pruner: stops trials early, which saves budget.
        rungs: number of equally spaced reports of a trial, or fractions of its steps; the last is at its end.
        space: the domains as in a file, see `Experiment.space`.
        metric: the score.
        public: the records to search on with ``accounting: public``.
        when_sure: what to do when a complete trial is surely near the best: go_on, stop (keeps the rest of the
            budget), or replicate (repeats the best two configurations). Needs the sampler ``unimodal``.
    """

    trials: Count = 20
    sampler: Annotated[Component, BeforeValidator(_component)] = Component(name="tpe")
    pruner: Annotated[Component, BeforeValidator(_component)] = Component(name="none")
    rungs: Rungs = 5
    space: dict[str, Any] = {}
    metric: MetricSection = MetricSection()
    public: PublicSection | None = None
    when_sure: WhenSure = "go_on"

    @property
    def is_unimodal(self) -> bool:
        """Whether the sampler or the pruner is unimodal."""
        return "unimodal" in (canonical_sampler(self.sampler.name), canonical_pruner(self.pruner.name))


class ResourcesSection(Section):
    """The resources of one trial, and the number of concurrent trials."""

    concurrent_trials: Count = 1
    cpus_per_trial: Positive = 1.0
    gpus_per_trial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers_per_trial: Count = 1


class TrackingSection(Section):
    """The address of MLflow; ``experiment`` defaults to the experiment file's name."""

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None
