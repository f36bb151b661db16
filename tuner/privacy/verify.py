"""Whether a privacy card follows from its ledger, by more than one accountant: yes, or no and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import erfc, exp, inf, isfinite, log, sqrt
from typing import Any

from tuner.errors import LedgerError, TunerError
from tuner.privacy.accounting import (
    EPSILON_FLOOR,
    discretisation_error,
    epsilon,
    epsilon_on_grid,
    interval,
    step_masses,
)
from tuner.privacy.card import card_hash, ledger_sections, parse_card
from tuner.privacy.entries import DatasetState
from tuner.privacy.events import SampledGaussian
from tuner.privacy.ledger import Ledger
from tuner.privacy.markdown import render_markdown

__all__ = ["Check", "Report", "verify"]

_TOLERANCE = 1e-9
_PRV_POINTS = 8_000_000
"""Points of Opacus' PRV grid that we let it have: about a gigabyte."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """The answer, and everything that led to it."""

    ok: bool
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        lines = [f"{'ok ' if check.ok else 'NO '} {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([*lines, "yes: the card follows from its ledger" if self.ok else "no: the card does not hold"])


def verify(card: Mapping[str, Any] | str, ledger: Ledger, *, markdown: str | None = None) -> Report:
    """Recompute a card from its ledger.

    Args:
        card: the text of the card file (preferred: then every byte is held to what export wrote), or its parsed values.
        ledger: the opened ledger of its data set.
        markdown: the text of the card's page, when it should be held against the card.

    Returns:
        The report; it never raises for a card or a ledger that does not hold.
    """
    checks: list[Check] = []
    try:
        for check in _checks(card, ledger, markdown):
            checks.append(check)
    except TunerError as error:
        checks.append(Check("card and ledger can be read", ok=False, detail=str(error)))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        checks.append(Check("card has its fields", ok=False, detail=f"a field is missing or mistyped: {error!r}"))
    return Report(ok=bool(checks) and all(check.ok for check in checks), checks=tuple(checks))


def _checks(card: Mapping[str, Any] | str, ledger: Ledger, markdown: str | None) -> Iterator[Check]:
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
    expected = ledger_sections(state, search, card["winner"]["trial"])
    wrong = [difference for name, value in expected.items() for difference in _differences(name, card.get(name), value)]
    yield Check("numbers from the ledger", ok=not wrong, detail="; ".join(wrong) or "every number recomputed and equal")
    yield from _accountants(card, state, search)
    if markdown is not None:
        yield _page(card, markdown)


def _recorded(card: Mapping[str, Any], ledger: Ledger) -> Check:
    name, found = "card hash", card_hash(card)
    known = [digest for digest, _, _ in ledger.search_state(card["claim"]["search"]).cards]
    if found in known:
        return Check(name, ok=True, detail=f"{found} is recorded in the ledger")
    issued = ", ".join(known) or "no card"
    return Check(name, ok=False, detail=f"the card hashes to {found}; the ledger issued {issued}")


def _accountants(card: Mapping[str, Any], state: DatasetState, search: str) -> Iterator[Check]:
    found = next(known for known in state.searches if known.search == search)
    mechanism, steps, delta = found.mechanism, found.step_cap, found.delta
    claimed = card["claim"]["epsilon_at_step_cap"]
    cap = card["claim"]["epsilon"]
    yield Check("cap", ok=claimed <= cap and found.leased_steps <= steps, detail=(
        f"epsilon of {steps} steps is {claimed!r}, claimed cap {cap!r}; {found.leased_steps} steps leased"
    ))  # fmt: skip
    fresh = epsilon(mechanism, steps, delta)
    yield Check("same accountant", ok=abs(claimed - fresh) <= _TOLERANCE, detail=_versus("epsilon", claimed, fresh))
    yield _finer(mechanism, steps, delta, claimed)
    upper = _rdp(mechanism, steps, delta)
    error = discretisation_error(mechanism, steps, delta)
    below = claimed <= max(upper, EPSILON_FLOOR) + error
    yield Check("not above RDP", ok=below, detail=f"claimed {claimed!r}, RDP says at most {upper!r}")
    yield _lower(mechanism, steps, delta, claimed)


def _finer(mechanism: SampledGaussian, steps: int, delta: float, claimed: float) -> Check:
    """A PLD on a grid four times finer: the claim lies above it, by no more than the error that it states."""
    grid = interval(mechanism, steps) / 4
    error = discretisation_error(mechanism, steps, delta)
    finer = epsilon_on_grid(mechanism, steps, delta, grid=grid)
    # The finer the grid the more mass the library adds by clamping: not held against the claim from below.
    excess = max(step_masses(mechanism, grid)) - 1
    relaxed = min(delta * (1 + 2 * max(excess, 0.0) * steps), 0.999999)
    floor = epsilon_on_grid(mechanism, steps, relaxed, grid=grid)
    ok = floor - _TOLERANCE <= claimed <= finer + error + _TOLERANCE
    return Check("finer PLD", ok=ok, detail=f"claimed {claimed!r}, finer {finer!r}, error at most {error!r}")


def _rdp(mechanism: SampledGaussian, steps: int, delta: float) -> float:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(mechanism.event(steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an optimal order at the end of the list is still a bound
        return float(accountant.get_epsilon(delta))


def _lower(mechanism: SampledGaussian, steps: int, delta: float, claimed: float) -> Check:
    """A lower estimate of another make: without sampling the exact value, else Opacus' PRV where it fits."""
    if mechanism.sample_rate == 1:
        exact = _gaussian_epsilon(sqrt(steps) / mechanism.noise_multiplier, delta)
        said = f"claimed {claimed!r}, the exact value is {exact!r}"
        return Check("not below the exact Gaussian", ok=claimed >= exact - _TOLERANCE, detail=said)
    name = "not below Opacus' PRV"
    error = max(min(0.01, claimed / 20), 1e-4)
    mesh = error / sqrt(steps * log(12e3 / delta) / 2)
    points = 2 * (epsilon(mechanism, steps, max(delta * 1e-3, 1e-10)) + 3) / mesh
    if not points <= _PRV_POINTS:
        return Check(
            name, ok=True, detail=f"not run: its grid would have {points:.1e} points; the finer PLD stands alone"
        )
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        return Check(name, ok=True, detail="not run: opacus is not installed; the finer PLD stands alone")
    accountant: Any = PRVAccountant()
    accountant.history = [(mechanism.noise_multiplier, mechanism.sample_rate, steps)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            discrete = accountant._get_dprv(eps_error=error, delta_error=delta / 1000)
            lower, _, _ = discrete.compute_epsilon(delta, delta / 1000, error)
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as failure:
        return Check(name, ok=True, detail=f"not run: Opacus failed ({failure}); the finer PLD stands alone")
    lower = float(lower) if isfinite(float(lower)) else -inf
    return Check(name, ok=claimed >= lower - _TOLERANCE, detail=f"claimed {claimed!r}, PRV says at least {lower!r}")


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of the Gaussian mechanism with sensitivity / noise = `mu` (Balle & Wang 2018, Theorem 8), from below."""

    def delta_of(value: float) -> float:
        tail = 0.5 * erfc((value / mu + mu / 2) / sqrt(2))
        return 0.5 * erfc((value / mu - mu / 2) / sqrt(2)) - (exp(value + log(tail)) if tail > 0 else 0.0)

    low, high = 0.0, max(mu * mu, 1.0) * 100
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return low


def _page(card: Mapping[str, Any], markdown: str) -> Check:
    wanted = render_markdown(card)
    if wanted == markdown:
        return Check("card page", ok=True, detail="renders from the card")
    pairs = zip(wanted.splitlines(), markdown.splitlines(), strict=False)
    first = next(((a, b) for a, b in pairs if a != b), ("its end", "more or fewer lines"))
    return Check("card page", ok=False, detail=f"it says {first[1]!r} where the card gives {first[0]!r}")


def _differences(path: str, found: object, wanted: object) -> Iterator[str]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(wanted.keys() | found.keys()):
            yield from _differences(f"{path}.{key}", found.get(key), wanted.get(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(f"{path}[{index}]", left, right)
    elif isinstance(wanted, float) and isinstance(found, int | float) and not isinstance(found, bool):
        if not abs(found - wanted) <= _TOLERANCE * max(1.0, abs(wanted)) or ("delta" in path and found != wanted):
            yield f"{path} is {found!r} and should be {wanted!r}"
    elif found != wanted or type(found) is not type(wanted):
        yield f"{path} is {found!r} and should be {wanted!r}"


def _versus(what: str, found: object, wanted: object) -> str:
    return f"{what} is {found} and should be {wanted}" if found != wanted else f"{what} is {found}"
