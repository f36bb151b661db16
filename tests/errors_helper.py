"""Assert that an error of ours is raised, by its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises_code(kind: type[Exception], code: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect `kind` with this code; yields pytest's record of it."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)  # type: ignore[attr-defined]
