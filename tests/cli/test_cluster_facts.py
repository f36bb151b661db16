"""What is judged of a machine's facts: each fault alone is one problem, with its own code and the machine's name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.executors.base import ExecutorSettings
from tuner.executors.ray import machine
from tuner.executors.ray.nodes import Node
from tuner.sweep import cluster_facts
from tuner.sweep.cluster_check import _Check, _nonce
from tuner.sweep.cluster_facts import Expected

GIB = 1 << 30
QUESTION = {
    "versions": ["ray", "torch"],
    "code": ["search_spaces"],
    "modules": ["errors_helper"],
    "salt": "salt",
    "gpus": False,
}


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Expected]:
    """What this machine answers about itself, as if a search ran two trials at once."""
    monkeypatch.setattr(cluster_facts, "_SEEN_WITHIN", 0.0)
    (tmp_path / "data").write_text("records")
    with _nonce(tmp_path / "runs") as (folder, nonce, secret):
        question = {**QUESTION, "files": [str(tmp_path / "data")], "storage": str(folder), "nonce": nonce}
        own = {**machine.gather(question), "token": "token", "memory": 8 * GIB}
        own["storage"] = {**own["storage"], "free": 8 * GIB}
        yield Expected(
            own=own,
            settings=ExecutorSettings(concurrent_trials=2, gpus_per_trial=0),
            folder=folder,
            secret=secret,
            charges=True,
        )
    assert not (tmp_path / "runs").exists(), "the check leaves nothing behind"


def judged(expected: Expected, change: dict[str, Any], **node: Any) -> list[str]:  # noqa: ANN401 - any field of a node
    facts = copy.deepcopy(dict(expected.own))
    for key, value in change.items():
        facts[key] = {**facts[key], **value} if isinstance(value, dict) else value
    fields = {"may_run": True, "slots": 4, "facts": facts, "failed": [], **node}
    checked = _Check(expected).result([Node(id="1", name="machine-1", **fields)])
    assert all(problem.node == "machine-1" for problem in checked.problems)
    assert checked.exit_code == (2 if checked.problems else 0)
    return [problem.code for problem in checked.problems]


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "nothing": ({}, {}, []),
    "another Python": ({"python": "3.10.0"}, {}, ["node-version"]),
    "another torch": ({"versions": {"torch": "1.0"}}, {}, ["node-version"]),
    "no Ray": ({"versions": {"ray": ""}}, {}, ["node-version"]),
    "no code": ({"code": {"search_spaces": ""}}, {}, ["node-code-missing"]),
    "other code": ({"code": {"search_spaces": "0"}}, {}, ["node-code-differs"]),
    "no model": ({"modules": {"errors_helper": ""}}, {}, ["node-module"]),
    "another model": ({"modules": {"errors_helper": "0"}}, {}, ["node-module"]),
    "storage that it does not see": ({"storage": {"read": "", "error": "No such file"}}, {}, ["storage-not-shared"]),
    "storage of another cluster": ({"storage": {"read": "other"}}, {}, ["storage-not-shared"]),
    "storage that it cannot write": ({"storage": {"error": "Permission denied"}}, {}, ["storage-not-shared"]),
    "storage that is not seen back": ({"storage": {"name": "node-elsewhere"}}, {}, ["storage-not-shared"]),
    "storage with another answer": ({"storage": {"wrote": "other"}}, {}, ["storage-not-shared"]),
    "a full disk": ({"storage": {"free": GIB // 2}}, {}, ["node-disk"]),
    "too little memory": ({"memory": GIB // 2}, {}, ["node-memory"]),
    "memory for the one trial that fits": ({"memory": GIB // 2}, {"slots": 1}, []),
    "no token": ({"token": "disabled"}, {}, ["cluster-open"]),
    "a clock ahead": ({}, {"offset": (6.0, 9.0)}, ["node-clock"]),
    "a clock behind": ({}, {"offset": (-9.0, -6.0)}, ["node-clock"]),
    "a clock that may be right": ({}, {"offset": (-9.0, 0.5)}, []),
    "no answer": ({}, {"facts": None, "failed": None, "silence": "it did not answer"}, ["node-silent"]),
    "a module that fails": ({}, {"failed": [("own", "ImportError: x")]}, ["node-import"]),
    "a module that fails for want of the code": (
        {"code": {"search_spaces": ""}},
        {"failed": [("own", "ImportError: search_spaces")]},
        ["node-code-missing"],
    ),
    "two faults": ({"token": "disabled", "memory": 1}, {}, ["node-memory", "cluster-open"]),
    "a head that runs no trial": ({"memory": 1, "code": {"search_spaces": ""}}, {"may_run": False}, []),
    "a head without a token": ({"token": "disabled"}, {"may_run": False}, ["cluster-open"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_one_problem(expected: Expected, fault: str) -> None:
    change, node, codes = FAULTS[fault]
    assert judged(expected, change, **node) == codes


def test_data_are_compared_without_a_checksum_that_could_be_kept(expected: Expected, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    for found in ("", "0"):
        assert judged(expected, {"files": {path: found}}) == ["node-data"]
    again = machine.gather({**QUESTION, "files": [path], "storage": "", "nonce": "", "salt": "another"})
    assert again["files"] != expected.own["files"], "another check has another answer about the same records"


def test_a_search_without_privacy_is_only_warned_of_an_open_cluster(expected: Expected) -> None:
    public = Expected(**{**vars(expected), "charges": False})
    facts = {**expected.own, "token": "disabled"}
    checked = _Check(public).result([Node(id="1", name="machine-1", may_run=True, slots=1, facts=facts, failed=[])])
    assert checked.problems == ()
    assert "machine-1" in checked.warnings[0]


def test_a_machine_that_was_not_waited_for_is_named(expected: Expected) -> None:
    nodes = [
        Node(id="1", name="slow", may_run=True, slots=1),
        Node(id="2", name="gone", may_run=True, slots=1, silence="died"),
    ]
    (warning,) = _Check(expected).result(nodes).warnings
    assert "slow: no answer was waited for" in warning


def test_a_gpu_that_ray_counts_must_be_there(expected: Expected) -> None:
    wanted = Expected(**{**vars(expected), "settings": ExecutorSettings(gpus_per_trial=1)})
    assert judged(wanted, {}) == ["node-gpu"]
    assert judged(wanted, {"gpus": ["NVIDIA H100, 80000 MiB"]}) == []
    assert judged(wanted, {"gpus": ["NVIDIA H100, 80000 MiB"]}, failed=[("torch.cuda", "none")]) == ["node-gpu"]


def test_a_sealed_search_needs_one_kind_of_gpu(expected: Expected) -> None:
    found = {"gpus": ["NVIDIA H100, 80000 MiB"]}, {"gpus": ["NVIDIA H100, 70000 MiB"]}, {"gpus": ["NVIDIA L4, 1 MiB"]}
    nodes = [
        Node(id=str(n), name=f"machine-{n}", may_run=True, slots=1, facts={**expected.own, **facts}, failed=[])
        for n, facts in enumerate(found)
    ]
    for repeats in (True, False):
        changed = {"settings": ExecutorSettings(gpus_per_trial=1), "repeats": repeats}
        problems = _Check(Expected(**{**vars(expected), **changed})).result(nodes).problems
        assert [(problem.code, problem.node) for problem in problems] == [("node-gpu-differs", "machine-2")] * repeats
