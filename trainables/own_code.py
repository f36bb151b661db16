"""Import of the user's own functions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trainables.errors import HyperparameterError

__all__ = ["own_function"]

_FIX = "Correct the name, put the module into the current folder, or install what the module imports."
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
        ends = isinstance(error, SystemExit)
        raise HyperparameterError(
            code,
            f"The {what} {name!r} cannot be imported as package.module:function ({type(error).__name__}: {error}). "
            f"{_ENDS if ends else _FIX}",
        ) from error
