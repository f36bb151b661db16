"""The experiment file as a typed, frozen model: sections, defaults, and the type and range of every value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from search_spaces import SearchSpace, parse_space
from search_spaces.domains import is_number
from trainables.data import DatasetRequest, data_folder, public_train_size
from tuner.experiment.yamlfile import dump

__all__ = [
    "Component",
    "DatasetSection",
    "Experiment",
    "MetricSection",
    "PrivacySection",
    "ResourcesSection",
    "SearchSection",
    "Section",
    "TrackingSection",
    "TrainableSection",
    "ValidationSection",
]

_ONE_MECHANISM = (
    "must be one value: the cap on total steps holds only with ONE (sample_rate, noise_multiplier) for all trials"
)


def broken(rule: str, mend: str = "") -> PydanticCustomError:
    """Return the error of a value that breaks ``rule``; `wording` turns it into a problem."""
    return PydanticCustomError("rule", "{rule}", {"rule": rule, "mend": mend})


def _one_value(value: object) -> object:
    """Refuse a domain where the accountant needs one number."""
    if isinstance(value, Mapping | list):
        raise broken(
            _ONE_MECHANISM, "Write one number, and search what is free (learning_rate, smoothing_radius, ...)."
        )
    return value


def _noise(value: object) -> object:
    value = _one_value(value)
    if value == "auto" or (is_number(value) and value >= 0):
        return value
    raise broken("must be auto or a finite number above 0", "auto takes the smallest with which the trials fit.")


def _rungs(value: object) -> object:
    if isinstance(value, list | tuple):
        rising = all(is_number(entry) and 0 < entry <= 1 for entry in value) and list(value) == sorted(set(value))
        if not (rising and value and value[-1] == 1):
            raise broken("must be a count or rising fractions in (0, 1] that end with 1", "Write [0.25, 0.5, 1.0].")
        return tuple(float(entry) for entry in value)
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000):
        raise broken("must be a count from 1 to 10000, or rising fractions in (0, 1] that end with 1", "Write 5.")
    return value


def _component(value: object) -> object:
    if isinstance(value, Component):
        return value
    if isinstance(value, str):
        return {"name": value, "options": {}}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return {"name": value["name"], "options": {key: entry for key, entry in value.items() if key != "name"}}
    raise broken("must be a name or a name with options", "Write median or {name: median, n_startup_trials: 3}.")


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Word = Annotated[str, Field(min_length=1)]


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
        protected: whether the scores are inside the guarantee; not in this version.
        split_seed: public key of the split.
    """

    fraction: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.1
    protected: bool = False
    split_seed: Seed = 0


class DatasetSection(Section):
    """Which records, and their split.

    Attributes:
        name: a shipped data set, or any name together with ``path``; the budget is kept under it.
        path: the user's own npz file.
        public_size: PUBLIC number of training records in that file.
        validation: the records set aside.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None
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
        batch_size: EXPECTED batch size; sample_rate = batch_size / public training size.
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
    batch_size: Annotated[Count, BeforeValidator(_one_value)] = 256
    epochs: Annotated[Positive, BeforeValidator(_one_value)] = 10.0
    sampling: Word = "poisson"


class PrivacySection(Section):
    """The budget of the WHOLE search.

    Attributes:
        epsilon: never exceeded, whatever is searched.
        delta: below 1 / training records.
        accounting: composition.
        adjacency: add_or_remove_one.
        noise_multiplier: a number, or auto: the smallest with which the planned trials fit.
        private: False only for studies; nothing can then be exported as private.
        noise_seed: only with ``private: false``.
    """

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 1e-5
    accounting: Word = "composition"
    adjacency: Word = "add_or_remove_one"
    noise_multiplier: Annotated[Literal["auto"] | float, BeforeValidator(_noise)] = "auto"
    private: bool = True
    noise_seed: Seed | None = None


class MetricSection(Section):
    """The score of a trial.

    Attributes:
        name: validation_accuracy or validation_loss.
        mode: max or min.
    """

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class SearchSection(Section):
    """How the trials are chosen and stopped.

    Attributes:
        trials: how many, failed and pruned ones included.
        sampler: proposes parameters.
        pruner: stops trials early; a step not taken is budget not spent.
        rungs: a trial reports this many times, equally spaced, or at these fractions of its steps; last at its end.
        space: what is searched, as in the file; `Experiment.space` is its meaning. `load` adds what was left out.
        metric: the score.
    """

    trials: Count = 20
    sampler: Annotated[Component, BeforeValidator(_component)] = Component(name="tpe")
    pruner: Annotated[Component, BeforeValidator(_component)] = Component(name="none")
    rungs: Annotated[int | tuple[float, ...], BeforeValidator(_rungs)] = 5
    space: dict[str, Any] = {}
    metric: MetricSection = MetricSection()


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


class Experiment(Section):
    """One experiment file, checked.

    Construct it by `tuner.experiment.load`, which also applies the gates; the model alone checks types and ranges.
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
    ledger: Word = "sqlite:///runs/ledger.db"

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

    def dataset_request(self, data_dir: str | None = None) -> DatasetRequest:
        """Return which records a training wants, with absolute paths, so that any working folder will do."""
        own = self.dataset.path
        return DatasetRequest(
            name=self.dataset.name,
            data_dir=str(data_folder(data_dir)),
            path=None if own is None else str(Path(own).expanduser().absolute()),
            public_size=self.dataset.public_size,
            validation_fraction=self.dataset.validation.fraction,
            split_seed=self.dataset.validation.split_seed,
        )

    def with_noise(self, noise_multiplier: float) -> Experiment:
        """Return this experiment with a number in the place of ``noise_multiplier: auto``."""
        privacy = PrivacySection.model_validate({**self.privacy.model_dump(), "noise_multiplier": noise_multiplier})
        return self.model_copy(update={"privacy": privacy})

    def warnings(self) -> tuple[str, ...]:
        """Return what is allowed and yet worth knowing before the budget is spent, one sentence each."""
        found = []
        size = public_train_size(self.dataset_request())
        if self.privacy.delta > size**-1.1:
            found.append(
                f"privacy.delta {self.privacy.delta:g} is above n^-1.1 = {size**-1.1:.2g} for n = {size}: "
                "a guarantee is stronger with a smaller one"
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
