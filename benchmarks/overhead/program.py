"""The program `tune`, which also writes when Ray was up, when trials started and ended, and its own memory then.

python -m benchmarks.overhead.program FILE run EXPERIMENT ...
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any


def main() -> None:
    """Install the clock, and run the program with all other words."""
    from tuner.cli.app import main as tune
    from tuner.recorder.recorder import MLflowRecorder

    report, words = Path(sys.argv[1]).absolute(), sys.argv[2:]
    seen: dict[str, Any] = {"ray_up": time.perf_counter(), "started": [], "reported": [], "ended": [], "memory_mb": []}

    def up() -> None:
        seen["ray_up"] = time.perf_counter()

    def ended() -> None:
        seen["ended"].append(time.perf_counter())
        seen["memory_mb"].append(_memory_mb())

    if "--local" not in words:
        import ray

        ray.init = _after(ray.init, up)
    started = _after(MLflowRecorder.trial_started, lambda: seen["started"].append(time.perf_counter()))
    MLflowRecorder.trial_started = started  # type: ignore[method-assign]
    reported = _after(MLflowRecorder.trial_reported, lambda: seen["reported"].append(time.perf_counter()))
    MLflowRecorder.trial_reported = reported  # type: ignore[method-assign]
    MLflowRecorder.trial_finished = _after(MLflowRecorder.trial_finished, ended)  # type: ignore[method-assign]
    atexit.register(lambda: report.write_text(json.dumps(seen)))
    sys.argv = ["tune", *words]
    tune()  # as people start it, which ends faster than its commands do alone


def _after(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    @wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        result = function(*arguments, **named)
        then()
        return result

    return watched


def _memory_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
