"""How workers pay on a cluster: through one actor beside the driver, for only there the ledger's file can be opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner.executors.base import Charge

__all__ = ["ActorCharge", "start_cashier"]


class Cashier:
    """The actor: charges the ledger for whoever asks, one request at a time."""

    def __init__(self) -> None:
        self._charges: dict[str, Charge] = {}

    def lease(self, trial_id: str, charge: Charge, steps: int) -> None:
        """Charge `steps` to the trial durably."""
        self._charges.setdefault(trial_id, charge).lease(steps)

    def leased(self, trial_id: str, charge: Charge) -> int:
        """Steps charged to the trial so far."""
        return self._charges.setdefault(trial_id, charge).leased()

    def restarts(self, trial_id: str, charge: Charge) -> int:
        """How often the trial was cut off after it had leased."""
        return self._charges.setdefault(trial_id, charge).restarts()

    def release(self, trial_id: str, charge: Charge, count: int) -> None:
        """Charge `count` protected scores to the trial durably."""
        self._charges.setdefault(trial_id, charge).release(count)

    def released(self, trial_id: str, charge: Charge) -> int:
        """Protected scores charged to the trial so far."""
        return self._charges.setdefault(trial_id, charge).released()


@dataclass(frozen=True)
class ActorCharge:
    """A `Charge` that works from any machine of the cluster: it asks the cashier.

    A reply that is lost over-counts by that request and never under-counts, for it is not sent twice.

    Attributes:
        cashier: the actor's name.
        namespace: the actor's namespace.
        trial_id: who pays.
        charge: what the cashier does it with, for example `tuner.privacy.ledger.search_budget.LedgerCharge`.
    """

    cashier: str
    namespace: str
    trial_id: str
    charge: Charge

    def lease(self, steps: int) -> None:
        """Charge `steps`; returns once they are durable.

        Raises:
            tuner.errors.TunerError: what the ledger raised.
        """
        self._ask("lease", steps)

    def leased(self) -> int:
        """Steps charged so far."""
        return int(self._ask("leased"))

    def restarts(self) -> int:
        """How often the trial was cut off after it had leased."""
        return int(self._ask("restarts"))

    def release(self, count: int = 1) -> None:
        """Charge `count` protected scores; returns once they are durable.

        Raises:
            tuner.errors.TunerError: what the ledger raised.
        """
        self._ask("release", count)

    def released(self) -> int:
        """Protected scores charged so far."""
        return int(self._ask("released"))

    def _ask(self, method: str, *arguments: int) -> Any:  # noqa: ANN401 - either method's answer
        actor = ray.get_actor(self.cashier, namespace=self.namespace)
        try:
            return ray.get(getattr(actor, method).remote(self.trial_id, self.charge, *arguments))
        except ray.exceptions.RayTaskError as error:
            # What the ledger said, as it said it; Ray's wrapper hides the class that callers look for.
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise


def start_cashier(name: str, namespace: str) -> ray.actor.ActorHandle:
    """Start the cashier on this machine. It ends with the driver, so a dead driver's workers can charge nothing."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    # Restarted when it dies; a request that was under way is not repeated (max_task_retries=0): it may have charged.
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": here}
    return ray.remote(Cashier).options(name=name, namespace=namespace, **options).remote()
