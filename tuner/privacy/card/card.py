"""The privacy card of one export: what is claimed, for what, on which assumptions, and what is not claimed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import InputError, VerificationError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.sections import SCHEMA, SCORES, Winner, ledger_sections, mode_of
from tuner.privacy.ledger.entries import canonical
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetState, SearchState

__all__ = [
    "EXPORTED",
    "CardFacts",
    "Given",
    "build_card",
    "card_hash",
    "card_text",
    "file_hash",
    "given_of",
    "issue_card",
    "parse_card",
    "stated_sections",
]

_SETTING = "central: a trusted operator holds the records; analysts and the release's readers see outputs"
_OPERATOR_TRUST = "whoever can write the ledger and sees the noise is trusted"
EXPORTED = ("model.safetensors", "experiment.yaml")
"""The files that a card names by their hashes."""


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What the ledger cannot know and the exporter must say.

    Attributes:
        search: name of the search in the ledger.
        winner: id of the exported trial; of a sealed search a word that tells nothing of the others.
        winner_run: (mechanism, steps) of the exported run of a sealed search, whose ledger does not tell runs apart.
        method: for example `dplis`.
        model: name of the model.
        parameters: hyper-parameters of the winner, plain JSON.
        batch_size: expected batch size; in users where the unit is a user.
        max_grad_norm: clipping norm C of the winner.
        public_size: the n of sample_rate; in users where the unit is a user.
        public_size_is_public: whether n is a public constant; False is allowed and said.
        sampler: of the search.
        pruner: of the search.
        validation: source, fraction, how it was split; plain JSON.
        scores: of the winner, labelled; plain JSON, for example {"validation_accuracy": 0.9}.
        random_generator: what draws the noise, the batches and the augmented views.
        versions: library name to version.
        private: False when the run was a study with a seed; then no card is made.
        records_per_user: the contribution bound: so many records of one user a step may use; None for the unit record.
        preprocessing: what was done to the data before training.
        files: SHA-256 of each file that is exported with the card, by its name, so that the card is for that model.
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
    winner_run: tuple[SampledGaussian, int] | None = None
    records_per_user: int | None = None
    public_size_is_public: bool = True
    scores: Mapping[str, float] = field(default_factory=dict)
    preprocessing: str = "standardised by public constants only; nothing was learnt from the records"
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the words of a card take from its exporter: all else in them follows from the ledger, or is constant.

    Attributes:
        random_generator: what draws the noise.
        preprocessing: what was done to the data before training.
        public_size_is_public: whether n is a public constant.
        records_per_user: the contribution bound; None for the unit record.
    """

    random_generator: str
    preprocessing: str
    public_size_is_public: bool
    records_per_user: int | None


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
    found = state.by_name.get(facts.search)
    if found is None:
        raise VerificationError(f"a card's search must be in the ledger, {facts.search!r} is not on {state.dataset!r}.")
    if (found.unit == "user") != (facts.records_per_user is not None):
        raise InputError(
            f"a contribution bound goes with the unit user, got {facts.records_per_user!r}, {found.unit!r}."
        )
    given = Given(
        random_generator=facts.random_generator,
        preprocessing=facts.preprocessing,
        public_size_is_public=facts.public_size_is_public,
        records_per_user=facts.records_per_user,
    )
    stated = stated_sections(found, given)
    card: dict[str, Any] = {
        **stated,
        **ledger_sections(state, facts.search, Winner(facts.winner, facts.winner_run)),
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
            "records_per_user": facts.records_per_user,
            "preprocessing": facts.preprocessing,
        },
        "validation": {**facts.validation, **stated["validation"]},
        "scores": {**facts.scores, **stated["scores"]},
        "versions": dict(facts.versions),
        "exported_files": dict(facts.files),
    }
    canonical(card)
    return card


def issue_card(ledger: Ledger, facts: CardFacts) -> dict[str, Any]:
    """Build the card on the ledger as it stands and record its hash there, which `verify` asks for.

    Returns:
        The card. Write it with `card_text`.
    """
    dataset = ledger.search_state(facts.search).dataset
    card = build_card(facts, state=ledger.dataset_state(dataset))
    ledger.record_card(facts.search, card_hash(card), "export")
    return card


def card_hash(card: Mapping[str, Any]) -> str:
    """SHA-256 of the card's canonical JSON."""
    return hashlib.sha256(canonical(dict(card)).encode("ascii")).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def given_of(card: Mapping[str, Any]) -> Given:
    """What an issued card was given by its exporter.

    Raises:
        KeyError: the card lacks a field.
        ValueError: a field is not of its type.
    """
    records = card["records"]
    given = Given(
        random_generator=card["randomness"]["generator"],
        preprocessing=records["preprocessing"],
        public_size_is_public=records["public_size_is_public"],
        records_per_user=records["records_per_user"],
    )
    bound = given.records_per_user
    if not (
        isinstance(given.random_generator, str)
        and isinstance(given.preprocessing, str)
        and isinstance(given.public_size_is_public, bool)
        and (bound is None or (isinstance(bound, int) and not isinstance(bound, bool) and bound > 0))
    ):
        raise ValueError(f"a card's generator, preprocessing, publicity of n or bound is mistyped: {given!r}")
    return given


def stated_sections(found: SearchState, given: Given) -> dict[str, Any]:
    """Every word of a card that follows from the search, or is constant: `verify` calls this again and compares.

    Args:
        found: the search.
        given: what the words take from the exporter.

    Returns:
        Sections by name; `validation` and `scores` are the parts that no exporter changes.
    """
    protected = found.validation is not None
    return {
        "schema": SCHEMA,
        "setting": _SETTING,
        **_shown(found),
        "validation": {
            "protected": protected,
            "guarantee": f"covered: a score is {SCORES[found.unit]}, plus noise, and charged before it was drawn"
            if protected
            else "not covered: the guarantee is for training records; validation records are outside it",
        },
        "scores": {
            "guarantee": "the validation score is noised and inside the guarantee; the test score is computed without "
            "noise on held-out records, and protects none of them"
            if protected
            else "none: scores of validation and test are outside the guarantee. They are computed on held-out "
            "records without noise, and protect none of those records",
            "label": "a test score is of this sweep's one use of the test set; other sweeps score it too",
        },
        "randomness": {
            "generator": given.random_generator,
            "seeded": False,
            "floating_point_attack": "not covered: not mitigated in this version (Mironov 2012)",
            "timing_side_channel": "not covered: step times are kept from analysts, not made constant"
            + (
                "; who knows when a sealed search began can guess the number of its runs from the hours"
                * found.charged_whole
            ),
        },
        "assumptions": _assumptions(given, found),
        "not_proved": [
            "that the code does what this card says: tested against references, not formally verified",
            "the rounding of double precision in the accountant: taken out of delta with a margin from measurement",
            f"that the ledger is complete: {_OPERATOR_TRUST}; a hash chain shows changes, not omissions by its keeper",
        ],
    }


def _shown(found: SearchState) -> dict[str, str]:
    """What leaves, and what does not."""
    key = "A checkpoint holds the key of noise still to be drawn: a model in it may be shown, the file may not"
    if found.charged_whole:
        return {
            "released": "the exported configuration, its model and its score, and nothing else of the search",
            "kept_from_analysts": "every other run, its settings, scores and curves; how many runs there were; when "
            f"they ran; checkpoint files, raw logs, noise and records. They are for the operator only. {key}",
        }
    shown = "its settings, scores and curve" if mode_of(found) == "public" else "all trials with their settings, scores"
    return {
        "released": f"the exported configuration, model and scores; and to analysts {shown}"
        + ("" if mode_of(found) == "public" else " and curves"),
        "kept_from_analysts": f"checkpoint files, raw logs, noise and records are for the operator only. {key}",
    }


def _assumptions(given: Given, found: SearchState) -> list[dict[str, str]]:
    engine, ledger = "holds: enforced by the engine, tested", "holds: enforced by the ledger, tested"
    both = "holds: enforced by the engine and the ledger, tested"
    public = "holds: set by the experiment file, no count of records enters"
    unit = found.unit
    rows = [
        ("batches are Poisson samples at sample_rate", engine, f"{unit}s drawn by index, empty batches included"),
        (
            f"one {unit} moves the clipped sum by at most C",
            engine,
            "clipped per record, all its augmented views as one; what mixes records is refused"
            if unit == "record"
            else f"clipped per user: at most {given.records_per_user} records of a user, chosen by a hash of that user "
            "alone, as one vector; what mixes users is refused",
        ),
        ("the normaliser is public", public if given.public_size_is_public else "assumed", "expected batch size"),
        ("noise is Gaussian and fresh", "assumed", f"{given.random_generator}; doubles are not the real line"),
        (found.filter.assumption[0], ledger, found.filter.assumption[1]),
    ]
    if found.charged_whole:
        rows += [
            ("the number of runs follows its law and is independent of all else", engine, "drawn from the operating "
             "system's generator, never shown"),
            ("configurations are drawn from a prior that is fixed", engine, "random search from the operating system's "
             "generator, bounded where it learns"),
            ("nothing but the winner leaves", "assumed", _OPERATOR_TRUST),
        ]  # fmt: skip
    else:
        rows += [
            ("every step was charged before it was taken", both, "a durable lease"),
            ("no more than the cap", ledger, "what is leased and reserved is admitted in one transaction"),
        ]
    if found.validation is not None:
        rows += [
            ("the split moves no other record", engine, "a keyed hash of each record or its published index"),
            ("every score was charged before it was drawn", both, "a durable lease; the noise is never drawn twice"),
        ]
    if mode_of(found) == "public":
        rows.append(
            ("what was searched on is public", "assumed", "declared in the experiment file; no private record is in it")
        )
    if unit == "user":
        rows.append(("the user of each record is known and right", "assumed", "taken from the data as they are"))
    rows += [
        ("preprocessing touches no private record", "assumed", given.preprocessing),
        ("the operator keeps checkpoints, logs, records and noise from others", "assumed", _OPERATOR_TRUST),
        ("earlier uses of these records outside this ledger", "not covered", "the ledger cannot know them"),
        ("test records", "not covered", "scores on them are outside the guarantee")
        if found.validation is not None
        else ("validation and test records", "not covered", "scores on them are outside the guarantee"),
    ]
    return [{"assumption": what, "status": status, "why": why} for what, status, why in rows]
