"""Facts about one machine of a cluster, gathered by the function that Ray sends there as source code.

This module needs the standard library alone, because it also runs on a machine that lacks our code. The driver calls
the same functions for itself, and the two answers are compared (`tuner.sweep.cluster_check`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["gather", "load", "open_ports", "open_programs"]

_CHUNK = 1 << 20
_LISTENING = "0A"
_LOOPBACK_V6 = "00000000000000000000000001000000"  # ::1, as the kernel prints it


def gather(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about this machine, as strings and numbers.

    Args:
        question: `versions` (names of distributions), `code` (names of packages), `modules` (the user's modules),
            `files` (absolute paths of data), `salt` (text), `storage` (a folder, or ""), `nonce` (name of the driver's
            file in it), `gpus` (whether to look for them).

    Files are answered by an HMAC under `salt`, which the driver draws anew for each check. A checksum of private
    records must not be kept anywhere, because it would help to guess them.
    """
    began = time.time()
    facts: dict[str, Any] = {
        "began": began,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in question["versions"]},
        "code": {name: _package(name) for name in question["code"]},
        "modules": {name: _module(name) for name in question["modules"]},
        "files": {path: _digest([Path(path)], question["salt"]) for path in question["files"]},
        "storage": _storage(question["storage"], question["nonce"]),
        "memory": _memory(),
        "gpus": _gpus() if question["gpus"] else [],
        "token": _token_mode(),
        "ports": open_ports(("gcs_server", "raylet")),
    }
    facts["ended"] = time.time()
    return facts


def load(question: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Import objects. Return (module, error) of each failure.

    This is apart from `gather`, because the import of torch takes seconds.

    Args:
        question: `objects`, each a module and a name in it ("" for the module alone), and `gpus`: whether torch must
            find one.
    """
    failed = []
    for module, name in question["objects"]:
        try:
            found = importlib.import_module(module)
            if name:
                getattr(found, name)
        except BaseException as error:  # noqa: BLE001 - a user's module may raise anything; no record was read
            failed.append((module, f"{type(error).__name__}: {error}"))
    if question["gpus"]:
        try:
            if not importlib.import_module("torch").cuda.is_available():
                failed.append(("torch.cuda", "torch finds no GPU"))
        except Exception as error:  # noqa: BLE001 - the driver of the GPU may raise anything
            failed.append(("torch.cuda", f"{type(error).__name__}: {error}"))
    return failed


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _package(name: str) -> str:
    """Return a hash of the code and the measured numbers of a package, or "" if there is no such package."""
    spec = _spec(name)
    if spec is None or not spec.submodule_search_locations:
        return ""
    root = Path(next(iter(spec.submodule_search_locations)))
    paths = (path for path in root.rglob("*") if path.suffix in (".py", ".json"))
    return _digest(sorted(paths), root=root)


def _module(name: str) -> str:
    """Return a hash of a module's source, "built in" without a file, or "" if it is not found."""
    spec = _spec(name)
    if spec is None:
        return ""
    return _digest([Path(spec.origin)]) if spec.origin and Path(spec.origin).is_file() else "built in"


def _spec(name: str) -> Any:  # noqa: ANN401 - a ModuleSpec or None
    importlib.invalidate_caches()
    try:
        return importlib.util.find_spec(name)
    except BaseException:  # noqa: BLE001 - the user's parent package may raise anything
        return None


def _digest(paths: Iterable[Path], salt: str = "", *, root: Path | None = None) -> str:
    """Return the HMAC of files and of their paths under `root`, or "" if there is none or one cannot be read."""
    total, seen = hmac.new(salt.encode() or b"-", digestmod=hashlib.sha256), False
    for path in paths:
        try:
            with path.open("rb") as file:
                total.update(f"{path.relative_to(root) if root else ''}\0{path.stat().st_size}\0".encode())
                while chunk := file.read(_CHUNK):
                    total.update(chunk)
        except OSError:
            return ""
        seen = True
    return total.hexdigest() if seen else ""


def _storage(folder: str, nonce: str) -> dict[str, Any]:
    """Read the driver's file in the folder, and write one that only this account may read, as a checkpoint is."""
    if not folder:
        return {}
    facts: dict[str, Any] = {"read": "", "wrote": "", "name": "", "error": "", "free": 0}
    with contextlib.suppress(OSError):
        facts["free"] = shutil.disk_usage(folder).free
    try:
        facts["read"] = Path(folder, nonce).read_text()
    except OSError as error:
        facts["error"] = f"{Path(folder, nonce)}: {error.strerror}"
        return facts
    facts["name"], facts["wrote"] = f"node-{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        target = os.open(Path(folder, facts["name"]), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(target, "w") as file:
            file.write(facts["wrote"])
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        facts["error"] = f"{Path(folder, facts['name'])}: {error.strerror}"
    return facts


def _memory() -> int:
    """Return the bytes of memory that are free here: of the machine, or of the container if that has less."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = next(each for each in Path("/proc/meminfo").read_text().splitlines() if each.startswith("MemAvailable"))
        found.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        cached = next(
            int(line.split()[1])
            for line in (group / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
        found.append(max(limit - int((group / "memory.current").read_text()) + cached, 0))
    return min(found, default=0)


def _gpus() -> list[str]:
    """Return the name and free memory of each GPU, as the driver's own program tells them."""
    command = ["nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _token_mode() -> str:
    """Return ``token`` if Ray's processes here ask for a token, else ``disabled``, or "" without Ray."""
    try:
        from ray._private.authentication.authentication_utils import is_token_auth_enabled
    except ImportError:
        return ""
    return "token" if is_token_auth_enabled() else "disabled"


def open_ports(programs: Sequence[str]) -> list[int]:
    """Return the ports on which these programs of this account listen for other machines."""
    wide = _wide_sockets()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text().strip() in programs:
                found |= _ports_of(process, wide)
    return sorted(found)


def open_programs() -> list[tuple[str, bool, list[int]]]:
    """Return (name, whether it asks for a token, ports) of the Ray nodes and MLflow servers that others can reach.

    Only programs of this account are seen. A cluster's processes are told apart by whether they ask for a token.
    """
    wide = _wide_sockets()
    found: dict[tuple[str, bool], set[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            comm, command = (process / "comm").read_text().strip(), (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().split(b"\0")
            if comm in ("gcs_server", "raylet"):
                key = ("Ray", b"RAY_AUTH_MODE=token" in environment)
            elif any(b"mlflow" in word for word in command):
                key = ("MLflow", any(b"basic-auth" in word for word in (*command, *environment)))
            else:
                continue
            found.setdefault(key, set()).update(_ports_of(process, wide))
    return [(name, asks, sorted(ports)) for (name, asks), ports in sorted(found.items()) if ports]


def _wide_sockets() -> dict[str, int]:
    """Return the ports that can be reached from other machines, by the kernel's number of their socket."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                local, state, inode = (line.split()[place] for place in (1, 3, 9))
                address, port = local.split(":")
                if state == _LISTENING and not _is_loopback(address):
                    found[inode] = int(port, 16)
    return found


def _ports_of(process: Path, sockets: Mapping[str, int]) -> set[int]:
    found = set()
    for each in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed since
            inode = str(each.readlink()).removeprefix("socket:[").removesuffix("]")
            if inode in sockets:
                found.add(sockets[inode])
    return found


def _is_loopback(address: str) -> bool:
    """Decide for an address as the kernel prints it: words of four bytes in hexadecimal, the lowest byte first."""
    version_4 = len(address) == 8 or address.startswith("0000000000000000FFFF0000")
    return address.endswith("7F") if version_4 else address == _LOOPBACK_V6
