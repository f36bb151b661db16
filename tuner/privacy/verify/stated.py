"""Whether a card's words are those that its search must have, and whether the files beside it are those it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.privacy.card.card import given_of, stated_sections
from tuner.privacy.ledger.state import SearchState
from tuner.privacy.verify.words import Difference, differences

__all__ = ["beside_it", "stated_wrong"]

_RATE_TOLERANCE = 1e-6
_GIVEN = ("configuration", "records", "versions", "exported_files")
"""Sections that the exporter fills."""
_ABOUT = "card"


def stated_wrong(card: Mapping[str, Any], found: SearchState, expected: Mapping[str, Any]) -> list[Difference]:
    """What a card says otherwise than its search must have it said; what the operator alone knows is not judged.

    Args:
        card: the card.
        found: its search in the ledger.
        expected: its sections that follow from the ledger, recomputed.

    Raises:
        KeyError: the card lacks a field.
        TypeError, ValueError: a field is not of its type.
    """
    given = given_of(card)
    wanted = stated_sections(found, given)
    names = {*wanted, *expected, *_GIVEN}
    wrong = [_unknown(_ABOUT, name) for name in sorted(card.keys() - names)]
    for name, value in wanted.items():
        said = card.get(name)
        if name in {"validation", "scores"} and isinstance(said, Mapping):
            said = {key: said.get(key) for key in value}  # beside what the exporter says of the split, and the scores
        wrong += differences(name, said, value)
    wrong += [
        _unknown("scores", name)
        for name, score in card["scores"].items()
        if name not in wanted["scores"] and (isinstance(score, bool) or not isinstance(score, int | float))
    ]
    if (found.unit == "user") != (given.records_per_user is not None):
        wrong += differences("records.records_per_user", given.records_per_user, f"for the unit {found.unit}")
    return [*wrong, *_sizes(card, expected), *_details(card, found)]


def beside_it(card: Mapping[str, Any], beside: Mapping[str, str]) -> Iterator[tuple[str, bool, str]]:
    """What lies beside a card, held against it.

    Args:
        card: the card.
        beside: SHA-256 of the exported files that are there, by name.

    Yields:
        (name of the check, whether nothing speaks against it, what was found).
    """
    for name, digest in sorted(card["exported_files"].items()):
        there = beside.get(name)
        if there is None:
            yield f"file {name}", True, "it is not beside the card, and was not compared"
        elif there == digest:
            yield f"file {name}", True, "it is the one that was exported with the card"
        else:
            yield f"file {name}", False, f"it hashes to {there}; the card was issued for {digest}"


def _sizes(card: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[Difference]:
    """The batch, n and the rate hang together: of three numbers the ledger has one."""
    rate = expected["winner"]["sample_rate"]
    batch, size = card["configuration"]["batch_size_expected"], card["records"]["public_size"]
    for path, value in (("configuration.batch_size_expected", batch), ("records.public_size", size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{path} is no number of records: {value!r}")
    if abs(rate * size - batch) > _RATE_TOLERANCE * batch:
        yield from differences("configuration.batch_size_expected", batch, round(rate * size))
        if batch == round(rate * size):
            yield from differences("records.public_size", size, round(batch / rate))


def _details(card: Mapping[str, Any], found: SearchState) -> Iterator[Difference]:
    """What the search was opened with."""
    for name in ("method", "model"):
        if name in found.details:
            yield from differences(f"configuration.{name}", card["configuration"].get(name), found.details[name])
    if "key" in card["validation"] and found.details.get("split") is not None:
        yield from differences("validation.key", card["validation"]["key"], dict(found.details["split"]))


def _unknown(section: str, name: str) -> Difference:
    text = f"{section}.{name} is nothing that a card says"
    return Difference(text, text)
