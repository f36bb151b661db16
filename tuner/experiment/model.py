"""Immutable, typed model of an experiment file."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from search_spaces import Domain, SearchSpace, parse_space
from search_spaces.spaces import is_own_method
from trainables.data import DATASETS, DatasetRequest, data_folder, public_train_size
from tuner.errors import InputError
from tuner.experiment.privacy_sections import PrivacySection
from tuner.experiment.sections import (
    AUTO,
    ChosenSection,
    DatasetSection,
    ExportedFromSection,
    ResourcesSection,
    SearchSection,
    Section,
    TrackingSection,
    TrainableSection,
)
from tuner.experiment.values import Seed, Word, broken
from tuner.experiment.yamlfile import dump
from tuner.passwords import hide_password
from tuner.privacy.modes import COMPOSITION, MODES, Mode

__all__ = ["Experiment", "absolute_path"]

_LEDGER = "DP_TUNER_LEDGER"  # also the default of `tune budget --ledger` and `tune verify --ledger`


def _shared_ledger() -> str | None:
    """Return the absolute URL of the ledger in DP_TUNER_LEDGER, or None if this variable is not set."""
    from tuner.privacy.ledger.stores import absolute_url

    named = os.environ.get(_LEDGER)
    try:
        return absolute_url(named) if named else None
    except InputError as error:
        raise InputError("ledger-variable-invalid", f"{_LEDGER}: {error.message}") from error


def _the_shared_ledger(url: str) -> str:
    """Return `url`, or raise an error if DP_TUNER_LEDGER names another ledger."""
    from tuner.privacy.ledger.stores import absolute_url

    shared = _shared_ledger()
    if shared is None:
        return url
    try:
        own = absolute_url(url)
    except InputError:  # opening the ledger reports the error later, in a message without the password
        return url
    if own != shared:
        raise broken(
            "ledger-not-shared",
            f"this key and {_LEDGER} must name the same ledger (this key names {hide_password(own)}, {_LEDGER} names "
            f"{hide_password(shared)}), because the caps of one ledger do not limit searches in another",
            f"Remove this key to use the ledger of {_LEDGER}, or unset {_LEDGER} to use this ledger.",
        )
    return url


def _a_folder(storage: str) -> str:
    """Refuse the URL of an object store. It would silently become a folder called `s3:` on this machine."""
    if "://" in storage:
        raise broken(
            "storage-url",
            "a folder that every machine sees is required, not a URL",
            "Mount a shared file system (NFS, EFS) on every machine, and give its path.",
        )
    return storage


def _default_ledger() -> str:
    from tuner.privacy.ledger.stores import default_url

    return default_url()


class Experiment(Section):
    """Values of an experiment file. This class checks types and ranges, and `tuner.experiment.gates` the other rules.

    The environment variable DP_TUNER_LEDGER replaces the default of `ledger`. If the variable is set, a file that
    names another ledger is refused.

    Attributes:
        schema_version: version of the format.
        name: name of the sweep. Small letters, digits, dots, hyphens and underscores, at most 63.
        seed: PUBLIC seed of initialisation and search. The noise never depends on it.
        dataset: the private records.
        trainable: how a trial trains.
        privacy: the budget, and how it is accounted.
        search: how configurations are chosen.
        resources: machines and workers of a trial.
        tracking: address of MLflow.
        storage: folder of the sweeps.
        ledger: address of the ledger, such as sqlite:////srv/ledger.db. The default is the ledger that
            DP_TUNER_LEDGER names, or else the file dp-tuner/ledger.db in $XDG_DATA_HOME or ~/.local/share.
        exported_from: written by `tune export`.
        chosen_by_auto: written by `tune run` with `accounting: auto`.
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
    storage: Annotated[Word, AfterValidator(_a_folder)] = "runs/"
    ledger: Annotated[Word, AfterValidator(_the_shared_ledger)] = Field(default_factory=_default_ledger)
    exported_from: ExportedFromSection | None = None
    chosen_by_auto: ChosenSection | None = None

    @model_validator(mode="after")
    def _fill_computed_defaults(self) -> Experiment:
        if "ledger" not in self.model_fields_set and (shared := _shared_ledger()) is not None:
            object.__setattr__(self, "ledger", shared)
        if self.tracking.experiment is None:
            named = self.tracking.model_copy(update={"experiment": self.name})
            object.__setattr__(self, "tracking", named)
        return self

    @cached_property
    def space(self) -> SearchSpace:
        """The parsed search space. For a loaded experiment, `with_space` has already set this property."""
        return parse_space(self.search.space, method=self.trainable.method, optimizer=self.trainable.optimizer)

    def with_space(self, space: SearchSpace) -> Experiment:
        """Return a copy of this experiment with the given search space.

        If the noise multiplier is searched, it must be in this space. The space should contain every parameter, so that
        a stored file keeps its meaning when a default changes.
        """
        update: dict[str, object] = {"search": self.search.model_copy(update={"space": space.to_spec()})}
        if isinstance(self.privacy.noise_multiplier, dict):
            update["privacy"] = self.privacy.model_copy(update={"noise_multiplier": "auto"})
        resolved = self.model_copy(update=update)
        object.__setattr__(resolved, "space", space)  # fills the cached property of a frozen model
        return resolved

    @property
    def is_auto(self) -> bool:
        """Whether the accounting is still to be chosen (`tuner.plan.comparison.choose`). Then `space` is as written."""
        return self.privacy.accounting == AUTO

    @property
    def mode(self) -> Mode:
        """The accounting mode. The gates have checked that it is known."""
        return MODES[self.privacy.accounting]

    @property
    def has_proxy(self) -> bool:
        """Whether the charged search has a public proxy, which is searched first and is a prior of the surrogate."""
        return self.search.public is not None and not self.mode.searches_public

    @property
    def activations(self) -> tuple[str, ...]:
        """Activations that a trial may have."""
        domain = dict(self.space.parameters).get("activation")
        return (self.trainable.activation,) if domain is None else tuple(str(word) for word in domain.grid(1))

    @property
    def mode_or_default(self) -> Mode:
        """The accounting mode, or composition for a name that the gates have not checked yet and will refuse."""
        return MODES.get(self.privacy.accounting, COMPOSITION)

    @property
    def priced(self) -> dict[str, Domain]:
        """Domains of the searched parameters that affect the budget."""
        return {name: domain for name, domain in self.space.parameters if name in self.space.priced}

    def dataset_request(self, data_dir: str | None = None) -> DatasetRequest:
        """Return the request for the private records, with absolute paths."""
        dataset = self.dataset
        return DatasetRequest(
            name=dataset.name,
            data_dir=str(data_folder(data_dir)),
            path=absolute_path(dataset.path),
            public_size=dataset.public_size,
            public_users=dataset.public_users,
            unit=self.privacy.unit,
            records_per_user=dataset.records_per_user,
            validation_fraction=dataset.validation.fraction,
            split_seed=dataset.validation.split_seed,
            blocks=dataset.block or (),
            task=self.trainable.task,
        )

    def public_request(self, data_dir: str | None = None) -> DatasetRequest:
        """Return the request for the PUBLIC records of ``search.public``. They are split like private records.

        Raises:
            InputError: the experiment has no public records.
        """
        declared = self.search.public
        if declared is None:
            raise InputError("public-data-missing", "This experiment has no public records. Add `search.public`.")
        return DatasetRequest(
            name=declared.name,
            data_dir=str(data_folder(data_dir)),
            path=absolute_path(declared.path),
            public_size=declared.public_size,
            validation_fraction=self.dataset.validation.fraction,
            split_seed=self.dataset.validation.split_seed,
            task=self.trainable.task,
        )

    def with_noise(self, noise_multiplier: float) -> Experiment:
        """Return a copy with the given noise multiplier.

        If the noise is searched, a committed run has a second noise, or the noise is that of a release, the experiment
        is returned unchanged.
        """
        if "noise_multiplier" in self.search.space or self.search.commit is not None or self.mode.on_release:
            return self
        privacy = PrivacySection.model_validate({**self.privacy.model_dump(), "noise_multiplier": noise_multiplier})
        return self.model_copy(update={"privacy": privacy})

    @property
    def runs_own_code(self) -> bool:
        """Whether the model or the method is the user's own code."""
        return ":" in self.trainable.model or is_own_method(self.trainable.method)

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each allowed setting that weakens the guarantee."""
        found = []
        size = public_train_size(self.dataset_request())
        known = DATASETS.get(self.dataset.name)
        if known is not None and known.teachers is not None:  # the records are those of the teachers
            size = DATASETS[known.budget_owner].public_train_size
        if self.privacy.delta > size**-1.1:
            found.append(
                f"privacy.delta {self.privacy.delta:g} is above n^-1.1 = {size**-1.1:.2g} for n = {size}"
                f"{' users' if self.privacy.unit == 'user' else ' records'}: a smaller delta gives a stronger guarantee"
            )
        if self.privacy.unit == "record" and known is not None and known.record:
            found.append(f"one record of {known.name} is {known.record}")
        if self.trainable.start is not None:
            found.append(
                "the claim relies on this file, which says that the weights of trainable.start are public: no record "
                "of this search was used for them"
            )
        if not self.privacy.private:
            found.append(
                "privacy.private is false, so this search has no guarantee and its models cannot be exported as private"
            )
        return tuple(found)

    def to_yaml(self) -> str:
        """Return the experiment as YAML with every value written out. Parsing the text gives an equal experiment."""
        values = self.model_dump(mode="json", by_alias=True)
        return f"# {self.name}: written by dp-tuner, with every default\n{dump(values)}"


def absolute_path(path: str | None) -> str | None:
    """Return a path of the file as an absolute path; None remains None."""
    return None if path is None else str(Path(path).expanduser().absolute())
