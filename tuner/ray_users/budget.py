"""Budget of trials in your own `tune.Tuner`: one search in the ledger, and an actor that charges it.

A trial of Ray may run several times: after a pause, a lost worker, or when population-based training copies another
trial's checkpoint into it. Each run is a trial of its own in the ledger, which pays for the steps that it takes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import ray
from ray import cloudpickle

from trainables.data import info, is_own
from tuner.errors import BudgetRefusedError, InputError, TunerError
from tuner.executors.ray.charge import ActorCharge, start_charge_actor
from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.admission import require_name
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.search_budget import BudgetView, LedgerCharge, SearchBudget
from tuner.privacy.ledger.stores import require_folder
from tuner.sweep.identity import block_fingerprints, keyed_fingerprint, names_in_ledger, near_names, public_facts
from tuner.sweep.ledger_head import require_charged
from tuner.sweep.settings import split_of

if TYPE_CHECKING:
    from trainables.spec import TrainingSpec

__all__ = ["Claim", "RayBudget", "RunCharge", "open_budget"]

NAMESPACE = "dp-tuner"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the ledger is asked to open: (ε, δ), and the filter that keeps it for all trials together."""

    epsilon: float
    delta: float
    filter: TotalSteps


@dataclass(frozen=True)
class _Steps:
    """Steps that a run asks for, with their mechanism."""

    steps: int
    mechanism: SampledGaussian
    releases: int = 0

    @property
    def sample_rate(self) -> float:
        return self.mechanism.sample_rate

    @property
    def noise_multiplier(self) -> float:
        return self.mechanism.noise_multiplier


class _LedgerRun(LedgerCharge):
    """Ledger's side of `RunCharge`. It lives in the charge actor. The name of a run is ``RAY_TRIAL.RUN``."""

    def reserve(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Free what earlier runs of the same Ray trial left reserved, then reserve `steps` steps.

        An earlier run whose worker is still alive can then lease nothing more, so it can take no further step.
        """
        budget = SearchBudget(self._ledger(), self.search)
        ray_trial = self.trial.rpartition(".")[0]
        charged = {run: leased for run, leased in budget.charged().items() if run.rpartition(".")[0] == ray_trial}
        for left in budget.outstanding():
            if left in charged:
                budget.settle(left, charged[left])
        try:
            budget.reserve(self.trial, _Steps(steps, SampledGaussian(sample_rate, noise_multiplier)))
        except BudgetRefusedError as error:
            if error.code != "cap-exceeded" or not any(charged.values()):
                raise
            view = budget.view(compose=False)
            raise BudgetRefusedError(error.code, _no_room_again(ray_trial, steps, charged, view)) from error

    def require_charged(self, runs: Mapping[str, int]) -> None:
        """Raise a TunerError if the ledger has charged fewer steps of a run of this search than the run has leased."""
        state = self._ledger().search_state(self.search)
        for run, steps in runs.items():
            require_charged(state, run, None, steps)

    def settle(self, steps_taken: int) -> None:
        """End the run, and free what it reserved and never leased."""
        SearchBudget(self._ledger(), self.search).settle(self.trial, steps_taken)

    def forfeit(self, steps_taken: int, *rungs: int) -> None:
        """End a run whose training raised an error, and charge all that it had reserved."""
        SearchBudget(self._ledger(), self.search).forfeit(self.trial, steps_taken, rungs)


def _no_room_again(ray_trial: str, steps: int, charged: Mapping[str, int], view: BudgetView) -> str:
    return (
        f"Ray trial {ray_trial!r} runs again and needs {steps} more steps, but only {view.left_steps} are left. Its "
        f"earlier runs were charged {sum(charged.values())} steps, some of which it may have to repeat. Its last "
        f"checkpoint stays valid. {view.reserved_steps} steps are reserved by other trials. If these end early, "
        "restore the Tuner with `resume_errored=True`. Otherwise start a new search with a larger `full_runs`, which "
        "is charged in addition."
    )


@dataclass(frozen=True)
class RunCharge(ActorCharge):
    """Charge of one run of a Ray trial, for its worker. It reserves before it leases, and settles at the end."""

    then: ClassVar[str] = "With Ray's `FailureConfig(max_failures=…)`, the trial continues from its last checkpoint."

    @classmethod
    def of(cls, budget: RayBudget, ray_trial: str | None) -> RunCharge:
        """Return the charge of a new run. Outside of Ray Tune, `ray_trial` is None."""
        run = uuid.uuid4().hex[:12]
        name = f"{ray_trial or run}.{run}"
        return cls(budget.actor, NAMESPACE, name, cloudpickle.dumps(_LedgerRun(budget.ledger, budget.search, name)))

    def reserve(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Reserve the steps that the run may take. Raise `BudgetRefusedError` if they do not fit the cap."""
        self._ask("reserve", steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier)

    def name(self) -> str:
        """Return the name of the run, which is a trial of its own in the ledger."""
        return self.trial_id

    def require_charged(self, runs: Mapping[str, int]) -> None:
        """Raise a TunerError if the ledger lacks steps of other runs of this search. It is then an older copy."""
        self._ask("require_charged", dict(runs))

    def settle(self, steps_taken: int) -> None:
        """End the run. Raise `LedgerError` if it took more steps than it leased."""
        self._ask("settle", steps_taken)

    def forfeit(self, steps_taken: int, rungs: tuple[int, ...]) -> None:
        """End a run whose training raised an error, and charge all that it had reserved."""
        self._ask("forfeit", steps_taken, *rungs)

    def _ask(self, method: str, *arguments: int | dict[str, int], **named: float) -> Any:  # noqa: ANN401 - the method's answer
        try:
            ray.get_actor(self.actor, namespace=self.namespace)
        except ValueError as error:
            raise TunerError(
                "charge-actor-lost",
                "The process that charges the ledger has ended with its driver. Call `dp_trainable` again with the "
                "same `search`, then restore the Tuner with the new trainable.",
            ) from error
        return super()._ask(method, *arguments, **named)


@dataclass(frozen=True)
class RayBudget:
    """Budget of all trials of one `dp_trainable`. It can be pickled: workers find the actor by its name.

    Attributes:
        ledger: URL of the ledger, which only the driver's machine opens.
        ledger_id: what tells the ledger from every other one.
        search: name of the search in the ledger.
        actor: name of the actor that charges the ledger. It ends with the driver.
    """

    ledger: str
    ledger_id: str
    search: str
    actor: str

    def view(self) -> BudgetView:
        """Return the spent, reserved and remaining budget. `epsilon_cap` is the guarantee, the rest is information."""
        return SearchBudget(Ledger.open(self.ledger, create=False), self.search).view()

    def close(self) -> None:
        """End the search. Its trials can charge nothing more. If none was charged, its claim no longer counts."""
        with suppress(ValueError):  # there is no such actor any more
            ray.kill(ray.get_actor(self.actor, namespace=NAMESPACE))
        ledger = Ledger.open(self.ledger, create=False)
        _settle_all(ledger, self.search)
        ledger.close_search(self.search)


def open_budget(
    url: str, search: str, spec: TrainingSpec, claim: Claim, *, full_runs: float, rungs: Sequence[int]
) -> RayBudget:
    """Open the search in the ledger, or return to it, and start the actor that charges it on this machine.

    Raises:
        InputError: Ray is used through a Ray Client, or the folder of the ledger's file is missing or will be deleted.
        BudgetRefusedError: the claim does not fit the cap of the data set. Nothing was written.
        TunerError: a search of this name has another claim, other settings or other records.
    """
    if not ray.is_initialized():
        ray.init()
    if ray.util.client.ray.is_connected():
        raise InputError(
            "cluster-address",
            "`dp_trainable` cannot be used through a Ray Client (ray://), because the ledger is on the driver's "
            "machine. Run the driver on a machine of the cluster, or with `ray job submit`.",
        )
    require_name(search, "search")
    require_folder(url)
    names, about = names_in_ledger(spec.dataset), info(spec.dataset)
    ledger = Ledger.open(url)
    fingerprint = keyed_fingerprint(ledger, spec.dataset)
    settings = hashlib.sha256(canonical(_settings(spec, ledger.id, rungs)).encode()).hexdigest()
    if ledger.has_search(search):
        state = ledger.search_state(search)
        then = (state.filter, state.epsilon, state.delta, state.fingerprint, state.details.get("settings"))
        if then != (claim.filter, claim.epsilon, claim.delta, fingerprint, settings):
            raise TunerError(
                "ledger-mismatch",
                f"The ledger already has a search {search!r} with another claim, other settings or other records. "
                "Repeat the settings and records of that search, or choose a new name for `search`. A search with a "
                "new name is charged in addition.",
            )
        _settle_all(ledger, search)
        ledger.reopen_search(search)
    else:
        own: dict[str, Any] = {}
        if is_own(spec.dataset):
            own = {"own": public_facts(about), "near": near_names(ledger, names[0], about, user=ledger.user())}
        ledger.open_search(
            names[0],
            search,
            filter=claim.filter,
            epsilon=claim.epsilon,
            delta=claim.delta,
            unit=spec.dataset.unit,
            fingerprint=fingerprint,
            blocks=names[1:],
            block_fingerprints=block_fingerprints(ledger, spec.dataset),
            details={
                "experiment": search,
                "method": spec.method,
                "model": spec.model,
                "full_runs": full_runs,
                "steps_per_trial": spec.steps,
                "settings": settings,
                "split": split_of(spec.dataset),
                **own,
            },
        )
    actor = f"charge-actor-{uuid.uuid4().hex}"
    # Python would end the actor with its last handle, so it is kept with the name that workers look up.
    _ACTORS[actor] = start_charge_actor(actor, NAMESPACE)
    return RayBudget(ledger.url, ledger.id, search, actor)


_ACTORS: dict[str, Any] = {}
"""Handles of the actors that this process started."""


def _settings(spec: TrainingSpec, ledger_id: str, rungs: Sequence[int]) -> dict[str, Any]:
    """Return what must not change when a search is continued. The records are compared by their fingerprint."""
    request = replace(spec.dataset, data_dir=None, path=None)
    known = replace(spec, dataset=request, threads=None, device="auto")
    return {"spec": repr(known), "ledger": ledger_id, "rungs": list(rungs)}


def _settle_all(ledger: Ledger, search: str) -> None:
    """Free what the runs of workers that are gone had reserved and never leased."""
    budget = SearchBudget(ledger, search)
    for run in budget.outstanding():
        budget.settle(run, budget.charged_steps(run))
