"""Judgement of the facts about one machine of a cluster: what each must be, and what to do if it is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tuner.errors import NodeProblem

if TYPE_CHECKING:
    from tuner.executors.base import ExecutorSettings
    from tuner.executors.ray.nodes import Node

__all__ = ["EVERYWHERE", "FACTS", "OPEN", "Expected", "problem_of_import", "problem_of_silence", "size"]

Judged: TypeAlias = tuple[str, NodeProblem | None]
"""(text in the table, problem)"""

_COPY = "Copy the file from the driver to that machine."
_GIB = 1 << 30
_MEMORY_PER_TRIAL = _GIB // 2
"""Least free memory for each concurrent trial: torch and Opacus alone take 300 MB."""

_DISK = _GIB
"""Least room in the storage folder, for checkpoints and logs."""

_CLOCK = 5.0
"""Largest difference of clocks in seconds. Times of records in MLflow and the order of files come from both."""

_SEEN_WITHIN = 3.0
"""Seconds within which this machine must see what another has written to the storage."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the facts about a machine are compared with.

    Attributes:
        own: the facts about this machine.
        settings: resources of one trial, and how many run at once.
        folder: new folder in the storage, with a file of the driver that holds `secret`.
        charges: whether the search is charged, so that a cluster which anybody may enter is refused.
        repeats: whether runs that are cut off are repeated exactly, which only one kind of GPU can do.
    """

    own: Mapping[str, Any]
    settings: ExecutorSettings
    folder: Path
    secret: str
    charges: bool
    repeats: bool = False


OPEN = "Ray requires no token, so anyone who reaches its ports can run programs and read checkpoints"


def _python(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    found, own = facts["python"], expected.own["python"]
    if found == own:
        return "same", None
    what, fix = f"Python is {found}, and {own} on the driver", "Install the same Python on every machine."
    return found, NodeProblem(code="node-version", node=node.name, what=what, fix=fix)


def _versions(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    differ = {
        name: version or "missing"
        for name, version in facts["versions"].items()
        if version != expected.own["versions"][name]
    }
    if not differ:
        return "same", None
    told = ", ".join(
        f"{name} is {found}, and {expected.own['versions'][name]} on the driver" for name, found in differ.items()
    )
    fix = "Install the same versions on every machine (`pip install -c constraints.txt`)."
    return "OTHER", NodeProblem(code="node-version", node=node.name, what=told, fix=fix)


def _code(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    missing = [name for name, found in facts["code"].items() if not found]
    if missing:
        what = f"dp-tuner's code is missing ({', '.join(missing)})"
        fix = "Install the driver's wheel on that machine, in the Python that runs Ray."
        return "MISSING", NodeProblem(code="node-code-missing", node=node.name, what=what, fix=fix)
    other = [name for name, found in facts["code"].items() if found != expected.own["code"][name]]
    if other:
        what = f"dp-tuner's code differs from the driver's ({', '.join(other)})"
        fix = "Install the same wheel on every machine."
        return "OTHER", NodeProblem(code="node-code-differs", node=node.name, what=what, fix=fix)
    return "same", None


def _modules(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    found: Mapping[str, str] = facts["modules"]
    missing = [name for name, digest in found.items() if not digest]
    if missing:
        what = f"your own code is missing ({', '.join(missing)})"
        fix = f"Copy your code to {Path.cwd()} on that machine, or install it as a package."
        return "MISSING", NodeProblem(code="node-module", node=node.name, what=what, fix=fix)
    other = [name for name, digest in found.items() if digest != expected.own["modules"][name]]
    if other:
        what = f"your own code differs from the driver's ({', '.join(other)})"
        return "OTHER", NodeProblem(code="node-module", node=node.name, what=what, fix=_COPY)
    return ("same" if found else "-"), None


def _data(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    found: Mapping[str, str] = facts["files"]
    missing = [path for path, digest in found.items() if not digest]
    if missing:
        what, fix = (
            f"{missing[0]} is missing or cannot be read",
            "Copy the file to that machine, or put the data on the shared storage.",
        )
        return "MISSING", NodeProblem(code="node-data", node=node.name, what=what, fix=fix)
    other = [path for path, digest in found.items() if digest != expected.own["files"][path]]
    if other:
        what = f"the content of {other[0]} differs from the driver's"
        return "OTHER", NodeProblem(code="node-data", node=node.name, what=what, fix=_COPY)
    return ("same" if found else "-"), None


def _storage(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    found, folder, what = facts["storage"], expected.folder.parent, ""
    if found["read"] != expected.secret:
        what = f"the machine does not see what the driver writes into {folder} ({found['error'] or 'other content'})"
    elif found["error"]:
        what = f"the machine cannot write into {folder} ({found['error']})"
    elif not _seen(expected.folder / found["name"], found["wrote"]):
        what = f"the driver does not see what the machine writes into {folder}"
    if not what:
        return "shared", None
    fix = "`storage` must be a folder that every machine mounts at the same path, for the same account (NFS, EFS)."
    return "NOT SHARED", NodeProblem(code="storage-not-shared", node=node.name, what=what, fix=fix)


def _seen(path: Path, text: str) -> bool:
    """Return whether a file has this text, within the time that a network file system may take."""
    until = time.monotonic() + _SEEN_WITHIN
    while True:
        with contextlib.suppress(OSError):
            if path.read_text("utf-8") == text:
                return True
        if time.monotonic() > until:
            return False
        time.sleep(0.1)


def _disk(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    free = int(facts["storage"]["free"])
    if free >= _DISK or not free:  # it is 0 if the storage is not there, which is another problem
        return size(free), None
    what = f"{expected.folder.parent} has {size(free)} of free space, but needs {size(_DISK)}"
    return f"{size(free)}!", NodeProblem(code="node-disk", node=node.name, what=what, fix="Free space there.")


def _memory(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    free = int(facts["memory"])
    settings = expected.settings
    trials = min(node.slots, settings.concurrent_trials * settings.workers_per_trial)
    if free >= trials * _MEMORY_PER_TRIAL or not free:  # 0 where the system does not say
        return size(free), None
    what = f"{size(free)} of memory are free, but {trials} concurrent trials need {size(trials * _MEMORY_PER_TRIAL)}"
    fix = "Lower `resources.concurrent_trials`, raise `resources.cpus_per_trial`, or use a larger machine."
    return f"{size(free)}!", NodeProblem(code="node-memory", node=node.name, what=what, fix=fix)


def _gpu(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    if not expected.settings.gpus_per_trial:
        return "-", None
    if facts["gpus"]:
        return "; ".join(facts["gpus"]), None
    what = "Ray counts a GPU there, but nvidia-smi shows none"
    fix = "Install NVIDIA's driver on that machine, or start Ray there with --num-gpus=0."
    return "NONE", NodeProblem(code="node-gpu", node=node.name, what=what, fix=fix)


def _clock(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    at_least, at_most = node.offset
    if at_least <= _CLOCK and at_most >= -_CLOCK:
        return "ok", None
    lead = at_least if at_least > 0 else at_most
    what = f"the clock is {abs(lead):.0f} seconds {'ahead of' if lead > 0 else 'behind'} the driver's"
    fix = "Let every machine set its clock by NTP."
    return f"{lead:+.0f} s", NodeProblem(code="node-clock", node=node.name, what=what, fix=fix)


def _token(expected: Expected, node: Node, facts: Mapping[str, Any]) -> Judged:
    if facts["token"] != "disabled":
        return "token", None
    if not expected.charges:
        return "OPEN", None
    ports = f" (ports {', '.join(map(str, facts['ports']))})" if facts["ports"] else ""
    fix = "Checkpoints contain the key of the noise. Start Ray everywhere with RAY_AUTH_MODE=token and the same token."
    return "OPEN", NodeProblem(code="cluster-open", node=node.name, what=f"{OPEN}{ports}", fix=fix)


FACTS: Mapping[str, Callable[[Expected, Node, Mapping[str, Any]], Judged]] = {
    "python": _python,
    "versions": _versions,
    "code": _code,
    "modules": _modules,
    "data": _data,
    "storage": _storage,
    "disk": _disk,
    "memory": _memory,
    "gpu": _gpu,
    "clock": _clock,
    "token": _token,
}
"""Functions that judge one fact of a machine, by their column of the table."""

EVERYWHERE = ("token",)
"""What is judged of machines that run no trial too, such as the head."""


def problem_of_silence(node: Node) -> NodeProblem:
    """Return the problem of a machine that did not answer."""
    fix = (
        "`ray status` shows the machine's state, and its log is in /tmp/ray. Fix the machine, or remove it from the "
        "cluster."
    )
    return NodeProblem(code="node-silent", node=node.name, what=f"no answer: {node.silence}", fix=fix)


def problem_of_import(node: Node, module: str, why: str) -> NodeProblem:
    """Return the problem of a module that a machine cannot import, or of a GPU that its torch does not find."""
    if module == "torch.cuda":
        fix = "Install a version of torch that works with NVIDIA's driver on that machine."
        return NodeProblem(code="node-gpu", node=node.name, what=why, fix=fix)
    what = f"{module} cannot be imported ({why})"
    return NodeProblem(
        code="node-import", node=node.name, what=what, fix="Install what the module needs on that machine."
    )


def size(number: int) -> str:
    """Return a number of bytes as text."""
    return f"{number / _GIB:.1f} GiB"
