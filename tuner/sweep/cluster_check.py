"""Check of a cluster's machines before a search is charged, and for `tune doctor --address`.

Every machine answers the same question as this one (`tuner.executors.ray.machine`), and the answers are compared. What
is wrong is found here, because after the charge it would cost privacy: a machine without the storage would train a
model that nobody sees, and one with other code would take steps that nobody planned.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.spaces import is_own_method
from trainables.data import data_folder, info
from trainables.data.files import locate
from tuner.errors import ClusterError, NodeProblem
from tuner.sweep.cluster_facts import EVERYWHERE, FACTS, OPEN, Expected, problem_of_import, problem_of_silence, size
from tuner.sweep.folder import storage_unwritable
from tuner.sweep.own_machine import CODE

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.executors.base import ExecutorSettings
    from tuner.executors.ray.nodes import Node
    from tuner.sweep.preflight import ReadySearch

__all__ = ["CheckedCluster", "check_cluster", "require_cluster"]

_CODE_PROBLEMS = ("node-code-missing", "node-code-differs", "node-module", "node-version")
_VERSIONS = ("ray", "torch", "opacus", "numpy")


@dataclass(frozen=True)
class CheckedCluster:
    """Result of the check.

    Attributes:
        table: the machines and what was found on each, as text for a terminal.
        problems: what must be fixed before a search; empty if nothing.
        warnings: what should be known, one line each.
        machines: the rows of the table as values for JSON.
    """

    table: str
    problems: tuple[NodeProblem, ...]
    warnings: tuple[str, ...]
    machines: tuple[Mapping[str, str], ...]

    @property
    def exit_code(self) -> int:
        """The exit code of a command that only checks: that of a ClusterError if there are problems."""
        return ClusterError.exit_code if self.problems else 0

    def require(self) -> None:
        """Raise a ClusterError if there are problems."""
        if self.problems:
            raise ClusterError(self.problems, self.table)


def require_cluster(prepared: ReadySearch, address: str) -> str:
    """Check the cluster of a search that is about to start or to resume, and return what to tell the user.

    Raises:
        InputError: the cluster cannot be joined, or a machine cannot run the search's trials. Nothing was charged.
    """
    checked = check_cluster(address, prepared, storage=prepared.experiment.storage)
    checked.require()
    many = len(checked.machines) - 1
    line = f"checked {many} machine{'' if many == 1 else 's'} of the cluster at {address}: no problem found"
    return "\n".join((line, *checked.warnings))


def check_cluster(address: str, prepared: ReadySearch | None, *, storage: str) -> CheckedCluster:
    """Ask every machine of a cluster, and compare it with this one.

    Args:
        address: address of the cluster.
        prepared: the search that the machines must be able to run. Without one, its data, model and size are not asked
            about.
        storage: folder that all machines must share.

    Raises:
        InputError: the cluster cannot be joined, or the storage cannot be written here.
    """
    from tuner.executors.ray import machine
    from tuner.executors.ray.nodes import ask_nodes

    settings = _settings(address, prepared)
    with _nonce(Path(storage)) as (folder, nonce, secret):
        question = {
            "versions": _VERSIONS if prepared is None else (*_VERSIONS, "scikit-learn"),
            "code": CODE,
            "modules": [module for module, _ in _own_objects(prepared)],
            "files": _files(prepared),
            "salt": secrets.token_hex(16),
            "storage": str(folder),
            "nonce": nonce,
            "gpus": settings.gpus_per_trial > 0,
        }
        charges = prepared is None or prepared.plan.private
        repeats = prepared is not None and prepared.plan.mode.runs_hidden
        own = machine.gather(question)
        expected = Expected(own=own, settings=settings, folder=folder, secret=secret, charges=charges, repeats=repeats)
        check = _Check(expected)
        objects = [("trainables.training", ""), *_own_objects(prepared)]
        nodes = ask_nodes(settings, question, objects, trouble=lambda node: bool(check.of(node)))
        return check.result(nodes)


def _settings(address: str, prepared: ReadySearch | None) -> ExecutorSettings:
    from tuner.executors.base import ExecutorSettings

    if prepared is None:
        return ExecutorSettings(address=address)
    resources = prepared.experiment.resources
    return ExecutorSettings(
        concurrent_trials=resources.concurrent_trials,
        cpus_per_trial=resources.cpus_per_trial,
        gpus_per_trial=resources.gpus_per_trial,
        workers_per_trial=resources.workers_per_trial,
        address=address,
    )


def _own_objects(prepared: ReadySearch | None) -> list[tuple[str, str]]:
    """Return the module and the name of the user's own model and method."""
    if prepared is None:
        return []
    trainable = prepared.experiment.trainable
    named = [trainable.model] if ":" in trainable.model else []
    named += [trainable.method] if is_own_method(trainable.method) else []
    parts = [each.partition(":") for each in named]
    return [(module, name) for module, _, name in parts]


def _files(prepared: ReadySearch | None) -> list[str]:
    """Return the paths of all files that a trial reads: records, private and public, and public weights."""
    if prepared is None:
        return []
    experiment, requests = prepared.experiment, [prepared.request]
    if experiment.search.public is not None:
        requests.append(experiment.public_request(prepared.request.data_dir))
    paths = [str(path) for request in requests for path in _files_of(request)]
    start = experiment.trainable.start
    return [*dict.fromkeys(paths), *([] if start is None else [str(Path(start.path).absolute())])]


def _files_of(request: DatasetRequest) -> Sequence[Path]:
    known = info(request)
    if known.path is not None:
        return (Path(known.path),)
    return locate(known, data_folder(request.data_dir))[1] if known.forms else ()


@contextlib.contextmanager
def _nonce(storage: Path) -> Iterator[tuple[Path, str, str]]:
    """Write a random text into a new folder of the storage. Yield the folder, the file's name and the text."""
    folder, secret = storage.resolve() / f".preflight-{secrets.token_hex(8)}", secrets.token_hex(16)
    new = not storage.exists()
    try:
        folder.mkdir(parents=True, mode=0o700)
        (folder / "driver").touch(mode=0o600)
        (folder / "driver").write_text(secret)
    except OSError as error:
        raise storage_unwritable(storage, error) from error
    try:
        yield folder, "driver", secret
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):  # something else is in it by now
                folder.parent.rmdir()


@dataclass
class _Check:
    """Comparison of machines with this one."""

    expected: Expected
    _found: dict[str, list[NodeProblem]] = field(default_factory=dict)
    _cells: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, node: Node) -> list[NodeProblem]:
        """Return the problems of a machine that has answered, or []."""
        if node.facts is None:
            return []
        if node.id not in self._found:
            self._found[node.id], self._cells[node.id] = [], {}
            for column, judge in FACTS.items():
                if not node.may_run and column not in EVERYWHERE:
                    self._cells[node.id][column] = "-"
                    continue
                cell, problem = judge(self.expected, node, node.facts)
                self._cells[node.id][column] = cell
                self._found[node.id] += [] if problem is None else [problem]
        return self._found[node.id]

    def result(self, nodes: Sequence[Node]) -> CheckedCluster:
        """Return the table and all problems."""
        problems = self._mixed_gpus(nodes)
        rows = [self._driver()]
        for node in nodes:
            problems += self.of(node)
            if node.silence:
                problems.append(problem_of_silence(node))
            imported = ""
            if node.failed is not None:
                imported = "FAILS" if node.failed else "ok"
                if not any(problem.code in _CODE_PROBLEMS for problem in self.of(node)):  # the cause, if there is one
                    problems += [problem_of_import(node, module, why) for module, why in node.failed]
            cells = self._cells.get(node.id, {})
            trials = str(node.slots) if node.may_run else "none"
            shown = {column: cells.get(column, "?") for column in FACTS}
            rows.append({"machine": node.name, "trials": trials, **shown, "imports": imported or "-"})
        return CheckedCluster(_table(rows), tuple(problems), self._warnings(nodes), tuple(rows))

    def _mixed_gpus(self, nodes: Sequence[Node]) -> list[NodeProblem]:
        """Return a problem for each machine with another kind of GPU than the first, if runs are repeated exactly."""
        if not (self.expected.repeats and self.expected.settings.gpus_per_trial):
            return []
        kinds = {
            node.name: " and ".join(sorted({gpu.partition(",")[0] for gpu in node.facts["gpus"]}))
            for node in nodes
            if node.may_run and node.facts is not None and node.facts["gpus"]
        }
        first, kind = next(iter(kinds.items()), ("", ""))
        what = "{} here, {} on {}: a run of a sealed search that is cut off is repeated only on the same kind of GPU"
        fix = "Use machines with one kind of GPU."
        return [
            NodeProblem(code="node-gpu-differs", node=name, what=what.format(other, kind, first), fix=fix)
            for name, other in kinds.items()
            if other != kind
        ]

    def _driver(self) -> dict[str, str]:
        own = self.expected.own
        shown = {
            "python": own["python"],
            "versions": " ".join(f"{name} {own['versions'][name]}" for name in ("ray", "torch")),
            "code": _short(own["code"]),
            "modules": _short(own["modules"]),
            "data": str(len(own["files"])),
            "storage": "shared?",
            "disk": size(own["storage"]["free"]),
            "memory": size(own["memory"]),
            "gpu": "-",
            "clock": "-",
            "token": "-",
        }
        return {"machine": f"{own['host']} (driver)", "trials": "-", **shown, "imports": "-"}

    def _warnings(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        warnings = []
        if not any(node.may_run for node in nodes):
            warnings.append(
                "No machine of the cluster can run a trial now. Trials wait until such a machine joins. This "
                "check does not cover machines that join later, so check the cluster again then."
            )
        unheard = [node.name for node in nodes if node.facts is None and not node.silence]
        if unheard:
            warnings.append(f"{', '.join(unheard)}: no answer was waited for, because another machine has a problem.")
        opened = [node.name for node in nodes if node.facts is not None and node.facts["token"] == "disabled"]
        if opened and not self.expected.charges:
            warnings.append(f"{OPEN} ({', '.join(opened)}). A private search is refused on this cluster.")
        return tuple(f"warning: {line}" for line in warnings)


def _short(digests: Mapping[str, str]) -> str:
    return " ".join(digest[:6] for digest in digests.values()) or "-"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the rows as text, with a heading and aligned columns. Columns that say nothing are left out."""
    columns = [name for name in rows[0] if any(row[name] != "-" for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    lines = [{name: name for name in columns}, *rows]
    return "\n".join("  ".join(line[name].ljust(widths[name]) for name in columns).rstrip() for line in lines)
