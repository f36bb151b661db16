"""Which records a command may use. The ledger is asked about all its data sets, not only about the charged one.

The refusal has the same words for every reason. To tell whether two files have the same records would reveal something
about a record, because whoever asks can choose one of the files.

Claims. (a) While the ledger holds records as private under any name, no trial starts on the same training records
without a charge, unless the ledger says first that the total is void. (b) Before the owner has entered a file of one's
own, the commands give the same answer about any two such files that differ only in records.

Proof. (a) A shipped data set is found by its name or checksums. Another file needs a `public` entry with its keyed
fingerprint, an HMAC over the sorted digests of its records; that entry and a search with the fingerprint refuse each
other. A search on several blocks has the fingerprint of each, and that of all together. (b) Once the ledger or the
experiment charges own records, a file without an entry is refused before any comparison. Only `tune budget public`, of
the owner, compares. Besides, the user of a search is told if the file of this search has changed since its charge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainables.data import DATASETS, budget_owner, is_own, records_fingerprint, share_records
from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.ledger.admission import not_admitted
from tuner.privacy.ledger.blocks import table_of
from tuner.privacy.ledger.key import RECORDS_PURPOSE
from tuner.privacy.ledger.state import DatasetState, SearchState
from tuner.sweep.settings import split_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainables.data import DatasetInfo, DatasetRequest
    from tuner.experiment import Experiment
    from tuner.privacy.ledger.division import Division, NamedDivision
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.sweep.preflight import ReadySearch

__all__ = [
    "OpenUse",
    "admit_open_use",
    "block_fingerprints",
    "charged_users",
    "division_of",
    "keyed_fingerprint",
    "landscape_refusal",
    "names_in_ledger",
    "naming_warnings",
    "near_names",
    "public_facts",
]


def keyed_fingerprint(ledger: Ledger, request: DatasetRequest) -> str:
    """Return the HMAC of the records' fingerprint with the operator's key, which the ledger stores."""
    return ledger.key.digest(RECORDS_PURPOSE, records_fingerprint(request).encode())


def block_fingerprints(ledger: Ledger, request: DatasetRequest) -> tuple[str, ...]:
    """Return the keyed fingerprint of each block's records, if a search uses several blocks; otherwise nothing."""
    if len(request.blocks) < 2:
        return ()
    return tuple(keyed_fingerprint(ledger, replace(request, blocks=(block,))) for block in request.blocks)


def division_of(ledger: Ledger, experiment: Experiment, request: DatasetRequest) -> Division | None:
    """Return how the records are divided among users, under the ledger's key; None if the unit is a record."""
    from trainables.data.divided import divided_records
    from tuner.privacy.ledger.division import Division

    if request.unit != "user":
        return None
    secret = bytes.fromhex(ledger.key.digest("division", b""))
    return Division(divided_records(request, secret), experiment.dataset.user_key)


def charged_users(state: SearchState) -> NamedDivision | None:
    """Return how the records of a search were divided among users when it was charged, as `division_of` now."""
    return state.division and replace(state.division, stored=None)


def public_facts(about: DatasetInfo) -> dict[str, object]:
    """Return what the ledger stores about the user's own records: the shape of an input and the number of classes."""
    return {"inputs": list(about.input_shape), "classes": about.classes}


def names_in_ledger(request: DatasetRequest) -> tuple[str, ...]:
    """Return the names of the records in the ledger: one for each block, or one.

    A copy of a shipped data set has the name of that data set.

    Raises:
        InputError: blocks of a copy of a shipped data set, which has one budget.
    """
    name = budget_owner(request)
    if request.blocks and not is_own(request):
        raise InputError(
            "block-invalid",
            f"`dataset.block` cannot be used for {request.name}, because its records are those of the shipped data set "
            f"{name}, which has one budget. Remove the key.",
        )
    return tuple(f"{name}/{block}" for block in request.blocks) or (name,)


def near_names(ledger: Ledger, dataset: str, about: DatasetInfo, *, user: str) -> list[str]:
    """Return the names of other own data sets of the same shape, classes and user, which may hold the same records."""
    facts = public_facts(about)
    return [
        state.dataset
        for state in ledger.states().values()
        if table_of(state.dataset) != table_of(dataset)
        and any(search.user == user and search.details.get("own") == facts for search in state.searches)
    ]


def naming_warnings(prepared: ReadySearch) -> tuple[str, ...]:
    """Return what the total of the user's own records rests on, and which data sets of the ledger are near."""
    from tuner.privacy.ledger.ledger import Ledger

    if not prepared.plan.private or prepared.request.path is None or not is_own(prepared.request):
        return ()
    found = [
        f"the total of {prepared.owner} is complete only if all files with these records use this data set name. The "
        "ledger recognises the same records in any order, but a file with a changed label or a missing record counts "
        "as other records, and a changed record may move between training and validation; the total then says so. Use "
        "one name for one collection of records."
    ]
    url = prepared.experiment.ledger
    if Ledger.exists(url):
        ledger = Ledger.open(url, create=False)
        near = near_names(ledger, prepared.owner, prepared.about, user=ledger.user())
        found += [
            f"the ledger has another data set with inputs of the same shape, searched by the same user: {name}. If the "
            "two data sets have records in common, use one name, because only one name gives these records one total."
            for name in near
        ]
    return tuple(found)


@dataclass(frozen=True)
class OpenUse:
    """Use of records without protection: a public search, or a search with `private: false`.

    Attributes:
        ledger: the ledger that the experiment names; None if it does not exist.
        refusal: the error if the ledger does not admit the use; None if it does.
        voided: data sets whose totals would be void with this use.
        named: those of them that the experiment names. The others are voided because a file may hold their records.
        use: `public` or `not private`.
    """

    ledger: Ledger | None
    refusal: BudgetRefusedError | None
    voided: tuple[str, ...]
    named: frozenset[str]
    use: str

    def require(self, sweep: str, *, void: str | None, say: Callable[[str], None] = lambda _: None) -> None:
        """Raise the refusal, unless the totals are void for this sweep. With `void`, a reason, make them void first.

        Nothing can be written to a damaged data set, and nothing is claimed for it. If the experiment names it, or no
        other total is void, its damage is raised, and nothing is written. Otherwise `say` tells it.

        Raises:
            BudgetRefusedError: the ledger does not admit the use.
            LedgerCorruptError: the total of a damaged data set would have to be void.
        """
        if self.refusal is None:
            return
        if self.ledger is None or not self.voided:
            raise self.refusal
        states = self.ledger.states()
        found = [states.get(name, DatasetState(dataset=name)) for name in self.voided]
        damaged = [state for state in found if state.damage is not None]
        open_names = [state.dataset for state in found if state.damage is None and not _is_void(state, sweep)]
        if void is None and (open_names or len(damaged) == len(found)):
            raise self.refusal
        for state in damaged:
            if state.dataset in self.named or len(damaged) == len(found):
                state.intact()
        for name in open_names:
            self.ledger.void_total(name, use=self.use, why=str(void), sweep=sweep)
            say(
                f"the TOTAL of {name} is now VOID, permanently, because its records are used without protection from "
                "now on"
            )
        for state in damaged:
            say(
                f"the total of {state.dataset} could not be entered as void, because its entries are damaged: "
                f"{state.damage}. Nothing is claimed for this data set until the ledger is restored. Tell its owner "
                "about this use, because a restored ledger does not show it."
            )


def admit_open_use(url: str, request: DatasetRequest, *, beside: DatasetRequest | None = None) -> OpenUse:
    """Ask the ledger whether records may be used without protection.

    A shipped data set is refused if the ledger holds it as private. Its records are public, so this tells nothing. For
    a file of the user's own, the answer does not depend on whether it has the records of a private data set: as soon
    as the ledger holds own records as private, or the experiment charges own records, the owner must have entered the
    file (`tune budget public`), and the records are compared there.

    Args:
        url: URL of the ledger, which is never created here.
        request: the records to use.
        beside: the private records of the same experiment, for a public search.

    Raises:
        LedgerError: the ledger cannot be read, or its key is missing.
    """
    from tuner.privacy.ledger.ledger import Ledger

    use = "not private" if beside is None else "public"
    ledger = Ledger.open(url, create=False) if Ledger.exists(url) else None
    states: Mapping[str, DatasetState] = {} if ledger is None else ledger.states()
    own = is_own(request)
    named = request.name if own else budget_owner(request)
    voided = [name for name, state in states.items() if table_of(name) == named and state.is_private]
    mine = {*voided, *(names_in_ledger(beside) if beside is not None else ())}
    if not own:
        # Two shipped data sets are compared by their published contents.
        same = beside is not None and not is_own(beside) and share_records(request, beside)
        voided += [budget_owner(beside)] if same and beside is not None else []
        refused = bool(voided)
    else:
        # A name with a cap alone may get these very records later.
        of_own = (name for name, state in states.items() if state.has_own or table_of(name) not in DATASETS)
        voided += [name for name in of_own if states[name].is_private]
        refused = bool(voided)
        if beside is not None and is_own(beside):
            voided += names_in_ledger(beside)
            refused = True
        if refused and ledger is not None and named not in map(table_of, voided):
            found = keyed_fingerprint(ledger, request)
            entered = any(found in state.public for state in states.values())
            refused = not entered or any(found in state.fingerprints for state in states.values())
    refusal = not_admitted() if refused else None
    return OpenUse(ledger, refusal, tuple(dict.fromkeys(voided)), frozenset(mine), use)


def landscape_refusal(
    experiment: Experiment, request: DatasetRequest, *, split: str, searches: Sequence[str]
) -> BudgetRefusedError | None:
    """Return the refusal if exact losses of these records would undo a guarantee in the ledger, or None.

    The validation and test records of the models' own searches are outside their guarantee. But validation records may
    have trained, or may be protected, in another search of the ledger; another data set may be held as private; and a
    file may have other records than those that the `searches` of the models were charged for.

    Raises:
        LedgerError: the ledger that knows the records of a file cannot be opened.
    """
    from tuner.privacy.ledger.ledger import Ledger

    own, file = request.name == experiment.dataset.name, request.path is not None and split == "validation"
    if not file and not Ledger.exists(experiment.ledger):
        return None
    ledger = Ledger.open(experiment.ledger, create=False)
    states, names = ledger.states(), names_in_ledger(request)
    if file:
        charged = [ledger.search_state(search) for search in searches]
        if any(search.user != ledger.user() for search in charged):
            return not_admitted()
        division = division_of(ledger, experiment, request)
        now = keyed_fingerprint(ledger, request), division and division.named
        if any((search.fingerprint, charged_users(search)) != now for search in charged):
            return not_admitted()
    known = [state for name, state in states.items() if name in names]
    if not own:
        return not_admitted() if any(state.is_private for state in known) else None
    others = [search for state in known for search in state.searches if search.counts and split == "validation"]
    here = split_of(experiment.dataset_request())
    held = any(search.validation is not None or search.details.get("split") != here for search in others)
    changed = bool(others) and any(len(state.validation_splits) > 1 for state in known)
    return not_admitted() if held or changed else None


def _is_void(state: DatasetState, sweep: str) -> bool:
    return any(void.sweep == sweep for void in state.voids)
