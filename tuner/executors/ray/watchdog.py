"""Watchdog of a driver. Without it, a driver whose raylet (Ray's process on its machine) died may wait for minutes."""

from __future__ import annotations

import _thread
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import ray

__all__ = ["RayGone", "watched"]

_EVERY = 2.0  # seconds between two looks
_MISSED = 3  # looks without an answer, one after the other, until Ray is gone
_GRACE = 10.0  # seconds in which Ray Tune may end by itself
_WAKE = signal.SIGUSR2


class RayGone(BaseException):
    """Raised in the main thread when Ray is gone and Ray Tune does not notice. No `except Exception` stops it."""


@contextlib.contextmanager
def watched(on_gone: Callable[[], None]) -> Iterator[None]:
    """Call `on_gone` when the raylet of this machine does not answer any more, and end what waits for it.

    Outside the main thread, where Python allows no signal handler, `on_gone` is called and nothing is ended.

    Raises:
        RayGone: Ray Tune did not end within some seconds after `on_gone`.
    """
    path = str(ray._private.worker.global_worker.node.raylet_socket_name)
    main = threading.current_thread() is threading.main_thread()
    over = threading.Event()

    def watch() -> None:
        missed = 0
        while missed < _MISSED:
            if over.wait(_EVERY):
                return
            missed = 0 if _answers(path) else missed + 1
        on_gone()
        if main and not over.wait(_GRACE):
            _thread.interrupt_main(_WAKE)

    def wake(_number: int, _frame: FrameType | None) -> None:
        if not over.is_set():
            raise RayGone

    before = signal.signal(_WAKE, wake) if main else None
    thread = threading.Thread(target=watch, name="watchdog of Ray", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if main:
            signal.signal(_WAKE, before)


def _answers(path: str) -> bool:
    """Return whether a process accepts connections at the raylet's socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(path)
        except OSError:
            return False
        return True
