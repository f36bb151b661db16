"""Conversion of Optuna's errors about constructor options to our `InputError`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from optuna.exceptions import ExperimentalWarning

from tuner.errors import InputError

__all__ = ["refused_options"]


@contextmanager
def refused_options(kind: str, name: str, options: Mapping[str, object]) -> Iterator[None]:
    """Convert Optuna's errors in the `with` block to an `InputError`, and hide warnings about experimental classes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user named the class in the experiment file
            yield
    except (TypeError, ValueError) as error:
        raise InputError(
            "search-option-invalid", f"Optuna refuses the options {dict(options)} of the {kind} {name!r}: {error}"
        ) from error
