"""From pydantic's errors to rule, value and fix, with the nearest key that the section has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel

from search_spaces.domains import show
from tuner.experiment.model import Component, Experiment
from tuner.experiment.yamlfile import Path

__all__ = ["nearest", "rule_and_mend"]

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
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a word",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "dict_type": "must be keys with values",
    "string_too_short": "must not be empty",
}
_BOUNDS = {
    "greater_than": ("must be greater than", "gt"),
    "greater_than_equal": ("must be at least", "ge"),
    "less_than": ("must be less than", "lt"),
    "less_than_equal": ("must be at most", "le"),
}


_BATCHES = (
    "batches are Poisson samples: there is no last one, and shuffled or fixed-size batches have another guarantee",
    "Leave it out.",
)
_LEARNT = (
    "what is learnt from the records (their mean, scale or vocabulary) is a release that nothing charges",
    "Prepare the records by public constants before, and leave it out.",
)
_WEIGHTS = (
    "weights by how often a class occurs are counted from the records, a release that nothing charges",
    "Leave it out: all records weigh the same.",
)
_MEAN = (
    "a clip must bound each record's gradient: one that is laid on the mean of a batch bounds no record",
    "Leave it out: max_grad_norm clips each record's gradient.",
)
_REALISED = (
    "the sum of a batch is divided by batch_size of this file: the realised size is private",
    "Leave it out.",
)
# Keys that other tools have and that would break the guarantee: refused with the reason, not only as unknown.
_REFUSED: dict[tuple[str, ...], tuple[str, str]] = {
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
    """Every section's path and the keys that it takes in a file."""
    found = {path: tuple(field.alias or name for name, field in model.model_fields.items())}
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):  # a section, or one that may be left out
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not Component:
                found |= _sections(kind, (*path, name))
    return found


def _defaults(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Every value's path and ``key: default``; a default keeps the rules of its value, so it does for an example."""
    found: dict[tuple[str, ...], str] = {}
    for name, field in model.model_fields.items():
        value, key = field.default, field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            if field.annotation is not Component:
                found |= _defaults(field.annotation, (*path, name))
        elif isinstance(value, str | int | float):
            found[*path, key] = f"{key}: {value if isinstance(value, str) else show(value)}"
    return found


_KEYS = _sections(Experiment)
_EXAMPLE_OF = {**_defaults(Experiment), **_EXAMPLES}


def _unknown_key(path: Path) -> str:
    key = str(path[-1])
    section = tuple(map(str, path[:-1]))
    near = difflib.get_close_matches(key, _KEYS.get(section, ()), n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    owners = [owner for owner, keys in _KEYS.items() if key in keys]
    if owners:
        least = min(map(len, owners))  # privacy.epsilon, not what is deep in a section of the data
        return f"Did you mean {' or '.join('.'.join((*owner, key)) for owner in owners if len(owner) == least)}?"
    known = ", ".join(_KEYS.get(section, ()))
    return f"{'.'.join(section) or 'The file'} takes {known}." if known else ""


def rule_and_mend(error: Any) -> tuple[str, str]:  # noqa: ANN401 - pydantic's ErrorDetails
    """Return the rule that one error of pydantic stands for, and the fix."""
    path: Path = error["loc"]
    kind: str = error["type"]
    context = error.get("ctx", {})
    example = _EXAMPLE_OF.get(tuple(map(str, path)), "")
    write = f"Write for example {example}." if example else ""
    if kind == "rule":
        return str(context["rule"]), str(context["fix"])
    if kind == "extra_forbidden":
        why = _REFUSED.get(tuple(map(str, path)))
        return why or ("unknown key", _unknown_key(path))
    if kind == "missing":
        return "is required", f"Write {example}." if example else ""
    if kind in ("model_type", "model_attributes_type"):
        return "must be a section of keys", write or f"It takes {', '.join(_KEYS.get(tuple(map(str, path)), ()))}."
    if kind in _BOUNDS:
        text, bound = _BOUNDS[kind]
        return f"{text} {context[bound]:g}", write
    if kind == "literal_error":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        one = f"must be {words[0]}" if len(words) == 1 else f"must be one of {', '.join(words)}"
        value = error["input"]
        return one, nearest(value, words) if isinstance(value, str) and len(words) > 1 else ""
    if kind == "string_pattern_mismatch":
        rule = "must be 1 to 63 small letters, digits, dots, dashes and underscores, the first a letter or digit"
        return rule, f"It names the sweep's folder. {write}"
    return _TYPES.get(kind, str(error["msg"])), write
