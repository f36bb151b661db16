"""Exported models, and the records on which they may be measured. A model's training records are never allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data import DATASETS, DatasetInfo, DatasetRequest, info
from trainables.errors import DatasetError, TrainableError
from tuner.errors import InputError, TunerError
from tuner.experiment import load_experiment
from tuner.privacy.verify.exports import CARD_FILE, EXPERIMENT_FILE, ledger_to_compare, require_unchanged
from tuner.sweep import folder as sweeps
from tuner.sweep.preflight import build_model
from tuner.sweep.settings import split_of

if TYPE_CHECKING:
    from torch import nn

    from tuner.experiment import Experiment

__all__ = ["Exported", "read_export", "records_to_measure", "require_same_records", "require_same_shape"]

_MODEL, _EXPERIMENT, _CARD = "model.safetensors", EXPERIMENT_FILE, CARD_FILE


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Folder that `tune export` wrote: a model, its configuration and its privacy card."""

    folder: Path
    experiment: Experiment
    card: dict[str, Any]
    compared: bool  # whether the ledger could be reached, so that the card was compared with it

    @property
    def own_model(self) -> bool:
        """Whether the model is the user's own code."""
        return ":" in self.experiment.trainable.model

    @property
    def search(self) -> str:
        """Name in the ledger of the search, or of the release, that the model is from."""
        search: str = self.card["claim"]["search"]
        return search

    @property
    def protected(self) -> bool:
        """Whether the card or the experiment file says that the guarantee covers the validation records."""
        return bool(self.card["validation"].get("protected")) or self.experiment.dataset.validation.protected

    @property
    def note(self) -> str:
        """Sentence that says that the card was not compared with the ledger; empty if it was."""
        if self.compared:
            return ""
        return (
            f"the privacy card of {self.folder} was not compared with its ledger {self.experiment.ledger}, which "
            "cannot be reached from here"
        )

    def facts(self) -> dict[str, Any]:
        """Return facts about the model as plain values."""
        return {
            "folder": str(self.folder),
            "model": self.experiment.trainable.model,
            "method": self.experiment.trainable.method,
            "parameters": dict(self.experiment.search.space),
            "epsilon": self.card["claim"]["epsilon"],
        }

    def module(self, *, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the model with its exported parameters. Raise an InputError if the arguments do not fit them."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        module = self._fresh(input_shape=input_shape, classes=classes)
        path = self.folder / _MODEL
        try:
            module.load_state_dict(load_file(str(path)))
        except (SafetensorError, OSError, RuntimeError) as error:
            raise InputError(
                "export-unreadable",
                f"{path} does not have the parameters of {self.experiment.trainable.model} for inputs of shape "
                f"{input_shape} and {classes} classes ({type(error).__name__}). Use the data set that the model "
                "was trained on, or one of the same shape; or export the model again.",
            ) from error
        return module

    def _fresh(self, *, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        trainable = self.experiment.trainable
        try:
            return build_model(self.experiment, input_shape=input_shape, classes=classes)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also a script's `sys.exit`
            if not (self.own_model or isinstance(error, TrainableError)):
                raise
            # The user's code may raise anything. No record has been read yet, so its message may be shown.
            raise InputError(
                "model-code-failed",
                f"The model {trainable.model} in {self.folder} failed for inputs of shape {input_shape} and "
                f"{classes} classes with {type(error).__name__}: {error}. Use the data set that the model was "
                "trained on, or one of the same shape. If you did, fix the model's code.",
            ) from error


def read_export(folder: Path) -> Exported:
    """Read an export's configuration and card, and compare their hashes and that of the model.

    Raises:
        InputError: the folder is not an export, a file was changed after the export, or the experiment file and the
            card name different validation splits. With different splits, the file's validation records may be training
            records of the model.
    """
    missing = [name for name in (_MODEL, _EXPERIMENT, _CARD) if not (folder / name).is_file()]
    if missing:
        raise InputError(
            "export-not-found",
            f"{folder} is not a folder that `tune export` wrote: {', '.join(missing)} missing. Write such a folder "
            "with: tune export NAME",
        )
    try:
        card = sweeps.read_json(folder / _CARD)
    except TunerError as error:
        raise InputError("card-unreadable", error.message) from error
    claim, validation = card.get("claim"), card.get("validation")
    types = {"epsilon": float | int, "search": str}
    known = isinstance(claim, dict) and all(isinstance(claim.get(name), kind) for name, kind in types.items())
    if not (known and isinstance(validation, dict)):
        raise InputError("card-unreadable", f"{folder / _CARD} is not a privacy card. Export the model again.")
    require_unchanged(folder, None)  # first, because the experiment file names the ledger
    experiment = load_experiment(folder / _EXPERIMENT)
    ledger = ledger_to_compare(experiment.ledger)
    require_unchanged(folder, ledger)
    split = split_of(experiment.dataset_request())
    if validation.get("key") != split:
        raise InputError(
            "split-changed",
            f"The split in {folder / _EXPERIMENT} is {split}, but the privacy card says "
            f"{validation.get('key')}. With the file's split, the model could have been trained on some validation "
            "records. Restore the file from a copy.",
        )
    return Exported(folder=folder, experiment=experiment, card=card, compared=ledger is not None)


def require_same_records(exports: Sequence[Exported], *, dataset: str | None, split: str) -> None:
    """Raise an InputError if a model may have been trained on the records, or if the models differ in these records."""
    if split not in ("validation", "test"):
        raise InputError(
            "split-invalid",
            f"`--split` must be validation or test (got {split!r}). The noise in training protects the training "
            "records, and exact losses of these records would undo this protection.",
        )
    # `protected` asks both the card and the experiment file, because the file can be edited.
    protected = [export for export in exports if export.protected]
    if split == "validation" and protected:
        raise InputError(
            "validation-protected",
            "`--split validation` would show exact losses of the validation records, but the guarantee of "
            f"the model in {protected[0].folder} protects these records. Use `--split test`.",
        )
    others = [export for export in exports if dataset not in (None, export.experiment.dataset.name)]
    if not others or dataset is None:
        kinds = {_identity(export, split=split) for export in exports}
        if len(kinds) > 1:
            raise InputError(
                "records-differ",
                f"The models must have the same {split} records (got {' and '.join(sorted(map(str, kinds)))}). "
                "Compare models of one data set and one split, or name a public data set with `--dataset`.",
            )
        return
    if dataset not in DATASETS:
        info(DatasetRequest(name=dataset))  # raises an error that suggests the nearest name
    if split != "test":
        raise InputError(
            "options-conflict",
            f"`--split validation` cannot be combined with `--dataset {dataset}`: the model in {others[0].folder} was "
            f"trained on {others[0].experiment.dataset.name}, so no validation records of {dataset} were set aside for "
            "it. Use `--split test`.",
        )
    for export in others:
        if _owner(export.experiment) == DATASETS[dataset].budget_owner:
            raise InputError(
                "training-records-shared",
                f"The data set {dataset} shares records with {export.experiment.dataset.name}, on which the model in "
                f"{export.folder} was trained. Leave `--dataset` out.",
            )


def require_same_shape(exports: Sequence[Exported], about: DatasetInfo, *, data_dir: str | None) -> None:
    """Raise an InputError if a model was trained on records with another shape or number of classes."""
    for export in exports:
        try:
            own = info(export.experiment.dataset_request(data_dir))
        except DatasetError:  # the user's file is missing; loading the parameters shows whether the shape fits
            continue
        if (own.input_shape, own.classes) != (about.input_shape, about.classes):
            raise InputError(
                "input-shape-differs",
                f"`--dataset {about.name}` has inputs of shape {about.input_shape} and {about.classes} classes, "
                f"but the model in {export.folder} was trained on {own.name} with inputs of shape {own.input_shape} "
                f"and {own.classes} classes. Choose another data set, or leave `--dataset` out.",
            )


def records_to_measure(export: Exported, *, dataset: str | None, data_dir: str | None) -> DatasetRequest:
    """Return the request for the records to measure on. If `dataset` is None, they come from the model's data set."""
    own = export.experiment.dataset_request(data_dir)
    if dataset is None or dataset == own.name:
        return own
    # Another data set is public, so its unit is one record, even if the model protects users.
    return replace(own, name=dataset, path=None, public_size=None, unit="record", public_users=None)


def _identity(export: Exported, *, split: str) -> tuple[object, ...]:
    own = export.experiment.dataset_request(None)
    source = (own.name,) if own.path is None else (own.name, own.path)
    return source if split == "test" else (*source, own.validation_fraction, own.split_seed)


def _owner(experiment: Experiment) -> str:
    section = experiment.dataset
    return section.name if section.path is not None else DATASETS[section.name].budget_owner
