"""A training that replays a recorded curve, and a charge and stores that fail as a schedule of faults says.

Everything else is the product's: driver, ledger, rungs, checkpoints with checksums. `World` counts the noise draws,
and shares that count with nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from search_spaces.domains import Suggest
from trainables.errors import InfrastructureError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.search_budget import LedgerCharge, SearchBudget
from tuner.study.types import Ask

RUNGS = (20, 40, 60)
STEPS = RUNGS[-1]
LEASE = 10
METRIC = "validation_accuracy"
MECHANISM = SampledGaussian(1.0, 60.0)  # without sampling, ε is quick to compose
SCORE_NOISE = 50.0


class DriverDied(BaseException):
    """The driver's process is killed here."""


class WorkerDied(KeyboardInterrupt):
    """A worker's process is killed here. The wall lets only this class of Python through, whatever a model raises."""


@cache
def recorded() -> tuple[tuple[float, ...], ...]:
    """Return the recorded curves: a learning rate, then the validation accuracy at each rung."""
    text = (Path(__file__).parent / "curves.json").read_text()
    return tuple(tuple(map(float, row)) for row in json.loads(text)["curves"])


class CurveSpace:
    """Space of one learning rate, which chooses a recorded curve."""

    def sample(self, suggest: Suggest) -> dict[str, object]:
        """Return the parameters of one trial."""
        return {"learning_rate": suggest.uniform("learning_rate", 0.001, 100.0, log=True)}


def curve_of(parameters: Mapping[str, object]) -> tuple[float, ...]:
    """Return the recorded scores of the next lower learning rate."""
    rate = float(str(parameters["learning_rate"]))
    return max((row for row in recorded() if row[0] <= rate), default=recorded()[0])[1:]


@dataclass
class World:
    """What the processes of a simulated sweep share: chance, the count of draws, and whether faults still happen.

    Attributes:
        rate: chance of a fault at each place where one can happen.
        flaw: a fault that is planted in the product, to see whether it is found; empty for none.
        draws: noise draws that began, by trial.
        score_draws: protected scores that were drawn, by trial.
        reached: the last step of any attempt, by trial; read by a planted flaw alone.
        seen: how often each kind of fault happened.
        broken: promises that were broken.
    """

    rng: random.Random
    rate: float
    flaw: str = ""
    quiet: bool = False
    draws: Counter[str] = field(default_factory=Counter)
    score_draws: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def strikes(self, kind: str, scale: float = 1.0) -> bool:
        """Return whether a fault happens here, and count it."""
        if self.quiet or self.rng.random() >= self.rate * scale:
            return False
        self.seen[kind] += 1
        return True


@dataclass(frozen=True)
class Replay:
    """Specification of a replayed trial."""

    world: World
    trial: str
    scores: Mapping[int, float]
    protected: bool
    raises_at: int = 0  # the training raises at this step; 0 for never


class ReplayedTraining:
    """Training whose steps draw nothing and are counted as draws, and whose scores were recorded."""

    learning_rate = 0.1

    def __init__(self, spec: Replay, charge: Any) -> None:  # noqa: ANN401 - a `trainables.charge.Charge`
        self.spec, self.charge, self.step = spec, charge, 0
        self.continued = False

    def run_to(self, step: int) -> None:
        """Lease and draw up to a step. The worker may die before a lease, after it, and between its draws."""
        world, trial = self.spec.world, self.spec.trial
        while self.step < step:
            if world.strikes("worker killed before a lease", 0.3):
                raise WorkerDied
            take = min(LEASE, step - self.step)
            repeats = self.continued and world.reached[trial] >= self.step + take
            if not (world.flaw == "repeated steps are free" and repeats):
                self.charge.lease(take, sample_rate=MECHANISM.sample_rate, noise_multiplier=MECHANISM.noise_multiplier)
            if world.strikes("worker killed after a lease", 0.3):
                raise WorkerDied
            for _ in range(take):
                world.draws[trial] += 1
                self.step += 1
                if self.step == self.spec.raises_at:
                    raise ValueError
                if world.strikes("worker killed between draws", 0.05):
                    raise WorkerDied
            world.reached[trial] = max(world.reached[trial], self.step)

    def evaluate(self, split: str = "validation") -> dict[str, float]:
        """Return the recorded score at this step."""
        if self.spec.protected:
            self.charge.release(1, noise=SCORE_NOISE)
            self.spec.world.score_draws[self.spec.trial] += 1
        if self.spec.world.strikes("worker killed after a score", 0.3):
            raise WorkerDied
        return {METRIC: self.spec.scores.get(self.step, 0.5)}

    def save(self, path: Path) -> None:
        """Write the step with its checksum, as `trainables.checkpoint` does."""
        if self.spec.world.strikes("worker killed before a checkpoint", 0.3):
            raise WorkerDied
        if self.spec.world.strikes("disk full at a checkpoint", 0.05):
            raise InfrastructureError("checkpoint-unwritable", "A checkpoint could not be written: the disk is full.")
        content = str(self.step).encode()
        path.write_bytes(content + hashlib.sha256(content).digest())

    def load(self, path: Path) -> None:
        """Continue from a saved step."""
        content = path.read_bytes()
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise InfrastructureError("checkpoint-damaged", "The checkpoint is damaged.")
        self.step = int(content[:-32])
        self.continued = True


class FailingCharge:
    """Charge whose actor may die before a charge is written, or after it and before its answer."""

    def __init__(self, world: World, charge: LedgerCharge) -> None:
        self._world, self._charge = world, charge

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Lease steps durably."""
        free = self._world.flaw == "a lease is not charged" and self._world.rng.random() < 0.1
        if not free:
            self._asked(lambda: self._charge.lease(steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier))

    def release(self, count: int = 1, *, noise: float) -> None:
        """Lease a score durably."""
        self._asked(lambda: self._charge.release(count, noise=noise))

    def leased(self) -> int:
        """Return the leased steps."""
        return self._charge.leased()

    def restarts(self) -> int:
        """Return the interruptions."""
        return self._charge.restarts()

    def released(self) -> int:
        """Return the leased scores."""
        return self._charge.released()

    def _asked(self, charge: Callable[[], None]) -> None:
        if self._world.strikes("charge lost before it was written", 0.2):
            raise InfrastructureError("charge-actor-lost", "The process that charges the ledger died.")
        charge()
        if self._world.strikes("charge written and its answer lost", 0.2):
            raise InfrastructureError("charge-actor-lost", "The process that charges the ledger died.")


class FailingBudget:
    """The driver's budget. The driver may die before and after each write to the ledger."""

    def __init__(self, world: World, budget: SearchBudget) -> None:
        self._world, self._budget = world, budget

    def fits(self, *asks: Ask) -> bool:
        """Return whether the asks fit."""
        return self._budget.fits(*asks)

    def outstanding(self) -> Mapping[str, Any]:
        """Return what is reserved and not leased."""
        return self._budget.outstanding()

    def reserve(self, trial: str, ask: Ask, *, rung: bool = False) -> None:
        """Reserve."""
        written(self._world, lambda: self._budget.reserve(trial, ask, rung=rung))

    def settle(self, trial: str, steps_taken: int) -> None:
        """Settle."""
        written(self._world, lambda: self._budget.settle(trial, steps_taken))

    def forfeit(self, trial: str, steps_taken: int, rungs: Sequence[int]) -> None:
        """Forfeit."""
        written(self._world, lambda: self._budget.forfeit(trial, steps_taken, rungs))


def written(world: World, write: Callable[[], Any]) -> Any:  # noqa: ANN401 - the write's answer
    """Do one durable write of the driver, which may die before it or after it."""
    if world.strikes("driver killed before a write", 0.1):
        raise DriverDied
    answer = write()
    if world.strikes("driver killed after a write", 0.1):
        raise DriverDied
    return answer


class FailingStorage(InMemoryStorage):
    """Optuna's storage, in memory and outliving the driver, which may die around each write.

    It notes a score that is told twice: a trial that ends a second time, or a second score at one step.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """End a trial."""
        if self.get_trial(trial_id).state.is_finished():
            self.world.broken.append(f"trial {trial_id} was told twice")
        return bool(
            written(self.world, lambda: super(FailingStorage, self).set_trial_state_values(trial_id, state, values))
        )

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Store the score of a rung."""
        if step in self.get_trial(trial_id).intermediate_values:
            self.world.broken.append(f"the score of trial {trial_id} at step {step} was told twice")
        write = super().set_trial_intermediate_value
        written(self.world, lambda: write(trial_id, step, intermediate_value))

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:  # noqa: ANN401 - as Optuna's
        """Store an attribute of a trial."""
        write = super().set_trial_user_attr
        written(self.world, lambda: write(trial_id, key, value))

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:  # noqa: ANN401 - as Optuna's
        """Store an attribute of the study."""
        write = super().set_study_user_attr
        written(self.world, lambda: write(study_id, key, value))

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:  # noqa: ANN401 - as Optuna's
        """Create a trial."""
        write = super().create_new_trial
        return int(written(self.world, lambda: write(study_id, template_trial)))
