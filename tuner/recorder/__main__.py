"""Process that sends the records of a spool, for `sender_process`. It ends when its standard input is closed.

python -m tuner.recorder, with the sweep's folder as a JSON string in the first line of the standard input
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import warnings
from dataclasses import asdict
from pathlib import Path

from tuner.recorder.mlflow_store import load_mlflow
from tuner.recorder.sender import Sender, SendStatus

_ANSWERS = sys.stdout
_WRITING = threading.Lock()  # several threads tell, and a line must stay whole


def _tell(status: SendStatus, answer: int = 0) -> None:
    line = json.dumps({"answer": answer, "status": asdict(status)})
    with _WRITING, contextlib.suppress(OSError):  # the search was killed, so the standard input ends as well
        print(line, file=_ANSWERS, flush=True)


def _flush(sender: Sender, number: int, seconds: float) -> None:
    _tell(sender.flush(seconds), number)


def _load() -> None:
    with contextlib.suppress(Exception):  # the `Sender` tries again, and reports the error
        load_mlflow()


def main() -> None:
    """Send until the standard input ends. ``notify`` says that there is a record; ``flush`` waits for all of them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the search records its own end after such a signal
    logging.disable(logging.WARNING)  # the search's process warns
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr  # nothing else may come between the answers
    threading.Thread(target=_load, daemon=True).start()  # for seconds, while the search is not ready
    folder = sys.stdin.readline()
    if not folder:
        os._exit(0)  # there is no search
    sender = Sender(Path(json.loads(folder)), told=_tell)
    sender.start()
    for line in sys.stdin:
        word, *values = line.split()
        if word == "flush":  # in a thread, because the end of the input ends the process at any time
            threading.Thread(target=_flush, args=(sender, int(values[0]), float(values[1])), daemon=True).start()
        else:
            sender.notify()
    sender.stop()
    os._exit(0)  # MLflow's own threads would take a second to end


if __name__ == "__main__":
    main()
