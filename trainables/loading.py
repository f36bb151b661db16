"""Loading of large libraries without a search for garbage."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

__all__ = ["loading"]


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Do not search for garbage while modules are loaded, and never search what exists when they are.

    Modules make hundreds of thousands of objects and no garbage. The searches take a tenth of the time to load torch.
    """
    enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if enabled:
            gc.enable()
