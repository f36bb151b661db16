"""Public weights at the start of a training, and frozen layers.

The claim of a search holds only if the weights depend on none of its records. The experiment file states this, and the
hash says for which file of weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.checks import near_name_hint
from trainables.errors import HyperparameterError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["TRAINED_ON", "StartFile", "StartWeights", "freeze_layers", "put_weights", "read_start"]

TRAINED_ON = "dp_tuner"
"""Key in the header of an exported model. Its value is JSON: the search, and the names of its data in the ledger."""
_FIRST = 5  # problems that a message lists


@dataclass(frozen=True, kw_only=True)
class StartWeights:
    """Public file of weights from which a training starts, at the same path on every machine.

    Attributes:
        path: path of a safetensors file.
        sha256: hash of the file. A file with another hash is refused.
    """

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class StartFile:
    """Content of a file of weights.

    Attributes:
        sha256: hash of the whole file.
        metadata: texts of the header by name. An exported model has TRAINED_ON.
    """

    sha256: str
    metadata: Mapping[str, str]
    weights: Mapping[str, Tensor] = field(repr=False)


def read_start(path: str, *, sha256: str | None = None) -> StartFile:
    """Read a safetensors file. The hash and the weights are those of the same bytes. No code of the file is executed.

    Raises:
        HyperparameterError: the file cannot be read, is not a safetensors file, or has another hash than `sha256`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise HyperparameterError(
            "start-unreadable",
            f"The file of weights {path} cannot be read ({error.strerror}). Correct the path or its permissions.",
        ) from error
    found = hashlib.sha256(raw).hexdigest()
    if sha256 not in (None, found):
        raise HyperparameterError(
            "start-changed",
            f"{path} must have the SHA-256 {sha256} of `start.sha256` (got {found}). Restore the file from a copy. "
            "To use other weights, start a new search.",
        )
    try:
        weights = load(raw)
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a type that torch does not have
        raise HyperparameterError(
            "start-unreadable",
            f"The file of weights must be a safetensors file (got {path}: {error}). Write the file with "
            "safetensors.torch.save_file.",
        ) from error
    return StartFile(sha256=found, metadata=header.get("__metadata__") or {}, weights=weights)


def put_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a module. What the file does not have keeps its initial value, for example a new last layer.

    Raises:
        HyperparameterError: a name or a shape is not the module's, a value is not finite, or there are no weights.
    """
    own = module.state_dict()
    problems = [problem for name, value in weights.items() if (problem := _problem(name, value, own)) is not None]
    if not weights:
        problems.append(("start-does-not-fit", "`start` must have at least one of the model's parameters (got none)."))
    HyperparameterError.raise_any(islice(problems, _FIRST))
    module.load_state_dict(dict(weights), strict=False)


def _problem(name: str, value: Tensor, own: Mapping[str, Tensor]) -> tuple[str, str] | None:
    if name not in own:
        hint = near_name_hint(name, own)
        return (
            "start-does-not-fit",
            f"`start` has the parameter {name!r}, which the model does not have.{hint} Leave this parameter out "
            "of the file.",
        )
    wanted = own[name]
    if value.shape != wanted.shape or value.is_floating_point() != wanted.is_floating_point():
        return (
            "start-does-not-fit",
            f"{name!r} of `start` must be {wanted.dtype} of shape {tuple(wanted.shape)}, as in the model (got "
            f"{value.dtype} of shape {tuple(value.shape)}).",
        )
    if not bool(value.to(wanted.dtype).isfinite().all()):
        return "start-not-finite", f"{name!r} of `start` must contain only finite numbers in {wanted.dtype}."
    return None


def freeze_layers(module: nn.Module, names: Sequence[str]) -> None:
    """Exclude parameters from the training. A name is that of a layer, with all that is inside it, or of a parameter.

    Clip, noise and update act on the trainable parameters alone.

    Raises:
        HyperparameterError: a name is neither a layer with parameters nor a parameter of the module.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    problems = []
    for name in names:
        chosen = [each for full, each in parameters.items() if full == name or full.startswith(f"{name}.")]
        if not chosen:
            layers = dict.fromkeys(full.rpartition(".")[0] or full for full in parameters)
            known = f"{', '.join(islice(layers, 12))}{', …' if len(layers) > 12 else ''}"
            hint = near_name_hint(name, [*layers, *parameters])
            problems.append(
                ("freeze-unknown", f"The model has no layer {name!r} to freeze.{hint} Its layers: {known}.")
            )
        for each in chosen:
            each.requires_grad = False
    HyperparameterError.raise_any(problems)
