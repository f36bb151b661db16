"""What the history of a data set admits: the one rule that plans ask, writers obey and readers check again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from math import ceil, isfinite

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import UNITS, Allowance, CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.ledger.state import Committed, DatasetState, SearchState, exact_sum

__all__ = ["admit", "admit_name", "admit_search", "find", "known", "order_filter", "require_name", "unfit", "units_at"]

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
    """Refuse a search that the data set's cap, its user's share or the unit of the other searches does not allow.

    Args:
        state: of the data set; None when it was never used.
        epsilon: the claim of the search.
        delta: the claim of the search.
        units: what `units_at` says of it at the order of the data set's cap.
        unit: `record` or `user`.
        user: who opens it; None leaves the shares out.
        what: names it in the message.

    Raises:
        BudgetRefusedError: it is not allowed.
    """
    if state is not None and state.committed.unit not in {None, unit}:
        # Whoever adds or removes a user moves a sum by C; one record of a user may turn the whole of it, up to 2C.
        raise BudgetRefusedError(
            f"all searches on a data set must protect the same unit: those on {state.dataset!r} protect each "
            f"{state.committed.unit}, {what} each {unit}. A claim for the one says nothing of the other. "
            f"Write privacy.unit: {state.committed.unit}, or keep the data under another name."
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
        outcomes of either kind contribute at most δ/2. Undivided, "either rule fits" is not sound.

    Args:
        state: of the data set; None when it was never used.
        epsilon: what is added.
        delta: what is added.
        what: names it in the message.
        units: Rényi units that are added, at the order of the cap; None when not finite.
        user: whose share must hold it too; None leaves the shares out.

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
        f" With an order each of the two rules has half of delta, and the Renyi divergences of order {cap.order:g} "
        "do not fit either."
    )  # fmt: skip
    lacking = unfit((total_epsilon, total_delta), (cap.epsilon, cap.delta), rules=rules)
    raise BudgetRefusedError(
        f"the searches on data set {state.dataset!r} must fit its cap of epsilon {cap.epsilon!r}, delta "
        f"{cap.delta!r}: what is committed is epsilon {state.committed_epsilon!r}, delta "
        f"{state.committed_delta!r}, and {what} would make it {float(total_epsilon)!r}, {float(total_delta)!r}. "
        f"{lacking}.{also} Lower privacy.epsilon or delta, or ask the owner of the data: "
        f"tune budget set {state.dataset} --epsilon E --delta D."
    )


def units_at(order: float | None, allowance: Allowance, validation: Allowance | None = None) -> int | None:
    """Rényi units at `order` of all that a search may do to a record that trains or to one that validates.

    Args:
        order: of the data set's cap; None when it has none.
        allowance: of the training pool.
        validation: of the validation pool.

    Returns:
        Units, rounded up; None where there is no order or no finite divergence.
    """
    if order is None:
        return None
    found = [_units(order, pool) for pool in (allowance, validation) if pool is not None]
    known = [units for units in found if units is not None]
    return max(known) if len(known) == len(found) else None


def order_filter(order: float, epsilon: float, delta: float) -> int | None:
    """Rényi units that a data set's cap holds at `order`, with its half of δ; None where that admits nothing.

    Raises:
        InputError: the order is out of range.
    """
    from tuner.privacy.accountant.rdp import divergence

    divergence(SampledGaussian(1.0, 1.0), order)  # it must be one at which steps can be priced
    found = FixedOrder.of(order=order, epsilon=epsilon, delta=delta / 2)
    return found.budget if found else None


def admit_name(states: Mapping[str, DatasetState], dataset: str, search: str, fingerprint: str | None) -> None:
    """Refuse a search whose name is taken, on any data set, or whose records have a budget under another name.

    Raises:
        BudgetRefusedError: the records are known under another name.
        LedgerError: the name is taken.
    """
    if (other := find(states, search)) is not None:
        raise LedgerError(
            f"a search must have a name of its own, {search!r} exists on data set {other.dataset!r}. "
            "Choose another name, or resume it."
        )
    for state in states.values():
        if fingerprint in state.fingerprints and state.dataset != dataset:
            raise BudgetRefusedError(
                f"one data set must have one budget: these records are known as {state.dataset!r}, "
                f"not {dataset!r}. Name the data set {state.dataset!r}."
            )


def find(states: Mapping[str, DatasetState], search: str) -> SearchState | None:
    """The search of that name on any data set, or None."""
    return next((state.by_name[search] for state in states.values() if search in state.by_name), None)


def known(states: Mapping[str, DatasetState], search: str) -> SearchState:
    """The search of that name.

    Raises:
        LedgerError: it is not in the ledger.
    """
    found = find(states, search)
    if found is None:
        raise LedgerError(f"a search must be in the ledger, {search!r} is not. Check its name and the ledger's URL.")
    return found


def require_name(value: object, what: str) -> None:
    """Refuse what cannot be a name.

    Raises:
        InputError: it is empty, long, or holds control characters.
    """
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InputError(f"{what} must be 1 to 200 printable characters, got {value!r}. Write a name.")


def unfit(total: tuple[Decimal, Decimal], allowed: tuple[float, float], *, rules: int = 1) -> str:
    """Which of ε and δ does not fit, with its two figures, and whether the other one would.

    Args:
        total: (ε, δ) that would be committed.
        allowed: (ε, δ) that may be, at least one of them less.
        rules: among which δ is divided.
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
    """Both to 6 digits; to all of them where they would look alike."""
    said = f"{more:.6g}", f"{less:.6g}"
    return said if said[0] != said[1] else (repr(more), repr(less))


def _admit_share(state: DatasetState, epsilon: float, delta: float, user: str, what: str) -> None:
    share = state.grants.get(user)
    if share is None:
        raise BudgetRefusedError(
            f"the cap of data set {state.dataset!r} is divided among its users: {user!r} must have a share of it for "
            f"{what}. Ask the owner of the data: tune budget grant {state.dataset} {user} --epsilon E --delta D."
        )
    held = state.committed_of.get(user, Committed())
    total_epsilon, total_delta = exact_sum(held.epsilon, epsilon), exact_sum(held.delta, delta)
    if total_epsilon > exact_sum(share.epsilon) or total_delta > exact_sum(share.delta):
        revoked = "" if share.epsilon else " (it was revoked)"
        lacking = unfit((total_epsilon, total_delta), (share.epsilon, share.delta))
        raise BudgetRefusedError(
            f"the searches of {user!r} on data set {state.dataset!r} must fit the share of epsilon {share.epsilon!r}, "
            f"delta {share.delta!r}{revoked}: what is committed is epsilon {float(held.epsilon)!r}, delta "
            f"{float(held.delta)!r}, and {what} would make it {float(total_epsilon)!r}, {float(total_delta)!r}. "
            f"{lacking}. Lower privacy.epsilon or delta, or ask the owner of the data: "
            f"tune budget grant {state.dataset} {user} --epsilon E --delta D."
        )


def _units(order: float, allowance: Allowance) -> int | None:
    from tuner.privacy.accountant.rdp import divergence

    match allowance:
        case TotalSteps(mechanism=mechanism, step_cap=steps):
            parts: tuple[tuple[SampledGaussian, int], ...] = ((mechanism, steps),)
        case CouponBook(quotas=quotas):
            parts = quotas
        case FixedOrder(order=own, budget=budget):
            # Rényi divergence does not fall with the order: what holds at a higher one holds here.
            return budget if order <= own else None
        case Sealed():
            return None
    prices = [(divergence(mechanism, order), steps) for mechanism, steps in parts]
    return sum(ceil(price * UNITS) * steps for price, steps in prices) if all(isfinite(p) for p, _ in prices) else None
