"""Sections of the experiment file, with their keys, types and defaults. `privacy_sections` has the section `privacy`.

docs/generated.py makes the page "Keys of the experiment file" from the docstrings: each key has a line in `Attributes`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer

from tuner.experiment.values import (
    Blocks,
    Count,
    Fraction,
    FullRuns,
    Names,
    Positive,
    Rungs,
    ScoreNoise,
    Seed,
    UserKey,
    Word,
    broken,
    one_value,
)
from tuner.study.names import canonical_pruner, canonical_sampler
from tuner.study.types import WhenSure
from tuner.study.unimodal.options import component

__all__ = [
    "AUTO",
    "ChosenSection",
    "CommitSection",
    "Component",
    "DatasetSection",
    "ExportedFromSection",
    "MetricSection",
    "PublicSection",
    "RecordsSection",
    "ResourcesSection",
    "SearchSection",
    "Section",
    "StartSection",
    "TrackingSection",
    "TrainableSection",
    "ValidationSection",
]


AUTO = "auto"
"""Word at `privacy.accounting` with which the plan chooses how to search. It is replaced before a sweep starts."""


class Section(BaseModel):
    """Base class of all sections. Sections are immutable, refuse unknown keys and do not convert types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )


class Component(Section):
    """Sampler or pruner, written as ``median`` or, with options, as ``{name: median, n_startup_trials: 3}``.

    Attributes:
        name: name of the sampler or pruner.
        options: its options by name, written next to `name` in a file.
    """

    name: Word
    options: dict[str, Any] = {}

    @model_serializer
    def _to_file(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name


class ExportedFromSection(Section):
    """Place in the ledger from which a file was exported. `tune train` refuses another or an older ledger.

    Attributes:
        ledger: id of the ledger.
        entries: number of the data set's entries in it.
        head: hash of the last of these entries.
    """

    ledger: Word
    entries: Count
    head: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ChosenSection(Section):
    """What `accounting: auto` chose, and why. The choice follows from public facts. `tune run` writes this section.

    Attributes:
        candidate: the chosen way to search.
        reason: one sentence.
    """

    candidate: Word
    reason: Word


class ValidationSection(Section):
    """Validation records, on which trials are scored. Protected scores have noise and their own budget.

    Attributes:
        fraction: share of the training records (or users) that validate.
        protected: whether the scores have noise, so that the claim covers the validation records too.
        split_seed: PUBLIC seed of the split, and of the choice among a user's records.
        epsilon: ε of all protected scores together, at most that of `privacy`.
        delta: δ of all protected scores together, at most that of `privacy`.
        noise: standard deviation of the noise on the number of right answers, from 0.001 to 1e6. auto chooses the
            smallest with which the scores of all planned trials fit, and one more for each concurrent trial.
    """

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class RecordsSection(Section):
    """Name of a data set. For the user's own data, the path of an npz file and a PUBLIC size are also needed.

    Attributes:
        name: a shipped data set, or the name of your own records in the ledger.
        path: an .npz file of your own.
        public_size: a PUBLIC number of records, for the sample rate. It should not be counted in the file.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None


class PublicSection(RecordsSection):
    """PUBLIC records: those of `accounting: public`, or the proxy that the sampler `surrogate` searches first, free.

    Attributes:
        trials: number of trials on them for a charged search. null for as many as `search.trials`.
    """

    trials: Count | None = None


class DatasetSection(RecordsSection):
    """Private records and their split. `public_size` and `public_users` must be PUBLIC numbers.

    Attributes:
        block: one block or a list of blocks of a growing table, such as [2026-10, 2026-11]. Each block has a budget of
            its own.
        public_users: a PUBLIC number of users, which replaces `public_size` with `unit: user`.
        user_key: PUBLIC name of the column or system that divides the records among users. It replaces the ledger's
            comparison of the records by the owner's word.
        records_per_user: largest number of records of a user in a step, with `unit: user`.
        validation: the validation records.
    """

    block: Blocks | None = None
    public_users: Count | None = None
    user_key: UserKey | None = None
    records_per_user: Count = 16
    validation: ValidationSection = ValidationSection()


class StartSection(Section):
    """Weights from which every training starts. They must be PUBLIC, and the file must say so.

    Attributes:
        path: path of a safetensors file.
        public: declaration that no record of the search was used for the weights.
        sha256: hash of the file. Without it, the resolved file has the hash that is found.
    """

    path: Word
    public: bool = False
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


def _start(value: object) -> object:
    """Refuse a bare path, which does not say that the weights are public."""
    if isinstance(value, str):
        rule = "must say that the weights are public, which means that no record of this search was used for them"
        raise broken("start-not-declared", rule, f"Write {{path: {value}, public: true}} if that is so.")
    return value


class TrainableSection(Section):
    """Training settings of every trial. The sample rate is `batch_size` / the public number of records (or users).

    Attributes:
        method: a shipped method, or package.module:function.
        task: what the labels are.
        model: a shipped model, or package.module:function.
        start: PUBLIC weights that replace the random ones.
        freeze: list of names of layers or parameters that are not trained.
        activation: activation of the shipped models.
        normalization: normalisation of the shipped models. batch mixes records before the clip and is refused.
        optimizer: optimizer of all trials, if the space does not name it.
        momentum: momentum of sgd, if the space does not name it.
        precision: precision of the forward and backward passes.
        batch_size: expected number of records (or users) in a step, if the space does not name it.
        epochs: expected number of passes over the records (or users), if the space does not name it.
        sampling: how batches are drawn. `poisson` is the only one: shuffled and fixed-size batches have another
            guarantee.
    """

    method: Word
    task: Literal["classification", "binary", "regression"] = "classification"
    model: Word = "logistic_regression"
    start: Annotated[StartSection | None, BeforeValidator(_start)] = None
    freeze: Names = ()
    activation: Word = "relu"
    normalization: Word = "none"
    optimizer: Literal["sgd", "adam", "adam_corrected"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    batch_size: Annotated[Count, one_value("batch_size")] = 256
    epochs: Annotated[Positive, one_value("epochs")] = 10.0
    sampling: Word = "poisson"


def _component(value: object) -> object:
    if isinstance(value, Component):
        return value
    named = component(value)
    if named is None:
        fix = "Write for example median or {name: median, n_startup_trials: 3}."
        raise broken("value-wrong-type", "must be a name or a name with options", fix)
    name, options = named
    return {"name": name, "options": options}


class MetricSection(Section):
    """Score by which trials are compared, and its direction.

    Attributes:
        name: name of the score.
        mode: direction. Losses and perplexities have min.
    """

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class CommitSection(Section):
    """Division of the budget between short, noisy trials and one committed run, whose model is released.

    Attributes:
        share: share of the squared privacy loss (the μ² of Gaussian differential privacy) for all trials together.
        length: steps of a trial, as a fraction of the steps of the committed run. Schedule and rungs are scaled to it.
        start: weights from which the committed run starts. `scratch` is the public initialisation, and `best_trial` is
            the last checkpoint of the best trial, which is charged already.
    """

    share: Fraction = 0.05
    length: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.25
    start: Literal["scratch", "best_trial"] = "scratch"


def _commit(value: object) -> object:
    """Accept a number as the share, because a file may contain only the share."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value < 1:
            fix = "Write for example 0.1: a tenth of the budget for the trials, the rest for the committed run."
            raise broken("value-out-of-range", "must be above 0 and below 1", fix)
        return {"share": float(value)}
    return value


class SearchSection(Section):
    """Settings that choose and stop trials.

    Attributes:
        trials: number of trials. With `accounting: selection`, the MEAN of the hidden number of runs.
        full_runs: number of whole runs of steps for which the budget is planned, from 1 to `trials`. Trials then
            reserve rung by rung and pause at rungs. auto takes the number that `tune plan` recommends. With null, the
            budget is planned for all trials, each trained to its end.
        sampler: how configurations are chosen, as a name or as {name: tpe, n_startup_trials: 3}.
        pruner: how trials are stopped early, as a name or with options.
        rungs: reports of a trial. A whole number from 1 to 10000 for equal distances, or increasing fractions of the
            steps that end with 1.
        space: values and domains of the parameters, as in the file. Without it, the method's usual ones.
        metric: the score.
        public: PUBLIC records of `accounting: public`, or of the proxy of the sampler `surrogate`.
        when_sure: with the sampler `unimodal`, what happens when a complete trial is very probably near the best
            possible one. `go_on` continues the search, `stop` ends it and saves the remaining budget, `replicate`
            repeats the best two configurations.
        commit: short and noisy trials, then one run with the chosen configuration, which is released. A number is the
            share.
    """

    trials: Count = 20
    full_runs: FullRuns = None
    sampler: Annotated[Component, BeforeValidator(_component)] = Component(name="tpe")
    pruner: Annotated[Component, BeforeValidator(_component)] = Component(name="none")
    rungs: Rungs = 5
    space: dict[str, Any] = {}
    metric: MetricSection = MetricSection()
    public: PublicSection | None = None
    when_sure: WhenSure = "go_on"
    commit: Annotated[CommitSection | None, BeforeValidator(_commit)] = None

    @property
    def unimodal_parts(self) -> tuple[str, ...]:
        """The unimodal parts of the search: ``sampler``, ``pruner``, both or neither."""
        named = {"sampler": canonical_sampler(self.sampler.name), "pruner": canonical_pruner(self.pruner.name)}
        return tuple(kind for kind, name in named.items() if name == "unimodal")

    @property
    def is_unimodal(self) -> bool:
        """Whether the sampler or the pruner is unimodal."""
        return bool(self.unimodal_parts)


class ResourcesSection(Section):
    """Resources of each trial, the number of concurrent trials, and what happens when a worker is lost or silent.

    Attributes:
        concurrent_trials: number of trials that run at the same time.
        cpus_per_trial: CPUs of a trial. Its workers share them.
        gpus_per_trial: GPUs of a trial. Its workers share them.
        workers_per_trial: number of workers of a trial.
        hung_after: seconds without a lease or a report after which a worker is killed and counts as lost.
        on_loss: `pay` continues a trial that lost its worker, and charges the repeated steps again. `stop` stops the
            sweep before that, and a resume pays.
    """

    concurrent_trials: Count = 1
    cpus_per_trial: Positive = 1.0
    gpus_per_trial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers_per_trial: Count = 1
    hung_after: Positive = 3600.0
    on_loss: Literal["pay", "stop"] = "pay"


class TrackingSection(Section):
    """Address of MLflow and name of the MLflow experiment.

    Attributes:
        uri: address of MLflow, without a password.
        experiment: name of the MLflow experiment. null for the `name` of the file.
    """

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None
