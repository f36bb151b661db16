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
    """State of the ledger when a file was exported. `tune train` refuses another ledger, or an older copy of this one.

    Attributes:
        ledger: id of the ledger.
        entries: number of the data set's entries in the ledger.
        head: hash of the last of these entries.
    """

    ledger: Word
    entries: Count
    head: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ChosenSection(Section):
    """What `accounting: auto` chose, and why. The choice follows from public facts. `tune run` writes this section.

    Attributes:
        candidate: the chosen way to search.
        reason: why, in one sentence.
    """

    candidate: Word
    reason: Word


class ValidationSection(Section):
    """Validation records, on which trials are scored. Protected scores have noise and their own budget.

    Attributes:
        fraction: share of the training records (or users) that are kept for validation.
        protected: whether the scores have noise, so that the claim covers the validation records too.
        split_seed: PUBLIC seed of the split, and of the choice among a user's records.
        epsilon: ε of all protected scores together, at most that of `privacy`.
        delta: δ of all protected scores together, at most that of `privacy`.
        noise: standard deviation of the noise on the number of right answers, from 0.001 to 1e6. auto chooses the
            smallest noise that fits the budget of the scores. It plans for the scores of all trials, and one more
            score for each concurrent trial.
    """

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class RecordsSection(Section):
    """Name of a data set. Your own data also need the path of an npz file and a PUBLIC size.

    Attributes:
        name: a shipped data set, or the name of your own records in the ledger.
        path: an .npz file of your own.
        public_size: PUBLIC number of records, from which the sample rate follows. Do not count it in the file.
    """

    name: Word
    path: Word | None = None
    public_size: Count | None = None


class PublicSection(RecordsSection):
    """PUBLIC records, for `accounting: public` or as a proxy of the sampler `surrogate`. No trial on them is charged.

    Attributes:
        trials: number of trials on the proxy, before the charged search. null means as many as `search.trials`.
    """

    trials: Count | None = None


class DatasetSection(RecordsSection):
    """Private records and their split. `public_size` and `public_users` must be PUBLIC numbers.

    Attributes:
        block: one block or a list of blocks of a growing table, such as [2026-10, 2026-11]. Each block has a budget of
            its own.
        public_users: PUBLIC number of users. With `unit: user`, it replaces `public_size`.
        user_key: PUBLIC name of the column or system that divides the records among users. With this key, the ledger
            does not compare which user has which record, but relies on the owner of the data.
        records_per_user: maximum number of records of one user in a step, with `unit: user`.
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
        sha256: SHA-256 of the file. If you leave it out, the sweep stores the hash that the file has.
    """

    path: Word
    public: bool = False
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


def _start(value: object) -> object:
    """Refuse a bare path, which does not say that the weights are public."""
    if isinstance(value, str):
        rule = "must say that the weights are public, which means that no record of this search was used for them"
        raise broken("start-not-declared", rule, f"If that is true, write {{path: {value}, public: true}}.")
    return value


class TrainableSection(Section):
    """Training settings of every trial. The sample rate is `batch_size` / the public number of records (or users).

    Attributes:
        method: a shipped method, or package.module:function.
        task: kind of labels: classes, two classes with one output (`binary`), or numbers (`regression`).
        model: a shipped model, or package.module:function.
        start: PUBLIC weights from which training starts, instead of random weights.
        freeze: list of names of layers or parameters that are not trained.
        activation: activation of the shipped models.
        normalization: normalisation of the shipped models. `batch` is refused, because it mixes records before the
            clip.
        optimizer: optimizer of all trials. `search.space` can replace it.
        momentum: momentum of sgd. `search.space` can replace it.
        precision: precision of the forward and backward passes.
        batch_size: expected number of records (or users) in a step. `search.space` can replace it.
        epochs: expected number of passes over the records (or users). `search.space` can replace it.
        sampling: how batches are drawn. Only `poisson` is allowed, because shuffled and fixed-size batches have a
            weaker guarantee.
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
        mode: max if a higher score is better, and min if a lower score is better, as for losses and perplexities.
    """

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class CommitSection(Section):
    """Division of the budget between short, noisy trials and one committed run, whose model is released.

    Attributes:
        share: share of the squared privacy loss (the μ² of Gaussian differential privacy) for all trials together.
        length: steps of a trial, as a fraction of the steps of the committed run. The schedule and the rungs of a trial
            are scaled to this length.
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
        full_runs: the budget is planned for the steps of this number of whole runs, from 1 to `trials`. Each trial then
            reserves the steps to its next rung, and pauses there. auto takes the number that `tune plan` recommends.
            With null, the budget is planned for all trials, each trained to its end.
        sampler: how configurations are chosen, as a name or as {name: tpe, n_startup_trials: 3}.
        pruner: how trials are stopped early, as a name or with options.
        rungs: where a trial reports its score: a number of reports from 1 to 10000 at equal distances, or a list of
            increasing fractions of its steps that ends with 1.
        space: values and domains of the parameters. Without a space, the learning rate and the method's own parameters
            are searched.
        metric: score by which trials are compared.
        public: PUBLIC records, for `accounting: public` or as a proxy of the sampler `surrogate`.
        when_sure: with the sampler `unimodal`, what happens when a complete trial is very probably near the best
            possible one. `go_on` continues the search. `stop` ends the search and leaves the remaining budget unspent.
            `replicate` repeats the best two configurations.
        commit: short and noisy trials, then one run with the chosen configuration, whose model is released. A single
            number is the `share`.
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
        cpus_per_trial: CPUs of a trial, which its workers share.
        gpus_per_trial: GPUs of a trial, which its workers share.
        workers_per_trial: number of workers of a trial.
        hung_after: seconds after which a silent worker is killed and counts as lost. A worker is silent if it neither
            asks for steps nor reports a score.
        on_loss: what happens when a trial loses its worker. `pay` continues the trial, and charges the repeated steps
            again. `stop` stops the sweep first, and only a resume repeats and charges these steps.
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
        experiment: name of the MLflow experiment. null means the `name` of this file.
    """

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None
