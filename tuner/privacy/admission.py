"""What the history of a ledger admits: the rules that are asked before an entry is written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.entries import DatasetState, SearchState, TrialState, exact_sum

__all__ = ["admit", "find", "known", "require_name", "running", "unsettled"]

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def admit(state: DatasetState | None, epsilon: float, delta: float, *, what: str) -> None:
    """Refuse what would take the sum of the searches' caps above the data set's."""
    if state is None or state.cap is None:
        return
    counted = [search for search in state.searches if search.counts]
    total_epsilon = exact_sum((*(search.epsilon for search in counted), epsilon))
    total_delta = exact_sum((*(search.delta for search in counted), delta))
    if total_epsilon > exact_sum((state.cap.epsilon,)) or total_delta > exact_sum((state.cap.delta,)):
        raise BudgetRefusedError(
            f"the searches on data set {state.dataset!r} must fit its cap of epsilon {state.cap.epsilon!r}, delta "
            f"{state.cap.delta!r}: what is committed is epsilon {state.committed_epsilon!r}, delta "
            f"{state.committed_delta!r}, and {what} would make it {float(total_epsilon)!r}, {float(total_delta)!r}. "
            f"Lower privacy.epsilon or delta, or ask the owner of the data: tune budget set {state.dataset} "
            f"--epsilon E --delta D."
        )


def find(states: Mapping[str, DatasetState], search: str) -> SearchState | None:
    """The search of that name on any data set, or None."""
    return next((found for state in states.values() for found in state.searches if found.search == search), None)


def known(states: Mapping[str, DatasetState], search: str) -> SearchState:
    """The search of that name.

    Raises:
        LedgerError: it is not in the ledger.
    """
    found = find(states, search)
    if found is None:
        raise LedgerError(f"a search must be in the ledger, {search!r} is not. Check its name and the ledger's URL.")
    return found


def running(states: Mapping[str, DatasetState], search: str, what: str) -> SearchState:
    """The search of that name, if it is open.

    Raises:
        LedgerError: it is not, or not there.
    """
    found = known(states, search)
    if found.status != "open":
        raise LedgerError(f"only an open search may {what}, {search!r} is {found.status}. Resume it.")
    return found


def unsettled(search: SearchState, trial: str, what: str) -> TrialState:
    """The trial as it stands, new or running.

    Raises:
        LedgerError: it is settled.
    """
    found = search.trials.get(trial, TrialState())
    if found.settled:
        raise LedgerError(
            f"only a running trial may {what}, {trial!r} of {search.search!r} is settled. Start a new trial."
        )
    return found


def require_name(value: object, what: str) -> None:
    """Refuse what cannot be a name.

    Raises:
        InputError: it is empty, long, or holds control characters.
    """
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InputError(f"{what} must be 1 to 200 printable characters, got {value!r}. Write a name.")
