"""Budgets of data sets: the cap, the amounts that all searches committed and spent, and the shares of users."""

from __future__ import annotations

import pwd
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trainables.data import DATASETS, DatasetRequest, block_names, records_fingerprint
from trainables.errors import DatasetError
from trainables.tasks import TASKS
from tuner.errors import InputError, LedgerError
from tuner.files import require_page_path, write_text
from tuner.privacy.accountant.mechanism import require_delta, require_epsilon
from tuner.privacy.accountant.rdp import ORDERS
from tuner.privacy.card.claims import Total
from tuner.privacy.ledger.admission import order_filter, require_dataset
from tuner.privacy.ledger.blocks import table_of
from tuner.privacy.ledger.division import basis
from tuner.privacy.ledger.history import lines, points, room, rule, search_lines, share_lines, void_text, within_cap
from tuner.privacy.ledger.key import RECORDS_PURPOSE
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.odometer import LABEL, LABEL_VOID, LABEL_WITHOUT_CAP, read_dataset
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.ledger.stores import require_folder
from tuner.privacy.ledger.stores.file_url import file_of
from tuner.report.budget_page import budget_page
from tuner.report.facts import dataset_line, ledger_option

_CLOSE = 0.75
"""A new name at least this similar to a known name counts as misspelt. `diggits` does, `digits_of_ours` does not."""

__all__ = ["budget_values", "enter_public", "grant", "revoke", "set_cap", "write_budget_report"]


def budget_values(url: str, dataset: str | None) -> dict[str, Any]:
    """Return the facts of one data set in a ledger, of all blocks of a table, or of all its data sets.

    Raises:
        InputError: no ledger exists, or it has no such data set.
        LedgerCorruptError: the data set is damaged. Of several, damaged data sets are listed instead.
    """
    ledger = _opened(url)
    names = tuple(name for name in ledger.datasets() if dataset is None or table_of(name) == dataset)
    one = dataset is not None and set(names) <= {dataset}
    if dataset is not None and one:
        ledger, owner = _ledger_and_owner(url, dataset)
        names = (owner,)
    damaged = {name: str(error) for name, error in ledger.damage().items()}
    return {
        "ledger": ledger.url,
        "ledger_id": ledger.id,
        "datasets": [_shown(ledger, ledger.dataset_state(name)) for name in names if one or name not in damaged],
        "damaged": damaged,
    }


def set_cap(
    url: str,
    dataset: str,
    *,
    epsilon: float,
    delta: float,
    order: str | None = None,
    new: bool = False,
    yes: bool = False,
) -> dict[str, Any]:
    """Set a data set's cap, and return its state.

    The ledger is created if it does not exist. A data set that is part of a larger one, such as `cifar10_10k2k`,
    shares the budget of the larger one. `order` is the order of a Rényi filter that is used in addition to the sum of
    claims: a number, `auto` or `none`. With None, the order does not change. With `new`, a name that looks misspelt is
    accepted, and with `yes` a cap below what is committed.

    Raises:
        InputError: a number is out of range, the name looks misspelt, or more is committed already.
        BudgetRefusedError: the order would change while a search counts against the cap.
    """
    require_dataset(dataset)
    is_block = dataset != table_of(dataset)
    _refuse_block(dataset, is_block and table_of(dataset) in DATASETS, "A shipped data set has no blocks")
    require_epsilon(epsilon)
    require_delta(delta)
    asked = _order(order, epsilon, delta)
    owner = _owner(dataset)
    # Read first: a refusal must not create a ledger.
    names = Ledger.open(url, create=False).datasets() if Ledger.exists(url) else ()
    known = {*DATASETS, *names}
    unknown = dataset not in known
    another_block = is_block and table_of(dataset) in set(map(table_of, names))
    if unknown and not new and not another_block and (near := _nearest(dataset, known)):
        raise InputError(
            "dataset-unknown",
            f"No data set is named {dataset!r}. Did you mean {near}? To set a cap for a new data set of that name, add "
            "--new. A cap cannot be removed from the ledger.",
        )
    require_folder(url)
    ledger = Ledger.open(url)
    before = ledger.cap(owner)
    if order is None and before is not None:
        asked = before.order
    spent = ledger.dataset_state(owner)
    if not yes and (epsilon < spent.committed_epsilon or delta < spent.committed_delta):
        raise InputError(
            "cap-below-committed",
            f"The searches on {owner} have committed ε = {spent.committed_epsilon:g}, δ = {spent.committed_delta:g} "
            f"already, so a cap of ε = {epsilon:g}, δ = {delta:g} lets no search start. To set this cap anyway, add "
            "--yes.",
        )
    ledger.set_cap(owner, epsilon, delta, order=asked)
    state = ledger.dataset_state(owner)
    notes = []
    if order == "auto":
        notes.append(
            f"The Rényi order is {asked:g}. Of all orders tried, this one admits the most Gaussian mechanisms."
        )
    if asked is not None:
        notes.append(f"The rule for new searches: {rule(state.cap)}.")
    if within_cap(state) is False:
        notes.append("More is committed than this cap allows, so no new search can start.")
    if unknown:
        notes.append("No shipped data set has this name, and no search has used the name yet.")
    if owner != dataset:
        notes.append(f"({dataset} is part of {owner} and shares its budget.)")
    return _changed(ledger, state, notes)


def grant(url: str, dataset: str, user: str, *, epsilon: float, delta: float) -> dict[str, Any]:
    """Set a user's share of a data set's cap.

    Raises:
        InputError: no such ledger or data set exists, or a number is out of range.
        BudgetRefusedError: the data set has no cap, or the shares would exceed it.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    ledger, owner = _ledger_and_owner(url, dataset)
    first = not ledger.dataset_state(owner).grants
    ledger.grant(owner, user, epsilon, delta)
    state = ledger.dataset_state(owner)
    notes = [f"From now on only users with a share of {owner} can start a search on it."] if first else []
    if file_of(ledger.url) is not None and not _is_account(user):
        notes.append(f"This machine has no account {user!r}. If the name is wrong, grant a share to the right one.")
    committed = state.committed_by(user)
    if committed[0] > epsilon or committed[1] > delta:
        notes.append(f"The searches of {user} have committed more than the share, so {user} can start no new search.")
    return _changed(ledger, state, notes)


def _is_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def revoke(url: str, dataset: str, user: str) -> dict[str, Any]:
    """Revoke a user's share. Committed budget stays committed.

    Raises:
        InputError: no such ledger or data set exists.
        LedgerError: the user has no share.
    """
    ledger, owner = _ledger_and_owner(url, dataset)
    ledger.revoke(owner, user)
    state = ledger.dataset_state(owner)
    notes = [
        f"The share of {user} is revoked, so {user} can start no new search on {owner}, and no new trial of an open "
        "one. Trials that have reserved their steps can finish."
    ]
    if not any(share.epsilon > 0 for share in state.grants.values()):
        notes.append("The cap stays divided, so nobody can start a search until a share is granted.")
    return _changed(ledger, state, notes)


def write_budget_report(url: str, dataset: str, out: Path) -> dict[str, Any]:
    """Check the complete ledger, and write the page for a data protection officer.

    Raises:
        InputError: no such ledger or data set exists, or the page's folder does not exist.
        LedgerCorruptError: the data set is damaged. No page is written. Damage of others is said on the page.
        OSError: the page cannot be written.
    """
    require_page_path(out)
    ledger, owner = _ledger_and_owner(url, dataset)
    damaged = ledger.verify_chain(owner)
    history = ledger.entries(owner)
    values = {
        **_shown(ledger, history[-1][1]),
        "ledger": ledger.url,
        "ledger_id": ledger.id,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "history": [asdict(line) for line in lines(history)],
        "damaged": {name: str(error) for name, error in damaged.items()},
    }
    write_text(out, budget_page(values, points(history)))
    return {**values, "out": str(out)}


def enter_public(url: str, dataset: str, file: str) -> dict[str, Any]:
    """Enter the records of a file, and those of each of its blocks, as public. Searches may use them unprotected.

    The ledger and its key are created if they do not exist. The ledger stores a keyed checksum of the records, and
    refuses records that it holds as private.

    Raises:
        InputError: the name belongs to a shipped data set.
        trainables.errors.DatasetError: the file is not a data set.
        BudgetRefusedError: the ledger holds the records, or the name, as private.
    """
    require_dataset(dataset)
    _refuse_block(dataset, dataset != table_of(dataset), "Public records have no blocks")
    path = Path(file).expanduser().absolute()
    contents = [_fingerprint_of(dataset, path), *(_fingerprint_of(dataset, path, block) for block in block_names(path))]
    ledger = Ledger.open(url)
    ledger.enter_public(dataset, *(ledger.key.digest(RECORDS_PURPOSE, content.encode()) for content in contents))
    note = "The ledger now lists the records of this file as public. Enter a file with other records separately."
    return _changed(ledger, ledger.dataset_state(dataset), [note])


def _fingerprint_of(dataset: str, path: Path, *blocks: str) -> str:
    """Return the fingerprint of the records in a file of any task. It depends neither on the task nor on the size."""
    refused: list[DatasetError] = []
    for task in TASKS:
        request = DatasetRequest(name=dataset, path=str(path), public_size=1, task=task, blocks=blocks)
        try:
            return records_fingerprint(request)
        except DatasetError as error:
            refused.append(error)
    raise refused[0]


def _refuse_block(dataset: str, refused: bool, why: str) -> None:  # noqa: FBT001
    if refused:
        raise InputError("ledger-name-invalid", f"{why}, so {dataset!r} is not a valid name. Write a name without `/`.")


def _owner(dataset: str) -> str:
    """Return the name under which the ledger stores a data set's budget."""
    about = DATASETS.get(dataset)
    return dataset if about is None else about.budget_owner or dataset


def _opened(url: str) -> Ledger:
    if not Ledger.exists(url):
        raise InputError(
            "no-ledger",
            f"No ledger exists at {url}. The first private search or `tune budget set` creates it. To choose another "
            "ledger, use --ledger.",
        )
    return Ledger.open(url, create=False)


def _ledger_and_owner(url: str, dataset: str) -> tuple[Ledger, str]:
    ledger, owner = _opened(url), _owner(dataset)
    names = ledger.datasets()
    if owner not in names:
        near = _nearest(dataset, names)
        meant = f" Did you mean {near}?" if near else ""
        raise InputError(
            "dataset-unknown",
            f"The ledger has no data set {dataset!r}.{meant} Its data sets: {', '.join(names) or 'none'}. To add one, "
            "set its cap with `tune budget set`.",
        )
    return ledger, owner


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None if no name is similar."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_CLOSE)
    return by_lower[close[0]] if close else None


def _order(asked: str | None, epsilon: float, delta: float) -> float | None:
    """Return the Rényi order for a value of `--order`.

    Raises:
        InputError: the value is not an order, or a filter of this order would admit no search.
    """
    if asked in {None, "none"}:
        return None
    if asked == "auto":
        # A Gaussian mechanism's divergence is proportional to the order, so the largest quotient fits most.
        found = max(ORDERS, key=lambda order: (order_filter(order, epsilon, delta) or 0) / order)
    else:
        try:
            found = float(asked or "")
        except ValueError as error:
            raise InputError(
                "renyi-order-invalid",
                f"`--order` must be a number above 1, such as 8, `auto` or `none` (got {asked!r}).",
            ) from error
    if order_filter(found, epsilon, delta) is None:
        raise InputError(
            "renyi-order-invalid",
            f"A Rényi filter of order {found:g} admits no search at ε = {epsilon:g} and half of δ = {delta:g}. "
            "Use `--order auto`, or omit `--order`.",
        )
    return found


def _changed(ledger: Ledger, state: DatasetState, notes: list[str]) -> dict[str, Any]:
    return {"ledger": ledger.url, **_dataset(state, ledger.url), "notes": notes}


def _dataset(state: DatasetState, url: str) -> dict[str, Any]:
    cap = state.cap
    halves = 1 if cap is None or cap.order is None else 2
    hides_runs = any(search.hides_runs for search in state.searches)
    return {
        "dataset": state.dataset,
        "summary": dataset_line(state),
        "claim": Total.of_state(state, ledger_option=ledger_option(url)).sentence,
        "cap": None if cap is None else _pair((cap.epsilon, cap.delta)),
        "order": None if cap is None else cap.order,
        "rule": rule(cap),
        "unit": state.committed.unit,
        "committed": _pair((state.committed_epsilon, state.committed_delta)),
        "left": None if cap is None else _pair(
            (room(cap.epsilon, state.committed_epsilon), room(cap.delta / halves, state.committed_delta))
        ),
        "order_used": _order_used(state),
        "guarantee": _guarantee(state),
        "over": within_cap(state) is False,
        "void": [void_text(void) for void in state.voids],
        "divided": bool(state.grants),
        "shares": [
            {"user": line.user, "granted": _pair(line.granted), "committed": _pair(line.committed),
             "left": _pair(line.left)}
            for line in share_lines(state)
        ],
        "searches": [
            {**asdict(line), "validation": _pair(line.validation)} for line in search_lines(state)
        ],
        # How the chain grows would reveal when a sealed search ended, and so how many runs it made.
        "entries": None if hides_runs else state.seq,
        "head": state.head,
    }  # fmt: skip


def _shown(ledger: Ledger, state: DatasetState) -> dict[str, Any]:
    return {**_with_odometer(ledger, state), "division": basis(state), "division_fault": _division_fault(ledger, state)}


def _division_fault(ledger: Ledger, state: DatasetState) -> str | None:
    """Return why the stored division among users cannot be relied on; None if it is intact, or there is none."""
    try:
        if basis(state) is not None:
            ledger.verify_division(state.dataset)
    except LedgerError as error:
        if error.code not in {"ledger-division-damaged", "ledger-not-granted"}:
            raise
        if error.code == "ledger-not-granted":
            return (
                "This database role may not read how records are divided among users, so the division was not checked "
                "for changes."
            )
        return str(error)
    return None


def _with_odometer(ledger: Ledger, state: DatasetState) -> dict[str, Any]:
    read, cap = read_dataset(state), state.cap
    # If only the claims bound the spending, and their δ is above the cap's, the reading is at that δ.
    at = "the cap's δ" if cap is not None and read.delta == cap.delta else "the δ of all searches together"
    label = LABEL_VOID if state.voids else LABEL_WITHOUT_CAP if cap is None else LABEL
    return {
        **_dataset(state, ledger.url),
        "odometer": {"epsilon_spent": read.epsilon, "delta": read.delta, "delta_is": at, "label": label},
    }


def _order_used(state: DatasetState) -> float | None:
    """Return the committed fraction of the Rényi filter.

    Return None if there is no filter, or if a search has no Rényi bound.
    """
    cap, held = state.cap, state.committed
    return None if cap is None or cap.units is None or held.unbounded else held.units / cap.units


def _guarantee(state: DatasetState) -> dict[str, float] | None:
    """Return the guarantee of a data set: the larger of its cap and its committed total.

    Return None without a cap, or if the total is void.
    """
    cap = state.cap
    if cap is None or state.voids:
        return None
    if within_cap(state):
        return _pair((cap.epsilon, cap.delta))
    return _pair((max(cap.epsilon, state.committed_epsilon), max(cap.delta, state.committed_delta)))


def _pair(pair: tuple[float, float] | None) -> dict[str, float] | None:
    return None if pair is None else {"epsilon": pair[0], "delta": pair[1]}
