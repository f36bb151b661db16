"""Registration of a sweep in the ledger when the sweep starts, resumes and ends.

The ledger is the durable record of all charges to a data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.data import info, is_own
from tuner.errors import BudgetRefusedError, LedgerError, TunerError
from tuner.experiment import load_experiment
from tuner.privacy.ledger.blocks import table_of
from tuner.sweep.folder import read_json
from tuner.sweep.identity import (
    admit_open_use,
    block_fingerprints,
    charged_users,
    division_of,
    keyed_fingerprint,
    near_names,
    public_facts,
)
from tuner.sweep.ledger_head import remember_head, require_head, require_not_behind
from tuner.sweep.releases import hold_release, release_to_use
from tuner.sweep.settings import plan_hash, settings_hash, split_of, stated_use
from tuner.sweep.start_weights import start_for_ledger
from tuner.sweep.status import SweepState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.division import Division
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import DatasetState, SearchState
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = [
    "Preview",
    "enter",
    "hold_release_to_ledger",
    "hold_to_ledger",
    "leave",
    "open_ledger",
    "preview",
    "refusal_at",
    "refuse_if_charged",
    "require_origin",
    "return_to",
]


def open_ledger(
    prepared: ReadySearch, *, create: bool = True, say: Callable[[str], None] = lambda _: None
) -> Ledger | None:
    """Open the ledger that the experiment names, or return None if the search is not private.

    A ledger is created only when a search starts, never for an exported file, and `say` tells it.
    """
    from tuner.privacy.ledger.ledger import Ledger

    if not prepared.plan.private:
        return None
    url, create = prepared.experiment.ledger, create and prepared.experiment.exported_from is None
    new = create and not Ledger.exists(url)
    ledger = Ledger.open(url, create=create)
    _ = ledger.key  # a key that is missing is refused before anything is written
    if new:
        say(f"made a new ledger at {ledger.url}, which contains no earlier search")
    return ledger


def require_origin(prepared: ReadySearch) -> None:
    """Raise a LedgerError if an exported file is used with another or an older ledger than it was exported from."""
    from tuner.privacy.ledger.ledger import Ledger

    origin, url = prepared.experiment.exported_from, prepared.experiment.ledger
    if origin is None:
        return
    why = "there is no ledger at this URL"
    if Ledger.exists(url):
        ledger = Ledger.open(url, create=False)
        state = ledger.state_at(prepared.owner, origin.entries)
        if ledger.id != origin.ledger:
            why = "it has another id"
        elif (state.seq, state.head) != (origin.entries, origin.head):
            why = f"data set {prepared.owner!r} lacks the entries that it had at the export"
        else:
            return
    raise LedgerError(
        "ledger-not-origin",
        f"{prepared.path} was exported from the ledger {origin.ledger}, but {url} is not that ledger: {why}. Only the "
        "ledger of the export has the charges of these records. Restore that ledger, or correct `ledger` in the file.",
    )


def enter(ledger: Ledger, sweep: SweepFolder, prepared: ReadySearch) -> None:
    """Open the search in the ledger. The search's cap then counts against the data set's cap.

    Raises:
        BudgetRefusedError: the search does not fit the data set's cap, or divides the records among users differently
            than earlier searches. Nothing was written.
    """
    plan = prepared.plan
    own: dict[str, object] = {}
    if is_own(prepared.request):
        near = near_names(ledger, prepared.owner, prepared.about, user=ledger.user())
        own = {"own": public_facts(prepared.about), "near": near}
    public = (("public_search", sweep.public_search), ("proxy_search", sweep.proxy_search))
    chosen = {name: read_json(file) for name, file in public if file.exists()}
    ledger.open_search(
        prepared.owner,
        sweep.id,
        filter=plan.training_filter,
        epsilon=plan.epsilon,
        delta=plan.delta,
        validation=plan.validation_filter,
        validation_claim=plan.validation_claim,
        unit=plan.unit,
        fingerprint=keyed_fingerprint(ledger, prepared.request),
        division=division_of(ledger, prepared.experiment, prepared.request),
        blocks=prepared.other_blocks,
        block_fingerprints=block_fingerprints(ledger, prepared.request),
        details={
            "experiment": plan.name,
            "method": plan.method,
            "model": plan.model,
            "trials": plan.trials,
            **(
                {} if plan.full_runs is None else {"full_runs": plan.full_runs, "steps_per_trial": plan.steps_per_trial}
            ),
            "settings": settings_hash(prepared.experiment, ledger.id),
            "plan": plan_hash(plan),
            "split": split_of(prepared.request),
            **stated_use(prepared.experiment),
            **({} if plan.commit is None else {"commit": {"share": plan.commit.share, "start": plan.commit.start}}),
            **_probes(prepared),
            **device_of(prepared.experiment),
            **start_for_ledger(prepared.experiment),
            **own,
            **chosen,
        },
    )
    remember_head(sweep, ledger)


def device_of(experiment: Experiment) -> dict[str, object]:
    """Return that trials run on a GPU, for their card: how a GPU rounds is assumed, not tested. Empty for a CPU."""
    return {"device": "cuda"} if experiment.resources.gpus_per_trial else {}


def _probes(prepared: ReadySearch) -> dict[str, object]:
    """Return the share of the loss probes, for a search whose trials may have the schedule gen."""
    share = dict(prepared.experiment.space.parameters).get("schedule.gen.probe_share")
    return {} if share is None else {"probe_share": share.to_spec()}


@dataclass(frozen=True)
class Preview:
    """What the ledger says of a search before it starts. The ledger decides only when the search is opened.

    Attributes:
        states: states of the data set, or of each block that the search uses. There is none without a ledger, or for a
            search that is not private.
        refusal: the error if the search does not fit the cap of its data set or of a block now, or None if it fits.
        user: name under which the ledger would record the user who opens the search.
    """

    states: tuple[DatasetState, ...] = ()
    refusal: BudgetRefusedError | None = None
    user: str = ""


def preview(prepared: ReadySearch) -> Preview:
    """Return what the ledger says of a search. It is opened once, because that verifies all its entries."""
    from tuner.privacy.ledger.ledger import Ledger

    url = prepared.experiment.ledger
    if not prepared.plan.private or not Ledger.exists(url):
        return Preview()
    ledger = Ledger.open(url, create=False)
    states = ledger.states_of(prepared.owners)
    return Preview(states, _refusal(prepared, states, ledger), ledger.user())


def _refusal(prepared: ReadySearch, states: Sequence[DatasetState], ledger: Ledger) -> BudgetRefusedError | None:
    from tuner.privacy.ledger.admission import admit_own

    if prepared.plan.mode.on_release and release_to_use(prepared, states, ledger) is not None:
        return None  # it is charged already
    if is_own(prepared.request):
        try:
            for name in prepared.owners:
                admit_own(ledger.states(), name)
        except BudgetRefusedError as error:
            return error
    return refusal_at(prepared, states, user=ledger.user())


def refusal_at(prepared: ReadySearch, states: Iterable[DatasetState], *, user: str) -> BudgetRefusedError | None:
    """Return the error if the search does not fit one of these states, of its data set or of its blocks."""
    from tuner.privacy.ledger.admission import admit_search, units_at
    from tuner.privacy.ledger.division import admit_division

    plan = prepared.plan
    for state in states:
        order = None if state.cap is None else state.cap.order
        try:
            if plan.unit == "user":  # the records are not read before the start, so only a declared key is compared
                admit_division(state, prepared.experiment.dataset.user_key, "this search")
            admit_search(
                state,
                epsilon=plan.epsilon,
                delta=plan.delta,
                units=units_at(order, plan.training_filter, plan.validation_filter),
                unit=plan.unit,
                user=user,
                what="this search",
            )
        except BudgetRefusedError as error:
            return error
    return None


def hold_to_ledger(
    ledger: Ledger,
    state: SearchState,
    experiment: Experiment,
    plan: Plan,
    *,
    request: DatasetRequest,
    division: Division | None,
) -> None:
    """Raise a TunerError if a sweep's settings, plan, records or users differ from those in its ledger entry.

    This check is needed because the sweep's files can be edited. `division` is that of `division_of`.
    """
    details, scores = state.details, None if state.validation is None else state.validation.filter
    own = details.get("own")
    compared = (
        ("The settings", settings_hash(experiment, ledger.id), details.get("settings")),
        ("The plan", (plan.training_filter, plan.unit, plan.private), (state.filter, state.unit, True)),
        ("The plan", (plan.epsilon, plan.delta), (state.epsilon, state.delta)),
        ("The plan", (plan.validation_filter, plan.validation_claim), (scores, state.validation_claim)),
        ("The plan", plan_hash(plan), details.get("plan")),
        ("The device", device_of(experiment).get("device"), details.get("device")),
        ("The records", keyed_fingerprint(ledger, request), state.fingerprint),
        ("The shape or number of classes of the records", own and public_facts(info(request)), own),
        ("The blocks", [name.rpartition("/")[2] for name in _datasets(state)], list(request.blocks)),
        ("The users", division and division.named, charged_users(state)),
    )
    _require_equal(state, compared)


def hold_release_to_ledger(
    ledger: Ledger,
    state: SearchState,
    experiment: Experiment,
    plan: Plan,
    *,
    request: DatasetRequest,
    division: Division | None,
) -> None:
    """Raise a TunerError if a sweep's release, split or records differ from those in the release's ledger entry.

    The other settings of a search on a release may be any, because nothing that it does is charged.
    """
    compared = (
        ("The plan", (plan.training_filter, plan.unit, plan.private), (state.filter, state.unit, True)),
        ("The plan", (plan.epsilon, plan.delta), (state.epsilon, state.delta)),
        ("The split", split_of(request), state.details.get("split")),
        ("The records", keyed_fingerprint(ledger, request), state.fingerprint),
        ("The users", division, None),
    )
    _require_equal(state, compared)


def _require_equal(state: SearchState, compared: Sequence[tuple[str, object, object]]) -> None:
    """Raise a TunerError if a fact of a sweep differs from what the ledger was charged for.

    `compared` has triples: name of the fact, its value now, its value in the ledger.
    """
    for what, now, charged in compared:
        if now != charged:
            raise TunerError(
                "ledger-mismatch",
                f"{what} of {state.search} changed after the search was charged. Restore the sweep's files (and the "
                "data) from a copy, or start a new search.",
            )


def _datasets(state: SearchState) -> tuple[str, ...]:
    """Return the blocks on which a search counts; empty if its table is not used by blocks."""
    return state.datasets if table_of(state.dataset) != state.dataset else ()


def return_to(sweep: SweepFolder, prepared: ReadySearch, *, reopen: bool) -> Ledger | None:
    """Return the ledger of a resumed sweep. With `reopen`, open the search in the ledger again.

    Raises:
        BudgetRefusedError: the search was closed without a step, and its cap no longer fits the data set's cap, or its
            division among users differs from that of a later search.
        LedgerError: the ledger does not contain the sweep, or is older than what the sweep has seen.
        TunerError: the sweep's files or the data are not those that the ledger was charged for.
    """
    if prepared.plan.private != prepared.experiment.privacy.private:
        raise TunerError(
            "sweep-files-changed",
            f"`privacy.private` is {prepared.plan.private} in the plan of {sweep.root}, but "
            f"{prepared.experiment.privacy.private} in its experiment file. Restore both files from a copy.",
        )
    starting = _never_entered(sweep)
    ledger = open_ledger(prepared, create=False)
    if ledger is None:
        refuse_if_charged(sweep, prepared.experiment.ledger)
        admit_open_use(prepared.experiment.ledger, prepared.request).require(sweep.id, void=None)
        return None
    stored = load_experiment(sweep.experiment)  # the noise of the requested experiment was copied from the plan
    if prepared.plan.mode.on_release:
        require_head(sweep, ledger)
        charged = ledger.search_state(hold_release(sweep, ledger).search)
        hold_release_to_ledger(ledger, charged, stored, prepared.plan, request=prepared.request, division=None)
        return ledger
    if not ledger.has_search(sweep.id):
        if not starting:
            raise LedgerError(
                "search-not-in-ledger",
                f"The ledger {ledger.url} does not contain the sweep {sweep.id}. Restore the ledger in which the "
                "sweep was charged, because a sweep cannot continue with another ledger.",
            )
        enter(ledger, sweep, prepared)  # the sweep died after its folder was created and before it entered the ledger
    state = ledger.search_state(sweep.id)
    require_not_behind(sweep, ledger, state)
    if state.leased_steps and not sweep.journal.exists():
        raise TunerError(
            "sweep-file-unreadable",
            f"{sweep.journal}, which contains the trials of the sweep, is missing. All charges remain. Restore the "
            "file from a copy.",
        )
    division = division_of(ledger, stored, prepared.request)
    hold_to_ledger(ledger, state, stored, prepared.plan, request=prepared.request, division=division)
    if reopen:
        ledger.reopen_search(sweep.id, division=division)
    return ledger


def _never_entered(sweep: SweepFolder) -> bool:
    """Return whether the sweep died before it entered the ledger.

    The status file can be edited, so the sweep's folder must also be free of trials and of a study.
    """
    starting = sweep.read_status().get("state") == SweepState.STARTING
    return starting and sweep.trials.is_dir() and not any(sweep.trials.iterdir()) and not sweep.journal.exists()


def refuse_if_charged(sweep: SweepFolder, url: str) -> None:
    """Raise a TunerError if the ledger was charged for a sweep whose files say that it is not private."""
    from tuner.privacy.ledger.ledger import Ledger

    if Ledger.exists(url) and Ledger.open(url, create=False).has_search(sweep.id):
        raise TunerError(
            "ledger-mismatch",
            f"The files of {sweep.id} say `privacy.private: false`, but this search was charged in the ledger. "
            "Restore the files from a copy.",
        )


def leave(ledger: Ledger | None, sweep: SweepFolder, *, over: bool) -> None:
    """Close the search in the ledger if the search is over or has never taken a step.

    A search that can be resumed keeps its cap committed. Without a ledger, nothing happens.
    """
    if ledger is None:
        return
    state = ledger.search_state(sweep.id)
    charged = state.begun or any(pool.leased_steps for pool in state.pools.values())
    if over or not charged:
        ledger.close_search(sweep.id)
        remember_head(sweep, ledger)
