"""A `Sender` in a process of its own, so that a search neither loads MLflow nor shares its processor time with it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from tuner.errors import TrackingError
from tuner.recorder.sender import SendStatus
from tuner.recorder.shipper import ACKNOWLEDGED, SPOOL
from tuner.recorder.spool import read_spool

__all__ = ["SenderProcess", "end_early", "start_early"]

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0  # longer than a `Sender` takes to stop
_ANSWER_SECONDS = 2.0
_AGAIN_SECONDS = 0.1
_STARTS = 4  # a process that ends by itself, such as one for which the memory was too small, is started again
_ENDED = "the process that sends the records has ended"
_SILENT = "the process that sends the records does not answer"

_EARLY: list[subprocess.Popen[bytes]] = []  # processes that load MLflow, and wait to be told a sweep's folder


def start_early() -> None:
    """Start the process of the next `SenderProcess` now, so that it loads MLflow while this one reads its files."""
    with contextlib.suppress(OSError):  # `SenderProcess` tries again, and reports the error
        _EARLY.append(_started())


def end_early() -> None:
    """End a process that was started early and that no sweep needs. Without this call, it ends with this process."""
    while _EARLY:
        with _EARLY.pop() as process:
            process.kill()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # With -P, a module in the current folder is found only if this process would find it.
        [sys.executable, "-P", "-m", "tuner.recorder"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the search, which records its own end
    )


class SenderProcess:
    """Process that sends the records of a spool. It ends with this process, however this process ends.

    It never interrupts the training: if it hangs, or dies repeatedly, the records stay in the spool, and `status` says
    so.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._told: SendStatus | None = None
        self._asked = self._answered = 0
        self._ended = self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        output = self._launch()
        if output is not None:
            threading.Thread(target=self._listen, args=[output], name="mlflow-sender", daemon=True).start()

    def _launch(self) -> IO[bytes] | None:
        """Start a process and return its output; None if this one stops, or if no process can be started."""
        with self._changed:
            if self._stopping:
                return None
            try:
                self._process = _EARLY.pop() if _EARLY else _started()
            except OSError as error:
                log.warning("records stay on the disk, because no process can be started to send them: %s", error)
                self._ended = True
                return None
            self._input = cast("IO[bytes]", self._process.stdin)
            os.set_blocking(self._input.fileno(), False)
            self._say(json.dumps(str(self._folder)))
            self._changed.notify_all()
            return cast("IO[bytes]", self._process.stdout)

    def notify(self) -> None:
        """Tell the process that there is a new record."""
        self._say("notify")

    def status(self) -> SendStatus:
        """Return the progress that the process told last, or why it tells nothing more."""
        with self._changed:
            return self._status(_ENDED if self._ended and not self._stopping else "")

    def flush(self, timeout: float) -> SendStatus:
        """Wait until MLflow has every record, three attempts have failed, or `timeout` seconds have passed."""
        deadline, said_to = time.monotonic() + timeout + _ANSWER_SECONDS, None
        with self._changed:
            self._asked += 1
            while not self._ended and self._answered < self._asked and (left := deadline - time.monotonic()) > 0:
                if said_to is not self._process and self._say(f"flush {self._asked} {timeout}"):
                    said_to = self._process
                self._changed.wait(left if said_to is self._process else _AGAIN_SECONDS)
            if self._answered == self._asked:
                return self._status()
            return self._status(_ENDED if self._ended else _SILENT)

    def stop(self) -> None:
        """Stop the process after its current request. Unsent records stay in the spool."""
        with self._changed:
            self._stopping = True
            if self._process is None:
                return
            self._input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_STOP_SECONDS)
        self._kill()

    def _kill(self) -> None:
        with self._changed:
            if self._process is not None:
                self._input.close()
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # it may wait for a disk that does not answer
                    self._process.wait(timeout=_ANSWER_SECONDS)

    def _status(self, problem: str = "") -> SendStatus:
        """Return the last told progress; with a problem of the process itself, count what it has not sent."""
        if self._told is not None and not problem:
            return self._told
        try:
            sent = int(json.loads((self._folder / ACKNOWLEDGED).read_text("utf-8"))["end"])
        except (OSError, ValueError, KeyError):
            sent = 0
        try:
            waiting = sum(1 for _ in read_spool(self._folder / SPOOL, start=sent))
        except (TrackingError, OSError) as error:
            waiting, problem = 1, str(error)
        return replace(self._told or SendStatus(), waiting=waiting, problem=problem)

    def _say(self, words: str) -> bool:
        """Write a line without waiting, and return whether it was written.

        A full pipe has many lines that its reader has yet to read, so one more `notify` is not needed.
        """
        with self._changed, contextlib.suppress(OSError):
            if self._process is not None and not self._input.closed:
                os.write(self._input.fileno(), f"{words}\n".encode())
                return True
        return False

    def _listen(self, output: IO[bytes] | None) -> None:
        """Read what the process tells. If it ends by itself, start it again."""
        for starts in range(1, _STARTS + 1):
            if output is None:
                break
            with output:
                for line in output:
                    with contextlib.suppress(ValueError, TypeError, KeyError):  # not an answer, but a library's
                        self._take(json.loads(line))
            if self._stopping or starts == _STARTS:
                break
            self._kill()  # it may have closed its output only
            output = self._launch()
            self.notify()  # of what the last one did not send
        if not self._stopping:
            log.warning("records stay on the disk, because %s", _ENDED)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, told: dict[str, Any]) -> None:
        status = SendStatus(**told["status"])
        if status.problem and not (self._told and self._told.problem):
            log.warning("records cannot be sent to MLflow now and stay on the disk: %s", status.problem)
        with self._changed:
            self._told, self._answered = status, max(self._answered, told["answer"])
            self._changed.notify_all()
