"""Registration of a sweep in the ledger of its data set, at its start, when it is resumed and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.data import records_fingerprint, users_fingerprint
from tuner.errors import BudgetRefusedError, LedgerError, TunerError
from tuner.experiment import load_experiment
from tuner.sweep.folder import read_json
from tuner.sweep.settings import plan_hash, settings_hash
from tuner.sweep.status import SweepState

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import DatasetState, SearchState
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = [
    "dataset_refusal",
    "enter",
    "hold_to_ledger",
    "leave",
    "ledger_state",
    "ledger_user",
    "open_ledger",
    "refuse_if_charged",
    "return_to",
    "split_of",
]


def open_ledger(prepared: ReadySearch, *, create: bool = True) -> Ledger | None:
    """Open the ledger of the sweep's data; None when the sweep is not private.

    Raises:
        LedgerError: the ledger cannot be opened, or does not exist and must not be created.
    """
    from tuner.privacy.ledger.ledger import Ledger

    return Ledger.open(prepared.experiment.ledger, create=create) if prepared.plan.private else None


def enter(ledger: Ledger, sweep: SweepFolder, prepared: ReadySearch) -> None:
    """Open the search in the ledger: from here on its cap counts against the data set.

    Raises:
        BudgetRefusedError: the search does not fit; nothing was written.
    """
    plan, users = prepared.plan, users_fingerprint(prepared.request)
    chosen = {"public_search": read_json(sweep.public_search)} if sweep.public_search.exists() else {}
    ledger.open_search(
        prepared.owner,
        sweep.id,
        filter=plan.training_filter,
        epsilon=plan.epsilon,
        delta=plan.delta,
        validation=plan.validation_filter,
        validation_claim=plan.validation_claim,
        unit=plan.unit,
        fingerprint=records_fingerprint(prepared.request),
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


def ledger_state(prepared: ReadySearch) -> DatasetState | None:
    """Return the state of the data set in its ledger; None when the search is not private or no ledger exists."""
    from tuner.privacy.ledger.ledger import Ledger

    url = prepared.experiment.ledger
    if not prepared.plan.private or not Ledger.exists(url):
        return None
    return Ledger.open(url, create=False).dataset_state(prepared.owner)


def dataset_refusal(prepared: ReadySearch, dataset: DatasetState | None) -> BudgetRefusedError | None:
    """Return the error with which the data set's cap would refuse this search now, or None.

    It is a preview: the ledger decides when the search is opened.
    """
    from tuner.privacy.ledger.admission import admit_search, units_at

    if dataset is None:
        return None
    plan = prepared.plan
    order = None if dataset.cap is None else dataset.cap.order
    try:
        admit_search(
            dataset,
            epsilon=plan.epsilon,
            delta=plan.delta,
            units=units_at(order, plan.training_filter, plan.validation_filter),
            unit=plan.unit,
            user=ledger_user(prepared),
            what="this search",
        )
    except BudgetRefusedError as error:
        return error
    return None


def ledger_user(prepared: ReadySearch) -> str:
    """Return the user who would open the search, as the ledger identifies them."""
    from tuner.privacy.ledger.ledger import Ledger

    return Ledger.open(prepared.experiment.ledger, create=False).user()


def split_of(experiment: Experiment) -> dict[str, object]:
    """Return what determines the validation records. Two searches that differ here train on each other's."""
    validation = experiment.dataset.validation
    return {"set": experiment.dataset.name, "fraction": validation.fraction, "seed": validation.split_seed}


def hold_to_ledger(state: SearchState, experiment: Experiment, plan: Plan, *, request: DatasetRequest) -> None:
    """Compare a sweep's files with its ledger, because no claim may rest on files that can be edited.

    Args:
        state: the search in the ledger.
        experiment: the stored experiment file.
        plan: the stored plan.
        request: the records.

    Raises:
        TunerError: the settings, the plan or the records are not those that were charged.
    """
    held = {
        "the settings": (settings_hash(experiment), state.details.get("settings")),
        "the plan": (
            (
                (plan.training_filter, plan.epsilon, plan.delta, plan.unit, plan.private),
                (plan.validation_filter, plan.validation_claim, plan_hash(plan)),
            ),
            (
                (state.filter, state.epsilon, state.delta, state.unit, True),
                (
                    None if state.validation is None else state.validation.filter,
                    state.validation_claim,
                    state.details.get("plan"),
                ),
            ),
        ),
        "the records": (
            (records_fingerprint(request), users_fingerprint(request)),
            (state.fingerprint, state.details.get("users")),
        ),
    }
    for what, (now, charged) in held.items():
        if now != charged:
            raise TunerError(
                "ledger-mismatch",
                f"{what} of {state.search} are not those that its ledger was charged for. Restore its files (and "
                "the data) from a copy, or start a new sweep.",
            )


def return_to(sweep: SweepFolder, prepared: ReadySearch, *, reopen: bool = True) -> Ledger | None:
    """Return the ledger of a resumed sweep, with the search open in it.

    Args:
        sweep: the sweep.
        prepared: the search.
        reopen: False when all runs have ended and only the end is left to be recorded.

    Raises:
        BudgetRefusedError: the search was closed without a step, and its cap no longer fits the data set's.
        LedgerError: the ledger is not the one in which the sweep was charged.
        TunerError: the stored files or the data are not those that the ledger was charged for.
    """
    if prepared.plan.private != prepared.experiment.privacy.private:
        raise TunerError(
            "sweep-files-changed",
            f"The plan and the experiment file in {sweep.root} disagree on `privacy.private` "
            f"({prepared.plan.private} and {prepared.experiment.privacy.private}). Restore them from a copy.",
        )
    starting = _never_entered(sweep)
    ledger = open_ledger(prepared, create=starting)
    if ledger is None:
        refuse_if_charged(sweep, prepared.experiment.ledger)
        return None
    if sweep.id not in _searches(ledger):
        if not starting:
            raise LedgerError(
                "search-not-in-ledger",
                f"The ledger {ledger.url} does not know the sweep {sweep.id}. Restore the ledger that it was "
                "charged in; a sweep never continues in another one.",
            )
        enter(ledger, sweep, prepared)  # the sweep died after its folder was created and before it entered the ledger
    state = ledger.search_state(sweep.id)
    # The stored file, not the requested one, whose noise was copied from the plan.
    hold_to_ledger(state, load_experiment(sweep.experiment), prepared.plan, request=prepared.request)
    if reopen:
        ledger.reopen_search(sweep.id)
    return ledger


def _searches(ledger: Ledger) -> set[str]:
    return {search.search for name in ledger.datasets() for search in ledger.dataset_state(name).searches}


def _never_entered(sweep: SweepFolder) -> bool:
    """Return whether the sweep died before it entered the ledger. A lost or edited status file is no proof of it."""
    made = sweep.trials.is_dir() and not any(sweep.trials.iterdir()) and not sweep.journal.exists()
    return (
        sweep.read_status().get("state") == SweepState.STARTING and made
    )  # reads the status first: an unreadable one is refused


def refuse_if_charged(sweep: SweepFolder, url: str) -> None:
    """Refuse a sweep whose files say that it is not private, but which the ledger was charged for.

    Raises:
        LedgerError: the ledger cannot be read.
        TunerError: the ledger knows the sweep.
    """
    from tuner.privacy.ledger.ledger import Ledger

    if Ledger.exists(url) and sweep.id in _searches(Ledger.open(url, create=False)):
        raise TunerError(
            "ledger-mismatch",
            f"The files of {sweep.id} say `privacy.private: false`, but the ledger was charged for it. Restore "
            "them from a copy.",
        )


def leave(ledger: Ledger | None, sweep: SweepFolder, *, over: bool) -> None:
    """Close the search if it has ended or never took a step. A search that can be resumed keeps its cap committed.

    Args:
        ledger: the ledger of the data; None when the sweep is not private.
        sweep: the sweep.
        over: whether the search has ended, by itself or because the user stopped it.
    """
    if ledger is None:
        return
    state = ledger.search_state(sweep.id)
    charged = state.begun or any(pool.leased_steps for pool in state.pools.values())
    if over or not charged:
        ledger.close_search(sweep.id)
