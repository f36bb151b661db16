"""How a sweep enters its data set's ledger, and how it comes back to it: never into a ledger that is not its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.data import fingerprint
from tuner.errors import LedgerError, TunerError

if TYPE_CHECKING:
    from tuner.prepare import Prepared
    from tuner.privacy.ledger import Ledger
    from tuner.sweeps import SweepFolder

__all__ = ["STARTING", "enter", "leave", "open_ledger", "return_to"]

STARTING = "starting"
"""The state of a sweep until it has entered the ledger; in every later one the ledger knows it."""


def open_ledger(prepared: Prepared, *, create: bool = True) -> Ledger | None:
    """The ledger of the sweep's data; None when the sweep is not private.

    Raises:
        LedgerError: it cannot be opened, or is not there and may not be made.
    """
    from tuner.privacy.ledger import Ledger

    return Ledger.open(prepared.experiment.ledger, create=create) if prepared.plan.private else None


def enter(ledger: Ledger, sweep: SweepFolder, prepared: Prepared) -> None:
    """Open the search in the ledger: from here on its cap counts against the data set.

    Raises:
        BudgetRefusedError: it does not fit; nothing was written.
    """
    plan = prepared.plan
    ledger.open_search(
        prepared.owner,
        sweep.id,
        mechanism=plan.mechanism,
        epsilon=plan.epsilon,
        delta=plan.delta,
        step_cap=plan.step_cap,
        fingerprint=fingerprint(prepared.request),
        details={"experiment": plan.name, "method": plan.method, "model": plan.model, "trials": plan.trials},
    )


def return_to(sweep: SweepFolder, prepared: Prepared) -> Ledger | None:
    """The ledger of a sweep that goes on, with the search open in it.

    Raises:
        BudgetRefusedError: it was closed without a step, and its cap no longer fits the data set's.
        LedgerError: the ledger is not the one that the sweep was charged in.
        TunerError: the stored plan is not the one that the ledger holds.
    """
    plan = prepared.plan
    starting = sweep.read_status().get("state", STARTING) == STARTING
    ledger = open_ledger(prepared, create=starting)
    if ledger is None:
        return None
    known = {search.search for name in ledger.datasets() for search in ledger.dataset_state(name).searches}
    if sweep.id not in known:
        if not starting:
            raise LedgerError(
                f"a sweep goes on in the ledger that holds its charges, got {ledger.url}, which does not know "
                f"{sweep.id}. Restore that ledger; what was charged is never started afresh."
            )
        enter(ledger, sweep, prepared)  # it died between making its folder and entering the ledger
    state = ledger.search_state(sweep.id)
    if state.mechanism != plan.mechanism or state.step_cap != plan.step_cap:
        raise TunerError(
            f"the plan of a sweep must be the one its ledger holds, got {plan.mechanism} with {plan.step_cap} "
            f"steps where the ledger has {state.mechanism} with {state.step_cap}. Restore {sweep.plan} from a copy."
        )
    ledger.reopen_search(sweep.id)
    return ledger


def leave(ledger: Ledger | None, sweep: SweepFolder, *, over: bool) -> None:
    """Close the search when it is over, or when it never took a step; what may go on keeps its cap committed.

    Args:
        ledger: of the data; None when the sweep is not private.
        sweep: the sweep.
        over: whether it ended by itself or by the user's wish.
    """
    if ledger is not None and (over or ledger.search_state(sweep.id).leased_steps == 0):
        ledger.close_search(sweep.id)
