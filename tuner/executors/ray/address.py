"""Check of a cluster's address before Ray joins it. Ray would wait for up to a minute, and then name no cause."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import threading
from pathlib import Path
from typing import Any

import ray

from tuner.errors import InputError

__all__ = ["check_address"]

_PATIENCE = 4.0
"""Seconds that a cluster has to accept a connection, and to answer it."""


def check_address(address: str) -> None:
    """Connect to the head of the cluster, and compare its versions and its token with those here.

    Raises:
        InputError: no cluster answers at this address, or it asks for another token, or runs another Ray or Python.
    """
    if address == "local" or address.startswith("ray://"):
        raise InputError(
            "cluster-address",
            f"`--address` must be HOST:PORT of the cluster's head, or auto (got {address}). Run the command on a "
            "machine that can reach the head's port, or with `ray job submit`. Without `--address`, only this machine "
            "is used.",
        )
    found = _running_here() if address == "auto" else address
    _require_open(found)
    _use_token(found)
    metadata = _metadata(found)
    here = {"ray_version": ray.__version__, "python_version": platform.python_version()}
    other = {key: metadata[key] for key in here if key in metadata and metadata[key] != here[key]}
    if other:
        named = {"ray_version": "Ray", "python_version": "Python"}
        differ = " and ".join(f"{named[key]} {value} (here {here[key]})" for key, value in other.items())
        raise InputError(
            "cluster-version",
            f"The cluster at {found} runs {differ}. Install the same versions on every machine.",
        )


def _running_here() -> str:
    from ray._private import services

    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        raise InputError(
            "cluster-unreachable",
            "`--address auto` finds no Ray cluster on this machine. Give the cluster's address as HOST:PORT.",
        ) from error


def _require_open(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE):
            return
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            "cluster-unreachable",
            f"No Ray cluster answers at {address} ({getattr(error, 'strerror', None) or error}). `--address` must be "
            "HOST:PORT of the cluster's head, usually port 6379. `ray status` on the head shows whether the "
            "cluster runs.",
        ) from error


def _use_token(address: str) -> None:
    """Let Ray send this account's token if there is one. Ray crashes if the file that it is told to read is missing."""
    from ray._private.authentication import authentication_token_setup as setup

    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if named and not os.environ.get("RAY_AUTH_TOKEN"):
        try:
            text = Path(named).read_text().strip()
        except OSError as error:
            raise _no_token(address, f"the file {named} of RAY_AUTH_TOKEN_PATH cannot be read") from error
        if not text:
            raise _no_token(address, f"the file {named} of RAY_AUTH_TOKEN_PATH is empty")
    loader = setup.AuthenticationTokenLoader.instance()
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token" and not loader.has_token(ignore_auth_mode=True):
        raise _no_token(address, "RAY_AUTH_MODE is token, but this account has no token")
    setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _metadata(address: str) -> dict[str, Any]:
    """Return what the head says about its cluster. Ray has no timeout for a head that accepts and does not answer."""
    found: list[object] = []

    def ask() -> None:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # it is compiled

        try:
            client = GcsClient(address=address)
            found.append(client.internal_kv_get(b"CLUSTER_METADATA", b"cluster", _PATIENCE))
        except Exception as error:  # noqa: BLE001 - it is reported in the calling thread
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    with _no_output():
        asking.start()
        asking.join(_PATIENCE)
    answer = found[0] if found else TimeoutError("it does not answer")
    if isinstance(answer, ray.exceptions.AuthenticationError):
        raise _no_token(address, "it asks for a token, and this account has none or a different one") from answer
    if isinstance(answer, Exception):
        raise InputError(
            "cluster-unreachable",
            f"The program at {address} is not a Ray cluster that can be joined ({_first_line(answer)}). `--address` "
            "must be HOST:PORT of the cluster's head, usually port 6379.",
        ) from answer
    with contextlib.suppress(ValueError, TypeError):
        values = json.loads(answer)  # type: ignore[arg-type] # anything but text is refused here
        return values if isinstance(values, dict) else {}
    return {}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _no_token(address: str, why: str) -> InputError:
    return InputError(
        "cluster-token",
        f"The cluster at {address} cannot be joined: {why}. Copy the token (`ray get-auth-token` on the head) to "
        "~/.ray/auth_token with mode 0600, or name its file in RAY_AUTH_TOKEN_PATH, and set RAY_AUTH_MODE=token.",
    )


@contextlib.contextmanager
def _no_output() -> Any:  # noqa: ANN401 - a context manager
    """Suppress what Ray's C++ code writes to standard error about a connection that fails."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
