"""Whether a privacy card follows from its ledger, by an accountant of its own: yes, no, or not confirmed, and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log, sqrt
from typing import Any

from tuner.errors import LedgerError, TunerError
from tuner.privacy.accounting import epsilon
from tuner.privacy.card import card_hash, parse_card
from tuner.privacy.card_sections import ledger_sections, winner_of
from tuner.privacy.curve import render_svg
from tuner.privacy.events import SampledGaussian
from tuner.privacy.independent import Bracket, TooLargeError, Verdict, brackets, brackets_of_steps, judge, within
from tuner.privacy.independent_entries import Counted, recount
from tuner.privacy.ledger import Ledger
from tuner.privacy.markdown import render_markdown

__all__ = ["Check", "Report", "verify"]

_TOLERANCE = 1e-9
_PRV_POINTS = 8_000_000
"""Points of Opacus' PRV grid that we let it have: about a gigabyte."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `ok` is None where it could be neither confirmed nor refuted."""

    name: str
    ok: bool | None
    detail: str


@dataclass(frozen=True)
class Report:
    """The answer, and everything that led to it."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check said yes."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def answer(self) -> str:
        """`yes`, `no`, or `not confirmed` where nothing contradicts the card and not all of it could be recomputed."""
        if self.ok:
            return "yes"
        return "no" if not self.checks or any(check.ok is False for check in self.checks) else "not confirmed"

    def __str__(self) -> str:
        marks = {True: "ok ", False: "NO ", None: "?? "}
        last = {
            "yes": "yes: the card follows from its ledger",
            "no": "no: the card does not hold",
            "not confirmed": "not confirmed independently: nothing contradicts the card, but not all was recomputed",
        }[self.answer]
        return "\n".join([*(f"{marks[check.ok]} {check.name}: {check.detail}" for check in self.checks), last])


def verify(
    card: Mapping[str, Any] | str, ledger: Ledger, *, markdown: str | None = None, svg: str | None = None
) -> Report:
    """Recompute a card from its ledger.

    Args:
        card: the text of the card file (preferred: then every byte is held to what export wrote), or its parsed values.
        ledger: the opened ledger of its data set.
        markdown: the text of the card's page, when it should be held against the card.
        svg: the text of the card's curve, likewise.

    Returns:
        The report; it never raises for a card or a ledger that does not hold.
    """
    checks: list[Check] = []
    try:
        for check in _checks(card, ledger, markdown, svg):
            checks.append(check)
    except TunerError as error:
        checks.append(Check("card and ledger can be read", ok=False, detail=str(error)))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        checks.append(Check("card has its fields", ok=False, detail=f"a field is missing or mistyped: {error!r}"))
    return Report(tuple(checks))


def _checks(card: Mapping[str, Any] | str, ledger: Ledger, markdown: str | None, svg: str | None) -> Iterator[Check]:
    if isinstance(card, str):
        card = parse_card(card)
        yield Check("card text", ok=True, detail="byte for byte as export writes it")
    try:
        ledger.verify_chain()
    except LedgerError as error:
        yield Check("ledger chain", ok=False, detail=str(error))
        return
    dataset, search = card["claim"]["dataset"], card["claim"]["search"]
    yield Check("ledger chain", ok=True, detail="every entry hashes, links and was allowed")
    yield _recorded(card, ledger)
    seq, head = card["ledger"]["head_seq"], card["ledger"]["head_hash"]
    state = ledger.state_at(dataset, seq)
    on_chain = (state.seq, state.head) == (seq, head)
    yield Check("ledger head", ok=on_chain, detail=_versus("head", f"{seq} {head}", f"{state.seq} {state.head}"))
    expected = ledger_sections(state, search, winner_of(card), schema=card["schema"])
    wrong = [difference for name, value in expected.items() for difference in _differences(name, card.get(name), value)]
    yield Check("numbers from the ledger", ok=not wrong, detail="; ".join(wrong) or "every number recomputed and equal")
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries(dataset) if entry.seq <= seq]
    yield from _accountants(card, entries, search)
    if markdown is not None:
        yield _drawn("card page", render_markdown(card), markdown)
    if svg is not None:
        yield _drawn("card curve", render_svg(card), svg)


def _recorded(card: Mapping[str, Any], ledger: Ledger) -> Check:
    name, found = "card hash", card_hash(card)
    known = [digest for digest, _, _ in ledger.search_state(card["claim"]["search"]).cards]
    if found in known:
        return Check(name, ok=True, detail=f"{found} is recorded in the ledger")
    issued = ", ".join(known) or "no card"
    return Check(name, ok=False, detail=f"the card hashes to {found}; the ledger issued {issued}")


@dataclass(frozen=True)
class _Pool:
    """What a card says of one pool: its cap, with what that costs at δ, and the curve."""

    name: str
    epsilon: float
    delta: float
    epsilon_at_cap: float
    curve: Sequence[Mapping[str, float]]


def _pools(card: Mapping[str, Any]) -> list[_Pool]:
    claim = card["claim"]
    if card["schema"] == 1:
        return [_Pool("training", claim["epsilon"], claim["delta"], claim["epsilon_at_step_cap"], claim["curve"])]
    said = {"training": card["training_cap"], "validation": card["validation_cap"]}
    return [
        _Pool(name, cap["epsilon"], cap["delta"], cap["epsilon_at_cap"], cap["curve"])
        for name, cap in said.items()
        if cap is not None
    ]


def _accountants(
    card: Mapping[str, Any], entries: Sequence[tuple[str, Mapping[str, Any]]], search: str
) -> Iterator[Check]:
    """The claims, from the entries' plain bodies, by code that shares nothing with that which wrote them."""
    searches, epsilon_sum, delta_sum = recount(entries)
    found, pools = searches[search], _pools(card)
    budget = card["dataset_budget"]
    total = (budget["committed_epsilon"], budget["committed_delta"])
    counted = (float(epsilon_sum), float(delta_sum))
    yield Check("data set's total, recounted", ok=total == counted, detail=_versus("committed", total, counted))
    names = [pool.name for pool in pools]
    same = names == list(found.allowances)
    yield Check("every pool is on the card", ok=same, detail=_versus("pools", names, list(found.allowances)))
    for pool in pools:
        yield _kept(pool, found, claim=(card["claim"]["epsilon"], card["claim"]["delta"]))
        yield from _cap(pool, found.allowances[pool.name])
    yield from _runs(card, found)
    training = found.allowances["training"]
    if training["kind"] == "total_steps":
        yield _prv(training, pools[0].delta, pools[0].epsilon_at_cap)


def _kept(pool: _Pool, found: Counted, *, claim: tuple[float, float]) -> Check:
    """Whether the cap holds its claim, the claim the search's, and what was charged the cap."""
    body = found.allowances[pool.name]
    kept = within(body, found.steps(pool.name))
    holds = pool.epsilon_at_cap <= pool.epsilon <= claim[0] and pool.delta <= claim[1]
    once = found.begun == 1 if body["kind"] == "sealed" else found.begun == 0
    said = (
        f"what may be done costs epsilon {pool.epsilon_at_cap!r}, the cap is {pool.epsilon!r}, of the search's "
        f"{claim[0]!r}; {kept.why}"
    )
    if body["kind"] == "sealed":
        said += f"; charged {found.begun} time(s)"
    return Check(f"cap of {pool.name}", ok=bool(kept.ok) and holds and once, detail=said)


def _cap(pool: _Pool, body: Mapping[str, Any]) -> Iterator[Check]:
    name = f"independent accountant, cap of {pool.name}"
    rows = [(float(row["delta"]), float(row["epsilon"])) for row in pool.curve]
    try:
        at_cap, *others = brackets(body, [pool.delta, *(delta for delta, _ in rows)])
    except TooLargeError as error:
        yield Check(name, ok=None, detail=f"not confirmed independently: {error}")
        return
    yield _check(name, judge(pool.epsilon_at_cap, at_cap))
    verdicts = [(delta, judge(value, bracket)) for (delta, value), bracket in zip(rows, others, strict=True)]
    bad = [(delta, verdict) for delta, verdict in verdicts if not verdict.ok]
    detail = f"{len(bad)} of {len(rows)} pairs, first at delta {bad[0][0]!r}: {bad[0][1].why}" if bad else ""
    ok = True if not bad else False if any(verdict.ok is False for _, verdict in bad) else None
    yield Check(f"independent accountant, curve of {pool.name}", ok=ok, detail=detail or f"{len(rows)} pairs confirmed")


def _runs(card: Mapping[str, Any], found: Counted) -> Iterator[Check]:
    """The winner's run by itself, and what was spent: neither is a guarantee, and both must be true as numbers."""
    delta, winner = card["claim"]["delta"], card["winner"]
    name = "independent accountant, one run"
    if found.allowances["training"]["kind"] == "sealed" or card["schema"] != 1:
        run = (winner["sample_rate"], winner["noise_multiplier"], winner["steps"])
    else:
        run = (*found.mechanisms["training", winner["trial"]], winner["leased_steps"])
    yield _opinion(name, winner["single_run_epsilon"], [run], delta)
    if found.allowances["training"]["kind"] in {"total_steps", "coupon_book"}:
        spent = card["spent"]["epsilon_spent"]
        name = "independent accountant, spent"
        yield _opinion(name, spent, found.steps("training"), delta, most=card["claim"]["epsilon"])


def _opinion(
    name: str, claimed: float, steps: Sequence[tuple[float, float, int]], delta: float, *, most: float = inf
) -> Check:
    """One claim for fixed steps; `most` bounds them by other means, so that they may read as less than they cost."""
    try:
        (bracket,) = brackets_of_steps(steps, [delta])
    except TooLargeError as error:
        return Check(name, ok=None, detail=f"not confirmed independently: {error}")
    bounded = Bracket(min(bracket.low, most), min(bracket.high, most), bracket.ceiling, bracket.how)
    return _check(name, judge(claimed, bounded))


def _check(name: str, verdict: Verdict) -> Check:
    lead = "not confirmed independently: " if verdict.ok is None else ""
    return Check(name, ok=verdict.ok, detail=lead + verdict.why)


def _prv(body: Mapping[str, Any], delta: float, claimed: float) -> Check:
    """A lower estimate of another library, where it fits into memory."""
    name, rate, noise, steps = "not below Opacus' PRV", body["sample_rate"], body["noise_multiplier"], body["step_cap"]
    error = max(min(0.01, claimed / 20), 1e-4)
    mesh = error / sqrt(steps * log(12e3 / delta) / 2)
    points = 2 * (epsilon(SampledGaussian(rate, noise), steps, max(delta * 1e-3, 1e-10)) + 3) / mesh
    if not points <= _PRV_POINTS:
        return Check(name, ok=True, detail=f"not run: its grid would have {points:.1e} points; the others stand alone")
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        return Check(name, ok=True, detail="not run: opacus is not installed; the others stand alone")
    accountant: Any = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            discrete = accountant._get_dprv(eps_error=error, delta_error=delta / 1000)
            lower, _, _ = discrete.compute_epsilon(delta, delta / 1000, error)
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as failure:
        return Check(name, ok=True, detail=f"not run: Opacus failed ({failure}); the others stand alone")
    lower = float(lower) if isfinite(float(lower)) else -inf
    return Check(name, ok=claimed >= lower - _TOLERANCE, detail=f"claimed {claimed!r}, PRV says at least {lower!r}")


def _drawn(name: str, wanted: str, found: str) -> Check:
    if wanted == found:
        return Check(name, ok=True, detail="renders from the card")
    pairs = zip(wanted.splitlines(), found.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), ("its end", "more or fewer lines"))
    return Check(name, ok=False, detail=f"it says {first[1]!r} where the card gives {first[0]!r}")


def _differences(path: str, found: object, wanted: object) -> Iterator[str]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(wanted.keys() | found.keys()):
            yield from _differences(f"{path}.{key}", found.get(key), wanted.get(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(f"{path}[{index}]", left, right)
    elif isinstance(wanted, float) and isinstance(found, int | float) and not isinstance(found, bool):
        if not abs(found - wanted) <= _TOLERANCE * max(1.0, abs(wanted)) or (
            path.endswith("delta") and found != wanted
        ):
            yield f"{path} is {found!r} and should be {wanted!r}"
    elif found != wanted or type(found) is not type(wanted):
        yield f"{path} is {found!r} and should be {wanted!r}"


def _versus(what: str, found: object, wanted: object) -> str:
    return f"{what} is {found} and should be {wanted}" if found != wanted else f"{what} is {found}"
