"""Sections of the experiment file, with their keys, types and defaults. docs/experiment.md describes each key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer

from tuner.experiment.values import (
    AtMost,
    Blocks,
    Count,
    Finite,
    Fraction,
    FullRuns,
    Line,
    Names,
    Noise,
    Order,
    Positive,
    Rungs,
    ScoreNoise,
    Seed,
    UserKey,
    Word,
    broken,
    one_release,
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
    "PrivacySection",
    "PublicSection",
    "RecordsSection",
    "ReleaseSection",
    "ResourcesSection",
    "RunsSection",
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
    """Sampler or pruner, written as ``median`` or, with options, as ``{name: median, n_startup_trials: 3}``."""

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
    """Validation records, on which trials are scored. Protected scores have noise and their own budget."""

    fraction: Fraction = 0.1
    protected: bool = False
    split_seed: Seed = 0
    epsilon: Positive | None = None
    delta: Fraction | None = None
    noise: ScoreNoise = "auto"


class RecordsSection(Section):
    """Name of a data set. For the user's own data, the path of an npz file and a PUBLIC size are also needed."""

    name: Word
    path: Word | None = None
    public_size: Count | None = None


class PublicSection(RecordsSection):
    """Public records, and the number of trials on them for a charged search; null for as many as `search.trials`."""

    trials: Count | None = None


class DatasetSection(RecordsSection):
    """Private records and their split. `public_size` and `public_users` must be PUBLIC numbers.

    Attributes:
        block: blocks of a growing table whose records are used. Each block has a budget of its own.
        user_key: PUBLIC name of the column or system that divides the records among users. It replaces the ledger's
            comparison of the records by the owner's word.
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
        sha256: hash of the file. Without it, the resolved file has the hash that was found.
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

    `freeze` are names of layers that are not trained.
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


class RunsSection(Section):
    """Distribution of the number of runs of a sealed search. The number is hidden, and its mean is search.trials.

    Attributes:
        law: name of the distribution, which is geometric, logarithmic, negative_binomial or poisson.
        shape: shape of the negative binomial distribution, above -1. The other distributions have no shape.
        at_most: maximum number of runs. With auto, the probability of more runs costs 1 % of delta.
    """

    law: Word = "geometric"
    shape: Finite | None = None
    at_most: AtMost = "auto"


class ReleaseSection(Section):
    """One noisy copy of the records, on which all trials train (`accounting: release`).

    Attributes:
        guarantee: `rigorous` charges the release for what is true of it. `published` is the noise of the input
            perturbation paper, whose theorem is false; it needs `private: false`.
        trust: `local` protects each row by itself, against everyone who sees it. `central` also uses the secret order
            of the rows, so that a record hides among the others, and needs less noise for the same ε.
        clip: largest norm of a record's features before noise.
        label_share: share of ε for the labels, above 0 and below 1. The rest is for the features.
        constant: the unknown constant c of the published theorem.
        strong_convexity: Δ of the published theorem.
    """

    guarantee: Literal["rigorous", "published"] = "rigorous"
    trust: Literal["local", "central"] = "local"
    clip: Annotated[Positive, one_release("clip")] = 1.0
    label_share: Annotated[Fraction, one_release("label_share")] = 0.3
    constant: Positive = 1.0
    strong_convexity: Positive = 0.01


class VotesSection(Section):
    """Labels that teachers voted for, on which all students train (`accounting: votes`). Its noise follows from ε.

    Attributes:
        threshold: votes that the largest count of a query plus noise must reach for an answer.
        queries: number of public inputs that are tested; null for all of them.
        answers: largest number of labels. After it, no query is tested any more.
        threshold_share: the tests' share of the squared noise-to-signal ratio, above 0 and below 1. The answers have
            the rest.
    """

    threshold: Annotated[Finite, one_release("threshold")] = 200.0
    queries: Annotated[Count | None, one_release("queries")] = None
    answers: Annotated[Count, one_release("answers")] = 300
    threshold_share: Annotated[Fraction, one_release("threshold_share")] = 0.15


class PrivacySection(Section):
    """Privacy settings. The budget applies to the WHOLE search.

    Attributes:
        epsilon: ε of the search, which is never exceeded.
        delta: δ of the search, below 1/n. n is the public number of training records (or users with `unit: user`).
        unit: protected unit, which is one record or all records of one user.
        accounting: accounting mode. `composition` shows all trials. `selection` is a sealed search, which shows only
            the winner. `public` searches on public data and then trains once on the private records. `release`
            charges one noisy copy of the records, on which any number of trials train. `votes` charges labels of
            public inputs that teachers voted for, on which any number of students train. `auto` takes what
            is expected to cost the least accuracy (`tuner.plan.comparison`).
        cap: filter for `composition`. auto chooses the tightest filter that the search space allows.
        order: Rényi order of the fixed_order filter. auto chooses the best order for the plan.
        noise_multiplier: a number or a domain to search. auto chooses the smallest noise with which the planned trials
            fit the budget.
        purpose: what the search is for, in the analyst's words. The ledger stores it for the data protection officer.
        contact: who answers questions about the search, for example a mail address. The ledger stores it too.
        private: False is for studies without privacy, whose models cannot be exported as private.
        noise_seed: seed of the noise, allowed only with `private: false`.
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
    release: ReleaseSection = ReleaseSection()
    votes: VotesSection = VotesSection()
    purpose: Line | None = None
    contact: Line | None = None
    private: bool = True
    noise_seed: Seed | None = None


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
    """Score by which trials are compared, and its direction."""

    name: Word = "validation_accuracy"
    mode: Literal["max", "min"] = "max"


class CommitSection(Section):
    """Division of the budget between short, noisy trials and one committed run, whose model is released.

    Attributes:
        share: share of the squared privacy loss (the μ² of Gaussian differential privacy) that the trials may use.
        length: steps of a trial, as a fraction of the steps of the committed run.
        start: weights from which the committed run starts. `scratch` is the public initialisation, and `best_trial` is
            the last checkpoint of the best trial.
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
    """Settings that choose and stop trials. `space` is the file's text, and `Experiment.space` is the parsed space.

    With `commit`, the trials are short and noisy, and one run with the chosen configuration follows and is released.

    `public` names the PUBLIC records of a search with `accounting: public`, or those on which a charged search with the
    sampler `surrogate` searches first, at no cost.

    `when_sure` says what happens when a complete trial is very probably near the best possible one: `go_on` continues
    the search, `stop` ends it and saves the remaining budget, and `replicate` repeats the best two configurations.

    `full_runs` is the number of whole runs of steps for which the budget is planned. Trials then reserve rung by rung
    and pause at rungs. Without it, the budget is planned for all trials, each trained to its end.
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

    A worker without a lease or a report for `hung_after` seconds is killed and counts as lost. With `on_loss` ``pay``,
    a trial that lost its worker continues and pays again for the steps that it repeats. With ``stop``, the sweep stops
    before that, and a resume pays.
    """

    concurrent_trials: Count = 1
    cpus_per_trial: Positive = 1.0
    gpus_per_trial: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers_per_trial: Count = 1
    hung_after: Positive = 3600.0
    on_loss: Literal["pay", "stop"] = "pay"


class TrackingSection(Section):
    """Address of MLflow and name of the MLflow experiment. The default name is the experiment file's `name`."""

    uri: Word = "sqlite:///runs/mlflow.db"
    experiment: Word | None = None
