"""The numbers of cards of schema 1: what `verify` recomputes for those that earlier versions have issued."""

from __future__ import annotations

from math import isfinite
from typing import Any

from tuner.privacy.accounting import discretisation_error, epsilon, epsilon_composed
from tuner.privacy.entries import canonical
from tuner.privacy.states import DatasetState, SearchState, TrialState

__all__ = ["sections"]

_CURVE = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def sections(state: DatasetState, found: SearchState, winner: str, trial: TrialState) -> dict[str, Any]:
    """The sections that follow from the ledger: a search of total steps, with validation outside the guarantee.

    Raises:
        LedgerError: the search has another cap, which no card of schema 1 can have.
    """
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
