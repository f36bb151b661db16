"""The privacy card of one export: what is claimed, for what, on which assumptions, and what is not claimed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from tuner.errors import InputError, VerificationError
from tuner.privacy.accounting import discretisation_error, epsilon, epsilon_curve
from tuner.privacy.entries import DatasetState, SearchState, canonical
from tuner.privacy.ledger import Ledger

__all__ = ["CardFacts", "build_card", "card_hash", "card_text", "issue_card", "ledger_sections", "parse_card"]

_CURVE = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_OPERATOR_TRUST = "whoever can write the ledger and sees the noise is trusted"


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What the ledger cannot know and the exporter must say.

    Attributes:
        search: name of the search in the ledger.
        winner: id of the exported trial.
        method: for example `dplis`.
        model: name of the model.
        parameters: hyper-parameters of the winner, plain JSON.
        batch_size: expected batch size.
        max_grad_norm: clipping norm C of the winner.
        public_size: the n of sample_rate.
        public_size_is_public: whether n is a public constant; False is allowed and said.
        sampler: of the search.
        pruner: of the search.
        validation: source, fraction, how it was split; plain JSON.
        scores: of the winner, labelled; plain JSON, for example {"validation_accuracy": 0.9}.
        random_generator: what draws the noise, the batches and the augmented views.
        versions: library name to version.
        private: False when the run was a study with a seed; then no card is made.
        preprocessing: what was done to the data before training.
        setting: who holds the data, who sees what.
        notes: further claims that are not proved.
    """

    search: str
    winner: str
    method: str
    model: str
    parameters: Mapping[str, Any]
    batch_size: int
    max_grad_norm: float
    public_size: int
    sampler: str
    pruner: str
    validation: Mapping[str, Any]
    random_generator: str
    versions: Mapping[str, str]
    private: bool
    public_size_is_public: bool = True
    scores: Mapping[str, float] = field(default_factory=dict)
    preprocessing: str = "standardised by public constants only; nothing was learnt from the records"
    setting: str = "central: a trusted operator holds the records; analysts and the release's readers see outputs"
    notes: tuple[str, ...] = ()


def build_card(facts: CardFacts, *, state: DatasetState) -> dict[str, Any]:
    """The card as plain JSON values: the ledger's numbers as they stand in `state`, and the exporter's facts.

    Args:
        facts: what the ledger cannot know.
        state: the data set at one moment (`ledger.dataset_state(name)`).

    Raises:
        InputError: the run was not private, or a value is not plain, finite JSON.
        VerificationError: the search or the winner is not in the ledger.
    """
    if not facts.private:
        raise InputError(
            "only a private run gets a privacy card, this one has private: false. Run it again with private: true."
        )
    card: dict[str, Any] = {
        "schema": 1,
        "setting": facts.setting,
        "released": "the exported configuration, model and scores; and to analysts all trials with their settings, "
        "scores and curves",
        "kept_from_analysts": "checkpoint files, raw logs, noise and records are for the operator only. A checkpoint "
        "holds the key of noise still to be drawn: a model in it may be shown, the file may not",
        **ledger_sections(state, facts.search, facts.winner),
        "configuration": {
            "method": facts.method,
            "model": facts.model,
            "batch_size_expected": facts.batch_size,
            "max_grad_norm": facts.max_grad_norm,
            "parameters": dict(facts.parameters),
            "sampler": facts.sampler,
            "pruner": facts.pruner,
        },
        "records": {
            "public_size": facts.public_size,
            "public_size_is_public": facts.public_size_is_public,
            "preprocessing": facts.preprocessing,
        },
        "validation": {
            **facts.validation,
            "protected": False,
            "guarantee": "not covered: the guarantee is for training records; validation records are outside it",
        },
        "scores": {
            **facts.scores,
            "guarantee": "none: scores of validation and test are outside the guarantee. They are computed on held-out "
            "records without noise, and protect none of those records",
            "label": "a test score is of this sweep's one use of the test set; other sweeps score it too",
        },
        "randomness": {
            "generator": facts.random_generator,
            "seeded": False,
            "floating_point_attack": "not covered: not mitigated in this version (Mironov 2012)",
            "timing_side_channel": "not covered: step times are kept from analysts, not made constant",
        },
        "assumptions": _assumptions(facts),
        "not_proved": [
            "that the code does what this card says: tested against references, not formally verified",
            "the rounding of double precision in the accountant: taken out of delta with a margin from measurement",
            f"that the ledger is complete: {_OPERATOR_TRUST}; a hash chain shows changes, not omissions by its keeper",
            *facts.notes,
        ],
        "versions": dict(facts.versions),
    }
    canonical(card)
    return card


def issue_card(ledger: Ledger, facts: CardFacts, *, kind: str = "export") -> dict[str, Any]:
    """Build the card on the ledger as it stands and record its hash there, which `verify` asks for.

    Returns:
        The card. Write it with `card_text`.
    """
    dataset = ledger.search_state(facts.search).dataset
    card = build_card(facts, state=ledger.dataset_state(dataset))
    ledger.record_card(facts.search, card_hash(card), kind)
    return card


def ledger_sections(state: DatasetState, search: str, winner: str) -> dict[str, Any]:
    """Every number of a card that follows from the ledger: `verify` calls this again and compares.

    Raises:
        VerificationError: the search or the winner is not there.
    """
    found = next((known for known in state.searches if known.search == search), None)
    if found is None:
        raise VerificationError(f"the card's search must be in the ledger, {search!r} is not on {state.dataset!r}.")
    trial = found.trials.get(winner)
    if trial is None or not trial.leased:
        raise VerificationError(f"the exported trial must have leased steps, {winner!r} of search {search!r} has none.")
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


def card_hash(card: Mapping[str, Any]) -> str:
    """SHA-256 of the card's canonical JSON."""
    return hashlib.sha256(canonical(dict(card)).encode("ascii")).hexdigest()


def card_text(card: Mapping[str, Any]) -> str:
    """The one text of a card file."""
    return json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def parse_card(text: str) -> dict[str, Any]:
    """Read a card file; it must be exactly what `card_text` writes, so that no digit can be changed unnoticed.

    Raises:
        VerificationError: it is not JSON, or not the text that was written.
    """
    try:
        card = json.loads(text)
        same = isinstance(card, dict) and card_text(card) == text
    except ValueError as error:
        raise VerificationError(f"a card must be the JSON that export wrote, but cannot be read: {error}.") from error
    if not same:
        raise VerificationError("a card must be byte for byte what export wrote; this text was edited or reformatted.")
    result: dict[str, Any] = card
    return result


def _claim(search: SearchState) -> dict[str, Any]:
    deltas = tuple(sorted({*_CURVE, search.delta}, reverse=True))
    curve = zip(deltas, epsilon_curve(search.mechanism, search.step_cap, deltas), strict=True)
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
        "epsilon_spent": state.epsilon_spent,
        "odometer_delta": state.odometer_delta,
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


def _assumptions(facts: CardFacts) -> list[dict[str, str]]:
    engine, ledger = "holds: enforced by the engine, tested", "holds: enforced by the ledger, tested"
    public = "holds: set by the experiment file, no count of records enters"
    rows = [
        ("batches are Poisson samples at sample_rate", engine, "drawn by index, empty batches included"),
        (
            "one record moves the clipped sum by at most C",
            engine,
            "clipped per record, all its augmented views as one; what mixes records is refused",
        ),
        ("the normaliser is public", public if facts.public_size_is_public else "assumed", "expected batch size"),
        ("noise is Gaussian and fresh", "assumed", f"{facts.random_generator}; doubles are not the real line"),
        ("one (sample_rate, noise_multiplier) for all trials", ledger, "fixed when the search was opened"),
        (
            "every step was charged before it was taken",
            "holds: enforced by the engine and the ledger, tested",
            "a durable lease",
        ),
        ("no more steps than the cap", ledger, "leased and reserved steps are admitted in one transaction"),
        ("preprocessing touches no private record", "assumed", facts.preprocessing),
        ("the operator keeps checkpoints, logs, records and noise from others", "assumed", _OPERATOR_TRUST),
        ("earlier uses of these records outside this ledger", "not covered", "the ledger cannot know them"),
        ("validation and test records", "not covered", "scores on them are outside the guarantee"),
    ]
    return [{"assumption": what, "status": status, "why": why} for what, status, why in rows]
