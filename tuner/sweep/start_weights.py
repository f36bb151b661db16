"""Public weights from which a search starts: their hash, and the refusal of weights trained on the same records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import HyperparameterError
from trainables.start import TRAINED_ON, StartFile, read_start
from tuner.errors import InputError
from tuner.experiment.model import absolute_path
from tuner.privacy.ledger.blocks import table_of

if TYPE_CHECKING:
    from tuner.experiment import Experiment

__all__ = [
    "exported_metadata",
    "exported_search",
    "refuse_trained_here",
    "start_file",
    "start_for_ledger",
    "with_start_hash",
]

_CARD = "privacy_card.json"
_MODEL = "model.safetensors"


def start_file(experiment: Experiment) -> StartFile | None:
    """Read the weights of `trainable.start`, or return None if the file names none.

    Raises:
        InputError: the file cannot be read, is no safetensors file, or has another hash than the experiment says.
    """
    start = experiment.trainable.start
    if start is None:
        return None
    try:
        return read_start(str(absolute_path(start.path)), sha256=start.sha256)
    except HyperparameterError as error:
        raise InputError(error.code, error.message) from error


def with_start_hash(experiment: Experiment) -> Experiment:
    """Return the experiment with the hash of its weights, so that a resume or an export refuses other weights."""
    start, found = experiment.trainable.start, start_file(experiment)
    if start is None or found is None:
        return experiment
    named = start.model_copy(update={"sha256": found.sha256})
    return experiment.model_copy(update={"trainable": experiment.trainable.model_copy(update={"start": named})})


def refuse_trained_here(experiment: Experiment, found: StartFile, owners: Sequence[str]) -> None:
    """Raise an InputError if the weights say that they were trained on the data set that the search uses.

    An exported model says so in its header, and so does the privacy card next to it. `owners` are the names of the
    records in the ledger, of which any blocks belong to one table.
    """
    start = experiment.trainable.start
    if start is None:
        return
    tables = {table_of(owner) for owner in owners}
    for dataset, where in _trained_on(Path(start.path), found):
        if table_of(dataset) in tables:
            raise InputError(
                "start-trained-here",
                f"{start.path} was trained on {dataset!r}, the data set of this search, as {where} says. So these "
                "weights are not public here. Use weights that were trained without any of these records.",
            )


def _trained_on(path: Path, found: StartFile) -> Iterator[tuple[str, str]]:
    """Yield each data set that the weights were trained on as far as is known, and what says so."""
    for name in _mapping(found.metadata.get(TRAINED_ON, "")).get("datasets", ()):
        yield str(name), "its header"
    try:
        card = _mapping(path.with_name(_CARD).read_bytes())
    except OSError:
        return
    files, claim = card.get("exported_files"), card.get("claim")
    about_them = isinstance(files, Mapping) and files.get(_MODEL) == found.sha256
    if about_them and isinstance(claim, Mapping):
        yield str(claim.get("dataset")), f"the {_CARD} next to it"


def _mapping(text: str | bytes) -> Mapping[str, Any]:
    """Return the JSON object of a text, or an empty one if the text is something else."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def exported_metadata(experiment: Experiment, search: str, owners: Sequence[str]) -> dict[str, str]:
    """Return the header of an exported model, which says on which data sets it was trained, and by which search.

    The data sets of the weights from which it started are among them.
    """
    start, found = experiment.trainable.start, start_file(experiment)
    before = () if start is None or found is None else (name for name, _ in _trained_on(Path(start.path), found))
    return {TRAINED_ON: json.dumps({"search": search, "datasets": list(dict.fromkeys([*owners, *before]))})}


def exported_search(folder: Path) -> str | None:
    """Return the search whose export a folder has, or None if it has no exported model that says so."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(folder / _MODEL), framework="np") as model:
            header = model.metadata() or {}
    except (SafetensorError, OSError):
        return None
    search = _mapping(header.get(TRAINED_ON, "")).get("search")
    return None if search is None else str(search)


def start_for_ledger(experiment: Experiment) -> dict[str, object]:
    """Return what the ledger keeps of public weights and frozen layers; the card takes it from there."""
    start, freeze = experiment.trainable.start, experiment.trainable.freeze
    return {
        **({} if start is None else {"start": {"sha256": start.sha256, "public": start.public}}),
        **({"frozen": list(freeze)} if freeze else {}),
    }
