"""Translation of Optuna's errors about constructor options."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from optuna.exceptions import ExperimentalWarning

from tuner.errors import InputError

__all__ = ["refused_options"]


@contextmanager
def refused_options(kind: str, name: str, options: Mapping[str, object]) -> Iterator[None]:
    """Report an option that Optuna refuses as an input error, and ignore its warnings about experimental classes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user named the class in the experiment file
            yield
    except (TypeError, ValueError) as error:
        raise InputError(
            "search-option-invalid", f"The {kind} {name!r} does not accept the options {dict(options)}: {error}"
        ) from error
