"""A clock that jumps while the program runs.

    python -m benchmarks.budget_clock JUMP DRAWS run FILE ...      as `benchmarks.budget_draws DRAWS run FILE ...`

JUMP is a file: the number of seconds in it is added to the time of day, from the moment at which it is written. That is
what the wall clock does when it is set; the monotonic clock, like the machine's, is left alone.
"""

from __future__ import annotations

import datetime as datetimes
import sys
import time
from pathlib import Path
from typing import Self

from benchmarks import budget_draws

__all__ = ["main"]

_TIME = time.time


def _install(jump: Path) -> None:
    def shift() -> float:
        try:
            return float(jump.read_text())
        except (OSError, ValueError):  # not written yet, or half
            return 0.0

    class Jumping(datetimes.datetime):
        """The class with a `now` that jumps; all that it makes are ordinary times."""

        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> Self:
            return super().now(tz) + datetimes.timedelta(seconds=shift())

    import tuner.cli.app
    import tuner.privacy.ledger.ledger
    import tuner.recorder.recorder
    import tuner.runner.commands  # noqa: F401 - imported so that their names can be replaced

    time.time = lambda: _TIME() + shift()
    for name, module in list(sys.modules.items()):
        if (
            name.partition(".")[0] in ("tuner", "trainables")
            and getattr(module, "datetime", None) is datetimes.datetime
        ):
            module.datetime = Jumping  # type: ignore[attr-defined]


def main() -> None:
    """Jump, then count and run."""
    _install(Path(sys.argv.pop(1)))
    budget_draws.main()


if __name__ == "__main__":
    main()
