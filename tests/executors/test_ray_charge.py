"""The cashier: steps and protected scores of a trial are charged in one place, and a refusal arrives as it was said."""

from __future__ import annotations

import pytest

from tuner.errors import BudgetRefusedError
from tuner.executors.base import NoCharge
from tuner.executors.ray.charge import ActorCharge, start_cashier


class Limited(NoCharge):
    """Refuses a third score."""

    def release(self, count: int = 1) -> None:
        if self.released() + count > 2:
            raise BudgetRefusedError("two scores a trial, and no more")
        super().release(count)


@pytest.mark.usefixtures("ray_two_slots")
def test_steps_and_scores_are_charged_where_the_ledger_is() -> None:
    import ray

    namespace = ray.get_runtime_context().namespace
    cashier = start_cashier("cashier-of-this-test", namespace)
    first, second = (ActorCharge("cashier-of-this-test", namespace, trial, Limited()) for trial in ("a", "b"))
    first.lease(5)
    first.release()
    second.release(2)
    assert [(each.leased(), each.released()) for each in (first, second)] == [(5, 1), (0, 2)]
    with pytest.raises(BudgetRefusedError, match="two scores a trial"):
        second.release()
    assert second.released() == 2
    ray.kill(cashier)
