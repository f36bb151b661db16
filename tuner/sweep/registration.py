"""How a sweep enters its data set's ledger, and how it comes back to it: never into a ledger that is not its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.data import fingerprint, users_fingerprint
from tuner.errors import LedgerError, TunerError
from tuner.experiment import load_experiment
from tuner.sweep.folder import read_json
from tuner.sweep.settings import plan_hash, settings_hash

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import SearchState
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.ready import Prepared

__all__ = ["STARTING", "enter", "hold_to_ledger", "leave", "open_ledger", "refuse_if_charged", "return_to", "split_of"]

STARTING = "starting"
"""The state of a sweep until it has entered the ledger; in every later one the ledger knows it."""


def open_ledger(prepared: Prepared, *, create: bool = True) -> Ledger | None:
    """The ledger of the sweep's data; None when the sweep is not private.

    Raises:
        LedgerError: it cannot be opened, or is not there and may not be made.
    """
    from tuner.privacy.ledger.ledger import Ledger

    return Ledger.open(prepared.experiment.ledger, create=create) if prepared.plan.private else None


def enter(ledger: Ledger, sweep: SweepFolder, prepared: Prepared) -> None:
    """Open the search in the ledger: from here on its cap counts against the data set.

    Raises:
        BudgetRefusedError: it does not fit; nothing was written.
    """
    plan, users = prepared.plan, users_fingerprint(prepared.request)
    chosen = {"public_search": read_json(sweep.public_search)} if sweep.public_search.exists() else {}
    ledger.open_search(
        prepared.owner,
        sweep.id,
        allowance=plan.training_allowance,
        epsilon=plan.epsilon,
        delta=plan.delta,
        validation=plan.validation_allowance,
        validation_claim=plan.validation_claim,
        unit=plan.unit,
        fingerprint=fingerprint(prepared.request),
        details={
            "experiment": plan.name,
            "method": plan.method,
            "model": plan.model,
            "trials": plan.trials,
            "settings": settings_hash(prepared.experiment),
            "plan": plan_hash(plan),
            "split": split_of(prepared.experiment),
            **({} if users is None else {"users": users}),
            **chosen,
        },
    )


def split_of(experiment: Experiment) -> dict[str, object]:
    """Which records of which set validate. Searches that differ here train on each other's validation records."""
    validation = experiment.dataset.validation
    return {"set": experiment.dataset.name, "fraction": validation.fraction, "seed": validation.split_seed}


def hold_to_ledger(state: SearchState, experiment: Experiment, plan: Plan, *, request: DatasetRequest) -> None:
    """Hold a sweep's own files against what the ledger knows of it: they are believed for nothing that is claimed.

    Args:
        state: the search in the ledger.
        experiment: the stored file.
        plan: the stored plan.
        request: which records.

    Raises:
        TunerError: the settings, the plan or the records are not those that were charged.
    """
    held = {
        "the settings": (settings_hash(experiment), state.details.get("settings")),
        "the plan": (
            (
                (plan.training_allowance, plan.epsilon, plan.delta, plan.unit, plan.private),
                (plan.validation_allowance, plan.validation_claim, plan_hash(plan)),
            ),
            (
                (state.allowance, state.epsilon, state.delta, state.unit, True),
                (
                    None if state.validation is None else state.validation.allowance,
                    state.validation_claim,
                    state.details.get("plan"),
                ),
            ),
        ),
        "the records": (
            (fingerprint(request), users_fingerprint(request)),
            (state.fingerprint, state.details.get("users")),
        ),
    }
    for what, (now, charged) in held.items():
        if now != charged:
            raise TunerError(
                f"{what} of a sweep must be those that its ledger was charged for, and those of {state.search} now "
                "are others. Restore its files (and the data) from a copy, or start a new sweep."
            )


def return_to(sweep: SweepFolder, prepared: Prepared, *, reopen: bool = True) -> Ledger | None:
    """The ledger of a sweep that goes on, with the search open in it.

    Args:
        sweep: the sweep.
        prepared: what it trains.
        reopen: False for one that only has its end to tell.

    Raises:
        BudgetRefusedError: it was closed without a step, and its cap no longer fits the data set's.
        LedgerError: the ledger is not the one that the sweep was charged in.
        TunerError: the stored files or the data are not those that the ledger was charged for.
    """
    if prepared.plan.private != prepared.experiment.privacy.private:
        raise TunerError(
            f"the plan and the file of a sweep must agree on privacy.private, got {prepared.plan.private} and "
            f"{prepared.experiment.privacy.private} in {sweep.root}. Restore them from a copy."
        )
    starting = _has_left_nothing(sweep)
    ledger = open_ledger(prepared, create=starting)
    if ledger is None:
        refuse_if_charged(sweep, prepared.experiment.ledger)
        return None
    if sweep.id not in _searches(ledger):
        if not starting:
            raise LedgerError(
                f"a sweep goes on in the ledger that holds its charges, got {ledger.url}, which does not know "
                f"{sweep.id}. Restore that ledger; what was charged is never started afresh."
            )
        enter(ledger, sweep, prepared)  # it died between making its folder and entering the ledger
    state = ledger.search_state(sweep.id)
    # The stored file, not the one that is wanted: that one has taken its noise from the plan.
    hold_to_ledger(state, load_experiment(sweep.experiment), prepared.plan, request=prepared.request)
    if reopen:
        ledger.reopen_search(sweep.id)
    return ledger


def _searches(ledger: Ledger) -> set[str]:
    return {search.search for name in ledger.datasets() for search in ledger.dataset_state(name).searches}


def _has_left_nothing(sweep: SweepFolder) -> bool:
    """Whether it died before it entered the ledger. No lost or changed status file may open a fresh one."""
    made = sweep.trials.is_dir() and not any(sweep.trials.iterdir()) and not sweep.journal.exists()
    return sweep.read_status().get("state") == STARTING and made  # the status first: one that cannot be read is refused


def refuse_if_charged(sweep: SweepFolder, url: str) -> None:
    """A sweep that the ledger knows is private, whatever its files say now.

    Raises:
        LedgerError: the ledger cannot be read.
        TunerError: it knows the sweep.
    """
    from tuner.privacy.ledger.ledger import Ledger

    if Ledger.exists(url) and sweep.id in _searches(Ledger.open(url, create=False)):
        raise TunerError(
            f"a sweep that was charged is private, got privacy.private: false in the files of {sweep.id}. "
            "Restore them from a copy."
        )


def leave(ledger: Ledger | None, sweep: SweepFolder, *, over: bool) -> None:
    """Close the search when it is over, or when it never took a step; what may go on keeps its cap committed.

    Args:
        ledger: of the data; None when the sweep is not private.
        sweep: the sweep.
        over: whether it ended by itself or by the user's wish.
    """
    if ledger is None:
        return
    state = ledger.search_state(sweep.id)
    charged = state.begun or any(pool.leased_steps for pool in state.pools.values())
    if over or not charged:
        ledger.close_search(sweep.id)
