"""The code, rule and fix of each error of pydantic, with the nearest key of the section."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel

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
    "string_type": ("value-wrong-type", "must be a word"),
    "bool_type": ("value-wrong-type", "must be true or false"),
    "dict_type": ("value-wrong-type", "must be keys with values"),
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
"""Code, rule and fix of a value."""

_BATCHES: BrokenRule = (
    "batches-not-poisson",
    "batches are Poisson samples: there is no last batch, and other batches have a weaker guarantee",
    "Leave it out.",
)
_LEARNT: BrokenRule = (
    "statistics-not-charged",
    "a mean, scale or vocabulary computed from the records is a release that the budget does not cover",
    "Prepare the records with public constants, and leave it out.",
)
_WEIGHTS: BrokenRule = (
    "statistics-not-charged",
    "class weights are counted from the records, a release that the budget does not cover",
    "Leave it out: all records have the same weight.",
)
_MEAN: BrokenRule = (
    "clip-not-per-record",
    "the clip must bound each record's gradient, and a clip of a batch's mean bounds no record",
    "Leave it out: max_grad_norm clips each record's gradient.",
)
_REALISED: BrokenRule = (
    "batch-size-realised",
    "the sum of a batch is divided by batch_size of this file, because the realised size is private",
    "Leave it out.",
)
# Keys of other tools that would break the guarantee: refused with the reason.
_REFUSED: dict[tuple[str, ...], BrokenRule] = {
    **{("trainable", key): _BATCHES for key in ("drop_last", "shuffle", "batching", "replacement")},
    **{("dataset", key): _BATCHES for key in ("drop_last", "shuffle")},
    **{
        ("dataset", key): _LEARNT
        for key in ("normalization", "normalize", "standardize", "scaler", "whitening", "vocabulary", "vocab_size")
    },
    **{
        (section, key): _WEIGHTS
        for section in ("dataset", "trainable")
        for key in ("class_weights", "class_weight", "sample_weights", "oversample", "balance")
    },
    **{("trainable", key): _MEAN for key in ("clip_batch_mean", "clip_mean", "microbatches", "num_microbatches")},
    **{
        ("trainable", key): _REALISED
        for key in ("normalize_by", "loss_reduction", "normalizer", "divide_by_realised_size")
    },
}


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the fix for a wrong word: the nearest known one, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."


def _sections(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of every section, by the section's path."""
    found = {path: tuple(field.alias or name for name, field in model.model_fields.items())}
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):  # a section, or an optional one
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not Component:
                found |= _sections(kind, (*path, name))
    return found


def _defaults(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Return ``key: default`` by the path of every value: a default is an example that keeps the rules."""
    found: dict[tuple[str, ...], str] = {}
    for name, field in model.model_fields.items():
        value, key = field.default, field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            if field.annotation is not Component:
                found |= _defaults(field.annotation, (*path, name))
        elif isinstance(value, str | int | float):
            found[*path, key] = f"{key}: {value if isinstance(value, str) else as_yaml(value)}"
    return found


_KEYS = _sections(Experiment)
_EXAMPLE_OF = {**_defaults(Experiment), **_EXAMPLES}


def _unknown_key(path: tuple[str, ...]) -> str:
    *above, key = path
    section = tuple(above)
    near = difflib.get_close_matches(key, _KEYS.get(section, ()), n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    owners = [owner for owner, keys in _KEYS.items() if key in keys]
    if owners:
        least = min(map(len, owners))  # privacy.epsilon rather than dataset.validation.epsilon
        return f"Did you mean {' or '.join('.'.join((*owner, key)) for owner in owners if len(owner) == least)}?"
    known = ", ".join(_KEYS.get(section, ()))
    return f"{'.'.join(section) or 'The file'} has the keys {known}." if known else ""


def broken_rule(error: Any) -> BrokenRule:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return code, rule and fix of one error of pydantic."""
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
        value = error["input"]
        return "value-not-allowed", one, nearest(value, words) if isinstance(value, str) and len(words) > 1 else ""
    if kind == "string_pattern_mismatch":
        rule = "must be 1 to 63 small letters, digits, dots, dashes and underscores, the first a letter or digit"
        return "name-invalid", rule, f"It names the sweep's folder. {write}"
    code, rule = _TYPES.get(kind, ("value-wrong-type", str(error["msg"])))
    return code, rule, write
