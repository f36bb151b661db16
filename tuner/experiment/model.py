"""The experiment file as a typed, frozen model: sections, defaults, and the type and range of every value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from search_spaces import Domain, SearchSpace, parse_space
from trainables.data import DatasetRequest, data_folder, public_train_size
from tuner.errors import InputError
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
from tuner.experiment.yamlfile import dump
from tuner.study.names import canonical_pruner, canonical_sampler
from tuner.study.types import WhenSure

__all__ = [
    "Component",
    "DatasetSection",
    "Experiment",
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
    """What all sections share: frozen, no unknown key, no silent conversion of types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )


class Component(Section):
    """A sampler or pruner: its name and its options.

    In a file ``median`` or ``{name: median, n_startup_trials: 3}``.
    """

    name: Word
    options: dict[str, Any] = {}

    @model_serializer
    def _to_file(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name


class ValidationSection(Section):
    """The records set aside to score trials.

    Attributes:
        fraction: part of the training records, in (0, 1).
        protected: whether the scores are inside the guarantee: noisy counts with a budget of their own.
        split_seed: public key of the split.
        epsilon: of all protected scores together; left out it is privacy.epsilon.
        delta: of them; left out it is privacy.delta.
        noise: standard deviation of a released count, or auto: the smallest with which the planned scores fit.
    """

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class DatasetSection(Section):
    """Which records, and their split.

    Attributes:
        name: a shipped data set, or any name together with ``path``; the budget is kept under it.
        path: the user's own npz file.
        public_size: PUBLIC number of training records in that file.
        public_users: PUBLIC number of users in that file, for privacy.unit: user.
        records_per_user: records of one user that a step may use at most, for privacy.unit: user.
        validation: the records set aside.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None
    public_users: Count | None = None
    records_per_user: Count = 16
    validation: ValidationSection = ValidationSection()


class TrainableSection(Section):
    """What every trial trains, and how long.

    Attributes:
        method: dp_sgd, dp_lssgd, dplis, dp_weight_decay or composed.
        model: a name of `trainables.model_names.MODELS`, or ``package.module:function``.
        activation: relu or tanh.
        normalization: none or group; batch is refused.
        optimizer: sgd or adam.
        momentum: of sgd, in [0, 1).
        precision: of the forward and backward passes; what is measured, summed and noised is never less than float32.
        batch_size: EXPECTED batch size; sample_rate = batch_size / public training size (users with unit: user).
        epochs: passes over the training records, in expectation.
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
    """How many runs a sealed search makes: a random number K, of mean search.trials, that nobody is told.

    Attributes:
        law: of K: geometric, logarithmic, negative_binomial or poisson.
        shape: of the negative binomial law, above -1; the others have none to choose.
        at_most: runs after which K is cut off, or auto: where what that adds takes 1 % of delta.
    """

    law: Word = "geometric"
    shape: Finite | None = None
    at_most: AtMost = "auto"


class PrivacySection(Section):
    """The budget of the WHOLE search.

    Attributes:
        epsilon: never exceeded, whatever is searched.
        delta: below 1 / training records (users with unit: user).
        unit: what one is protected: a record, or all records of a user.
        accounting: composition (all trials may be seen), selection (sealed: only the winner leaves) or public (the
            search runs on public data, and one run on the private ones).
        cap: the filter of composition, or auto: the tightest that the space allows.
        order: Rényi order of the fixed_order filter, or auto: the best of the plan.
        accountant: pld.
        adjacency: add_or_remove_one.
        noise_multiplier: a number, a domain to search, or auto: the smallest with which the planned trials fit.
        runs: of a sealed search.
        private: False only for studies; nothing can then be exported as private.
        noise_seed: only with ``private: false``.
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
    raise broken("must be a name or a name with options", "Write median or {name: median, n_startup_trials: 3}.")


class MetricSection(Section):
    """The score of a trial.

    Attributes:
        name: validation_accuracy or validation_loss.
        mode: max or min.
    """

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class PublicSection(Section):
    """The PUBLIC records that a search with ``accounting: public`` trains on.

    Attributes:
        name: a shipped data set, or any name together with ``path``.
        path: the user's own npz file.
        public_size: number of training records in that file.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None


class SearchSection(Section):
    """How the trials are chosen and stopped.

    Attributes:
        trials: how many, failed and pruned ones included; the mean of their number with ``accounting: selection``.
        sampler: proposes parameters.
        pruner: stops trials early; a step not taken is budget not spent.
        rungs: a trial reports this many times, equally spaced, or at these fractions of its steps; last at its end.
        space: what is searched, as in the file; `Experiment.space` is its meaning. `load` adds what was left out.
        metric: the score.
        public: the records to search on with ``accounting: public``.
        when_sure: what follows when a complete trial is surely near the best: go on, stop and keep the rest of the
            budget, or replicate the best two configurations to tell them apart. Needs the sampler ``unimodal``.
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
        """Whether the sampler or the pruner looks for the one top of the score along a parameter."""
        return "unimodal" in (canonical_sampler(self.sampler.name), canonical_pruner(self.pruner.name))


class ResourcesSection(Section):
    """What one trial gets, and how many run at once."""

    concurrent_trials: Count = 1
    cpus_per_trial: Positive = 1.0
    gpus_per_trial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers_per_trial: Count = 1


class TrackingSection(Section):
    """Where MLflow's records go; ``experiment`` is the experiment file's name when left out."""

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None


_LEDGER = "DP_TUNER_LEDGER"  # `tune budget` and `tune verify` read it as the default of their --ledger


def _shared_ledger() -> str | None:
    """The ledger that the environment names, as an absolute URL; None where it names none.

    Raises:
        InputError: it is no address of a ledger.
    """
    from tuner.privacy.ledger.stores import absolute_url

    named = os.environ.get(_LEDGER)
    try:
        return absolute_url(named) if named else None
    except InputError as error:
        raise InputError(f"{_LEDGER}: {error}") from error


def _the_shared_ledger(url: str) -> str:
    """Refuse another ledger than the environment's: the caps that were set in that one would bind nothing here."""
    from tuner.privacy.ledger.stores import absolute_url, masked

    shared = _shared_ledger()
    if shared is None:
        return url
    try:
        own = absolute_url(url)
    except InputError:  # whoever opens it refuses it, and shows no password
        return url
    if own != shared:
        raise broken(
            f"this is {masked(own)}, and {_LEDGER} names {masked(shared)}: what is charged in one ledger is not held "
            "to the caps of another",
            f"Unset {_LEDGER} to use this one, or leave the line out of a file of your own to use the variable's.",
        )
    return url


class Experiment(Section):
    """One experiment file, checked.

    Construct it by `tuner.experiment.load`, which also applies the gates; the model alone checks types and ranges.

    Where the file names no ledger, that of the environment variable DP_TUNER_LEDGER is taken before the default; a file
    that names another one than the variable is refused.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    seed: Seed = 0
    dataset: DatasetSection
    trainable: TrainableSection
    privacy: PrivacySection
    search: SearchSection = SearchSection()
    resources: ResourcesSection = ResourcesSection()
    tracking: TrackingSection = TrackingSection()
    storage: Word = "runs/"
    ledger: Annotated[Word, AfterValidator(_the_shared_ledger)] = "sqlite:///runs/ledger.db"

    @model_validator(mode="after")
    def _take_the_shared_ledger(self) -> Experiment:
        if "ledger" not in self.model_fields_set and (shared := _shared_ledger()) is not None:
            object.__setattr__(self, "ledger", shared)
        return self

    @model_validator(mode="after")
    def _name_the_tracking(self) -> Experiment:
        if self.tracking.experiment is None:
            named = self.tracking.model_copy(update={"experiment": self.name})
            object.__setattr__(self, "tracking", named)
        return self

    @property
    def space(self) -> SearchSpace:
        """What is searched.

        Raises:
            search_spaces.SpaceError: only for an experiment that `load` has not checked.
        """
        return parse_space(self.search.space, method=self.trainable.method)

    @property
    def priced(self) -> dict[str, Domain]:
        """The domains of what is searched and priced; a value for each stands in the parameters of a trial."""
        space = self.space
        return {name: domain for name, domain in space.parameters if name in space.priced}

    def dataset_request(self, data_dir: str | None = None) -> DatasetRequest:
        """Return which records a training wants, with absolute paths, so that any working folder will do."""
        dataset = self.dataset
        return DatasetRequest(
            name=dataset.name,
            data_dir=str(data_folder(data_dir)),
            path=_absolute(dataset.path),
            public_size=dataset.public_size,
            public_users=dataset.public_users,
            unit=self.privacy.unit,
            records_per_user=dataset.records_per_user,
            validation_fraction=dataset.validation.fraction,
            split_seed=dataset.validation.split_seed,
        )

    def public_request(self, data_dir: str | None = None) -> DatasetRequest:
        """Return which PUBLIC records the search of ``accounting: public`` trains on, split as the private ones are.

        Raises:
            InputError: the experiment names none.
        """
        public = self.search.public
        if public is None:
            raise InputError("only an experiment with search.public has public records, got none.")
        return DatasetRequest(
            name=public.name,
            data_dir=str(data_folder(data_dir)),
            path=_absolute(public.path),
            public_size=public.public_size,
            validation_fraction=self.dataset.validation.fraction,
            split_seed=self.dataset.validation.split_seed,
        )

    def with_noise(self, noise_multiplier: float) -> Experiment:
        """Return this experiment with a number in the place of ``noise_multiplier: auto``; as it is where searched."""
        if "noise_multiplier" in self.search.space:
            return self
        privacy = PrivacySection.model_validate({**self.privacy.model_dump(), "noise_multiplier": noise_multiplier})
        return self.model_copy(update={"privacy": privacy})

    def warnings(self) -> tuple[str, ...]:
        """Return what is allowed and yet worth knowing before the budget is spent, one sentence each."""
        found = []
        size = public_train_size(self.dataset_request())
        if self.privacy.delta > size**-1.1:
            found.append(
                f"privacy.delta {self.privacy.delta:g} is above n^-1.1 = {size**-1.1:.2g} for n = {size}"
                f"{' users' if self.privacy.unit == 'user' else ''}: a guarantee is stronger with a smaller one"
            )
        if not self.privacy.private:
            found.append(
                "privacy.private is false: this search carries no guarantee and nothing can be exported as private"
            )
        return tuple(found)

    def to_yaml(self) -> str:
        """Return the resolved file: every value written out; `tuner.experiment.load` of it is this experiment."""
        values = self.model_dump(mode="json", by_alias=True)
        return f"# {self.name}: resolved by dp-tuner, every default written out\n{dump(values)}"


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())
