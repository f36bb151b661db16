"""Sections of the experiment file: keys, defaults and types. docs/experiment.md describes each key."""

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
    """Base of all sections: frozen, without unknown keys and without conversion of types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )


class Component(Section):
    """Sampler or pruner; a file has ``median`` or ``{name: median, n_startup_trials: 3}``."""

    name: Word
    options: dict[str, Any] = {}

    @model_serializer
    def _to_file(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name


class ValidationSection(Section):
    """Records set aside to score trials. Protected scores are noisy counts with a budget of their own."""

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class DatasetSection(Section):
    """Private records and their split; ``public_size`` and ``public_users`` must be PUBLIC numbers."""

    name: Word
    path: Word | None = None
    public_size: Count | None = None
    public_users: Count | None = None
    records_per_user: Count = 16
    validation: ValidationSection = ValidationSection()


class TrainableSection(Section):
    """Settings of the training of every trial. The sample rate is ``batch_size`` / public number of records (users)."""

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
    """Score of a trial."""

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
    """Choice and early stopping of trials. ``space`` has the domains as in the file; `Experiment.space` parses them.

    ``when_sure`` applies when a complete trial is surely near the best: go_on, stop (which keeps the remaining budget),
    or replicate (which repeats the best two configurations).
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
    """Resources of one trial, and the number of concurrent trials."""

    concurrent_trials: Count = 1
    cpus_per_trial: Positive = 1.0
    gpus_per_trial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers_per_trial: Count = 1


class TrackingSection(Section):
    """Address of MLflow; ``experiment`` is by default the name of the experiment file."""

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None
