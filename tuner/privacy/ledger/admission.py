"""Rules that decide whether the cap of a data set admits one more search. Plans and the ledger share these rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from tuner.errors import BudgetRefusedError, InputError, LedgerError
from tuner.privacy.accountant.filters import Filter, FixedOrder
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import require_order
from tuner.privacy.ledger.amounts import amount, amounts, apart
from tuner.privacy.ledger.state import Committed, DatasetState, SearchState, exact_sum

__all__ = [
    "admit",
    "admit_name",
    "admit_own",
    "admit_search",
    "check_pools",
    "not_admitted",
    "order_filter",
    "require_dataset",
    "require_fit",
    "require_name",
    "require_search",
    "require_unsampled",
    "require_writer",
    "unfit",
    "units_at",
]

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_DATASET = re.compile(r"[^/]+(/[A-Za-z0-9._-]{1,50})?")


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
    """Refuse a search that exceeds a cap or share, or that protects another unit than earlier searches do.

    `admit` decides whether a cap or share is exceeded. `unit` is the unit of protection, `record` or `user`. See
    `admit` for the other arguments.

    Raises:
        BudgetRefusedError: the search is refused.
    """
    if state is not None and state.committed.unit not in {None, unit}:
        # Adding or removing a user changes a sum by at most C. Changing one record of a user may change it by 2C.
        raise BudgetRefusedError(
            "unit-differs",
            f"The searches on {state.dataset!r} protect each {state.committed.unit}, but {what} protects each {unit}. "
            f"Claims for different units cannot be added. Write `privacy.unit: {state.committed.unit}`.",
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
    """Refuse a charge that would exceed the data set's cap or the user's share of the cap.

    Formal guarantees:
        Searches may be chosen adaptively and run concurrently. If the cap has no Rényi order, the ε and δ of all
        searches sum to at most the cap's ε and δ (Rogers et al. 2016; Vadhan & Zhang 2023; Haney et al. 2023). If the
        cap has an order, a charge must fit one of two rules: the sums are at most the cap's ε and δ/2, or the sum of
        the Rényi divergences at that order fits a filter of (ε, δ/2). If each rule had the whole δ, admitting a charge
        that fits either of them would not be sound.

        Proof for two rules. Count from the first charge, so that sums only grow. Stop the process just before the first
        charge whose sums would not fit: this process is (ε, δ/2)-DP, and equals the real one on all outcomes whose sums
        fit. On the others the divergences fit, and the same holds with the filter. Add the two.

    Args:
        state: state of the data set; None if it has no entry.
        epsilon: ε to add.
        delta: δ to add.
        what: words that name the charge in the message.
        units: Rényi units to add, computed at the cap's order; None if they are infinite.
        user: user whose share must not be exceeded; if None, shares are ignored.

    Raises:
        BudgetRefusedError: the charge does not fit.
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
        f" The second rule of the cap, a Rényi filter of order {cap.order:g}, does not admit {what} either. Each of "
        "the two rules uses half of the cap's δ."
    )  # fmt: skip
    lacking = unfit((total_epsilon, total_delta), (cap.epsilon, cap.delta), rules=rules)
    raise BudgetRefusedError(
        "dataset-cap-exceeded",
        f"Data set {state.dataset!r} has a cap of {amounts(cap.epsilon, cap.delta)}. Its searches have committed "
        f"{amounts(state.committed_epsilon, state.committed_delta)}. With {what}, the sum would be "
        f"{amounts(float(total_epsilon), float(total_delta))}. {lacking}.{also} Lower privacy.epsilon or delta, or ask "
        f"the owner of the data for a larger cap: tune budget set {state.dataset} --epsilon E --delta D.",
    )


def units_at(order: float | None, filter: Filter, validation: Filter | None = None) -> int | None:
    """Return the largest Rényi divergence at `order`, in Rényi units, that the filters of one search allow.

    If the search has two filters, the larger value counts. The result is None if `order` is None or the divergence is
    infinite.
    """
    if order is None:
        return None
    found = [each.units_at(order) for each in (filter, validation) if each is not None]
    known = [units for units in found if units is not None]
    return max(known) if len(known) == len(found) else None


def order_filter(order: float, epsilon: float, delta: float) -> int | None:
    """Return the budget, in Rényi units, of a filter at `order` that claims (ε, δ/2); None if the budget would be 0."""
    require_order(order)
    found = FixedOrder.of(order=order, epsilon=epsilon, delta=delta / 2)
    return found.budget if found else None


def check_pools(training: Filter, validation: Filter | None) -> None:
    """Raise `InputError` if only one of two filters is sealed, or a validation mechanism has a sample rate below 1."""
    if validation is None:
        return
    if training.charged_whole != validation.charged_whole:
        raise InputError(
            "filters-differ",
            f"A sealed search needs two sealed filters, one for training and one for validation records (got "
            f"{training.kind} and {validation.kind}). Give both the same distribution of the number of runs.",
        )
    for mechanism in validation.mechanisms:
        require_unsampled(mechanism)


def require_fit(filter: Filter, epsilon: float, delta: float, whose: str) -> None:
    """Raise `BudgetRefusedError` unless the filter's ε at `delta` is at most `epsilon`. `whose` names the claim."""
    needed = filter.claim(delta)
    if not needed <= epsilon:
        more, less = apart(needed, epsilon)
        raise BudgetRefusedError(
            "filter-exceeds-claim",
            f"The steps that the filter allows ({filter.summary}) cost ε = {more} at δ = {amount(delta)}, but {whose} "
            f"claim is only ε = {less}. Allow fewer steps, or raise epsilon.",
        )


def require_unsampled(mechanism: SampledGaussian) -> None:
    """Raise `InputError` unless the sample rate is 1, because a released score reads every validation record."""
    if mechanism.sample_rate != 1:
        raise InputError(
            "score-sampled",
            f"A released score reads every validation record, so its sample rate must be 1 (got {mechanism!r}). "
            "Write SampledGaussian(1.0, NOISE_MULTIPLIER).",
        )


def admit_name(states: Mapping[str, DatasetState], dataset: str, search: str, fingerprint: str | None) -> None:
    """Refuse a search if its name is taken, or if the ledger knows its records as public or under another name."""
    for state in states.values():
        if search in state.by_name or search in state.doubtful:
            raise LedgerError(
                "search-name-taken",
                f"A search named {search!r} already exists on data set {state.dataset!r}. Choose another name, or "
                "resume that search.",
            )
    own = states.get(dataset)
    if own is not None and fingerprint in own.fingerprints:
        return  # whatever the entries of a damaged data set say
    for state in states.values():
        if fingerprint in state.public or fingerprint in state.fingerprints:
            raise not_admitted()


def admit_own(states: Mapping[str, DatasetState], dataset: str) -> None:
    """Refuse a user's own records under a new name if the ledger holds other own records as private.

    The new name may hide records that the ledger knows. To compare them here would tell whoever asks whether a guess of
    the records is right, so a right and a wrong guess get the same answer. A block is a name of its own.
    """
    entered = dataset in states and (states[dataset].cap is not None or states[dataset].searches)
    if not entered and any(state.has_own for state in states.values()):
        raise not_admitted()


def not_admitted() -> BudgetRefusedError:
    """Return the refusal of records. It is the same for all reasons, so it tells nothing about any record."""
    return BudgetRefusedError(
        "records-not-admitted",
        "The ledger does not admit these records for this use. Either it holds them as private, or the owner of the "
        "data has not entered them. This message does not say which, because the answer would reveal something about "
        "records. Nothing was charged. Ask the owner. `tune budget public NAME FILE` enters a file that everyone may "
        "see. `tune budget set NAME --epsilon E --delta D` enters a new private data set. If the ledger already holds "
        "the records, use the name that they have there.",
    )


def require_search(states: Mapping[str, DatasetState], search: str) -> SearchState:
    """Return the search named `search` on any data set; raise `LedgerError` if no search has this name."""
    for state in states.values():
        if search in state.by_name:
            return state.intact().by_name[search]
    for state in states.values():
        state.intact()  # the search may be one of a damaged data set
    raise LedgerError(
        "search-not-found", f"The ledger has no search named {search!r}. Check the name and the URL of the ledger."
    )


def require_writer(writer: str, user: object, search: object) -> None:
    """Raise `LedgerError` unless an entry about a search is written by the search's user."""
    if writer != user:
        raise LedgerError(
            "ledger-other-user",
            f"Search {search!r} belongs to the user {user!r}, so {writer!r} cannot write ledger entries about this "
            f"search. Nothing is charged. Run the command as {user!r}, or start a search of your own.",
        )


def require_name(value: object, what: str) -> None:
    """Raise `InputError` unless `value` is a string of 1 to 200 characters without control characters."""
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InputError(
            "ledger-name-invalid", f"`{what}` must be a name of 1 to 200 printable characters (got {value!r})."
        )


def require_dataset(value: object) -> None:
    """Raise `InputError` unless `value` names a data set, or as ``TABLE/BLOCK`` a block of a growing table."""
    require_name(value, "dataset")
    if not _DATASET.fullmatch(str(value)):
        raise InputError(
            "ledger-name-invalid",
            f"`dataset` must be a name without `/`, or TABLE/BLOCK for a block of a growing table (got {value!r}). The "
            "name of a block has 1 to 50 letters, digits, dots, hyphens or underscores. Choose another name.",
        )


def unfit(total: tuple[Decimal, Decimal], allowed: tuple[float, float], *, rules: int = 1) -> str:
    """Return a sentence that says whether ε, δ or both are too large. `total` and `allowed` are pairs (ε, δ).

    The caller ensures that ε or δ is too large. If `rules` is 2, only half of the allowed δ may be used.
    """
    part = allowed[1] / rules
    over = {"ε": total[0] > exact_sum(allowed[0]), "δ": exact_sum(*[total[1]] * rules) > exact_sum(allowed[1])}
    figures = {"ε": (float(total[0]), allowed[0]), "δ": (float(total[1]), part)}
    said = {name: " > ".join(apart(*figures[name])) for name in over if over[name]}
    if rules > 1 and over["δ"]:
        said["δ"] += " (half of the cap's δ)"
    if len(said) == len(over):
        return f"Both are too large: ε {said['ε']}, δ {said['δ']}"
    ((name, figure),) = said.items()
    other = "δ" if name == "ε" else "ε"
    return f"{name} is too large: {figure}; {other} would fit"


def _admit_share(state: DatasetState, epsilon: float, delta: float, user: str, what: str) -> None:
    share = state.grants.get(user)
    if share is None:
        raise BudgetRefusedError(
            "no-share",
            f"The cap of data set {state.dataset!r} is divided into shares, but the user {user!r} has no share for "
            f"{what}. Ask the owner of the data for a share: tune budget grant {state.dataset} {user} --epsilon E "
            "--delta D.",
        )
    held = state.committed_of.get(user, Committed())
    total_epsilon, total_delta = exact_sum(held.epsilon, epsilon), exact_sum(held.delta, delta)
    if total_epsilon > exact_sum(share.epsilon) or total_delta > exact_sum(share.delta):
        revoked = "" if share.epsilon else " (it was revoked)"
        lacking = unfit((total_epsilon, total_delta), (share.epsilon, share.delta))
        raise BudgetRefusedError(
            "share-exceeded",
            f"The share of user {user!r} in the cap of data set {state.dataset!r} is "
            f"{amounts(share.epsilon, share.delta)}{revoked}. The user's searches have committed "
            f"{amounts(float(held.epsilon), float(held.delta))}. With {what}, the sum would be "
            f"{amounts(float(total_epsilon), float(total_delta))}. {lacking}. Lower privacy.epsilon or delta, or ask "
            "the owner of the data for a larger share: "
            f"tune budget grant {state.dataset} {user} --epsilon E --delta D.",
        )
