"""Admission: whether a data set's history allows one more search. Plans, writers and readers use the same rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import Filter, FixedOrder
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import require_order
from tuner.privacy.ledger.state import Committed, DatasetState, SearchState, exact_sum

__all__ = [
    "admit",
    "admit_name",
    "admit_search",
    "check_pools",
    "find_search",
    "order_filter",
    "require_name",
    "require_search",
    "require_unsampled",
    "unfit",
    "units_at",
]

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


def admit_search(
    state: DatasetState | None,
    *,
    epsilon: float,
    delta: float,
    units: int | None,
    unit: str,
    user: str | None,
    what: str,
) -> None:
    """Refuse a search that does not fit the data set's cap, its user's share or the unit of the other searches.

    Args:
        state: of the data set; None when it was never used.
        epsilon: the claim of the search.
        delta: the claim of the search.
        units: its Rényi units at the order of the data set's cap, from `units_at`.
        unit: `record` or `user`.
        user: who opens it; None ignores the shares.
        what: its name in the message.

    Raises:
        BudgetRefusedError: it is not allowed.
    """
    if state is not None and state.committed.unit not in {None, unit}:
        # Adding or removing a user moves a sum by at most C; one record of a user may turn all of it, up to 2C.
        raise BudgetRefusedError(
            "unit-differs",
            f"The searches on {state.dataset!r} protect each {state.committed.unit}, but {what} protects each {unit}: "
            f"claims for different units do not add up. Write privacy.unit: {state.committed.unit}, or keep the data "
            "under another name.",
        )
    admit(state, epsilon, delta, units=units, user=user, what=what)


def admit(
    state: DatasetState | None,
    epsilon: float,
    delta: float,
    *,
    what: str,
    units: int | None = None,
    user: str | None = None,
) -> None:
    """Refuse what would take the searches above the data set's cap, or above their user's share of it.

    Formal guarantees:
        Without an order the searches' (ε, δ), which may be chosen one after seeing the others and run at once, sum to
        at most the cap's (Rogers et al. 2016; Vadhan & Zhang 2023). With an order, at the end of every history either
        they sum to at most (ε, δ/2), or their Rényi divergences of that order to at most the filter of (ε, δ/2); the
        outcomes of either kind contribute at most δ/2. With the whole of δ for each, "either rule fits" is not sound.

    Args:
        state: of the data set; None when it was never used.
        epsilon: what is added.
        delta: what is added.
        what: its name in the message.
        units: Rényi units that are added, at the order of the cap; None where not finite.
        user: whose share must hold it too; None ignores the shares.

    Raises:
        BudgetRefusedError: it does not fit.
    """
    if state is None:
        return
    if state.grants and user is not None:
        _admit_share(state, epsilon, delta, user, what)
    cap, held = state.cap, state.committed
    if cap is None:
        return
    total_epsilon, total_delta = exact_sum(held.epsilon, epsilon), exact_sum(held.delta, delta)
    rules = 1 if cap.order is None else 2
    if total_epsilon <= exact_sum(cap.epsilon) and exact_sum(*[total_delta] * rules) <= exact_sum(cap.delta):
        return
    if None not in {cap.units, units} and not held.unbounded and held.units + (units or 0) <= (cap.units or 0):
        return
    also = "" if cap.order is None else (
        f" With an order, each of the two rules has half of δ, and the Rényi divergences of order {cap.order:g} do not "
        "fit either."
    )  # fmt: skip
    lacking = unfit((total_epsilon, total_delta), (cap.epsilon, cap.delta), rules=rules)
    raise BudgetRefusedError(
        "dataset-cap-exceeded",
        f"Data set {state.dataset!r} has a cap of ε = {cap.epsilon!r}, δ = {cap.delta!r}. Its searches have committed "
        f"ε = {state.committed_epsilon!r}, δ = {state.committed_delta!r}, and with {what} it would be "
        f"ε = {float(total_epsilon)!r}, δ = {float(total_delta)!r}. {lacking}.{also} Lower privacy.epsilon or delta, "
        f"or ask the owner of the data: tune budget set {state.dataset} --epsilon E --delta D.",
    )


def units_at(order: float | None, filter: Filter, validation: Filter | None = None) -> int | None:
    """Return the Rényi units at `order` of all that a search may do to a record that trains or to one that validates.

    Args:
        order: of the data set's cap; None when it has none.
        filter: of the training pool.
        validation: of the validation pool.

    Returns:
        Units, rounded up; None where there is no order or no finite divergence.
    """
    if order is None:
        return None
    found = [each.units_at(order) for each in (filter, validation) if each is not None]
    known = [units for units in found if units is not None]
    return max(known) if len(known) == len(found) else None


def order_filter(order: float, epsilon: float, delta: float) -> int | None:
    """Return the Rényi units of a data set's cap at `order`, with its half of δ; None where that admits nothing.

    Raises:
        InputError: the order is out of range.
    """
    require_order(order)
    found = FixedOrder.of(order=order, epsilon=epsilon, delta=delta / 2)
    return found.budget if found else None


def check_pools(training: Filter, validation: Filter | None) -> None:
    """Refuse two filters that do not fit together.

    Raises:
        InputError: only one of them is charged as a whole, or validation is sampled.
    """
    if validation is None:
        return
    if training.charged_whole != validation.charged_whole:
        raise InputError(
            "filters-differ",
            f"A sealed search needs a sealed filter for both pools: training has {training.kind}, validation "
            f"{validation.kind}. Give both the same law and number of runs.",
        )
    for mechanism in validation.mechanisms:
        require_unsampled(mechanism)


def require_unsampled(mechanism: SampledGaussian) -> None:
    """Refuse a mechanism that samples: a released score reads every validation record.

    Raises:
        InputError: its sample rate is not 1.
    """
    if mechanism.sample_rate != 1:
        raise InputError(
            "score-sampled",
            f"A released score reads every validation record, so its sample rate must be 1 (got {mechanism!r}). "
            "Write SampledGaussian(1.0, s).",
        )


def admit_name(states: Mapping[str, DatasetState], dataset: str, search: str, fingerprint: str | None) -> None:
    """Refuse a search whose name is taken on any data set, or whose records have a budget under another name.

    Raises:
        BudgetRefusedError: the records are known under another name.
        LedgerError: the name is taken.
    """
    if (other := find_search(states, search)) is not None:
        raise LedgerError(
            "search-name-taken",
            f"A search named {search!r} exists on data set {other.dataset!r}. Choose another name, or resume it.",
        )
    for state in states.values():
        if fingerprint in state.fingerprints and state.dataset != dataset:
            raise BudgetRefusedError(
                "dataset-known-otherwise",
                f"These records have a budget already, under the name {state.dataset!r} and not {dataset!r}. Name the "
                f"data set {state.dataset!r}.",
            )


def find_search(states: Mapping[str, DatasetState], search: str) -> SearchState | None:
    """Return the search of that name on any data set, or None."""
    return next((state.by_name[search] for state in states.values() if search in state.by_name), None)


def require_search(states: Mapping[str, DatasetState], search: str) -> SearchState:
    """Return the search of that name.

    Raises:
        LedgerError: it is not in the ledger.
    """
    found = find_search(states, search)
    if found is None:
        raise LedgerError(
            "search-not-found", f"The ledger has no search named {search!r}. Check the name and the URL of the ledger."
        )
    return found


def require_name(value: object, what: str) -> None:
    """Refuse a value that cannot be a name.

    Raises:
        InputError: it is no string, empty, too long, or has control characters.
    """
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InputError(
            "ledger-name-invalid", f"`{what}` must be a name of 1 to 200 printable characters (got {value!r})."
        )


def unfit(total: tuple[Decimal, Decimal], allowed: tuple[float, float], *, rules: int = 1) -> str:
    """Say which of ε and δ does not fit, with both figures, and whether the other one would.

    Args:
        total: (ε, δ) that would be committed.
        allowed: (ε, δ) that may be committed; at least one of them is less.
        rules: number of rules among which δ is divided.
    """
    part = allowed[1] / rules
    over = {"ε": total[0] > exact_sum(allowed[0]), "δ": exact_sum(*[total[1]] * rules) > exact_sum(allowed[1])}
    figures = {"ε": (float(total[0]), allowed[0]), "δ": (float(total[1]), part)}
    said = {name: " > ".join(_apart(*figures[name])) for name in over if over[name]}
    if rules > 1 and over["δ"]:
        said["δ"] += " (half of the cap's)"
    if len(said) == len(over):
        return f"Neither fits: ε {said['ε']}, δ {said['δ']}"
    ((name, figure),) = said.items()
    other = "δ" if name == "ε" else "ε"
    return f"{name} does not fit: {figure} ({other} would)"


def _apart(more: float, less: float) -> tuple[str, str]:
    """Return both with 6 digits, or with all digits where they would look alike."""
    said = f"{more:.6g}", f"{less:.6g}"
    return said if said[0] != said[1] else (repr(more), repr(less))


def _admit_share(state: DatasetState, epsilon: float, delta: float, user: str, what: str) -> None:
    share = state.grants.get(user)
    if share is None:
        raise BudgetRefusedError(
            "no-share",
            f"The cap of data set {state.dataset!r} is divided among its users, and {user!r} has no share for {what}. "
            f"Ask the owner of the data: tune budget grant {state.dataset} {user} --epsilon E --delta D.",
        )
    held = state.committed_of.get(user, Committed())
    total_epsilon, total_delta = exact_sum(held.epsilon, epsilon), exact_sum(held.delta, delta)
    if total_epsilon > exact_sum(share.epsilon) or total_delta > exact_sum(share.delta):
        revoked = "" if share.epsilon else " (it was revoked)"
        lacking = unfit((total_epsilon, total_delta), (share.epsilon, share.delta))
        raise BudgetRefusedError(
            "share-exceeded",
            f"{user!r} has a share of ε = {share.epsilon!r}, δ = {share.delta!r}{revoked} of data set "
            f"{state.dataset!r}. That user's searches have committed ε = {float(held.epsilon)!r}, "
            f"δ = {float(held.delta)!r}, and with {what} it would be ε = {float(total_epsilon)!r}, "
            f"δ = {float(total_delta)!r}. {lacking}. Lower privacy.epsilon or delta, or ask the owner of the data: "
            f"tune budget grant {state.dataset} {user} --epsilon E --delta D.",
        )
