"""Start, join and leave Ray: quietly, without uploading the working tree, and never a cluster that was not named."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

import ray

from tuner.errors import InputError

__all__ = ["environment", "interruptible", "ray_session"]

_QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths mean the same in a worker as in the driver
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run` Ray would upload the working tree
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default, asked for so that Ray does not warn
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints even at verbosity 0
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no json, csv or tensorboard files: the spool is the record
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `interruptible` is ours
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables and put back what was there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def ray_session(
    *,
    address: str | None,
    cpus: float,
    gpus: float,
    concurrent_trials: int,
    sealed: bool = False,
    debug: bool = False,
) -> Iterator[None]:
    """Hold a Ray for the time of a sweep.

    A Ray that this process has already joined is used and left running. Otherwise one is started here, on this
    machine only, or the one at `address` is joined; it is left, or ended, afterwards.

    Args:
        address: of a running cluster, or None; a cluster that happens to run here is not used.
        cpus: CPUs of one trial.
        gpus: GPUs of one trial.
        concurrent_trials: trials at a time.
        sealed: keep the logs of a Ray that is started here from other accounts, and remove them at the end.
        debug: let Ray and its workers write to the terminal.

    Raises:
        tuner.errors.InputError: this machine cannot hold even one trial.
    """
    variables = {**_QUIET, "TUNE_MAX_PENDING_TRIALS_PG": str(concurrent_trials)}
    with environment(variables), contextlib.ExitStack() as stack:
        if not debug:
            stack.enter_context(_without_rays_summary())
        joined = ray.is_initialized()
        if not joined:
            level = logging.INFO if debug else logging.ERROR
            own: dict[str, str] = {}
            if sealed and address is None:
                # Ray opens its folder to every account; one that only ours may enter is around it.
                own = {"_temp_dir": f"{stack.enter_context(_closed_folder())}/ray"}
            ray.init(
                address=address or "local",
                **own,
                include_dashboard=False if address is None else None,
                log_to_driver=debug,
                logging_level=level,
                namespace="dp-tuner",
            )
        try:
            if address is None:  # a cluster may grow when it is asked; this machine does not
                _check_room(cpus, gpus)
            yield
        finally:
            if not joined:
                ray.shutdown()


@contextlib.contextmanager
def _without_rays_summary() -> Iterator[None]:
    """At its end Ray names as incomplete, by names that nobody else uses, trials that have long gone on elsewhere."""
    logger = logging.getLogger("ray.tune.tune")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _closed_folder() -> Iterator[str]:
    """A folder with a short path (that of Ray's sockets has at most 107 bytes), for this account alone."""
    path = tempfile.mkdtemp(prefix="dp-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _check_room(cpus: float, gpus: float) -> None:
    have = ray.cluster_resources()
    for resource, key, needed in (("CPU", "cpus_per_trial", cpus), ("GPU", "gpus_per_trial", gpus)):
        if needed > have.get(resource, 0.0):
            raise InputError(
                f"resources.{key}: one trial must fit on this machine, got {needed:g} of its "
                f"{have.get(resource, 0.0):g} {resource}s. Ask for less, or give --address of a cluster"
            )


@contextlib.contextmanager
def interruptible(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """Turn the first Ctrl-C into a call of `on_interrupt`; the second one raises KeyboardInterrupt as always.

    Only the main thread may set a handler; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        sys.stderr.write("\nstopping: the running trials are let go of at their next report (Ctrl-C again: at once)\n")
        on_interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
