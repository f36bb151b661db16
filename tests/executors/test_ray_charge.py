"""The charge actor: steps and scores of a trial are charged in one place, and a refusal arrives unchanged."""

from __future__ import annotations

import pytest

from trainables.charge import NoCharge
from tuner.errors import BudgetRefusedError
from tuner.executors.ray.charge import ActorCharge, start_charge_actor


class Limited(NoCharge):
    """Refuses a third score."""

    def release(self, count: int = 1, *, noise: float) -> None:
        if self.released() + count > 2:
            raise BudgetRefusedError("cap-exceeded", "Two scores a trial, and no more.")
        super().release(count, noise=noise)


@pytest.mark.usefixtures("ray_two_slots")
def test_steps_and_scores_are_charged_where_the_ledger_is() -> None:
    import ray

    namespace = ray.get_runtime_context().namespace
    actor = start_charge_actor("actor-of-this-test", namespace)
    charge = ray.cloudpickle.dumps(Limited())
    first, second = (ActorCharge("actor-of-this-test", namespace, trial, charge) for trial in ("a", "b"))
    first.lease(5, sample_rate=0.5, noise_multiplier=1.0)
    first.release(noise=3.0)
    second.release(2, noise=3.0)
    assert [(each.leased(), each.released()) for each in (first, second)] == [(5, 1), (0, 2)]
    with pytest.raises(BudgetRefusedError) as refused:  # the actor's process does not know the tests' helpers
        second.release(noise=3.0)
    assert refused.value.code == "cap-exceeded"
    assert second.released() == 2
    ray.kill(actor)
