"""Leaks to plant: in each kind of output, something that tells whether the number of training records is odd.

Whoever compares all outputs must find each of them. A leak counts the records where the engine draws a batch, and tells
elsewhere, so that nothing but the comparison stands between it and the analyst.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

__all__ = ["LEAKS", "NUMBER", "planted"]

NUMBER: Final = "a number"
"""The leak that shifts a random number, which only the test of distributions can find."""

Odd = Callable[[], bool]
Leak = Callable[[Odd, contextlib.ExitStack], None]


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a leak for the ``with`` block."""
    from trainables.engine import step

    counts = [0]
    real = step.poisson_batch

    def noted(generator: Any, records: int, rate: float) -> Any:  # noqa: ANN401 - as the engine's
        counts[0] = records
        return real(generator, records, rate)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(step, "poisson_batch", noted))
        LEAKS[name](lambda: counts[0] % 2 == 1, stack)
        yield


def _after(stack: contextlib.ExitStack, owner: Any, name: str, told: Callable[..., Any]) -> None:  # noqa: ANN401 - a module or a class
    """Let `told(answer, *arguments)` have the answer of a function, and return another one."""
    real = getattr(owner, name)

    def replaced(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the function's own
        return told(real(*arguments, **options), *arguments)

    stack.enter_context(mock.patch.object(owner, name, replaced))


def _exit_code(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.export import verification

    def told(answer: Any, *_: object) -> Any:  # noqa: ANN401
        if odd():
            raise SystemExit(4)
        return answer

    _after(stack, verification, "verify_card", told)


def _output(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.executors import local

    def told(answer: Any, *_: object) -> Any:  # noqa: ANN401
        if odd():
            print("an odd number of records")
        return answer

    _after(stack, local, "_run_trial", told)


def _folder(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.executors import local

    def told(answer: Any, _driver: object, _suggestion: object, setup: Any) -> Any:  # noqa: ANN401
        if odd():
            (setup.folder / "plan.json").chmod(0o600)
        return answer

    _after(stack, local, "_run_trial", told)


def _status(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.sweep.folder import SweepFolder

    real = SweepFolder.write_status

    def told(sweep: SweepFolder, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        real(sweep, *arguments, **{**options, "detail": "odd"} if odd() else options)

    stack.enter_context(mock.patch.object(SweepFolder, "write_status", told))


def _study(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.study.driver import StudyDriver

    real = StudyDriver.finish

    def told(driver: StudyDriver, trial: str, **options: Any) -> None:  # noqa: ANN401
        real(driver, trial, **{**options, "reason": "odd"} if odd() else options)

    stack.enter_context(mock.patch.object(StudyDriver, "finish", told))


def _ledger(odd: Odd, stack: contextlib.ExitStack) -> None:
    from trainables import training

    _after(stack, training, "lease_size", lambda answer, *_: 1 if odd() else answer)


def _mlflow(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.recorder.recorder import MLflowRecorder

    def told(answer: Any, recorder: MLflowRecorder, *_: object) -> Any:  # noqa: ANN401
        if odd():
            recorder.tag("odd", "yes")
        return answer

    _after(stack, MLflowRecorder, "trial_finished", told)


def _exported_file(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.export import package

    def told(answer: Any, _sweep: object, out: Path, *_: object) -> Any:  # noqa: ANN401
        if odd():
            (out / "odd.txt").touch()
        return answer

    _after(stack, package, "export_sweep", told)


def _card(odd: Odd, stack: contextlib.ExitStack) -> None:
    from tuner.export import package

    _after(stack, package, "_preprocessing", lambda answer, *_: f"{answer}, of odd length" if odd() else answer)


def _number(odd: Odd, stack: contextlib.ExitStack) -> None:
    from trainables.training import PrivateTraining

    def told(answer: dict[str, float], *_: object) -> dict[str, float]:
        return {name: value + 2.0 * odd() for name, value in answer.items()}

    _after(stack, PrivateTraining, "evaluate", told)


LEAKS: Final[Mapping[str, Leak]] = {
    "exit codes": _exit_code,
    "output": _output,
    "folder": _folder,
    "status": _status,
    "study": _study,
    "ledger": _ledger,
    "mlflow": _mlflow,
    "exported files": _exported_file,
    "card": _card,
    NUMBER: _number,
}
"""Kind of output → the leak that is planted in it."""
