"""The commands of `budget`: what every data set has committed and spent over all searches, its cap and its shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data import DATASETS
from tuner.errors import BudgetRefusedError, InputError
from tuner.report.facts import dataset_line
from tuner.report.sweep_report import count

if TYPE_CHECKING:
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import DatasetState, SearchState

_CLOSE = 0.75
"""From this likeness on a name may be a misspelling: `diggits`, and not `digits_of_ours`."""

__all__ = ["budget_text", "budget_values", "changed_text", "grant", "report", "revoke", "set_cap"]


def budget_values(url: str, dataset: str | None) -> dict[str, Any]:
    """All data sets of a ledger, or one.

    Raises:
        InputError: there is no ledger, or no such data set in it.
    """
    ledger = _opened(url)
    names = ledger.datasets() if dataset is None else (_known(ledger, dataset),)
    return {
        "ledger": ledger.url,
        "ledger_id": ledger.id,
        "datasets": [_with_odometer(ledger.dataset_state(name)) for name in names],
    }


def budget_text(values: dict[str, Any]) -> str:
    """The same in words."""
    lines = [f"ledger {values['ledger']}"]
    for dataset in values["datasets"]:
        lines += ["", *_dataset_lines(dataset)]
    if not values["datasets"]:
        lines.append("no data set has been used")
    lines += [
        "",
        "The guarantee for a data set is its cap. Without one nothing is bounded beforehand: the claims of searches",
        "add up to what is committed. A search without protected validation scored the records that validate outside",
        "any guarantee: keep to one split.",
    ]
    return "\n".join(lines)


def set_cap(
    url: str, dataset: str, *, epsilon: float, delta: float, order: str | None = None, new: bool = False
) -> dict[str, Any]:
    """Set a data set's cap, and say what it leaves.

    Args:
        url: of the ledger; it is made where there is none.
        dataset: its records' budget may have another owner: `cifar10_10k2k` is part of `cifar10`.
        epsilon: over all searches.
        delta: over all searches.
        order: of the Rényi filter beside the sum: a number, `auto`, or `none`; None leaves it as it is.
        new: whether a name is meant that looks like another one misspelt.

    Raises:
        InputError: a number is out of range, or the name looks misspelt.
        BudgetRefusedError: the order would change while a search counts.
    """
    from tuner.privacy.accountant.mechanism import require_delta, require_epsilon
    from tuner.privacy.ledger.admission import require_name
    from tuner.privacy.ledger.history import rule
    from tuner.privacy.ledger.ledger import Ledger

    require_name(dataset, "dataset")
    require_epsilon(epsilon)
    require_delta(delta)
    asked = _order(order, epsilon, delta)
    owner = _owner(dataset)
    # A look first: a refusal leaves no ledger behind.
    names = Ledger.open(url, create=False).datasets() if Ledger.exists(url) else ()
    unknown = dataset not in {*DATASETS, *names}
    near = _nearest(dataset, {*DATASETS, *names}) if unknown and not new else None
    if near is not None:
        raise InputError(
            f"a cap stays in the ledger, so that its data set must be named right: {dataset!r} is not known. Did you "
            f"mean {near}? Give --new for a data set of that name."
        )
    ledger = Ledger.open(url)
    before = ledger.cap(owner)
    if order is None and before is not None:
        asked = before.order
    ledger.set_cap(owner, epsilon, delta, order=asked)
    state = ledger.dataset_state(owner)
    notes = []
    if order == "auto":
        notes.append(f"The order is {asked:g}: spending like that of a Gaussian mechanism reaches its filter last.")
    if asked is not None:
        notes.append(f"δ is split between two rules: {rule(state.cap)}.")
    if _starts_nothing(state):
        notes.append("Nothing more can start.")
    if unknown:
        notes.append("No shipped data set has this name and no search has used it yet.")
    if owner != dataset:
        notes.append(f"({dataset} is part of {owner}: one budget.)")
    return _changed(ledger, state, notes)


def grant(url: str, dataset: str, user: str, *, epsilon: float, delta: float) -> dict[str, Any]:
    """Set a user's share of a data set's cap.

    Raises:
        InputError: there is no ledger or data set, or a number is out of range.
        BudgetRefusedError: the data set has no cap, or the shares would pass it.
    """
    from tuner.privacy.accountant.mechanism import require_delta, require_epsilon

    require_epsilon(epsilon)
    require_delta(delta)
    ledger = _opened(url)
    owner = _known(ledger, dataset)
    first = not ledger.dataset_state(owner).grants
    ledger.grant(owner, user, epsilon, delta)
    state = ledger.dataset_state(owner)
    notes = [f"From now on only who has a share of {owner} can start a search on it."] if first else []
    committed = state.committed_by(user)
    if committed[0] > epsilon or committed[1] > delta:
        notes.append(f"The searches of {user} have committed more than that: {user} can start nothing more.")
    return _changed(ledger, state, notes)


def revoke(url: str, dataset: str, user: str) -> dict[str, Any]:
    """Take a user's share away; what was committed stays committed.

    Raises:
        InputError: there is no ledger or data set.
        LedgerError: the user has no share.
    """
    ledger = _opened(url)
    owner = _known(ledger, dataset)
    ledger.revoke(owner, user)
    state = ledger.dataset_state(owner)
    notes = [
        f"The share of {user} is revoked: {user} can start nothing more on {owner}; what runs on a reservation "
        "finishes."
    ]
    if not any(_granted(_pair((share.epsilon, share.delta))) for share in state.grants.values()):
        notes.append("The cap stays divided, so nobody can start a search until a share is granted.")
    return _changed(ledger, state, notes)


def report(url: str, dataset: str, out: Path) -> dict[str, Any]:
    """Check the whole ledger and write the page that a data protection officer reads.

    Raises:
        InputError: there is no ledger or data set, or no folder for the page.
        LedgerCorruptError: a chain is broken; then there is no page.
        OSError: the page cannot be written.
    """
    from tuner.privacy.ledger.history import lines, points
    from tuner.report.budget_page import write

    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out must be a file in a folder that exists, got {out}. Name one, like budget.html.")
    ledger = _opened(url)
    owner = _known(ledger, dataset)
    ledger.verify_chain()
    history = ledger.entries(owner)
    values = {
        **_with_odometer(history[-1][1]),
        "ledger": ledger.url,
        "ledger_id": ledger.id,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "history": [asdict(line) for line in lines(history)],
    }
    write(values, points(history), out)
    return {**values, "out": str(out)}


def changed_text(values: dict[str, Any]) -> str:
    """What `set_cap`, `grant` and `revoke` did, in words."""
    shares = [f"  {_share_text(share)}" for share in values["shares"]] if values["divided"] else []
    first = " ".join([f"{values['dataset']}: {values['summary']}.", *values["notes"]])
    return "\n".join([first, *shares])


def _opened(url: str) -> Ledger:
    from tuner.privacy.ledger.ledger import Ledger

    if not Ledger.exists(url):
        raise InputError(
            f"a ledger must be there to be shown or divided, got {url}. It is made by the first private search, or by "
            "`tune budget set`; name another with --ledger."
        )
    return Ledger.open(url, create=False)


def _owner(dataset: str) -> str:
    about = DATASETS.get(dataset)
    return dataset if about is None else about.budget_owner or dataset


def _known(ledger: Ledger, dataset: str) -> str:
    owner, names = _owner(dataset), ledger.datasets()
    if owner not in names:
        near = _nearest(dataset, names)
        meant = f" Did you mean {near}?" if near else ""
        raise InputError(
            f"a data set must be in the ledger, got {dataset!r}.{meant} There are: {', '.join(names) or 'none'}. "
            "`tune budget set` gives one its cap."
        )
    return owner


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name of which this one may be a misspelling."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_CLOSE)
    return by_lower[close[0]] if close else None


def _order(asked: str | None, epsilon: float, delta: float) -> float | None:
    """The order that `--order` names.

    Raises:
        InputError: it is no order, or none admits anything.
    """
    from tuner.privacy.accountant.rdp import ORDERS
    from tuner.privacy.ledger.admission import order_filter

    if asked in {None, "none"}:
        return None
    if asked == "auto":
        # A Gaussian mechanism's divergence is in proportion to the order: most of it fits where this is largest.
        found = max(ORDERS, key=lambda order: (order_filter(order, epsilon, delta) or 0) / order)
    else:
        try:
            found = float(asked or "")
        except ValueError as error:
            raise InputError(f"--order must be a number above 1, auto or none, got {asked!r}. Write auto.") from error
    if order_filter(found, epsilon, delta) is None:
        raise InputError(
            f"a Renyi filter must admit something, but at order {found:g} that of epsilon {epsilon:g} and half of "
            f"delta {delta:g} admits nothing. Write --order auto, or leave the order out."
        )
    return found


def _changed(ledger: Ledger, state: DatasetState, notes: list[str]) -> dict[str, Any]:
    return {"ledger": ledger.url, **_dataset(state), "notes": notes}


def _dataset(state: DatasetState) -> dict[str, Any]:
    from tuner.privacy.ledger.history import room, rule, search_lines, share_lines

    cap = state.cap
    halves = 1 if cap is None or cap.order is None else 2
    sealed = any(search.charged_whole for search in state.searches)
    return {
        "dataset": state.dataset,
        "summary": dataset_line(state),
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
        "over": _starts_nothing(state),
        "divided": bool(state.grants),
        "shares": [
            {
                "user": line.user,
                "granted": _pair(line.granted),
                "committed": _pair(line.committed),
                "left": _pair(line.left),
            }
            for line in share_lines(state)
        ],
        "searches": [
            {**asdict(line), "validation": _pair(line.validation), **_numbers(search)}
            for line, search in zip(search_lines(state), state.searches, strict=True)
        ],
        # From how the chain grows one could tell when a sealed search ended, and so how many runs it made.
        "entries": None if sealed else state.seq,
        "head": state.head,
    }  # fmt: skip


def _with_odometer(state: DatasetState) -> dict[str, Any]:
    from tuner.privacy.ledger.odometer import LABEL, LABEL_WITHOUT_CAP, read_dataset

    read, cap = read_dataset(state), state.cap
    # Where the claims alone bound what was spent, at more than the cap's δ, there is no other δ to read it at.
    at = "the cap's" if cap is not None and read.delta == cap.delta else "that of all searches together"
    label = LABEL_WITHOUT_CAP if cap is None else LABEL
    return {
        **_dataset(state),
        "odometer": {"epsilon_spent": read.epsilon, "delta": read.delta, "delta_is": at, "label": label},
    }


def _numbers(search: SearchState) -> dict[str, Any]:
    """Of a search whose steps are all alike: which they are, and how many it may take."""
    filter = search.filter
    only = None if filter.charged_whole else filter.only_mechanism
    return {
        "step_cap": filter.most_steps,
        "sample_rate": only and only.sample_rate,
        "noise_multiplier": only and only.noise_multiplier,
    }


def _order_used(state: DatasetState) -> float | None:
    """The part of the filter at the cap's order that is used; None where there is none, or a search has no part."""
    cap, held = state.cap, state.committed
    return None if cap is None or cap.units is None or held.unbounded else held.units / cap.units


def _starts_nothing(state: DatasetState) -> bool:
    from tuner.privacy.ledger.admission import admit

    try:
        admit(state, 0.0, 0.0, units=0, what="nothing")
    except BudgetRefusedError:
        return True
    return False


def _guarantee(state: DatasetState) -> dict[str, float] | None:
    """What holds: the cap, unless it was set below what had been committed before; None without a cap."""
    cap = state.cap
    if cap is None:
        return None
    if not _starts_nothing(state):
        return _pair((cap.epsilon, cap.delta))
    return _pair((max(cap.epsilon, state.committed_epsilon), max(cap.delta, state.committed_delta)))


def _pair(pair: tuple[float, float] | None) -> dict[str, float] | None:
    return None if pair is None else {"epsilon": pair[0], "delta": pair[1]}


def _dataset_lines(dataset: dict[str, Any]) -> list[str]:
    odometer = dataset["odometer"]
    lines = [f"{dataset['dataset']}: {dataset['summary']}"]
    if dataset["cap"] is not None:
        left = _said(dataset["left"])
        if dataset["over"]:
            lines.append(
                f"  more is committed than the cap allows: nothing more can start, and what holds is not the cap but "
                f"{_said(dataset['guarantee'])}"
            )
        lines.append(f"  rule: {dataset['rule']}")
        lines.append(f"  left by the sum of claims: {left}" if dataset["order"] else f"  left: {left}")
        if dataset["order"] is not None:
            used = dataset["order_used"]
            lines.append(
                "  of the Rényi filter: closed, for a search has no finite divergence of its order"
                if used is None
                else f"  of the Rényi filter: {100 * used:.4g} % committed"
            )
    lines.append(
        f"  spent so far ({odometer['label']}): ε = {odometer['epsilon_spent']:.6g} at δ = {odometer['delta']:g}, "
        f"{odometer['delta_is']}"
    )
    if dataset["divided"]:
        lines += ["  shares", *(f"    {_share_text(share)}" for share in dataset["shares"])]
    if dataset["searches"]:
        lines += ["  searches", *(f"    {_search_text(search)}" for search in dataset["searches"])]
    return lines


def _granted(share: dict[str, float] | None) -> bool:
    """Whether a share is one: whose was revoked has one of nothing, which the ledger keeps."""
    return share is not None and share["epsilon"] > 0


def _share_text(share: dict[str, Any]) -> str:
    if not _granted(share["granted"]):
        none = "no share" if share["granted"] is None else "share revoked"
        return f"{share['user']}: {none}; committed {_said(share['committed'])}"
    return (
        f"{share['user']}: granted {_said(share['granted'])}; committed {_said(share['committed'])}; "
        f"left {_said(share['left'])}"
    )


def _search_text(search: dict[str, Any]) -> str:
    user = search["user"] or "user not recorded"
    text = (
        f"{search['search']}  {search['status']}  {user}  per {search['unit']}, {search['mode']}  "
        f"cap ε = {search['epsilon']:g}, δ = {search['delta']:g}"
    )
    if search["validation"] is not None:
        text += f" (validation {_said(search['validation'])})"
    if search["status"] == "sealed":
        return f"{text}  opened {search['opened']}; nothing else of it is shown"
    steps = f"{search['steps_spent']} of {search['step_cap']}" if search["step_cap"] else str(search["steps_spent"])
    note = "" if search["counts"] else "  (took no step: counts 0)"
    return f"{text}  {count(search['trials'], 'trial')}, {steps} steps; {search['cap_text']}{note}"


def _said(pair: dict[str, float]) -> str:
    return f"ε = {pair['epsilon']:g}, δ = {pair['delta']:g}"
