"""The operator's own words: the values on a privacy card that the ledger does not contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.tasks import METRICS
from tuner.errors import VerificationError
from tuner.privacy.accountant.mechanism import SampledGaussian

__all__ = ["EXPORTED", "LIBRARIES", "OWN_WORDS", "CardFacts", "OwnWord", "own_words_of", "require_own_words"]

EXPORTED = ("model.safetensors", "experiment.yaml")
"""Files whose hashes a card contains."""
_SCORES = (*METRICS, *(name.replace("validation", "test", 1) for name in METRICS))
LIBRARIES = ("torch", "numpy", "opacus", "dp-accounting", "optuna", "ray", "cryptography", "scikit-learn")
"""Libraries whose versions a card contains."""
_VERSIONS = ("dp-tuner", "python", *LIBRARIES)


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """Facts for a card that the exporter must supply, because the ledger does not contain them.

    Attributes:
        winner: id of the exported trial. It is not used for a sealed search, whose trials have no public ids.
        winner_run: (mechanism, steps) of the exported run of a sealed search; None for other searches. The ledger of a
            sealed search contains no single runs.
        model: name of the model, if the ledger does not name it: any model may be trained on a release.
        parameters: hyper-parameters of the winner, as plain JSON.
        max_grad_norm: clipping norm C of the winner; None if it was trained on a release.
        public_size: number of records, or of users if the search protects users. The sample rate is the expected batch
            size divided by this number.
        public_size_is_public: whether `public_size` is a public constant, as for the data sets that come with dp-tuner.
        private: False for a run without a guarantee, such as a run with seeded noise. Such a run gets no card.
        records_per_user: largest number of a user's records in a step; None if the search protects records.
        preprocessing: description of what was done to the data before training.
        scores: scores of the winner, by name.
        versions: versions of the libraries, by name.
        files: SHA-256 of each file that is exported with the card, by name.
    """

    search: str
    winner: str
    parameters: Mapping[str, Any]
    max_grad_norm: float | None
    public_size: int
    public_size_is_public: bool
    preprocessing: str
    sampler: str
    pruner: str
    private: bool
    winner_run: tuple[SampledGaussian, int] | None = None
    model: str | None = None
    records_per_user: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnWord:
    """One value of a card that only the operator can supply.

    Attributes:
        fact: name of the value's field in `CardFacts`.
        path: keys that lead to the value on the card, joined by dots.
        wanted: description of the allowed values.
        fits: function that returns whether a value is allowed.
        names: allowed keys of a value that is a mapping; None if all keys are allowed.
    """

    fact: str
    path: str
    wanted: str
    fits: Callable[[object], bool]
    names: tuple[str, ...] | None = None

    def read(self, card: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value from a card. If it is a mapping, keys that are not allowed are left out.

        Raises:
            KeyError: the card lacks the value.
        """
        value: Any = card
        for key in self.path.split("."):
            value = value[key]
        if self.names is not None and isinstance(value, Mapping):
            return {name: value[name] for name in self.names if name in value}
        return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308


def _is_positive(value: object) -> bool:
    return _is_number(value) and value > 0  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**15


def _is_word(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", value) is not None


def _is_promotion(value: object) -> bool:
    """Return whether a value is a parameter that rises within a trial, such as `{promote: [1, 3]}`."""
    if not (isinstance(value, Mapping) and set(value) == {"promote"}):
        return False
    levels = value["promote"]
    return isinstance(levels, list | tuple) and bool(levels) and all(_is_count(level) for level in levels)


def _is_setting(value: object) -> bool:
    return value is None or isinstance(value, bool | str) or _is_number(value) or _is_promotion(value)


def _is_version(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9][A-Za-z0-9.+!_-]{0,40}", value) is not None


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _each(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Mapping) and all(fits(item) for item in value.values())


def _are_settings(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_word(key) and _is_setting(value[key]) for key in value)


OWN_WORDS: tuple[OwnWord, ...] = (
    OwnWord("search", "claim.search", "a name", lambda value: isinstance(value, str)),
    OwnWord("winner", "winner.trial", "the id of a trial", lambda value: isinstance(value, str)),
    OwnWord("parameters", "configuration.parameters", "settings by name", _are_settings),
    OwnWord("max_grad_norm", "configuration.max_grad_norm", "a positive number", _is_positive),
    OwnWord("sampler", "configuration.sampler", "the name of a sampler", _is_word),
    OwnWord("pruner", "configuration.pruner", "the name of a pruner", _is_word),
    OwnWord("public_size", "records.public_size", "a positive whole number", _is_count),
    OwnWord("public_size_is_public", "records.public_size_is_public", "true or false", lambda v: isinstance(v, bool)),
    OwnWord(
        "records_per_user",
        "records.records_per_user",
        "a positive whole number or null",
        lambda value: value is None or _is_count(value),
    ),
    OwnWord("preprocessing", "records.preprocessing", "a text", lambda value: isinstance(value, str)),
    OwnWord("scores", "scores", "finite numbers by name", _each(_is_number), _SCORES),
    OwnWord("versions", "versions", "version numbers by library", _each(_is_version), _VERSIONS),
    OwnWord("files", "exported_files", "SHA-256 hashes by file", _each(_is_hash), EXPORTED),
)
"""All values of a card that only the operator can supply.

For a sealed search, these are also the mechanism and the number of steps of its winner.
"""


_MODEL = OwnWord("model", "configuration.model", "the name of a model", lambda value: isinstance(value, str))
"""Name of the model that was trained on a release. The ledger does not contain it."""


def require_own_words(facts: CardFacts) -> None:
    """Check the values on the card that only the operator can supply.

    Raises:
        VerificationError: a value is not allowed, or a name in a mapping is unknown.
    """
    for word in (*OWN_WORDS, *(() if facts.model is None else (_MODEL,))):
        if facts.model is not None and word.fact == "max_grad_norm":
            continue  # a model that was trained on a release has no clipping norm
        value = getattr(facts, word.fact)
        unknown = sorted(value.keys() - set(word.names)) if word.names is not None else []
        if unknown or not word.fits(value):
            found = f"the unknown name {unknown[0]!r}" if unknown else repr(value)
            raise VerificationError(
                "card-own-words", f"`{word.path}` of a privacy card must be {word.wanted} (got {found})."
            )


def own_words_of(card: Mapping[str, Any], *, hides_runs: bool, on_release: bool = False) -> CardFacts:
    """Return the values of an issued card that only the operator could supply.

    Args:
        card: the parsed card.
        hides_runs: whether the search is sealed. If so, the winner's run is also read from the card, because the
            ledger does not contain it.
        on_release: whether the model was trained on a release. If so, its model is read, and no clipping norm.

    Raises:
        KeyError: the card lacks a field.
        TypeError: a section is not a mapping.
        TunerError: a value is not allowed.
    """
    winner_run = None
    if hides_runs:
        run = card["winner"]
        winner_run = (SampledGaussian.from_body(run), run["steps"])
    words = {word.fact: word.read(card) for word in OWN_WORDS if not (on_release and word.fact == "max_grad_norm")}
    if on_release:
        words |= {"max_grad_norm": None, "model": card["configuration"]["model"]}
    facts = CardFacts(**words, private=True, winner_run=winner_run)
    require_own_words(facts)
    return facts
