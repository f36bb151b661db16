"""Every number of a privacy card that follows from the ledger, and the words that say what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import BudgetRefusedError, VerificationError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.card.curve import curve_of
from tuner.privacy.ledger.admission import admit
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.odometer import LABEL, read_dataset, read_search
from tuner.privacy.ledger.state import DatasetState, PoolState, SearchState

__all__ = ["SCHEMA", "SCORES", "Winner", "ledger_sections", "mode_of", "winner_of"]

SCHEMA = 1
"""The format of the card."""

_UNITS = {"record": "one training record", "user": "one user with all of that user's records"}
_UNITS_OF_BOTH = {
    "record": "one record, whether it trains or validates",
    "user": "one user with all of that user's records, whether they train or validate",
}
"""Where the scores are inside the guarantee too."""
_SCORED_UNITS = {"record": "one validation record", "user": "one user whose records validate"}
SCORES = {
    "record": "the number of right answers",
    "user": "the sum over users of the part of their records that is answered right",
}
"""What a protected score is before its noise."""


@dataclass(frozen=True)
class Winner:
    """The exported trial.

    Attributes:
        trial: its id in the ledger; of a sealed search a word.
        run: (mechanism, steps) of a run of a sealed search, whose ledger does not tell runs apart.
    """

    trial: str
    run: tuple[SampledGaussian, int] | None = None


def winner_of(card: Mapping[str, Any]) -> Winner:
    """Which trial a card is about.

    Raises:
        KeyError: the card lacks a field.
        TypeError: a field is not of its type.
    """
    said = card["winner"]
    if card["claim"]["mode"] != "selection":
        return Winner(said["trial"])
    return Winner(said["trial"], (SampledGaussian(said["sample_rate"], said["noise_multiplier"]), said["steps"]))


def ledger_sections(state: DatasetState, search: str, winner: Winner) -> dict[str, Any]:
    """Every number of a card that follows from the ledger: `verify` calls this again and compares.

    Args:
        state: of the data set when the card was made.
        search: whose card.
        winner: the exported trial.

    Raises:
        VerificationError: the search or the winner is not there.
    """
    found = next((known for known in state.searches if known.search == search), None)
    if found is None:
        raise VerificationError(f"the card's search must be in the ledger, {search!r} is not on {state.dataset!r}.")
    return {
        "claim": _claim(found, winner),
        "data_accesses": _data_accesses(state, found),
        "training_cap": _cap(found.training, (found.epsilon, found.delta), _UNITS[found.unit]),
        "validation_cap": _validation_cap(found),
        "public_search": _public_search(found),
        "spent": _spent(found),
        "winner": _winner(found, winner),
        "dataset_budget": _dataset_budget(state, found),
        "ledger": {
            "head_seq": state.seq,
            "head_hash": state.head,
            "label": "a sealed search leaves the same entries however many runs it makes (opened and begun; reopened "
            "where it was closed before it began), and the random number in the first of them keeps the hash from "
            "telling when they were written"
            if found.charged_whole
            else "every charge of the search stands before this entry",
        },
    }


def mode_of(found: SearchState) -> str:
    """`composition`, `selection`, or `public` for one charged run after a search on public records."""
    if found.charged_whole:
        return "selection"
    return "public" if found.details.get("public_search") else "composition"


def _claim(found: SearchState, winner: Winner) -> dict[str, Any]:
    mode, protected = mode_of(found), found.validation is not None
    pair = {"epsilon": found.epsilon, "delta": found.delta}
    single = {"epsilon": _single_run(found, winner), "delta": found.delta}
    return {
        "statement": _statement(found, mode, protected=protected),
        "search": found.search,
        "dataset": found.dataset,
        **pair,
        "covers": {
            "model": True, "tuning": True, "validation": protected, "test": False, "earlier_searches": False
        },
        "model_and_tuning": {**pair, "status": "guaranteed: the claim"},
        "tuning_alone": {"epsilon": 0.0, "delta": 0.0, "status": "assumed: searched on records declared public"}
        if mode == "public"
        else {**pair, "status": "guaranteed: part of the claim, not on top of it"},
        "model_alone": {**pair, "status": "guaranteed: the claim"}
        if mode == "public"
        else {**single, "status": "NOT a guarantee: the model was chosen among others; see the exported trial"},
        "unit": (_UNITS_OF_BOTH if protected else _UNITS)[found.unit],
        "adjacency": f"add_or_remove_one{'_user' if found.unit == 'user' else ''}",
        "mode": mode,
        "law_of_the_number_of_runs": _law(found),
        "views": {"release": "covered", "analyst": "covered", "operator": "not covered: trusted"},
        "accounting": found.filter.accounting,
    }  # fmt: skip


def _statement(found: SearchState, mode: str, *, protected: bool) -> str:
    records = "users whose records train" if found.unit == "user" else "training records"
    also = f" and for those {'whose records' if found.unit == 'user' else 'that'} validate" if protected else ""
    what = {
        "composition": "everything that this search shows: the models of all trials, their settings, scores and "
        "curves, the choice among them and the exported model",
        "selection": "all that leaves this search: the exported configuration, its model and its score, chosen among a "
        "hidden number of runs of which nothing else is shown",
        "public": "the one run that was trained on them: its settings, scores and curve and the exported model; what "
        "it was trained with was searched on other records, which are declared public",
    }[mode]
    return f"({found.epsilon!r}, {found.delta!r})-differential privacy for the {records}{also}, for {what}"


def _law(found: SearchState) -> str | dict[str, Any]:
    facts = found.filter.law_facts(found.epsilon)
    return "not applicable: the number of trials is open and charged" if facts is None else facts


def _cap(pool: PoolState, claim: tuple[float, float], unit: str) -> dict[str, Any]:
    filter, delta = pool.filter, claim[1]
    return {
        "label": filter.label,
        "protects": unit,
        "epsilon": claim[0],
        "delta": delta,
        "mechanism": "Poisson-sampled Gaussian, one a step",
        "filter": filter.body(),
        "epsilon_at_cap": filter.claim(delta),
        "discretisation_error": filter.discretisation_error(delta),
        "curve": curve_of(filter, delta),
    }


def _validation_cap(found: SearchState) -> dict[str, Any] | None:
    if found.validation is None or found.validation_claim is None:
        return None
    cap = _cap(found.validation, found.validation_claim, _SCORED_UNITS[found.unit])
    return {
        **cap,
        "mechanism": f"Gaussian, one a released score: {SCORES[found.unit]}, which one {found.unit} moves by at most "
        "1, plus noise",
        "noise": sorted({mechanism.noise_multiplier for mechanism in found.validation.filter.mechanisms}),
        "joint": "disjoint splits that move no other record: for any record the larger of the two caps holds, not "
        "their sum",
    }


def _data_accesses(state: DatasetState, found: SearchState) -> dict[str, Any]:
    others = [other for other in state.searches if other.search != found.search and other.counts]
    return {
        "this_search": {
            "composition": "every step of every trial, charged before its batch was drawn",
            "selection": "every step of every run, charged all together before the first",
            "public": "every step of the one run, charged before its batch was drawn",
        }[mode_of(found)],
        "scores": "validation records: each released score was charged before it was drawn"
        if found.validation is not None
        else "validation records: scored as often as the search likes, outside the guarantee",
        "earlier_searches": [other.search for other in others if other.opened_seq < found.opened_seq],
        "later_searches": [other.search for other in others if other.opened_seq > found.opened_seq],
        "label": "another search on these records has a claim of its own, and the budget of the data set adds them up; "
        "uses of the records outside this ledger are not known to it",
    }


def _public_search(found: SearchState) -> dict[str, Any] | None:
    said = found.details.get("public_search")
    if not said:
        return None
    return {
        **dict(said),
        "epsilon": 0.0,
        "label": "ASSUMED, not proved: whoever wrote the experiment file declares these records public; then a search "
        "on them costs nothing",
    }


def _spent(found: SearchState) -> dict[str, Any]:
    if found.charged_whole:
        return {
            "label": "not told: the steps or the trials of a sealed search would tell how many runs there were. It was "
            "charged as a whole before its first run"
        }
    read = read_search(found)
    validation = found.validation
    return {
        "label": f"ODOMETER, not a guarantee: steps stopped adaptively; {LABEL.rpartition(': ')[2]}",
        "leased_steps": found.leased_steps,
        "trials": len(found.trials),
        "mechanisms": [
            {"sample_rate": mechanism.sample_rate, "noise_multiplier": mechanism.noise_multiplier, "steps": steps}
            for mechanism, steps in sorted(found.training.leased.items(), key=lambda item: item[0])
            if steps
        ],
        "epsilon_spent": read.training.epsilon,
        "released_scores": validation.leased_steps if validation is not None else None,
        "epsilon_spent_on_validation": read.validation.epsilon if read.validation else None,
    }


def _winner(found: SearchState, winner: Winner) -> dict[str, Any]:
    mechanism, steps = _run(found, winner)
    return {
        "label": "ε of this run as if it were the only one: NOT a guarantee for a tuned model"
        if mode_of(found) != "public"
        else "the one run that was trained on the records of the data set",
        "trial": winner.trial,
        "sample_rate": mechanism.sample_rate,
        "noise_multiplier": mechanism.noise_multiplier,
        "steps": steps,
        "single_run_epsilon": epsilon(mechanism, steps, found.delta),
        "at_delta": found.delta,
    }


def _single_run(found: SearchState, winner: Winner) -> float:
    mechanism, steps = _run(found, winner)
    return epsilon(mechanism, steps, found.delta)


def _run(found: SearchState, winner: Winner) -> tuple[SampledGaussian, int]:
    """The winner's mechanism and the steps that were charged to it; of a sealed search those of one of its runs."""
    if not found.charged_whole:
        return _leased(found, winner)
    if not found.begun:
        raise VerificationError(f"the exported run must have been charged, sealed search {found.search!r} never began.")
    if winner.run is None or not _made(winner.run, found.filter.charged_runs):
        raise VerificationError(
            f"the exported run must be one that search {found.search!r} may make, got {winner.run!r}."
        )
    return winner.run


def _made(run: tuple[SampledGaussian, int], runs: Iterable[tuple[SampledGaussian, int]]) -> bool:
    """Whether a run was charged: the ledger has the longest of each mechanism, and it pays for the shorter ones."""
    return any(run[0] == mechanism and 1 <= run[1] <= most for mechanism, most in runs)


def _leased(found: SearchState, winner: Winner) -> tuple[SampledGaussian, int]:
    trial = found.trials.get(winner.trial)
    if trial is None or not trial.leased or trial.mechanism is None:
        raise VerificationError(
            f"the exported trial must have leased steps, {winner.trial!r} of search {found.search!r} has none."
        )
    return trial.mechanism, trial.leased


def _dataset_budget(state: DatasetState, search: SearchState) -> dict[str, Any]:
    cap, user = state.cap, search.user
    share, by_user = state.grants.get(user), state.committed_by(user)
    spent = read_dataset(state)
    return {
        "dataset": state.dataset,
        "rule": _rule(state),
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "order": cap.order} if cap else None,
        "committed_epsilon": state.committed_epsilon,
        "committed_delta": state.committed_delta,
        "within_cap": _within(state),
        "user": user,
        "share": {"epsilon": share.epsilon, "delta": share.delta} if share else None,
        "committed_by_user": {"epsilon": by_user[0], "delta": by_user[1]},
        "label": "committed = sum of the searches' caps, a guarantee for all of them together, for records that "
        "trained in each, or validated where that is protected: what validated without noise was scored outside any "
        "guarantee; spent = ODOMETER, not one",
        "validation_splits": sorted(
            {canonical(other.details.get("split")) for other in state.searches if other.counts}
        ),
        "epsilon_spent": spent.epsilon,
        "odometer_delta": spent.delta,
        "other_searches": [
            {
                "search": other.search,
                "epsilon": other.epsilon,
                "delta": other.delta,
                "counts": other.counts,
                "leased_steps": None if other.charged_whole else other.leased_steps,
                "opened": "earlier" if other.opened_seq < search.opened_seq else "later",
            }
            for other in state.searches
            if other.search != search.search
        ],
    }


def _rule(state: DatasetState) -> str:
    if state.cap is None:
        return "none: its owner has set no cap; the searches' (ε, δ) add up"
    if state.cap.order is None:
        return "the sum of the searches' (ε, δ) stays within the cap"
    return (
        f"either the sum of the searches' (ε, δ), or their Rényi divergence of order {state.cap.order:g}, stays within "
        "the cap, each rule with half of its δ"
    )


def _within(state: DatasetState) -> bool | None:
    """Whether what is committed keeps to the cap, which its owner may lower at any time; None without one."""
    if state.cap is None:
        return None
    try:
        admit(state, 0.0, 0.0, units=0, what="nothing")
    except BudgetRefusedError:
        return False
    return True
