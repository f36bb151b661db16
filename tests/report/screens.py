"""Terminals and files to print on, read back as text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def console(*, terminal: bool, width: int = 140, height: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, height=height, color_system=None)


def text(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def shown(renderable: RenderableType, width: int = 140, height: int = 40, *, terminal: bool = False) -> str:
    target = console(terminal=terminal, width=width, height=height)
    target.print(renderable)
    return text(target)
