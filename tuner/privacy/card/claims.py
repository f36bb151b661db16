"""Sentences that state the claim of a search, for plans, reports and MLflow."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from typing import TYPE_CHECKING, Any, Self

from tuner.privacy.ledger.amounts import amount, amounts
from tuner.privacy.ledger.history import within_cap
from tuner.privacy.modes import COMPOSITION, MODES, Mode

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.privacy.ledger.state import DatasetState

__all__ = [
    "NOTHING_CLAIMED",
    "PUBLIC_SEARCH",
    "Total",
    "budget_sentence",
    "claim_line",
    "claim_of_card",
    "guarantee_words",
    "release_claim",
    "totals_of_card",
    "totals_sentence",
]

NOTHING_CLAIMED = "NOT PRIVATE: nothing is claimed and nothing is charged."
"""First line of a view of a search without privacy."""

PUBLIC_SEARCH = (
    "This search uses records that are declared public, so nothing is claimed for it. Only a run or search that is "
    "charged later has a claim."
)
"""First line of a view of a search on public records."""


def release_claim(mode: Mode) -> str:
    """Return the sentence about a search on a release."""
    return (
        f"This search trains on a release that was charged before it was drawn ({mode.name}). The guarantee covers "
        f"{mode.guarantee}. So no trial and no later search on the release is charged."
    )


@dataclass(frozen=True, kw_only=True)
class Total:
    """What all searches on a data set, or on one block of a table, claim together.

    Attributes:
        dataset: the ledger's name of the data set.
        cap: (ε, δ) that the owner allows for all searches together; None without a cap.
        committed: sums of the ε and of the δ of the searches that count.
        searches: number of these searches.
        within: whether the cap holds for what is committed. With a Rényi order it may, although the sums exceed it.
        void: whether the owner let the records be used without protection, so that no total holds.
        mixed: whether a record may train in one of these searches and validate without protection in another.
        ledger_option: option that names the ledger, if it is not the default one: `` --ledger URL``.
    """

    dataset: str
    cap: tuple[float, float] | None = None
    committed: tuple[float, float] = (0.0, 0.0)
    searches: int = 0
    within: bool = True
    void: bool = False
    mixed: bool = False
    ledger_option: str = ""

    @classmethod
    def of_state(cls, state: DatasetState, *, ledger_option: str = "") -> Self:
        """Return the total of a data set in the ledger."""
        return cls(
            ledger_option=ledger_option,
            dataset=state.dataset,
            cap=None if state.cap is None else (state.cap.epsilon, state.cap.delta),
            committed=(state.committed_epsilon, state.committed_delta),
            searches=state.committed.searches,
            within=within_cap(state) is not False,
            void=bool(state.voids),
            mixed=mixes_sides(state.validation_splits),
        )

    @classmethod
    def of_card(cls, budget: Mapping[str, Any]) -> Self:
        """Return the total that a card states in its section `dataset_budget`, or in the row of a block there."""
        cap = budget["cap"]
        return cls(
            dataset=budget["dataset"],
            cap=None if cap is None else (cap["epsilon"], cap["delta"]),
            committed=(budget["committed_epsilon"], budget["committed_delta"]),
            searches=budget["searches"],
            within=budget["within_cap"] is not False,
            void=bool(budget["void"]),
            mixed=mixes_sides(budget["validation_splits"]),
        )

    @property
    def order_admits(self) -> bool:
        """Whether the cap holds although the sums exceed it, because its Rényi order admitted the searches."""
        exceeded = self.cap is not None and (self.committed[0] > self.cap[0] or self.committed[1] > self.cap[1])
        return exceeded and self.within

    def weaker_than(self, other: Total) -> bool:
        """Return whether this total holds for less than another one of the same data set: the other says too much.

        Only more searches within the same cap do not make a total weaker.
        """
        if other.void:
            return False
        if self.void or (self.mixed and not other.mixed):
            return True
        if other.cap is None or not other.within:  # then it states a sum, to which every search adds
            return False
        return not self.within or self.cap is None or any(map(gt, self.cap, other.cap))

    @property
    def how_to_cap(self) -> str:
        """The command that sets a cap."""
        name = shlex.quote(self.dataset)
        return f"To set a cap: tune budget set {name} --epsilon E --delta D{self.ledger_option}"

    @property
    def sentence(self) -> str:
        """What holds for all searches on the data set together, and without a cap how to set one."""
        so_far = f"{_several(self.searches)} so far, {amounts(*self.committed)}" if self.searches else "no search yet"
        if self.void:
            counted = so_far if self.searches else "no charged search"
            return f"The TOTAL of {self.dataset} is VOID: its records were used without protection ({counted})."
        if self.cap is None and not self.searches:
            return f"{self.dataset} has no cap and no search yet. Each search will add to its total. {self.how_to_cap}"
        if self.cap is None:
            added = "Every new search adds to this."
            return f"{self.dataset} has no cap: {so_far} in total.{self.condition} {added} {self.how_to_cap}"
        if not self.within:
            above = f"This is above the cap {amounts(*self.cap)}."
            return f"ALL searches on {self.dataset}: {so_far} in total.{self.condition} {above}"
        if self.order_admits:
            so_far = f"{_several(self.searches)} so far, within the cap by its Rényi order"
        most = f"at most {amounts(*self.cap)}, which is the cap ({so_far})."
        return f"ALL searches on {self.dataset} together: {most}{self.condition}"

    @property
    def condition(self) -> str:
        """For which records the total holds, if they may train in one search and validate in another."""
        return _condition(self.dataset) if self.mixed else ""


def totals_of_card(budget: Mapping[str, Any]) -> list[Total]:
    """Return the totals in a card's section `dataset_budget`: of each block, or of the data set."""
    return [Total.of_card(row) for row in budget["blocks"] or [budget]]


def totals_sentence(totals: Sequence[Total]) -> str:
    """Return what holds for all searches on a data set, or on each block of a table, together.

    Blocks whose total is void, above its cap or without a cap are all named, and come first. Of the others the largest
    cap is named, which holds for every record in them, and the largest total.
    """
    if len(totals) == 1:
        return totals[0].sentence
    void = [each for each in totals if each.void]
    free = [each for each in totals if not each.void and each.cap is None]
    above = [each for each in totals if not each.void and each.cap is not None and not each.within]
    held = [each for each in totals if not each.void and each.cap is not None and each.within]
    said = [f"The whole claim is added to the total of each of the {len(totals)} blocks."]
    if void:
        said.append(f"The TOTAL of {_names(void)} is VOID: records were used without protection.")
    said += [each.sentence for each in above]
    if free:
        worst = max(free, key=lambda each: each.committed)
        said.append(f"{_names(free)}: no cap, and every search adds to the total. {_largest(worst)}.")
    if held:
        caps = [each.cap for each in held if each.cap is not None]
        which = f"any one of the other {len(held)} blocks" if len(held) < len(totals) else "any one block"
        which, whose = (held[0].dataset, "the cap") if len(held) == 1 else (which, "the largest of the caps")
        most = amounts(max(epsilon for epsilon, _ in caps), max(delta for _, delta in caps))
        worst = max(held, key=lambda each: each.committed)
        said.append(f"ALL searches on {which} together: at most {most}, which is {whose}. {_largest(worst)}.")
    if mixed := [each for each in (*free, *held) if each.mixed]:
        said.append(_condition(_names(mixed)).lstrip())
    return " ".join([*said, *(each.how_to_cap for each in free[:1])])


def mixes_sides(splits: Sequence[str]) -> bool:
    """Return whether a record may train in one search and validate without protection in another one.

    `splits` are the different `DatasetState.validation_splits`. The claim of a search with protected scores covers its
    validation records too.
    """
    return len(splits) > 1 and not all('"scores":"protected"' in split for split in splits)


def _condition(where: str) -> str:
    return (
        f" The searches on {where} did not use the same records for validation, or protect only some of them, so this "
        "holds only for records that no search used, in any version, for validation without protection."
    )


def _names(totals: Sequence[Total]) -> str:
    return ", ".join(each.dataset for each in totals)


def _largest(total: Total) -> str:
    order = ", within the cap by its Rényi order" if total.order_admits else ""
    return f"Largest total so far: {total.dataset}, {_several(total.searches)}, {amounts(*total.committed)}{order}"


def claim_line(epsilon: float, delta: float, totals: Sequence[Total], *, mode: Mode, unit: str, protected: bool) -> str:
    """Return the first line of a view: what is claimed, of how much, and what holds for all searches together.

    Args:
        epsilon: ε of the claim.
        delta: δ of the claim.
        totals: what all searches claim together on the data set, or on each block; empty if no ledger knows them.
        mode: accounting mode of the search.
        unit: unit of protection, ``record`` or ``user``.
        protected: whether the guarantee covers validation records too.
    """
    capped = bool(totals) and all(total.cap is not None for total in totals)
    what = "charged run" if mode.searches_public else "search"
    whom = unit if protected else mode.record if unit == "record" else f"training {unit}"
    claimed = f"Claimed: {amounts(epsilon, delta)} per {whom}, of {'this' if capped else 'ONE'} {what}."
    return f"{claimed} {totals_sentence(totals)}" if totals else claimed


def claim_of_card(card: Mapping[str, Any]) -> str:
    """Return the first line of a view of an exported model. The values are those of the card, checked or not."""
    claim = card["claim"]
    unit = "user" if str(claim["adjacency"]).endswith("user") else "record"
    totals, mode = totals_of_card(card["dataset_budget"]), MODES[claim["mode"]]
    protected = claim["covers"]["validation"]
    return claim_line(claim["epsilon"], claim["delta"], totals, mode=mode, unit=unit, protected=protected)


def _several(searches: int) -> str:
    return "no search" if not searches else "1 search" if searches == 1 else f"{searches} searches"


def budget_sentence(budget: BudgetView, *, mode: Mode = COMPOSITION, unit: str = "record") -> str:
    """Return sentences about a search that has begun: what it claims, and what it does not claim.

    Args:
        budget: budget of the search. If it includes a budget for validation scores, the claim covers these scores.
        mode: accounting mode of the search.
        unit: unit of protection, ``record`` or ``user``.
    """
    words = guarantee_words(
        budget.epsilon_cap, budget.delta, mode=mode, unit=unit, protected=budget.validation is not None
    )
    # A search with hidden runs has no odometer, because it is charged as a whole when it begins.
    return words if mode.runs_hidden or mode.on_release else f"{words} The ε spent so far is not a guarantee."


def guarantee_words(
    epsilon: float,
    delta: float,
    *,
    mode: Mode,
    unit: str,
    protected: bool,
    planned: bool = False,
) -> str:
    """Return a sentence that states the claim: ε and δ, whom it protects, what it covers and what it does not cover.

    Args:
        epsilon: ε of the claim.
        delta: δ of the claim.
        mode: accounting mode of the search.
        unit: unit of protection, ``record`` or ``user``.
        protected: whether validation scores have noise, so that the guarantee covers them.
        planned: whether the search has not begun yet.
    """
    one = "training or validation record" if protected else mode.record
    outside = "test scores" if protected else "validation and test scores"
    removed = "user with all their records" if unit == "user" else one
    return (
        f"The guarantee of ONE search {'will be' if planned else 'is'} its cap: ε = {amount(epsilon)} at "
        f"δ = {amount(delta)}, for adding or removing one {removed}. It covers {mode.guarantee}. "
        f"Not covered: {outside}."
    )
