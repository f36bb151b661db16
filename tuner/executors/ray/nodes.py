"""Questions to every machine of a Ray cluster, in parallel and with a time limit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner.executors.base import ExecutorSettings
from tuner.executors.ray import machine
from tuner.executors.ray.session import ray_session

__all__ = ["Node", "ask_nodes"]

_HURRY = 6.0
"""Seconds after which a machine that has not answered is no longer waited for, if another problem is known."""

_PATIENCE = 180.0
"""Seconds within which every machine must answer. A machine may have to read Ray and torch from a cold disk."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Machine of a cluster, and its answers.

    Attributes:
        name: its name in the cluster, for messages. It is unique.
        may_run: whether it is large enough for one trial.
        slots: how many trials of this size fit on it.
        facts: the answer of `machine.gather`; empty if it did not answer.
        failed: the answer of `machine.load`; None if it did not answer or was not asked.
        offset: bounds of its clock's lead over the driver's clock, in seconds.
        silence: why it did not answer, or "".
    """

    id: str
    name: str
    may_run: bool
    slots: int = 0
    facts: Mapping[str, Any] | None = None
    failed: Sequence[tuple[str, str]] | None = None
    offset: tuple[float, float] = (0.0, 0.0)
    silence: str = ""


def ask_nodes(
    settings: ExecutorSettings,
    question: Mapping[str, Any],
    objects: Sequence[tuple[str, str]],
    *,
    trouble: Callable[[Node], bool],
) -> list[Node]:
    """Join the cluster, ask every machine for its facts and to import `objects`, and leave the cluster.

    Args:
        settings: the cluster's address, and the resources of one trial.
        question: question to `machine.gather`.
        objects: objects for `machine.load`. Machines that may run trials are asked to import them, which takes seconds,
            if no machine has another problem.
        trouble: whether the facts of a machine are a problem. Then the answers of the others are not waited for long.

    Raises:
        tuner.errors.InputError: the cluster cannot be joined.
    """
    with ray_session(settings), _sent_as_source():
        nodes = _alive(settings)
        nodes = _answers(nodes, machine.gather, question, _with_facts, trouble)
        if any(node.silence or trouble(node) for node in nodes):
            return nodes
        loading = {"objects": objects, "gpus": question["gpus"]}
        idle = [node for node in nodes if not node.may_run]
        asked = [node for node in nodes if node.may_run]
        return idle + _answers(asked, machine.load, loading, _with_imports, lambda node: bool(node.failed))


def _answers(
    nodes: Sequence[Node],
    function: Callable[..., Any],
    question: Mapping[str, Any],
    take: Callable[[Node, Any, float], Node],
    trouble: Callable[[Node], bool],
) -> list[Node]:
    """Run a function on every machine, and return the machines with the answers that `take` puts into them."""
    begun, hurry = time.time(), False
    known = {node.id: node for node in nodes}
    pending = {_on(node, function).remote(question): node.id for node in nodes}
    while pending and time.time() - begun < (_HURRY if hurry else _PATIENCE):
        ready, _ = ray.wait(list(pending), timeout=0.2)
        for reference in ready:
            node_id = pending.pop(reference)
            try:
                node = take(known[node_id], ray.get(reference), begun)
            except Exception as error:  # noqa: BLE001 - a worker that died, or a Python that cannot read our function
                lines = str(error).strip().splitlines() or [type(error).__name__]
                node = replace(known[node_id], silence=lines[-1][:300])
            known[node_id] = node
            hurry = hurry or bool(node.silence) or trouble(node)
    for reference, node_id in pending.items():
        ray.cancel(reference, force=True)
        if not hurry:
            known[node_id] = replace(known[node_id], silence=f"the machine did not answer within {_PATIENCE:g} seconds")
    return list(known.values())


def _with_facts(node: Node, facts: Mapping[str, Any], begun: float) -> Node:
    # It began after it was asked and ended before it answered, so its clock leads by at least and at most this much.
    return replace(node, facts=facts, offset=(facts["ended"] - time.time(), facts["began"] - begun))


def _with_imports(node: Node, failed: Sequence[tuple[str, str]], _begun: float) -> Node:
    return replace(node, failed=failed)


def _on(node: Node, function: Callable[..., Any]) -> Any:  # noqa: ANN401 - Ray has no types
    where = NodeAffinitySchedulingStrategy(node.id, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=where)


def _alive(settings: ExecutorSettings) -> list[Node]:
    """Return the machines that are alive, with names that differ."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    labels = [_label(node) for node in alive]
    return [
        Node(
            id=node["NodeID"],
            name=label if labels.count(label) == 1 else f"{label} ({node['NodeID'][:8]})",
            may_run=(slots := _slots(node["Resources"], settings)) > 0,
            slots=slots,
        )
        for node, label in zip(alive, labels, strict=True)
    ]


def _label(node: Mapping[str, Any]) -> str:
    """Return the name given to `ray start --node-name`, or the host's name."""
    named, address = str(node.get("NodeName", "")), str(node["NodeManagerAddress"])
    return named if named and named != address else str(node.get("NodeManagerHostname") or address)


def _slots(resources: Mapping[str, float], settings: ExecutorSettings) -> int:
    """Return how many workers of trials a machine can hold."""
    needs = settings.of_worker
    return int(min((resources.get(name, 0.0) / need for name, need in needs.items() if need > 0), default=1.0))


@contextlib.contextmanager
def _sent_as_source() -> Iterator[None]:
    """Let Ray send the functions of `machine` as code, so that a machine without our code can run them."""
    ray.cloudpickle.register_pickle_by_value(machine)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(machine)
