"""Exported models to be looked at, and the records on which that is allowed: never one that a model was trained on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data import DATASETS, DatasetInfo, DatasetRequest, info
from trainables.errors import DatasetError, TrainableError
from tuner.errors import InputError, TunerError
from tuner.experiment import load_experiment
from tuner.sweep import folder as sweeps
from tuner.sweep.registration import split_of

if TYPE_CHECKING:
    from torch import nn

    from tuner.experiment import Experiment

__all__ = ["Exported", "read_export", "records_of", "same_records", "same_shape"]

_MODEL, _EXPERIMENT, _CARD = "model.safetensors", "experiment.yaml", "privacy_card.json"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A folder of `tune export`.

    Attributes:
        folder: where it lies.
        experiment: its configuration.
        card: its privacy card.
    """

    folder: Path
    experiment: Experiment
    card: dict[str, Any]

    @property
    def own_model(self) -> bool:
        """Whether the model is code of the user's."""
        return ":" in self.experiment.trainable.model

    @property
    def protected(self) -> bool:
        """Whether its validation records are inside its guarantee, by its card or by its file."""
        return bool(self.card["validation"].get("protected")) or self.experiment.dataset.validation.protected

    def facts(self) -> dict[str, Any]:
        """What the model is, for the table and the file."""
        return {
            "folder": str(self.folder),
            "model": self.experiment.trainable.model,
            "method": self.experiment.trainable.method,
            "parameters": dict(self.experiment.search.space),
            "epsilon": self.card["claim"]["epsilon"],
        }

    def module(self, *, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The model with its exported parameters.

        Raises:
            InputError: the model cannot be built for these inputs, or the file's parameters are not those of it.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        module = self._fresh(input_shape=input_shape, classes=classes)
        path = self.folder / _MODEL
        try:
            module.load_state_dict(load_file(str(path)))
        except (SafetensorError, OSError, RuntimeError) as error:
            raise InputError(
                f"{path} must hold the parameters of {self.experiment.trainable.model} for inputs of shape "
                f"{input_shape} and {classes} classes, got others ({type(error).__name__}). Take the data set that it "
                "was trained on, or one of the same shape; or export it again."
            ) from error
        return module

    def _fresh(self, *, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from trainables.models import build

        trainable = self.experiment.trainable
        here = str(Path.cwd())
        if self.own_model and here not in sys.path:
            sys.path.append(here)
        try:
            return build(
                trainable.model,
                input_shape=input_shape,
                classes=classes,
                activation=trainable.activation,
                normalization=trainable.normalization,
                seed=self.experiment.seed,
            )
        except Exception as error:
            if not (self.own_model or isinstance(error, TrainableError)):
                raise
            # The user's code, whatever it raises; no record has been read yet, so its words may be shown.
            raise InputError(
                f"{trainable.model} in {self.folder} must take inputs of shape {input_shape} and give {classes} "
                f"logits, got {type(error).__name__}: {error}. Take the data set that it was trained on, or one of the "
                "same shape; if that is it, fix the model's code."
            ) from error


def read_export(folder: Path) -> Exported:
    """Read an export's configuration and card, and hold them against each other.

    Raises:
        InputError: it is not an export, or its file now splits the records otherwise than its card says; then what it
            calls validation records may be some that the model was trained on.
    """
    missing = [name for name in (_MODEL, _EXPERIMENT, _CARD) if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"a model must lie in a folder that tune export wrote, got {folder} without {', '.join(missing)}. "
            "Write one with: tune export NAME"
        )
    experiment = load_experiment(folder / _EXPERIMENT)
    try:
        card = sweeps.read_json(folder / _CARD)
    except TunerError as error:
        raise InputError(str(error)) from error
    claim, validation = card.get("claim"), card.get("validation")
    if not (isinstance(claim, dict) and isinstance(claim.get("epsilon"), float | int) and isinstance(validation, dict)):
        raise InputError(f"{folder / _CARD} must be a privacy card, got another file. Export the model again.")
    if validation.get("key") != split_of(experiment):
        raise InputError(
            f"the split in {folder / _EXPERIMENT} must be that of its privacy card, got {split_of(experiment)} for "
            f"{validation.get('key')}. With another one the model was trained on the validation records: restore it."
        )
    return Exported(folder=folder, experiment=experiment, card=card)


def same_records(exports: Sequence[Exported], *, dataset: str | None, split: str) -> None:
    """Refuse records that one of the models may have been trained on, or that are not the same for all.

    Raises:
        InputError: which rule is broken, and what to do.
        trainables.errors.DatasetError: a data set of that name is not known.
    """
    if split not in ("validation", "test"):
        raise InputError(
            f"--split must be validation or test, got {split!r}. The training records are never looked at: "
            "exact losses of theirs would take back what the noise protects."
        )
    # The card is what was claimed; the file beside it can be edited.
    protected = [export for export in exports if export.protected]
    if split == "validation" and protected:
        raise InputError(
            f"--split validation tells exact losses, got {protected[0].folder}, whose validation records are inside "
            "its guarantee: only noised scores of theirs may leave. Take --split test."
        )
    others = [export for export in exports if dataset not in (None, export.experiment.dataset.name)]
    if not others or dataset is None:
        kinds = {_identity(export, split=split) for export in exports}
        if len(kinds) > 1:
            raise InputError(
                f"models are compared on the same {split} records, held out of the training of all of them, got "
                f"{' and '.join(sorted(map(str, kinds)))}. Compare those of one data set and one split, or name a "
                "public set with --dataset."
            )
        return
    if dataset not in DATASETS:
        info(DatasetRequest(name=dataset))  # raises, with the nearest name
    if split != "test":
        raise InputError(
            f"--split validation means the records that the experiment set aside, got --dataset {dataset} for "
            f"{others[0].folder}, which was trained on {others[0].experiment.dataset.name}. Take --split test."
        )
    for export in others:
        if _owner(export.experiment) == DATASETS[dataset].budget_owner:
            raise InputError(
                f"--dataset must share no record with what a model was trained on, got {dataset} for {export.folder}, "
                f"which was trained on {export.experiment.dataset.name}: the two share records. Leave --dataset out."
            )


def same_shape(exports: Sequence[Exported], about: DatasetInfo, *, data_dir: str | None) -> None:
    """Refuse records of another shape, or with other classes, than a model was trained on.

    Raises:
        InputError: they are, and what the model's own look like.
    """
    for export in exports:
        try:
            own = info(export.experiment.dataset_request(data_dir))
        except DatasetError:  # a file of the user's that is not here; then the parameters must tell
            continue
        if (own.input_shape, own.classes) != (about.input_shape, about.classes):
            raise InputError(
                "--dataset must hold inputs of the shape, and as many classes, as a model was trained on, got "
                f"{about.name} with {about.input_shape} and {about.classes} classes for {export.folder}, which was "
                f"trained on {own.name} with {own.input_shape} and {own.classes}. Name another set, or leave "
                "--dataset out."
            )


def records_of(export: Exported, *, dataset: str | None, data_dir: str | None) -> DatasetRequest:
    """Which records to read: those of the models, split as their experiment did, or those of another data set."""
    own = export.experiment.dataset_request(data_dir)
    if dataset is None or dataset == own.name:
        return own
    # Another set is anyone's to see: its records stand for themselves, whatever a model protects.
    return replace(own, name=dataset, path=None, public_size=None, unit="record", public_users=None)


def _identity(export: Exported, *, split: str) -> tuple[object, ...]:
    own = export.experiment.dataset_request(None)
    source = (own.name,) if own.path is None else (own.name, own.path)
    return source if split == "test" else (*source, own.validation_fraction, own.split_seed)


def _owner(experiment: Experiment) -> str:
    section = experiment.dataset
    return section.name if section.path is not None else DATASETS[section.name].budget_owner
