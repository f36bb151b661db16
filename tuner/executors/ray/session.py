"""Ray sessions that print nothing, do not upload the working tree, and join only the cluster at the given address."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

import ray

from tuner.errors import InputError
from tuner.executors.base import ExecutorSettings

__all__ = ["environment", "interruptible", "ray_session"]

_QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths mean the same in a worker as in the driver
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run` Ray would upload the working tree
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default, set so that Ray does not warn
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints even at verbosity 0
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no json, csv or tensorboard files
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `interruptible` handles it
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
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
def ray_session(settings: ExecutorSettings) -> Iterator[None]:
    """Connect to Ray for the duration of a sweep.

    If this process is already connected, the existing connection is used and stays open. Otherwise this function joins
    the cluster at `settings.address`, or starts Ray on this machine if there is no address.

    Raises:
        tuner.errors.InputError: this machine has too few resources for one trial.
    """
    address = settings.address
    variables = {**_QUIET, "TUNE_MAX_PENDING_TRIALS_PG": str(settings.concurrent_trials)}
    with environment(variables), _without_rays_summary(), contextlib.ExitStack() as stack:
        joined = ray.is_initialized()
        if not joined:
            own: dict[str, str] = {}
            if settings.hide_logs and address is None:
                # Every account may enter Ray's folder. It is therefore put into a folder that only this account may
                # enter. The path is short, because the path of a socket has at most 107 bytes.
                parent = tempfile.TemporaryDirectory(prefix="dp-", ignore_cleanup_errors=True)
                own = {"_temp_dir": f"{stack.enter_context(parent)}/ray"}
            ray.init(
                address=address or "local",
                **own,
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                namespace="dp-tuner",
            )
        try:
            if address is None:  # a cluster may grow on request
                _check_fits(settings)
            yield
        finally:
            if not joined:
                ray.shutdown()


@contextlib.contextmanager
def _without_rays_summary() -> Iterator[None]:
    """Suppress Ray's final list of incomplete trials. These trials were restarted under other Ray ids."""
    logger = logging.getLogger("ray.tune.tune")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check_fits(settings: ExecutorSettings) -> None:
    available = ray.cluster_resources()
    for resource, key, needed in (
        ("CPU", "cpus_per_trial", settings.cpus_per_trial),
        ("GPU", "gpus_per_trial", settings.gpus_per_trial),
    ):
        if needed > available.get(resource, 0.0):
            raise InputError(
                "resources-too-large",
                f"resources.{key}: one trial needs {needed:g} {resource}s, but this machine has only "
                f"{available.get(resource, 0.0):g}. Lower the value, or name a cluster with --address.",
            )


@contextlib.contextmanager
def interruptible(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `on_interrupt` at the first Ctrl-C. The second Ctrl-C raises KeyboardInterrupt as usual.

    Python allows signal handlers in the main thread only. In other threads this context manager does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        sys.stderr.write("\nstopping: running trials stop at their next report (press Ctrl-C again to stop at once)\n")
        on_interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
