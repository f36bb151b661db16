"""The option ``--dataset-cap`` of `tune run`: set a data set's cap before its first search."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.sweep.registration import open_ledger, refusal_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.privacy.ledger.state import DatasetCap
    from tuner.sweep.preflight import ReadySearch

__all__ = ["set_first_cap"]


def set_first_cap(prepared: ReadySearch, option: str, *, say: Callable[[str], None]) -> None:
    """Set the cap on all searches of the data set, unless the same cap is set already, and say what was done.

    Of a search over blocks, every block gets the cap.

    Args:
        prepared: the search that is about to start. It must fit the cap.
        option: the value of the option, ``EPSILON`` or ``EPSILON,DELTA``.
        say: function that shows a line to the user.

    Raises:
        InputError: the option is malformed, the search is not private, or another cap is set.
        BudgetRefusedError: the search does not fit the cap. No cap was set.
        LedgerError: this user may not set caps in the ledger.
    """
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import DatasetCap

    epsilon, delta = _parsed(option, prepared)
    if not prepared.plan.private:
        raise InputError(
            "dataset-cap-not-private",
            f"`--dataset-cap` needs a private search, but {prepared.path} sets `privacy.private: false`. Leave the "
            "option out.",
        )
    if not (prepared.plan.epsilon <= epsilon and prepared.plan.delta <= delta):
        raise InputError(
            "dataset-cap-invalid",
            f"`--dataset-cap` must be at least the claim of this search, ε = {prepared.plan.epsilon:g} and δ = "
            f"{prepared.plan.delta:g} (got {option}). Raise this cap, or lower `privacy.epsilon` and `privacy.delta`.",
        )
    names, url = prepared.owners, prepared.experiment.ledger
    if Ledger.exists(url):
        ledger = Ledger.open(url, create=False)
        states = ledger.states_of(names)
        for state in states:
            _require_same(state.cap, epsilon, delta, state.dataset)
        capped = [replace(state, cap=state.cap or DatasetCap(epsilon, delta)) for state in states]
        refusal = refusal_at(prepared, capped, user=ledger.user())
        if refusal is not None:
            raise refusal
    opened = open_ledger(prepared, say=say)
    if opened is None:
        return  # no private search, which was refused above
    for name in names:
        earlier = opened.set_first_cap(name, epsilon, delta)
        _require_same(earlier, epsilon, delta, name)
        done = "set" if earlier is None else "already set"
        say(f"cap of {name} for all searches together: ε = {epsilon:.10g}, δ = {delta:.10g} ({done})")


def _parsed(option: str, prepared: ReadySearch) -> tuple[float, float]:
    from tuner.privacy.accountant.mechanism import require_delta, require_epsilon

    parts = option.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise InputError(
            "dataset-cap-invalid",
            f"`--dataset-cap` must be EPSILON or EPSILON,DELTA (got {option!r}). Write for example 3,1e-5.",
        )
    epsilon, delta = numbers[0], numbers[1] if len(numbers) == 2 else prepared.plan.delta
    if not (isfinite(epsilon) and epsilon > 0 and 0 < delta < 1):
        raise InputError(
            "dataset-cap-invalid",
            f"`--dataset-cap` must be a finite ε above 0, and a δ above 0 and below 1 (got {option}). Write for "
            "example 3,1e-5.",
        )
    require_epsilon(epsilon)
    require_delta(delta)
    return epsilon, delta


def _require_same(cap: DatasetCap | None, epsilon: float, delta: float, owner: str) -> None:
    if cap is not None and (cap.epsilon, cap.delta) != (epsilon, delta):
        raise InputError(
            "dataset-cap-differs",
            f"`--dataset-cap` must be the cap that {owner} already has, ε = {cap.epsilon:.10g}, δ = {cap.delta:.10g} "
            f"(got ε = {epsilon:.10g}, δ = {delta:.10g}). Leave the option out. The owner of the data changes the cap "
            "with `tune budget set`.",
        )
