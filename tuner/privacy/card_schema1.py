"""The numbers of cards of schema 1: what `verify` recomputes for those that earlier versions have issued."""

from __future__ import annotations

from math import isfinite
from typing import Any

from tuner.errors import VerificationError
from tuner.privacy.accounting import discretisation_error, epsilon, epsilon_composed
from tuner.privacy.allowances import TotalSteps
from tuner.privacy.entries import canonical
from tuner.privacy.states import DatasetState, SearchState, TrialState

__all__ = ["assumptions", "sections"]

_CURVE = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def sections(state: DatasetState, found: SearchState, winner: str, trial: TrialState) -> dict[str, Any]:
    """The sections that follow from the ledger: a search of total steps, with validation outside the guarantee.

    Raises:
        VerificationError: the search is of another kind, which no card of schema 1 can describe: its words would
            promise a record what is promised to a user, or leave out a cap or what was assumed.
    """
    _require_plain(found)
    return {
        "claim": _claim(found),
        "mechanism": {
            "name": "Poisson-sampled Gaussian, one a step",
            "sample_rate": found.mechanism.sample_rate,
            "noise_multiplier": found.mechanism.noise_multiplier,
            "coupons": "one mechanism for all trials; a cap on total steps",
        },
        "spent": {
            "label": "ODOMETER, not a guarantee: steps stopped adaptively; the claim is the cap",
            "leased_steps": found.leased_steps,
            "trials": len(found.trials),
            "epsilon_spent": epsilon(found.mechanism, found.leased_steps, found.delta),
        },
        "winner": {
            "label": "ε of the winner's run as if it were the only one: NOT a guarantee for a tuned model",
            "trial": winner,
            "leased_steps": trial.leased,
            "single_run_epsilon": epsilon(found.mechanism, trial.leased, found.delta),
        },
        "dataset_budget": _dataset_budget(state, found),
        "ledger": {"head_seq": state.seq, "head_hash": state.head},
    }


def _claim(search: SearchState) -> dict[str, Any]:
    deltas = tuple(sorted({*_CURVE, search.delta}, reverse=True))
    curve = [(delta, epsilon(search.mechanism, search.step_cap, delta)) for delta in deltas]
    return {
        "statement": (
            f"({search.epsilon!r}, {search.delta!r})-differential privacy for the training records, for "
            "everything that this search shows: the models of all trials, their settings, scores and curves, the "
            "choice among them and the exported model"
        ),
        "search": search.search,
        "dataset": search.dataset,
        "epsilon": search.epsilon,
        "delta": search.delta,
        "covers": {"model": True, "tuning": True, "validation": False, "test": False, "earlier_searches": False},
        "unit": "one training record",
        "adjacency": "add_or_remove_one",
        "mode": "composition",
        "law_of_the_number_of_runs": "not applicable: the number of trials is open and charged",
        "views": {"release": "covered", "analyst": "covered", "operator": "not covered: trusted"},
        "accounting": "privacy loss distribution of the cap on total steps, connect-the-dots, pessimistic",
        "step_cap": search.step_cap,
        "epsilon_at_step_cap": epsilon(search.mechanism, search.step_cap, search.delta),
        "discretisation_error": discretisation_error(search.mechanism, search.step_cap, search.delta),
        "curve": [{"delta": delta, "epsilon": value} for delta, value in curve if isfinite(value)],
    }


def _require_plain(found: SearchState) -> None:
    plain = isinstance(found.allowance, TotalSteps) and found.unit == "record" and found.validation is None
    if not plain or found.details.get("public_search"):
        raise VerificationError(
            "a card of schema 1 must be for a search per record with one cap on total steps, no protected scores and "
            f"no public search; {found.search!r} is another."
        )


def assumptions(*, generator: str, preprocessing: str, size_is_public: bool, former: bool) -> list[dict[str, str]]:
    """The assumptions in the words of that time.

    Args:
        generator: what drew the noise.
        preprocessing: what was done to the data.
        size_is_public: whether n is a public constant.
        former: whether the card is from before there were augmented views.
    """
    engine, ledger = "holds: enforced by the engine, tested", "holds: enforced by the ledger, tested"
    views = "" if former else ", all its augmented views as one"
    trust = "whoever can write the ledger and sees the noise is trusted"
    rows = [
        ("batches are Poisson samples at sample_rate", engine, "drawn by index, empty batches included"),
        (
            "one record moves the clipped sum by at most C",
            engine,
            f"clipped per record{views}; what mixes records is refused",
        ),
        (
            "the normaliser is public",
            "holds: set by the experiment file, no count of records enters" if size_is_public else "assumed",
            "expected batch size",
        ),
        ("noise is Gaussian and fresh", "assumed", f"{generator}; doubles are not the real line"),
        ("one (sample_rate, noise_multiplier) for all trials", ledger, "fixed when the search was opened"),
        (
            "every step was charged before it was taken",
            "holds: enforced by the engine and the ledger, tested",
            "a durable lease",
        ),
        ("no more steps than the cap", ledger, "leased and reserved steps are admitted in one transaction"),
        ("preprocessing touches no private record", "assumed", preprocessing),
        ("the operator keeps checkpoints, logs, records and noise from others", "assumed", trust),
        ("earlier uses of these records outside this ledger", "not covered", "the ledger cannot know them"),
        ("validation and test records", "not covered", "scores on them are outside the guarantee"),
    ]
    return [{"assumption": what, "status": status, "why": why} for what, status, why in rows]


def _dataset_budget(state: DatasetState, search: SearchState) -> dict[str, Any]:
    delta = state.cap.delta if state.cap else max(other.delta for other in state.searches)
    return {
        "dataset": state.dataset,
        "cap": {"epsilon": state.cap.epsilon, "delta": state.cap.delta} if state.cap else None,
        "committed_epsilon": state.committed_epsilon,
        "committed_delta": state.committed_delta,
        "label": "committed = sum of the searches' caps, a guarantee for all of them together, for records that "
        "trained in each: what validated in one was scored there outside any guarantee; spent = ODOMETER, not one",
        "validation_splits": sorted(
            {canonical(other.details.get("split")) for other in state.searches if other.counts}
        ),
        "epsilon_spent": epsilon_composed(((other.mechanism, other.leased_steps) for other in state.searches), delta),
        "odometer_delta": delta,
        "other_searches": [
            {
                "search": other.search,
                "epsilon": other.epsilon,
                "delta": other.delta,
                "leased_steps": other.leased_steps,
                "opened": "earlier" if other.opened_seq < search.opened_seq else "later",
            }
            for other in state.searches
            if other.search != search.search
        ],
    }
