"""Second opinion on a card. Independent accountants recompute the card's claims from the ledger's entries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite, log, sqrt
from typing import Any

from tuner.privacy.verify.accountant.bounds import (
    EpsilonRange,
    TooLargeError,
    epsilon_ranges,
    epsilon_ranges_of_steps,
    judge,
    within,
)
from tuner.privacy.verify.accountant.entries_recount import Counted, capped, may_make, recount, voided, within_sums
from tuner.privacy.verify.differences import short
from tuner.privacy.verify.report import Check, not_judged

__all__ = ["second_opinion"]

Chain = Sequence[tuple[str, Mapping[str, Any]]]
"""(kind, body) of each entry of one data set, oldest first."""

_TOLERANCE = 1e-9
_ANSWERS = {True: "yes", False: "no", None: "no cap"}
_PRV_POINTS = 8_000_000
"""Largest number of grid points for the PRV accountant of Opacus. So many points need about a gigabyte of memory."""


def second_opinion(card: Mapping[str, Any], chains: Mapping[str, Chain], search: str) -> Iterator[Check]:
    """Check the claims of a card, and yield the result of each check.

    Args:
        card: the parsed card.
        chains: the entries of the search's data set, and of each other block on which it counts, by name. Each chain
            ends with the entry that the card names.
        search: name of the search that the card describes.

    Raises:
        KeyError: the card or an entry lacks a field.
        ValueError: a value is out of range.
    """
    dataset, budget = card["claim"]["dataset"], card["dataset_budget"]
    found = recount(chains[dataset])[0][search]
    yield from _total("data set's total", budget, chains[dataset])
    yield from _blocks(dataset, budget["blocks"], chains, search, found)
    caps = {pool: card[f"{pool}_cap"] for pool in ("training", "validation") if card[f"{pool}_cap"] is not None}
    yield Check(
        "every cap is on the card",
        ok=list(caps) == list(found.filters),
        detail=f"the card has a cap for {', '.join(caps)}; the ledger has one for {', '.join(found.filters)}",
    )
    for name, cap in caps.items():
        yield _kept(name, cap, found, card["claim"])
        yield from _recomputed(name, cap, found.filters[name])
    yield from _single_runs(card, found)
    training = found.filters["training"]
    if training["kind"] == "total_steps":
        yield _prv(training, caps["training"]["delta"], caps["training"]["epsilon_at_cap"])


def _blocks(
    dataset: str, rows: Sequence[Mapping[str, Any]] | None, chains: Mapping[str, Chain], search: str, found: Counted
) -> Iterator[Check]:
    """Check that the card has a row for each block, that each row is true, and that each block has the whole claim."""
    named = [row["dataset"] for row in rows] if rows is not None else [dataset]
    wanted = [dataset, *found.blocks]
    if rows is not None or found.blocks:
        yield Check(
            "every block is on the card",
            ok=named == wanted,
            detail=f"the card has rows for {', '.join(named)}; in the ledger the search counts on {', '.join(wanted)}",
        )
    for row in rows or ():
        if row["dataset"] in chains:
            yield from _total(f"total of block {row['dataset']}", row, chains[row["dataset"]])
    for block in found.blocks:
        mirrors = [each for each in recount(chains[block])[0].values() if each.mirror_of == search]
        same = [each for each in mirrors if (each.epsilon, each.delta) == (found.epsilon, found.delta)]
        whole = [each for each in same if each.begun == 1 and each.filters == found.filters]
        yield Check(
            f"claim on block {block}",
            ok=len(mirrors) == len(whole) == 1,
            detail=f"the whole claim of the search is {'' if len(whole) == 1 else 'NOT '}counted on this block"
            + ("" if len(mirrors) == 1 else f", in {len(mirrors)} entries instead of one"),
        )


def _total(name: str, row: Mapping[str, Any], chain: Chain) -> Iterator[Check]:
    """Check the total, the cap and the void total that the card states of a data set or of a block."""
    _, *sums = recount(chain)
    counted, said = (float(sums[0]), float(sums[1])), (row["committed_epsilon"], row["committed_delta"])
    yield Check(
        f"{name}, recounted",
        ok=said == counted,
        detail=f"the card says ε = {short(said[0])}, δ = {short(said[1])}; a recount of the ledger gives "
        f"ε = {short(counted[0])}, δ = {short(counted[1])}",
        exact=f"(ε, δ) = {said!r} on the card; {counted!r} by a recount of the ledger",
    )
    cap, stated = capped(chain), row["cap"] and (row["cap"]["epsilon"], row["cap"]["delta"], row["cap"]["order"])
    fits = within_sums(cap, *sums)
    judged = fits is not None or cap is None
    by_card, by_sums = (_ANSWERS.get(each, "not decided") for each in (row["within_cap"], fits))
    yield Check(
        f"{name}, its cap",
        ok=stated == cap and (row["within_cap"] == fits if judged else True),
        detail=f"the cap is {_cap_text(stated)} on the card and {_cap_text(cap)} in the ledger; whether the total is "
        f"within the cap: {by_card} on the card, {by_sums if judged else 'not decided'} by the sums in the ledger",
    )
    void, voids = voided(chain), [(each["use"], each["why"]) for each in row["void"]]
    yield Check(
        f"{name}, void or not",
        ok=voids == void,
        detail=f"the total is {'void' if voids else 'not void'} on the card, and {'void' if void else 'not void'} by a "
        "recount of the ledger",
    )


def _cap_text(cap: tuple[Any, ...] | None) -> str:
    """Return the ε and δ of a cap, and its Rényi order if it has one, as exact text."""
    if cap is None:
        return "not set"
    epsilon, delta, order = cap
    return f"ε = {epsilon!r}, δ = {delta!r}" + ("" if order is None else f", order {order!r}")


def _kept(name: str, cap: Mapping[str, Any], found: Counted, claim: Mapping[str, Any]) -> Check:
    """Check that the filter's ε is at most the cap, the cap is at most the claim, and the filter admits all charges."""
    body = found.filters[name]
    kept = within(body, found.steps(name))
    holds = cap["epsilon_at_cap"] <= cap["epsilon"] <= claim["epsilon"] and cap["delta"] <= claim["delta"]
    once = found.begun == (1 if body["kind"] in {"sealed", "one_release", "voted_labels"} else 0)
    begun = f"; entries that charge the search as a whole: {found.begun}" if found.begun or not once else ""
    costs = (cap["epsilon_at_cap"], cap["epsilon"], claim["epsilon"])
    charged = kept.why.replace("steps", "scores") if name == "validation" else kept.why
    text = "the filter allows ε = {}, the cap is ε = {} and the claim is ε = {}; " + charged + begun
    return Check(
        f"cap of {name}",
        ok=bool(kept.ok) and holds and once,
        detail=text.format(*map(short if holds else repr, costs)),
        exact=text.format(*map(repr, costs)),
    )


def _recomputed(name: str, cap: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Check]:
    """Recompute the filter's ε at the cap's δ, and at each δ of the curve on the card."""
    check_name = f"independent accountant, cap of {name}"
    rows = [(float(row["delta"]), float(row["epsilon"])) for row in cap["curve"]]
    try:
        at_cap, *others = epsilon_ranges(body, [cap["delta"], *(delta for delta, _ in rows)])
    except (TooLargeError, ArithmeticError) as error:
        yield _unknown(check_name, error)
        return
    yield _judged(check_name, cap["epsilon_at_cap"], at_cap)
    check_name = f"independent accountant, curve of {name}"
    checks = [(delta, _judged(check_name, value, near)) for (delta, value), near in zip(rows, others, strict=True)]
    bad = [(delta, check) for delta, check in checks if not check.ok]
    if not bad:
        yield Check(check_name, ok=True, detail=f"{len(rows)} pairs confirmed")
        return
    delta, first = bad[0]
    at = f"{len(bad)} of {len(rows)} pairs are refuted or not confirmed, the first at δ = {short(delta)}"
    ok = False if any(check.ok is False for _, check in bad) else None
    yield Check(check_name, ok=ok, detail=f"{at}: {first.detail}", exact=f"{at}: {first.exact}")


def _single_runs(card: Mapping[str, Any], found: Counted) -> Iterator[Check]:
    """Check the ε of the winner's run alone, and the ε of all charged steps. Neither ε is a guarantee."""
    delta, winner, body = card["claim"]["delta"], card["winner"], found.filters["training"]
    if body["kind"] in {"one_release", "voted_labels"}:
        yield _release(card, found)
        return
    run = (winner["sample_rate"], winner["noise_multiplier"], winner["steps"])
    if body["kind"] == "sealed":
        made = may_make(body, run)
        detail = f"the search was {'' if made else 'not '}charged for this run or for a longer one"
        yield Check("exported run was charged", ok=made, detail=detail)
    yield _steps("independent accountant, one run", winner["single_run_epsilon"], [run], delta)
    if body["kind"] in {"total_steps", "coupon_book"}:
        # The claim in the ledger bounds what was spent. The card's own claim may have been changed.
        spent, most = card["spent"]["epsilon_spent"], float(found.epsilon)
        yield _steps("independent accountant, spent", spent, found.steps("training"), delta, most=most)


def _release(card: Mapping[str, Any], found: Counted) -> Check:
    """Check that the release on the card is the one that the ledger charged and stored, once."""
    said = card["release"]["sha256"]
    return Check(
        "release was charged and stored once",
        ok=found.begun == 1 and found.stored == [said] and card["winner"]["single_run_epsilon"] <= found.epsilon,
        detail=f"the card names the release {short(said)}; by a recount of the ledger, charged releases: "
        f"{found.begun}, stored releases: {', '.join(map(short, found.stored)) or 'none'}",
    )


def _steps(
    name: str, claimed: float, steps: Sequence[tuple[float, float, int]], delta: float, *, most: float = inf
) -> Check:
    """Recompute the ε of fixed numbers of steps, and judge the claimed ε. The true ε is known to be at most `most`."""
    try:
        (found,) = epsilon_ranges_of_steps(steps, [delta])
    except (TooLargeError, ArithmeticError) as error:
        return _unknown(name, error)
    return _judged(name, claimed, EpsilonRange(min(found.low, most), min(found.high, most), found.ceiling, found.how))


def _unknown(name: str, error: TooLargeError | ArithmeticError) -> Check:
    if isinstance(error, ArithmeticError):
        return Check(name, ok=None, detail=not_judged(error))
    return Check(name, ok=None, detail=f"not confirmed independently: {error}")


def _judged(name: str, claimed: float, found: EpsilonRange) -> Check:
    verdict = judge(claimed, found)
    lead = "not confirmed independently: " if verdict.ok is None else ""
    said = short(claimed) if verdict.ok else repr(claimed)
    between = f"between {short(found.low)} and {short(found.high)}"
    return Check(
        name,
        ok=verdict.ok,
        detail=f"{lead}the card says ε = {said}; the recomputed ε is {between} ({found.how})",
        exact=verdict.why,
    )


def _prv(body: Mapping[str, Any], delta: float, claimed: float) -> Check:
    """Check that the claim is at least the lower bound of Opacus' PRV accountant, if that bound can be computed."""
    name, rate, noise, steps = "not below Opacus' PRV", body["sample_rate"], body["noise_multiplier"], body["step_cap"]
    error = max(min(0.01, claimed / 20), 1e-4)
    mesh = error / sqrt(steps * log(12e3 / delta) / 2)
    try:
        (far,) = epsilon_ranges_of_steps([(rate, noise, steps)], [max(delta * 1e-3, 1e-10)])
    except (TooLargeError, ArithmeticError) as failure:
        return _unknown(name, failure)
    points = 2 * (far.high + 3) / mesh
    if not points <= _PRV_POINTS:
        return Check(name, ok=True, detail=f"not run: Opacus would need a grid of {points:.1e} privacy losses")
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        return Check(name, ok=True, detail="not run: opacus is not installed")
    accountant: Any = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            discrete = accountant._get_dprv(eps_error=error, delta_error=delta / 1000)
            lower, _, _ = discrete.compute_epsilon(delta, delta / 1000, error)
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as failure:
        return Check(name, ok=True, detail=f"not run: Opacus failed ({failure})")
    lower = float(lower) if isfinite(float(lower)) else -inf
    return Check(
        name,
        ok=claimed >= lower - _TOLERANCE,
        detail=f"the card says ε = {short(claimed)}; Opacus' PRV accountant says at least {short(lower)}",
        exact=f"claimed {claimed!r}, PRV says at least {lower!r}",
    )
