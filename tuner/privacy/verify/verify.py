"""Whether a privacy card follows from its ledger, by an accountant of its own: yes, no, or not confirmed, and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log, sqrt
from typing import Any

from tuner.errors import LedgerError, TunerError, VerificationError
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.card.card import card_hash, parse_card
from tuner.privacy.card.curve import render_svg
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections import SCHEMA, ledger_sections, winner_of
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.accountant.bounds import Bracket, TooLargeError, brackets, brackets_of_steps, judge, within
from tuner.privacy.verify.accountant.entries_recount import Counted, may_make, recount
from tuner.privacy.verify.stated import beside_it, stated_wrong
from tuner.privacy.verify.words import clipped, differences, opinion, pair, plainly, short, times

__all__ = ["Check", "Report", "verify"]

_TOLERANCE = 1e-9
_PRV_POINTS = 8_000_000
"""Points of Opacus' PRV grid that we let it have: about a gigabyte."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        ok: None where it could be neither confirmed nor refuted.
        detail: what was found, in words, figures to 6 digits.
        exact: the same with every digit, for programs; None where the words say it all.
    """

    name: str
    ok: bool | None
    detail: str
    exact: str | None = None


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
    card: Mapping[str, Any] | str,
    ledger: Ledger,
    *,
    markdown: str | None = None,
    svg: str | None = None,
    beside: Mapping[str, str] | None = None,
) -> Report:
    """Recompute a card from its ledger.

    Args:
        card: the text of the card file (preferred: then every byte is held to what export wrote), or its parsed values.
        ledger: the opened ledger of its data set.
        markdown: the text of the card's page, when it should be held against the card.
        svg: the text of the card's curve, likewise.
        beside: SHA-256 of the exported files that lie beside the card, by name; None where nobody looked.

    Returns:
        The report; it never raises for a card or a ledger that does not hold. What an accountant cannot compute is not
        judged, which is no yes.
    """
    checks: list[Check] = []
    try:
        for check in _checks(card, ledger, markdown, svg, beside):
            checks.append(check)
    except TunerError as error:
        checks.append(Check("card and ledger can be read", ok=False, detail=str(error)))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        checks.append(Check("card has its fields", ok=False, detail=f"a field is missing or mistyped: {error!r}"))
    return Report(tuple(checks))


def _checks(
    card: Mapping[str, Any] | str,
    ledger: Ledger,
    markdown: str | None,
    svg: str | None,
    beside: Mapping[str, str] | None,
) -> Iterator[Check]:
    if isinstance(card, str):
        card = parse_card(card)
        yield Check("card text", ok=True, detail="byte for byte as export writes it")
    if card["schema"] != SCHEMA:
        raise VerificationError(
            f"The format of a card must be {SCHEMA} (got {card['schema']!r}). Verify it with the version of dp-tuner "
            "that wrote it."
        )
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
    there = f"the card names entry {seq} of the ledger, {head}"
    detail = f"{there}, and it is there" if on_chain else f"{there}; the ledger has entry {state.seq}, {state.head}"
    yield Check("ledger head", ok=on_chain, detail=detail)
    try:
        expected = ledger_sections(state, search, winner_of(card))
    except ArithmeticError as error:
        yield Check("numbers from the ledger", ok=None, detail=_not_judged(error))
        return
    wrong = [found for name, value in expected.items() for found in differences(name, card.get(name), value)]
    yield Check(
        "numbers from the ledger",
        ok=not wrong,
        detail="; ".join(each.words for each in wrong) or "every number recomputed and equal",
        exact="; ".join(each.exact for each in wrong) or None,
    )
    stated = stated_wrong(card, state.by_name[search], expected)
    yield Check(
        "words from the ledger",
        ok=not stated,
        detail="; ".join(each.words for each in stated) or "every guarantee, assumption and warning as it must be",
        exact="; ".join(each.exact for each in stated) or None,
    )
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries(dataset) if entry.seq <= seq]
    yield from _accountants(card, entries, search)
    if markdown is not None:
        yield _drawn("card page", render_markdown(card), markdown)
    if svg is not None:
        yield _drawn("card curve", render_svg(card), svg)
    if beside is not None:
        for name, ok, detail in beside_it(card, beside):
            yield Check(name, ok=ok, detail=detail)


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
    same = total == counted
    said = f"the card says that {pair(*total)} is committed"
    yield Check(
        "data set's total, recounted",
        ok=same,
        detail=f"{said}, and so it is" if same else f"{said}; counted again it is {pair(*counted, beside=total)}",
        exact=f"{total!r} on the card, {counted!r} counted",
    )
    names = [pool.name for pool in pools]
    same = names == list(found.filters)
    said = f"a cap for {' and for '.join(names)}"
    wanted = f"in the ledger there is one for {' and for '.join(found.filters)}"
    yield Check("every pool is on the card", ok=same, detail=said if same else f"{said}; {wanted}")
    for pool in pools:
        yield _kept(pool, found, claim=(card["claim"]["epsilon"], card["claim"]["delta"]))
        yield from _cap(pool, found.filters[pool.name])
    yield from _runs(card, found)
    training = found.filters["training"]
    if training["kind"] == "total_steps":
        yield _prv(training, pools[0].delta, pools[0].epsilon_at_cap)


def _kept(pool: _Pool, found: Counted, *, claim: tuple[float, float]) -> Check:
    """Whether the cap holds its claim, the claim the search's, and what was charged the cap."""
    body = found.filters[pool.name]
    kept = within(body, found.steps(pool.name))
    holds = pool.epsilon_at_cap <= pool.epsilon <= claim[0] and pool.delta <= claim[1]
    once = found.begun == 1 if body["kind"] == "sealed" else found.begun == 0
    exact = (
        f"what may be done costs epsilon {pool.epsilon_at_cap!r}, the cap is {pool.epsilon!r}, of the search's "
        f"{claim[0]!r}; {kept.why}"
    )
    charged = kept.why.replace("steps", "scores") if pool.name == "validation" else kept.why
    # Figures that look alike matter only where one of them passes the other.
    cost, cap, whole = (
        (short(pool.epsilon_at_cap), short(pool.epsilon), short(claim[0]))
        if holds
        else (
            short(pool.epsilon_at_cap, beside=pool.epsilon),
            short(pool.epsilon, beside=pool.epsilon_at_cap),
            short(claim[0], beside=pool.epsilon),
        )
    )
    said = f"what may be done costs ε = {cost}, the cap is {cap} and that of the search {whole}; {plainly(charged)}"
    if body["kind"] == "sealed":
        said += f"; charged {times(found.begun)}" + ("" if once else ", and must be charged once")
    return Check(f"cap of {pool.name}", ok=bool(kept.ok) and holds and once, detail=said, exact=exact)


def _cap(pool: _Pool, body: Mapping[str, Any]) -> Iterator[Check]:
    name = f"independent accountant, cap of {pool.name}"
    rows = [(float(row["delta"]), float(row["epsilon"])) for row in pool.curve]
    try:
        at_cap, *others = brackets(body, [pool.delta, *(delta for delta, _ in rows)])
    except TooLargeError as error:
        yield Check(name, ok=None, detail=f"not confirmed independently: {error}")
        return
    except ArithmeticError as error:
        yield Check(name, ok=None, detail=_not_judged(error))
        return
    yield _check(name, pool.epsilon_at_cap, at_cap)
    name = f"independent accountant, curve of {pool.name}"
    found = [(delta, _check(name, value, bracket)) for (delta, value), bracket in zip(rows, others, strict=True)]
    bad = [(delta, check) for delta, check in found if not check.ok]
    if not bad:
        yield Check(name, ok=True, detail=f"{len(rows)} pairs confirmed")
        return
    delta, first = bad[0]
    ok = False if any(check.ok is False for _, check in bad) else None
    at = f"{len(bad)} of {len(rows)} pairs, first at δ = {short(delta)}"
    yield Check(name, ok=ok, detail=f"{at}: {first.detail}", exact=f"{at}: {first.exact}")


def _runs(card: Mapping[str, Any], found: Counted) -> Iterator[Check]:
    """The winner's run by itself, and what was spent: neither is a guarantee, and both must be true as numbers."""
    delta, winner = card["claim"]["delta"], card["winner"]
    name = "independent accountant, one run"
    body = found.filters["training"]
    run = (winner["sample_rate"], winner["noise_multiplier"], winner["steps"])
    if body["kind"] == "sealed":
        made = may_make(body, run)
        yield Check(
            "exported run was charged",
            ok=made,
            detail="a run of the search's own, or a shorter one" if made else "no run of the search is as long as it",
        )
    yield _opinion(name, winner["single_run_epsilon"], [run], delta)
    if body["kind"] in {"total_steps", "coupon_book"}:
        spent = card["spent"]["epsilon_spent"]
        name = "independent accountant, spent"
        # Bounded by the claim of the ledger's entry: the card's own may be what was tampered with.
        yield _opinion(name, spent, found.steps("training"), delta, most=float(found.epsilon))


def _opinion(
    name: str, claimed: float, steps: Sequence[tuple[float, float, int]], delta: float, *, most: float = inf
) -> Check:
    """One claim for fixed steps; `most` bounds them by other means, so that they may read as less than they cost."""
    try:
        (bracket,) = brackets_of_steps(steps, [delta])
    except TooLargeError as error:
        return Check(name, ok=None, detail=f"not confirmed independently: {error}")
    except ArithmeticError as error:
        return Check(name, ok=None, detail=_not_judged(error))
    bounded = Bracket(min(bracket.low, most), min(bracket.high, most), bracket.ceiling, bracket.how)
    return _check(name, claimed, bounded)


def _not_judged(error: ArithmeticError) -> str:
    return f"not judged: the accountant cannot compute it ({type(error).__name__}: {error})"


def _check(name: str, claimed: float, bracket: Bracket) -> Check:
    """What the card claims beside what this accountant finds."""
    verdict = judge(claimed, bracket)
    lead = "not confirmed independently: " if verdict.ok is None else ""
    return Check(name, ok=verdict.ok, detail=lead + opinion(claimed, bracket, verdict), exact=verdict.why)


def _prv(body: Mapping[str, Any], delta: float, claimed: float) -> Check:
    """A lower estimate of another library, where it fits into memory."""
    name, rate, noise, steps = "not below Opacus' PRV", body["sample_rate"], body["noise_multiplier"], body["step_cap"]
    error = max(min(0.01, claimed / 20), 1e-4)
    mesh = error / sqrt(steps * log(12e3 / delta) / 2)
    try:
        points = 2 * (epsilon(SampledGaussian(rate, noise), steps, max(delta * 1e-3, 1e-10)) + 3) / mesh
    except ArithmeticError as error:
        return Check(name, ok=None, detail=_not_judged(error))
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
    return Check(
        name,
        ok=claimed >= lower - _TOLERANCE,
        detail=f"the card says ε = {short(claimed, beside=lower)}; Opacus' PRV accountant says at least "
        f"{short(lower, beside=claimed)}",
        exact=f"claimed {claimed!r}, PRV says at least {lower!r}",
    )


def _drawn(name: str, wanted: str, found: str) -> Check:
    if wanted == found:
        return Check(name, ok=True, detail="renders from the card")
    pairs = zip(wanted.splitlines(), found.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), ("its end", "more or fewer lines"))
    gives, says = clipped(*first)
    return Check(
        name,
        ok=False,
        detail=f"it says {says} where the card gives {gives}",
        exact=f"it says {first[1]!r} where the card gives {first[0]!r}",
    )
