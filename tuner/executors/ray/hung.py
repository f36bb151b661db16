"""Workers that hang: they neither die nor make progress. Progress is a lease of steps or a report of scores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from trainables.charge import Charge, NoCharge

__all__ = ["HungWorkers"]


@dataclass
class _Watched:
    """A trial's progress as it was last seen, and when it changed."""

    ray_id: str
    progress: tuple[int, int]
    since: float


class HungWorkers:
    """Finds workers without progress and kills them, so that their trials count as lost and start again.

    The start of a worker counts as a part of its time. A trial whose charge counts nothing (not private, or sealed)
    shows no progress between two reports, and is left alone.

    Args:
        limit: seconds without progress after which a worker is killed.
        clock: returns the time in seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._seen: dict[str, _Watched] = {}
        self._look_at = 0.0
        self.controller: Any = None  # Ray Tune's, once it has added a trial

    @property
    def due(self) -> bool:
        """Whether it is time to look. The ledger is read a few times in each limit, not more."""
        now = self._clock()
        if now < self._look_at:
            return False
        self._look_at = now + min(self._limit / 8, 30.0)
        return True

    def look(self, trial_id: str, ray_id: str, charge: Charge, reports: int) -> bool:
        """Look at a trial that has a worker, kill the worker if it hangs, and return whether it was killed."""
        actor = self._actor(ray_id)
        if isinstance(charge, NoCharge) or actor is None:  # Ray has no place for the trial yet
            self._seen.pop(trial_id, None)
            return False
        try:
            progress = (charge.leased() + charge.released(), reports)
        except Exception:  # noqa: BLE001 - a ledger that is out of reach says nothing about a worker
            return False
        seen, now = self._seen.get(trial_id), self._clock()
        if seen is None or (seen.ray_id, seen.progress) != (ray_id, progress):
            self._seen[trial_id] = _Watched(ray_id, progress, now)
            return False
        if now - seen.since <= self._limit:
            return False
        del self._seen[trial_id]
        ray.kill(actor)
        return True

    def _actor(self, ray_id: str) -> Any:  # noqa: ANN401 - a handle of Ray
        """Return the worker of a Ray trial. Ray Tune has no public way to it."""
        if self.controller is None:
            return None
        for trial, tracked in self.controller._trial_to_actor.items():
            if trial.trial_id == ray_id:
                found = self.controller._actor_manager._live_actors_to_ray_actors_resources.get(tracked)
                return None if found is None else found[0]
        return None
