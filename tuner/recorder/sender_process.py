"""A `Sender` in a process of its own, so that a search neither loads MLflow nor shares its processor time with it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from tuner.recorder.sender import SendStatus

__all__ = ["SenderProcess"]

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
_ANSWER_SECONDS = 2.0


class SenderProcess:
    """Process that sends the records of a spool. It ends with this process, however this process ends.

    It never interrupts the training: if it dies or hangs, the records stay in the spool, and `flush` says so.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._status = SendStatus()
        self._asked = self._answered = 0
        self._ended = False

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuner.recorder", str(self._folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the search, which records its own end
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        os.set_blocking(self._input.fileno(), False)
        output = cast("IO[bytes]", self._process.stdout)
        threading.Thread(target=self._listen, args=[output], name="mlflow-sender", daemon=True).start()

    def notify(self) -> None:
        """Tell the process that there is a new record."""
        self._say("notify")

    def status(self) -> SendStatus:
        """Return the progress that the process told last."""
        with self._changed:
            return self._status

    def flush(self, timeout: float) -> SendStatus:
        """Wait until MLflow has every record, three attempts have failed, or `timeout` seconds have passed."""
        with self._changed:
            self._asked += 1
            if self._say(f"flush {timeout}"):
                self._changed.wait_for(
                    lambda: self._ended or self._answered >= self._asked, timeout=timeout + _ANSWER_SECONDS
                )
            if self._answered < self._asked:
                why = "has ended" if self._ended else "does not answer"
                told = f"the process that sends the records {why}"
                self._status = replace(self._status, waiting=max(1, self._status.waiting), problem=told)
            return self._status

    def stop(self) -> None:
        """Stop the process after its current request. Unsent records stay in the spool."""
        self._input.close()
        try:
            self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, words: str) -> bool:
        """Write a line without waiting, and return whether it was written.

        A full pipe has many lines that its reader has yet to read, so one more `notify` is not needed.
        """
        with contextlib.suppress(OSError):
            os.write(self._input.fileno(), f"{words}\n".encode())
            return True
        return False

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                told = json.loads(line)
                status = SendStatus(**told["status"])
                if status.problem and not self._status.problem:
                    log.warning("records cannot be sent to MLflow now and stay on the disk: %s", status.problem)
                with self._changed:
                    self._status, self._answered = status, max(self._answered, told["answer"])
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
