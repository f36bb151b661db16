"""Import of the user's own functions, and the place of an error in them."""

from __future__ import annotations

import os
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from trainables.errors import HyperparameterError

__all__ = ["own_function", "place_in_own_code"]

_FIX = "Correct the name, put the module into the current folder, or install what the module imports."
_UNREADABLE = "Correct the module."
_ENDS = (
    "The module ends the program when it is imported, as a script does. Put what the script does under "
    '`if __name__ == "__main__":`.'
)


def own_function(name: str, *, what: str, code: str) -> Any:  # noqa: ANN401 - the user's
    """Return the function ``package.module:function``. An error that its module raises otherwise is not changed.

    Args:
        name: the function.
        what: what it is for, as in the message.
        code: code of the error.

    Raises:
        HyperparameterError: the module cannot be found or read, ends the program, or has no such function.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError, SyntaxError, SystemExit) as error:
        fixes = {SystemExit: _ENDS, SyntaxError: _UNREADABLE}
        fix = next((fixes[kind] for kind in fixes if isinstance(error, kind)), _FIX)
        raise HyperparameterError(
            code,
            f"The {what} {name!r} cannot be imported as package.module:function ({type(error).__name__}: {error}). "
            f"{fix}",
        ) from error


def place_in_own_code(error: BaseException) -> str:
    """Return the last line of the user's own code that led to an error: of a file outside of all packages."""
    package = Path(__file__).parent
    others = (*(package.with_name(name) for name in ("tuner", "trainables", "search_spaces")), Path(os.__file__).parent)
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename[:1] != "<"
        and "site-packages" not in Path(frame.filename).parts
        and not any(folder in Path(frame.filename).parents for folder in others)
    ]
    return f" ({own[-1].filename}:{own[-1].lineno}: {own[-1].line})" if own else ""
