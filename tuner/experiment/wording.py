"""Conversion of pydantic's errors to an error code, a rule and a fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from search_spaces import PARAMETERS
from search_spaces.domains import as_yaml
from tuner.experiment.model import Experiment
from tuner.experiment.sections import Component

__all__ = ["broken_rule", "nearest"]

_EXAMPLES = {
    ("name",): "name: my-search",
    ("dataset",): "dataset: {name: digits}",
    ("dataset", "name"): "name: digits",
    ("trainable",): "trainable: {method: dplis}",
    ("trainable", "method"): "method: dplis",
    ("privacy",): "privacy: {epsilon: 8.0}",
    ("privacy", "epsilon"): "epsilon: 8.0",
    ("privacy", "delta"): "delta: 1e-5",
    ("privacy", "noise_seed"): "noise_seed: 0",
    ("dataset", "path"): "path: my-records.npz",
    ("dataset", "public_size"): "public_size: 10000",
}
_TYPES = {
    "float_type": ("value-wrong-type", "must be a number"),
    "int_type": ("value-wrong-type", "must be a whole number"),
    "int_from_float": ("value-wrong-type", "must be a whole number"),
    "string_type": ("value-wrong-type", "must be a text"),
    "bool_type": ("value-wrong-type", "must be true or false"),
    "dict_type": ("value-wrong-type", "must be a mapping of keys to values"),
    "finite_number": ("value-not-finite", "must be a finite number"),
    "string_too_short": ("value-empty", "must not be empty"),
}
_BOUNDS = {
    "greater_than": ("must be greater than", "gt"),
    "greater_than_equal": ("must be at least", "ge"),
    "less_than": ("must be less than", "lt"),
    "less_than_equal": ("must be at most", "le"),
}

BrokenRule: TypeAlias = tuple[str, str, str]
"""Error code, broken rule and suggested fix for a value."""


def _refused(code: str, rule: str, fix: str, **keys: str) -> dict[tuple[str, ...], BrokenRule]:
    return {(section, key): (code, rule, fix) for section, words in keys.items() for key in words.split()}


_WEIGHTS = "class_weights class_weight sample_weights oversample balance"
_REFUSED = {
    **_refused(
        "batches-not-poisson",
        "this key is not allowed, because all batches are Poisson samples, and other batches have a weaker guarantee",
        "Remove the key.",
        dataset="drop_last shuffle",
        trainable="drop_last shuffle batching replacement",
    ),
    **_refused(
        "statistics-not-charged",
        "this key is not allowed, because no charge covers statistics that are computed from the records",
        "Remove the key, and prepare the records with public constants.",
        dataset="normalization normalize standardize scaler whitening vocabulary vocab_size",
    ),
    **_refused(
        "statistics-not-charged",
        "this key is not allowed, because no charge covers class weights that are computed from the records",
        "Remove the key. All records have the same weight.",
        dataset=_WEIGHTS,
        trainable=_WEIGHTS,
    ),
    **_refused(
        "clip-not-per-record",
        "this key is not allowed, because the gradient of each record must be clipped, not the mean of several",
        "Remove the key. `max_grad_norm` clips the gradient of each record.",
        trainable="clip_batch_mean clip_mean microbatches num_microbatches",
    ),
    **_refused(
        "batch-size-realised",
        "this key is not allowed, because the actual batch size is private, so all sums are divided by batch_size",
        "Remove the key.",
        trainable="normalize_by loss_reduction normalizer divide_by_realised_size",
    ),
}
"""Keys known from other tools that would break the guarantee here. Each has an error code, a reason and a fix."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown word: the most similar known word, or the list of all known words."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."


def _fields(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, FieldInfo]]:
    """Yield the section's path, the key and pydantic's field for every key of an experiment file."""
    for name, field in model.model_fields.items():
        yield path, field.alias or name, field
        for kind in (field.annotation, *get_args(field.annotation)):  # a section, or an optional one
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not Component:
                yield from _fields(kind, (*path, name))


_KEYS: dict[tuple[str, ...], list[str]] = {}
_EXAMPLE_OF: dict[tuple[str, ...], str] = {}
for _path, _key, _field in _fields(Experiment):
    _KEYS.setdefault(_path, []).append(_key)
    if isinstance(_field.default, str | int | float):
        _default = _field.default if isinstance(_field.default, str) else as_yaml(_field.default)
        _EXAMPLE_OF[*_path, _key] = f"{_key}: {_default}"
_EXAMPLE_OF |= _EXAMPLES


def _unknown_key(path: tuple[str, ...]) -> str:
    *above, key = path
    section = tuple(above)
    near = difflib.get_close_matches(key, _KEYS.get(section, ()), n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    owners = [owner for owner, keys in _KEYS.items() if key in keys]
    if () in owners:
        return f"Did you mean {key!r} at the top level of the file?"
    if owners:
        least = min(map(len, owners))  # prefers privacy.epsilon to dataset.validation.epsilon
        return f"Did you mean {' or '.join('.'.join((*owner, key)) for owner in owners if len(owner) == least)}?"
    if key in PARAMETERS:
        return f"Did you mean search.space.{key}?"
    known = ", ".join(_KEYS.get(section, ()))
    return f"{'.'.join(section) or 'The top level'} has the keys {known}." if known else ""


def broken_rule(error: Any) -> BrokenRule:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return the code, rule and fix for one error of pydantic."""
    path: tuple[str, ...] = tuple(map(str, error["loc"]))
    kind: str = error["type"]
    context = error.get("ctx", {})
    example = _EXAMPLE_OF.get(path, "")
    write = f"Write for example {example}." if example else ""
    if kind == "rule":
        return str(context["code"]), str(context["rule"]), str(context["fix"])
    if kind == "extra_forbidden":
        return _REFUSED.get(path) or ("key-unknown", "unknown key", _unknown_key(path))
    if kind == "missing":
        return "key-missing", "is required", f"Write {example}." if example else ""
    if kind in ("model_type", "model_attributes_type"):
        return "value-wrong-type", "must be a section of keys", write or f"It has {', '.join(_KEYS.get(path, ()))}."
    if kind in _BOUNDS:
        text, bound = _BOUNDS[kind]
        return "value-out-of-range", f"{text} {context[bound]:g}", write
    if kind == "literal_error":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        one = f"must be {words[0]}" if len(words) == 1 else f"must be one of {', '.join(words)}"
        if len(words) == 1:
            return "value-not-allowed", one, f"Write {path[-1]}: {words[0]}."
        value = error["input"]
        return "value-not-allowed", one, nearest(value, words) if isinstance(value, str) else write
    if kind == "string_pattern_mismatch":
        rule = "must begin with a letter or digit, and have 1 to 63 small letters, digits, dots, dashes or underscores"
        return "name-invalid", rule, f"The sweep's folder has the same name. {write}"
    code, rule = _TYPES.get(kind, ("value-wrong-type", str(error["msg"])))
    return code, rule, write
