"""Options of one run of a sweep, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

__all__ = ["RunOptions", "RunResult"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run. They do not change what the sweep computes.

    Attributes:
        data_dir: folder with the data sets.
        local: run in this process, without Ray.
        address: address of a running Ray cluster.
        quiet: print plain lines, and only important ones.
        as_json: print one JSON object at the end, and nothing else to standard output.
        summary: print a summary at the end.
        next_commands: add to the summary which commands to run next.
    """

    data_dir: str | None = None
    local: bool = False
    address: str | None = None
    quiet: bool = False
    as_json: bool = False
    summary: bool = True
    next_commands: bool = True

    def say(self, text: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self.as_json:
            click.echo(text)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Result of one run of a sweep.

    Attributes:
        code: exit code.
        state: state of the sweep, for example ``done``.
        values: the values that ``--json`` prints.
    """

    code: int
    state: str
    values: dict[str, Any]
