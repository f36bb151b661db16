"""Charging of trials on a Ray cluster. An actor on the driver's machine charges the ledger for all workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.charge import Charge
from trainables.errors import InfrastructureError

__all__ = ["ActorCharge", "start_charge_actor"]

_BACK_WITHIN = 60.0
"""Seconds within which an actor that died must answer again."""

_PAUSE = 0.2


class ChargeActor:
    """Actor that charges the ledger for all trials, one request at a time."""

    def __init__(self) -> None:
        self._charges: dict[str, Charge] = {}

    def ask(self, trial_id: str, charge: bytes, method: str, *arguments: int | dict[str, int], **named: float) -> Any:  # noqa: ANN401 - its answer
        """Call a method of the trial's `Charge` and return the result.

        The first call for a trial stores its pickled `charge`, which opens the ledger. Later calls use that object.
        """
        if trial_id not in self._charges:
            self._charges[trial_id] = cloudpickle.loads(charge)
        return getattr(self._charges[trial_id], method)(*arguments, **named)


@dataclass(frozen=True)
class ActorCharge:
    """`Charge` for workers on any machine of the cluster. It forwards every call to the charge actor.

    No request is sent twice: one that was cut off may have been charged, and the ledger cannot tell by whom. The trial
    is then lost, as if its worker had died, and continues from its checkpoint, with new charges for what it repeats.

    Attributes:
        actor: name of the actor.
        charge: the pickled object that the actor calls, for example a
            `tuner.privacy.ledger.search_budget.LedgerCharge`. Workers only pass it on, and do not load the ledger's
            code.
    """

    actor: str
    namespace: str
    trial_id: str
    charge: bytes

    then: ClassVar[str] = "The trials continue from their last checkpoints."

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Charge `steps` durably before this method returns. Errors of the ledger are raised here.

        Raises:
            InfrastructureError: the actor died.
        """
        self._ask("lease", steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier)

    def leased(self) -> int:
        """Return how many steps were charged so far."""
        return self._read("leased")

    def restarts(self) -> int:
        """Return how often the trial was interrupted after its first lease."""
        return self._read("restarts")

    def release(self, count: int = 1, *, noise: float) -> None:
        """Charge `count` protected scores durably before this method returns. Errors of the ledger are raised here.

        Raises:
            InfrastructureError: the actor died.
        """
        self._ask("release", count, noise=noise)

    def released(self) -> int:
        """Return how many protected scores were charged so far."""
        return self._read("released")

    def _read(self, method: str) -> int:
        """Return a count of the ledger. Ray starts an actor that died again, and this waits for it up to a minute."""
        until = time.monotonic() + _BACK_WITHIN
        while True:
            try:
                return int(self._ask(method))
            except InfrastructureError:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def _ask(self, method: str, *arguments: int | dict[str, int], **named: float) -> Any:  # noqa: ANN401 - the method's answer
        actor = ray.get_actor(self.actor, namespace=self.namespace)
        try:
            return ray.get(actor.ask.remote(self.trial_id, self.charge, method, *arguments, **named))
        except ray.exceptions.RayTaskError as error:
            # Callers need the class of the ledger's error, which Ray's wrapper hides.
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
        except ray.exceptions.RayActorError as error:
            raise InfrastructureError(
                "charge-actor-lost",
                f"The process that charges the ledger died. {self.then}",
            ) from error


def start_charge_actor(name: str, namespace: str) -> ray.actor.ActorHandle:
    """Start the charge actor on this machine.

    The actor ends with the driver's process. After that, remaining workers cannot charge anything.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    # The actor restarts after a crash. Ray must not repeat an interrupted request, because it may have been charged.
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": here}
    return ray.remote(ChargeActor).options(name=name, namespace=namespace, **options).remote()
