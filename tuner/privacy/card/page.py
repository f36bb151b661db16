"""Page of the privacy card for data protection officers. The details for a reviewer are at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.privacy.card.card import card_hash
from tuner.privacy.card.claims import mixes_sides, totals_of_card, totals_sentence
from tuner.privacy.card.sections import SECTIONS
from tuner.privacy.card.text import (
    counted,
    epsilon_and_delta,
    number,
    odds_factor,
    percent,
    plain,
    rounded_up,
    splits_text,
)
from tuner.privacy.card.wording import allowed_text
from tuner.privacy.modes import MODES, Mode

__all__ = ["CURVE_FILE", "render_markdown"]

CURVE_FILE = "privacy_curve.svg"
"""Name of the picture that the page shows. The picture is in the same folder as the page."""


def render_markdown(card: Mapping[str, Any]) -> str:
    """Return the page of a card as Markdown. `tune verify` renders the page again and compares the two.

    The Markdown consists of headings, paragraphs, flat lists, one table and one picture. `tuner.report.card_html` can
    show nothing else.

    Raises:
        KeyError: the card lacks a field.
        ValueError: the claim's ε or δ is out of range.
    """
    claim, totals = card["claim"], totals_of_card(card["dataset_budget"])
    open_ends = [plain(row["assumption"]) for row in card["assumptions"] if row["status"] == "not covered"]
    parts = [
        f"# Privacy card: {plain(claim['search'])}",
        f"**{_statement(claim)}.**",
        f"**This claim is for {'this' if all(total.cap for total in totals) else 'ONE'} {_what(card)} only.** "
        f"{plain(totals_sentence(totals))}",
        f"**Not covered:** {'; '.join(open_ends)}; what the operator sees (the operator runs the search and is "
        "trusted); attacks on floating-point noise, such as its rounding; and attacks on timing: how long computations "
        "take, and when something is shown.",
        "## What this means",
        *_meaning(card),
        *(alarm for row in _rows(card) for alarm in _alarms(row)),
        "## The numbers",
        "\n".join(_numbers(card)),
        "Numbers are rounded upward to 4 significant digits. The claim and every δ are exact. The JSON file next to "
        "this page has all digits.",
        f"![The pairs of ε and δ that hold for this search; the details list them]({CURVE_FILE})",
        "Every dot is a pair (ε, δ) that holds for everything that the search may show. Each kind of protected "
        "records, for training or for validation, has its own line. The lines only connect the dots.",
        "## How to check it",
        "Run `tune verify` with this card's JSON file. It compares the card with the ledger. A second accountant, "
        "which shares no code with the first, computes the claims again. The answer is yes, no or not confirmed. "
        "Values that only the operator knows, such as scores and public sizes, cannot be checked.",
        f"Card hash: `{card_hash(card)}`",
        "## Details for a reviewer",
    ]
    for section in SECTIONS:
        parts += [f"### {section.title}", "\n".join(section.lines(card[section.name]))]
    return "\n\n".join(parts) + "\n"


def _statement(claim: Mapping[str, Any]) -> str:
    """Return the sentence that states the claim. Its numbers are written as "ε = …, δ = …"."""
    exact = f"({claim['epsilon']!r}, {claim['delta']!r})-"
    return f"{epsilon_and_delta(claim['epsilon'], claim['delta'])}: {plain(claim['statement']).removeprefix(exact)}"


def _rows(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the totals of each block on which the search counts, or of its data set."""
    return card["dataset_budget"]["blocks"] or [card["dataset_budget"]]


def _what(card: Mapping[str, Any]) -> str:
    return "charged run" if _mode(card).searches_public else "search"


def _mode(card: Mapping[str, Any]) -> Mode:
    return MODES[card["claim"]["mode"]]


def _meaning(card: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs that explain the claim in plain words."""
    claim = card["claim"]
    unit, user = plain(claim["unit"]), card["records"]["records_per_user"] is not None
    epsilon, delta = claim["epsilon"], claim["delta"]
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a claim must have a finite ε > 0 and a δ in (0, 1) (got {epsilon!r} and {delta!r})")
    # For any test, TPR <= e^ε FPR + δ, and TNR <= e^ε FNR + δ. The sum of both bounds how often a guess is right.
    right = percent((1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))
    one = "user" if user else "record"
    return [
        f"**What is promised.** Two numbers, ε and δ, limit the influence of any one {one} on everything that this "
        "search shows. This limit holds whatever else a reader knows, and whatever is computed from the results later. "
        f"What many {one}s have in common is not hidden, because a model is trained to learn this.",
        f"**What ε and δ are.** ε limits how much {unit}{',' * (',' in unit)} can change the probability of any "
        f"result: by a factor of at most e^ε, here {odds_factor(epsilon)}. δ is, roughly, the probability that this "
        f"limit fails: {number(delta)}, or 1 in {math.floor(1 / delta + 1e-6)}. Smaller numbers mean better "
        f"protection. For example, an attacker knows all other {one}s, and guesses whether one more {one} was used. A "
        "coin toss decided this, so a blind guess is right in 50 % of all cases. After the attacker has seen all "
        f"that this search shows, a guess is right in at most {right} of all cases. Without protection, a guess "
        "could be right in 100 %. This is a limit for the worst case, not the result of a real attack.",
        f"**Who is protected.** The unit of protection is {unit}. "
        + (
            f"A training step uses at most {counted(card['records']['records_per_user'], 'record')} of a user."
            if user
            else "A person with several records in the data has less protection than these numbers say."
        ),
        f"**What the claim covers.** {_extent(card)}",
        f"**Scores.** {_scored(card)}",
        f"**May be shown:** {plain(card['released'])}.",
        f"**Must not be shown:** {plain(card['kept_from_analysts'])}.",
    ]


def _extent(card: Mapping[str, Any]) -> str:
    """Return the sentences that say what the card's numbers cover."""
    mode, spent = _mode(card), card["spent"]
    if mode.runs_hidden or mode.on_release:
        return mode.extent
    scores = "" if card["validation_cap"] is None else f" and {counted(spent['released_scores'], 'score')}"
    so_far = (
        f"When this card was made, {counted(spent['leased_steps'], 'step')}{scores} in "
        f"{counted(spent['trials'], 'trial')} had been charged. The claim depends only on the cap."
    )
    most = allowed_text(card["training_cap"]["filter"]) + _most_scores(card)
    return mode.extent.format(most=most, so_far=so_far)


def _most_scores(card: Mapping[str, Any]) -> str:
    if card["validation_cap"] is None:
        return ""
    scores = card["validation_cap"]["filter"].get("step_cap")
    if scores is None:
        return " and protected scores up to their own cap"
    return f" and at most {counted(scores, 'protected score')}"


def _scored(card: Mapping[str, Any]) -> str:
    cap = card["validation_cap"]
    if cap is None:
        return (
            "Scores on validation and test records are computed without noise, and validation scores decide which "
            "model is exported. So these records are not protected."
        )
    return (
        "Every validation score has noise, so validation records are protected. The noise is added to the sum of "
        f"correct answers, and its standard deviation is {', '.join(number(noise) for noise in cap['noise'])}. The "
        "test score is computed without noise, so test records are not protected."
    )


def _alarms(budget: Mapping[str, Any]) -> list[str]:
    """Return the warnings for the owner of the data set, or of one block."""
    said = []
    if budget["within_cap"] is False:
        committed = epsilon_and_delta(budget["committed_epsilon"], budget["committed_delta"])
        cap = epsilon_and_delta(budget["cap"]["epsilon"], budget["cap"]["delta"])
        said.append(
            f"**Over the cap of the data set.** The caps of all searches on `{plain(budget['dataset'])}` add up to "
            f"{committed}. This is more than the owner's cap: {cap}. The claim of this search remains true, but no "
            "further search may start."
        )
    splits = budget["validation_splits"]
    if mixes_sides(splits):
        said.append(
            f"**Validation splits differ.** The searches on `{plain(budget['dataset'])}` did not use the same records "
            f"for validation, or protect only some of them: {splits_text(splits)}. If a search scores a validation "
            "record without noise, the search's guarantee does not cover the record. The total for the data set "
            "therefore covers only records that no search used, in any version (before or after a change of the "
            "record), for validation without protection."
        )
    return said


def _numbers(card: Mapping[str, Any]) -> list[str]:
    """Return the page's table of ε and δ, as lines of Markdown."""
    claim, spent, winner = card["claim"], card["spent"], card["winner"]
    training, validation, mode = card["training_cap"], card["validation_cap"], _mode(card)
    delta = number(claim["delta"])
    trains = "" if validation is None else ", for a training record"
    most = f"everything that the cap allows{trains}: {allowed_text(training['filter']).removeprefix('at most ')}"
    rows = [
        ("**claimed**", number(claim["epsilon"]), delta, "the guarantee for the whole search"),
        ("at the cap", rounded_up(training["epsilon_at_cap"]), delta, most),
    ]
    if validation is not None:
        scored = "all protected scores that the cap allows, for a validation record"
        rows.append(("validation", rounded_up(validation["epsilon_at_cap"]), number(validation["delta"]), scored))
    if not (mode.runs_hidden or mode.on_release):
        steps = f"{counted(spent['leased_steps'], 'step')} in {counted(spent['trials'], 'trial')}"
        rows.append(("spent", rounded_up(spent["epsilon_spent"]), delta, f"{steps}{trains}: not a guarantee"))
    rows.append(("one run", rounded_up(winner["single_run_epsilon"]), delta, f"the exported trial, {mode.winner_row}"))
    rows += [_total_row(row, block=card["dataset_budget"]["blocks"] is not None) for row in _rows(card)]
    return ["| | ε | δ | what it is |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]


def _total_row(row: Mapping[str, Any], *, block: bool) -> tuple[str, str, str, str]:
    """Return the table's row about all searches on a data set or on one block of a table."""
    what = "the sum of the caps of all searches on these records"
    if block:
        cap = row["cap"]
        held = "no cap" if cap is None else f"cap of the block: {epsilon_and_delta(cap['epsilon'], cap['delta'])}"
        void = "; the total is VOID" if row["void"] else ""
        what = (
            f"the sum of the caps of all searches on this block ({row['searches']}); {held}{void}; last ledger entry: "
            f"{row['head_seq']}"
        )
    name = f"block {plain(row['dataset'])}" if block else "data set"
    return name, rounded_up(row["committed_epsilon"]), number(row["committed_delta"]), what
