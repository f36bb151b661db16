"""The privacy card as a page that a data protection officer reads, with the details for a reviewer at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.privacy.card.card import card_hash
from tuner.privacy.card.labels import CODES, LABELS, TITLES
from tuner.privacy.card.words import (
    count,
    factor,
    number,
    pair,
    percent,
    plain,
    section,
    split_words,
    statement,
    up,
    words,
)

__all__ = ["CURVE_FILE", "render_markdown"]

CURVE_FILE = "privacy_curve.svg"
"""The picture that the page shows, beside it."""


def render_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown, from the card alone: `verify` renders again and compares.

    The claim is exact; figures in the table are rounded up to 4 significant digits, so that none reads as less than it
    is; the details have every figure as the JSON has it.

    Args:
        card: what `build_card` made, or `parse_card` read.

    Returns:
        Markdown of headings, paragraphs, flat lists, a table and a picture (`tuner.report.card_html` shows it); ends in
        a newline.

    Raises:
        KeyError: the card lacks a field.
        ValueError: its ε or δ is none.
    """
    claim = card["claim"]
    open_ends = [plain(row["assumption"]) for row in card["assumptions"] if row["status"] == "not covered"]
    parts = [
        f"# Privacy card: {plain(claim['search'])}",
        f"**{statement(claim)}.**",
        f"**Not covered:** {'; '.join(open_ends)}; whoever runs the search (the operator is trusted); attacks on "
        "floating-point noise and on timing.",
        "## What this means",
        *_meaning(card),
        *_alarms(card["dataset_budget"]),
        "## The numbers",
        "\n".join(_numbers(card)),
        "Rounded up to 4 significant digits, but for the claim and every δ, which are exact. The JSON file beside this "
        "page has every digit.",
        f"![The pairs of ε and δ that hold for this search; the details list them]({CURVE_FILE})",
        "Every dot is a pair that holds for all that the search may show, for the records that its line stands for. "
        "The lines only guide the eye.",
        "## How to check it",
        "`tune verify` with this card's JSON file recomputes every number from the ledger, also by an accountant that "
        "shares no code with the one that wrote it, and says yes or no.",
        f"Card hash: `{card_hash(card)}`",
        "## Details for a reviewer",
    ]
    for name in [*(name for name in TITLES if name in card), *sorted(card.keys() - TITLES.keys())]:
        lines = section(name, card[name], LABELS.get(name, {}), CODES)
        parts += [f"### {TITLES.get(name, words(name))}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _meaning(card: Mapping[str, Any]) -> list[str]:
    """The claim in plain words: what the numbers are, of whom they speak, for how much they hold, who may see what."""
    claim = card["claim"]
    unit, user = plain(claim["unit"]), card["records"]["records_per_user"] is not None
    epsilon, delta = claim["epsilon"], claim["delta"]
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a claim must have a finite ε > 0 and a δ in (0, 1), got {epsilon!r} and {delta!r}")
    # TPR <= e^ε FPR + δ and its mirror image, added: the best guess between two worlds is right that often.
    right = percent((1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))
    one = "user" if user else "record"
    return [
        f"**What is promised.** How far all that is shown of this search can depend on any one {one} is bounded by two "
        f"numbers, ε and δ, whatever else the reader knows and whatever is computed from it later. What the {one}s "
        "teach in common, which is what a model is for, is not hidden.",
        f"**What ε and δ are.** ε bounds how much {unit} can change the odds of anything that is seen: by a factor of "
        f"at most e^ε, here {factor(epsilon)}. δ is, roughly, the probability that this bound fails: "
        f"{number(delta)}, 1 in {math.floor(1 / delta + 1e-6)}. The smaller both are, the better the protection. In "
        f"the worst case, an observer who knows all other {one}s and has to tell, at even odds, whether one {one} was "
        f"used is right in at most {right} of all cases; 50 % is a guess, 100 % is no protection. That is a bound, "
        "not a measured attack.",
        f"**Who is protected.** The unit is {unit}. "
        + (
            f"At most {count(card['records']['records_per_user'], 'record')} of a user enter any step."
            if user
            else "A person who has several records in the data is protected less than these numbers say."
        ),
        f"**For what it holds.** {_extent(card)}",
        f"**Who may see what.** Under the guarantee may be shown: {plain(card['released'])}. Not so: "
        f"{plain(card['kept_from_analysts'])}. {_scored(card)}",
    ]


def _extent(card: Mapping[str, Any]) -> str:
    """What the numbers are the cap of."""
    mode, spent = card["claim"]["mode"], card["spent"]
    if mode == "selection":
        return (
            "The numbers hold for the one run that leaves, and for its having been chosen: how many runs to make was "
            "drawn at random and in secret, they were independent, and only the best is shown. How many there were is "
            "shown nowhere: with the winner it would tell more of the records than is charged here."
        )
    scores = ""
    if card["validation_cap"] is not None:
        scores = f" and {count(spent['released_scores'], 'score')}"
    so_far = (
        f"{count(spent['leased_steps'], 'step')}{scores} in {count(spent['trials'], 'trial')} had been charged when "
        "this card was made; that does not lower the claim."
    )
    if mode == "public":
        return (
            "The numbers are the cap of the one run on these records. What it was trained with was searched on other "
            f"records, which are declared public; that is taken on trust, and costs nothing if it is true. {so_far}"
        )
    return (
        "The numbers are the cap of the whole search, set before it began: for all trials together, "
        f"{_allowed(card['training_cap'])}{_scores_allowed(card)}, and not for one trial. {so_far}"
    )


def _scores_allowed(card: Mapping[str, Any]) -> str:
    if card["validation_cap"] is None:
        return ""
    filter = card["validation_cap"]["filter"]
    if filter["kind"] != "total_steps":
        return " and protected scores, up to a cap of their own"
    return f" and at most {count(filter['step_cap'], 'protected score')}"


def _allowed(cap: Mapping[str, Any]) -> str:
    filter = cap["filter"]
    match filter["kind"]:
        case "total_steps":
            return f"at most {count(filter['step_cap'], 'training step')}"
        case "coupon_book":
            quotas = [count(each["steps"], "step") for each in filter["coupons"]]
            return f"at most {', '.join(quotas)} of {count(len(quotas), 'kind')}"
        case _:
            return f"steps of any kind, up to a Rényi divergence of order {plain(filter['order'])}"


def _scored(card: Mapping[str, Any]) -> str:
    cap = card["validation_cap"]
    if cap is None:
        return "Scores are computed on validation and test records without noise, and those records are not protected."
    return (
        "A validation score is a sum of right answers plus noise of standard deviation "
        f"{', '.join(number(noise) for noise in cap['noise'])}, and the records behind it are protected. The test "
        "score is computed without noise, and test records are not protected."
    )


def _alarms(budget: Mapping[str, Any]) -> list[str]:
    """What the owner of the data should know before believing a total."""
    said, cap = [], budget["cap"]
    if budget["within_cap"] is False:
        said.append(
            f"**Over the cap of the data set.** The searches on `{plain(budget['dataset'])}` have committed "
            f"{pair(budget['committed_epsilon'], budget['committed_delta'])} together, more than the cap that its "
            f"owner has set: {pair(cap['epsilon'], cap['delta'])}. This search's own claim stands; nothing more may "
            "start."
        )
    splits = budget["validation_splits"]
    if len(splits) > 1:
        said.append(
            f"**Validation splits differ.** The searches on `{plain(budget['dataset'])}` did not set the same records "
            f"aside for validation: {'; '.join(split_words(text) for text in splits)}. A record that validated without "
            "noise in one of them was scored there outside any guarantee, so the total for the data set covers only "
            "records that trained in every one, or whose scores were protected."
        )
    return said


def _numbers(card: Mapping[str, Any]) -> list[str]:
    claim, spent, winner, budget = card["claim"], card["spent"], card["winner"], card["dataset_budget"]
    training, validation, mode = card["training_cap"], card["validation_cap"], claim["mode"]
    delta = number(claim["delta"])
    most = "the best of a hidden number of runs" if mode == "selection" else _allowed(training).removeprefix("at most ")
    trains = "" if validation is None else ", for a record that trains"
    rows = [
        ("**claimed**", number(claim["epsilon"]), delta, "the guarantee, for the whole search"),
        ("at the cap", up(training["epsilon_at_cap"]), delta, f"the most that may be taken{trains}: {most}"),
    ]
    if validation is not None:
        scored = "what the most scores that may be released cost, for a record that validates"
        rows.append(("validation", up(validation["epsilon_at_cap"]), number(validation["delta"]), scored))
    if mode != "selection":
        so_far = f"{count(spent['leased_steps'], 'step')} in {count(spent['trials'], 'trial')}{trains}: not a guarantee"
        rows.append(("spent", up(spent["epsilon_spent"]), delta, so_far))
    alone = "the steps that were charged to it" if mode == "public" else "as if it were the only one: not a guarantee"
    rows += [
        ("one run", up(winner["single_run_epsilon"]), delta, f"the exported trial, {alone}"),
        (
            "data set",
            up(budget["committed_epsilon"]),
            number(budget["committed_delta"]),
            "committed by all searches on these records: their caps added up",
        ),
    ]
    return ["| | ε | δ | what it is |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
