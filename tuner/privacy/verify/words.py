"""What `verify` says, in words: figures to 6 digits, long texts cut down to where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.privacy.verify.accountant.bounds import Bracket, Verdict

__all__ = ["Difference", "clipped", "differences", "opinion", "pair", "plainly", "short", "times"]

_TOLERANCE = 1e-9
_WIDTH = 80
"""Characters that are shown of a text that is too long."""


@dataclass(frozen=True)
class Difference:
    """One value of a card that does not follow from its ledger: in words, and with every digit."""

    words: str
    exact: str


def short(value: object, *, beside: object = None) -> str:
    """A number to 6 digits; to all of them where it would look like another that it is held against.

    Args:
        value: any JSON value: a number is what it is called for, all else is shown as it stands.
        beside: the other number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _other(value)
    said = f"{value:.6g}"
    alike = isinstance(beside, int | float) and value != beside and said == f"{beside:.6g}"
    return repr(value) if alike or isinstance(value, int) else said


def pair(epsilon: float, delta: float, *, beside: tuple[float, float] = (0.0, 0.0)) -> str:
    """Both numbers, named."""
    return f"ε = {short(epsilon, beside=beside[0])}, δ = {short(delta, beside=beside[1])}"


def times(number: int) -> str:
    """How often."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def plainly(text: str) -> str:
    """The words of the other accountant without the names of a program."""
    return text.replace("sample_rate", "sample rate").replace("noise_multiplier", "noise multiplier")


def opinion(claimed: float, bracket: Bracket, verdict: Verdict) -> str:
    """What the card says, what was found instead of it or beside it, and how."""
    low, high = short(bracket.low), short(bracket.high)
    found = f"it is {high}" if low == high else f"it lies between {low} and {high}"
    judged = verdict.why.partition(f"({bracket.how})")[2]
    said = short(claimed) if verdict.ok else short(claimed, beside=bracket.low)
    return f"the card says ε = {said}; computed without the card {found} ({bracket.how}){judged}"


def clipped(left: str, right: str) -> tuple[str, str]:
    """Two texts that differ, each in quotes and cut to some 80 characters around the first difference."""
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    start = max(0, at - _WIDTH // 2) if max(len(left), len(right)) > _WIDTH else 0
    return _part(left, start), _part(right, start)


def differences(path: str, found: object, wanted: object) -> Iterator[Difference]:
    """Where a card's values are not those of the ledger.

    Args:
        path: of the values in the card, `claim.epsilon`.
        found: in the card.
        wanted: from the ledger.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(wanted.keys() | found.keys()):
            yield from differences(f"{path}.{key}", found.get(key), wanted.get(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(f"{path}[{index}]", left, right)
    elif isinstance(wanted, float) and isinstance(found, int | float) and not isinstance(found, bool):
        if not abs(found - wanted) <= _TOLERANCE * max(1.0, abs(wanted)) or (
            path.endswith("delta") and found != wanted
        ):
            yield _difference(path, found, wanted)
    elif found != wanted or type(found) is not type(wanted):
        yield _difference(path, found, wanted)


def _difference(path: str, found: object, wanted: object) -> Difference:
    if isinstance(found, str) and isinstance(wanted, str):
        says, should = clipped(found, wanted)
    else:
        says, should = short(found, beside=wanted), short(wanted, beside=found)
    return Difference(f"{path} is {says} and should be {should}", f"{path} is {found!r} and should be {wanted!r}")


def _other(value: object) -> str:
    if isinstance(value, str):
        return _part(value, 0)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _part(text: str, start: int) -> str:
    end = start + _WIDTH
    return f"'{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}'"
