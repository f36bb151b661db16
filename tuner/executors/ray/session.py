"""Ray sessions that print nothing, do not upload the working tree, and join only the cluster at the given address."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any

import ray
from ray._private.utils import get_num_cpus

from tuner.errors import InputError
from tuner.executors.base import ExecutorSettings
from tuner.signals import ENDING, note

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

_ONE = threading.RLock()
"""Held during a session. Ray has one connection and one token a process, and reads both from the environment."""

_UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")
"""Methods of Ray's `Node` that start processes which a sweep on one machine does not need."""


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, and restore them at the end. A variable with the value None is only restored."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if value is not None})
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
    the cluster at `settings.address`, or starts Ray on this machine if there is no address. On this machine, Ray
    listens on the loopback address alone, and asks for a token that only this process and its children know.

    A session in another thread waits for the end of this one.

    Raises:
        tuner.errors.InputError: the cluster cannot be joined, or this machine has too few resources for one trial.
    """
    address = settings.address
    workers = settings.concurrent_trials * settings.workers_per_trial
    variables = {
        **_QUIET,
        "TUNE_MAX_PENDING_TRIALS_PG": str(settings.concurrent_trials),
        # Ray would start a process for each CPU in advance. The trials and the charge actor may need fewer.
        "RAY_prestart_worker_first_driver": str(int(get_num_cpus(override_docker_cpu_warning=True) <= workers + 1)),
    }
    with _ONE, contextlib.ExitStack() as stack:
        joined = ray.is_initialized()
        for context in (environment(variables), _without_rays_summary()):
            stack.enter_context(context)
        if not joined:
            stack.enter_context(_own_token() if address is None else _token_of_cluster(address))
            own: dict[str, str] = {}
            if settings.hide_logs and address is None:
                # Every account may enter Ray's folder. It is therefore put into a folder that only this account may
                # enter. The path is short, because the path of a socket has at most 107 bytes.
                parent = tempfile.TemporaryDirectory(prefix="dp-", ignore_cleanup_errors=True)
                own = {"_temp_dir": f"{stack.enter_context(parent)}/ray"}
            stack.enter_context(_messages_on_standard_error())
            if address is None:
                stack.enter_context(_inherited_environment())
            with _kept_sigterm(), _own_ray() if address is None else contextlib.nullcontext():
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
def _kept_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM at the end. Ray replaces it by one that ends this process as if it had failed."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _own_token() -> Iterator[None]:
    """Let the Ray of this session ask for a new random token, which is never written to a file.

    By itself, Ray would write one to a file that every account may read, and then accept everyone who has it.
    """
    try:
        with environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
            _forget_token()
            yield
    finally:
        _forget_token()


@contextlib.contextmanager
def _token_of_cluster(address: str) -> Iterator[None]:
    """Check the cluster, and use this account's token of it until the session ends."""
    from tuner.executors.ray.address import check_address

    try:
        with environment({"RAY_AUTH_MODE": None}):
            check_address(address)
            yield
    finally:
        _forget_token()


def _forget_token() -> None:
    """Let Ray's C++ code read the environment again. It caches the mode and the token of the process."""
    from ray._private.authentication.authentication_token_setup import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _own_ray() -> Iterator[None]:
    """Let a Ray that is started in this context listen on 127.0.0.1 alone, with fewer and smaller processes.

    Ray has the setting of its address for systems on which it cannot make clusters. The processes that are not started
    add machines to a cluster, print the workers' output, and answer Ray's own commands. They delay the start of a sweep
    by more than a second, and its end by another one. The one that watches this machine for the dashboard starts as if
    the dashboard's libraries were not installed: it then has no server, and Ray is up half a second earlier.

    Ray's processes have process groups of their own. A signal to the group of this process, such as SIGTERM from
    `timeout` or SIGHUP from a terminal that is closed, would otherwise end Ray before the trials have stopped.
    """
    from ray._private import ray_constants, services, utils
    from ray._private.node import Node

    with _changed(
        (ray_constants, "ENABLE_RAY_CLUSTER", False),
        (services, "ConsolePopen", partial(services.ConsolePopen, process_group=0)),
        (utils, "get_dashboard_dependency_error", lambda: ImportError("not needed on one machine")),
        *((Node, start, lambda node, **_: None) for start in _UNUSED),
    ):
        yield


@contextlib.contextmanager
def _inherited_environment() -> Iterator[None]:
    """Let Tune ask for no environment of their own for trials on a Ray that is started in this context.

    On this machine, every process inherits these variables. A process with an environment of its own loads Ray twice,
    and cannot be one that Ray started in advance.
    """
    from ray.tune.execution import class_cache

    with (
        environment(class_cache.DEFAULT_ENV_VARS),
        _changed((class_cache, "DEFAULT_ENV_VARS", {}), (class_cache, "ENV_VARS_TO_PROPAGATE", ())),
    ):
        yield


@contextlib.contextmanager
def _changed(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes (object, name, value), and restore them at the end."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


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


@contextlib.contextmanager
def _messages_on_standard_error() -> Iterator[None]:
    """Let Ray print its messages, such as those about workers that died, on standard error: an answer may be JSON."""
    from ray._private import worker

    before = worker.print_to_stdstream

    def on_standard_error(data: dict[str, Any], **named: Any) -> None:  # noqa: ANN401 - Ray's signature
        before({**data, "is_err": True}, **named)

    with _changed((worker, "print_to_stdstream", on_standard_error)):
        yield


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
    """Call `on_interrupt` at the first Ctrl-C, SIGTERM or SIGHUP. The second one does what it did before.

    Python allows signal handlers in the main thread only. In other threads this context manager does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.getsignal(sign) for sign in ENDING}

    def handle(number: int, _frame: FrameType | None) -> None:
        restore()
        note(number)
        sys.stderr.write("\nstopping: running trials stop at their next report (press Ctrl-C again to stop at once)\n")
        on_interrupt()

    def restore() -> None:
        for sign, handler in before.items():
            signal.signal(sign, handler)

    for sign, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(sign, handle)
    try:
        yield
    finally:
        restore()
