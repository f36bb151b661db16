"""The page of a card of schema 1, letter for letter as earlier versions wrote it: `verify` renders it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.privacy.markdown_words import (
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

__all__ = ["render_schema1"]

_TITLES: Mapping[str, str] = {
    "claim": "The claim in full",
    "setting": "Who holds the records",
    "released": "What is shown",
    "kept_from_analysts": "What is kept from analysts",
    "validation": "Validation records",
    "scores": "Scores of the exported model",
    "mechanism": "The mechanism of one step",
    "spent": "Spent so far",
    "winner": "The exported trial by itself",
    "dataset_budget": "The budget of the data set",
    "configuration": "Configuration",
    "records": "Training records",
    "randomness": "Randomness",
    "assumptions": "Assumptions, and what each rests on",
    "not_proved": "Not proved",
    "ledger": "Where it stands in the ledger",
    "versions": "Versions",
    "schema": "Format of the card",
}
"""Headings of the sections, in the order of the page; what is not named here comes after them."""

_LABELS: Mapping[str, Mapping[str, str]] = {
    "claim": {
        "search": "search",
        "dataset": "data set",
        "epsilon": "ε, the cap",
        "delta": "δ",
        "unit": "unit of protection",
        "adjacency": "data sets that must look alike",
        "covers": "what the guarantee covers",
        "views": "who is covered by it when they look (analysts see all trials, the operator everything)",
        "mode": "how trials are charged",
        "law_of_the_number_of_runs": "hidden random number of trials (a way to pay less)",
        "accounting": "how ε is computed",
        "step_cap": "training steps that may be taken, of all trials together",
        "epsilon_at_step_cap": "ε of that many steps",
        "discretisation_error": "how far that may lie above the true ε, by the accountant's grid (estimate)",
        "curve": "the same steps at other δ",
    },
    "validation": {
        "source": "where they come from",
        "split": "how they were set apart",
        "key": "the split",
        "protected": "protected by noise",
        "guarantee": "guarantee",
    },
    "scores": {"guarantee": "guarantee", "label": "note"},
    "mechanism": {
        "name": "mechanism",
        "sample_rate": "sample rate (chance of each record to be in a batch)",
        "noise_multiplier": "noise multiplier (standard deviation of the noise, in units of the clipping norm)",
        "coupons": "which mechanisms trials may draw from (the menu of the search, its coupons)",
    },
    "spent": {
        "label": "what it is",
        "leased_steps": "steps charged",
        "trials": "trials",
        "epsilon_spent": "ε of these steps",
    },
    "winner": {
        "label": "what it is",
        "trial": "trial",
        "leased_steps": "steps charged to it",
        "single_run_epsilon": "ε of these steps",
    },
    "dataset_budget": {
        "dataset": "data set",
        "cap": "cap that its owner has set",
        "committed_epsilon": "ε committed",
        "committed_delta": "δ committed",
        "label": "what committed and spent mean",
        "validation_splits": "validation splits used",
        "epsilon_spent": "ε spent by all searches",
        "odometer_delta": "at δ",
        "other_searches": "other searches",
    },
    "configuration": {
        "method": "training method",
        "model": "model",
        "batch_size_expected": "expected batch size",
        "max_grad_norm": "clipping norm (the most that one record can move a sum of gradients)",
        "parameters": "hyper-parameters of the exported trial",
        "sampler": "sampler (chooses what to try)",
        "pruner": "pruner (ends trials early)",
    },
    "records": {
        "public_size": "number of records that the accounting uses",
        "public_size_is_public": "that number is public",
        "preprocessing": "preprocessing",
    },
    "randomness": {
        "generator": "generator of noise and batches",
        "seeded": "started from a known seed",
        "floating_point_attack": "attack on the rounding of the noise",
        "timing_side_channel": "attack on step times",
    },
    "ledger": {
        "head_seq": "number of the ledger's last entry for the data set when the card was made",
        "head_hash": "hash of that entry",
    },
}
"""Words for the fields, in the order of the page; a field that is not named here follows under its own name."""

_CODES: Mapping[str, str] = {
    "add_or_remove_one": "those that differ by one record, added or removed (add_or_remove_one)",
    "composition": "every step of every trial is charged (composition)",
}
"""Values that are codes, in words."""


def render_schema1(card: Mapping[str, Any], digest: str) -> str:
    """The page of a card of schema 1.

    Args:
        card: what `parse_card` read.
        digest: its hash.

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
        "## How to check it",
        "`tune verify` with this card's JSON file recomputes every number from the ledger, by several accountants, and "
        "says yes or no.",
        f"Card hash: `{digest}`",
        "## Details for a reviewer",
    ]
    for name in [*(name for name in _TITLES if name in card), *sorted(card.keys() - _TITLES.keys())]:
        parts += [
            f"### {_TITLES.get(name, words(name))}",
            "\n".join(section(name, card[name], _LABELS.get(name, {}), _CODES)),
        ]
    return "\n\n".join(parts) + "\n"


def _meaning(card: Mapping[str, Any]) -> list[str]:
    """The claim in plain words: what the numbers are, of whom they speak, for how much they hold, who may see what."""
    claim, spent = card["claim"], card["spent"]
    unit = plain(claim["unit"])
    epsilon, delta = claim["epsilon"], claim["delta"]
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a claim must have a finite ε > 0 and a δ in (0, 1), got {epsilon!r} and {delta!r}")
    # TPR <= e^ε FPR + δ and its mirror image, added: the best guess between two worlds is right that often.
    right = percent((1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))
    return [
        "**What is promised.** How far all that is shown of this search can depend on any one record is bounded by two "
        "numbers, ε and δ, whatever else the reader knows and whatever is computed from it later. What the records "
        "teach in common, which is what a model is for, is not hidden.",
        f"**What ε and δ are.** ε bounds how much {unit} can change the odds of anything that is seen: by a factor of "
        f"at most e^ε, here {factor(epsilon)}. δ is, roughly, the probability that this bound fails: "
        f"{number(delta)}, 1 in {math.floor(1 / delta + 1e-6)}. The smaller both are, the better the protection. In "
        "the worst case, an observer who knows all other records and has to tell, at even odds, whether one record was "
        f"used is right in at most {right} of all cases; 50 % is a guess, 100 % is no protection. That is a bound, "
        "not a measured attack.",
        f"**Who is protected.** The unit is {unit}. A person who has several records in the data is protected less "
        "than these numbers say.",
        "**For what it holds.** The numbers are the cap of the whole search, set before it began: for all trials "
        f"together, at most {count(claim['step_cap'], 'training step')}, and not for one trial. "
        f"{count(spent['leased_steps'], 'step')} in {count(spent['trials'], 'trial')} had been charged when this "
        "card was made; that does not lower the claim.",
        f"**Who may see what.** Under the guarantee may be shown: {plain(card['released'])}. Not so: "
        f"{plain(card['kept_from_analysts'])}. Scores are computed on validation and test records without noise, and "
        "those records are not protected.",
    ]


def _alarms(budget: Mapping[str, Any]) -> list[str]:
    """What the owner of the data should know before believing a total."""
    said, cap = [], budget["cap"]
    epsilon, delta = budget["committed_epsilon"], budget["committed_delta"]
    if cap and not (epsilon <= cap["epsilon"] and delta <= cap["delta"]):
        said.append(
            f"**Over the cap of the data set.** The searches on `{plain(budget['dataset'])}` have committed "
            f"{pair(epsilon, delta)} together, more than the cap that its owner has set: "
            f"{pair(cap['epsilon'], cap['delta'])}. This search's own claim stands; nothing more may start."
        )
    splits = budget["validation_splits"]
    if len(splits) > 1:
        said.append(
            f"**Validation splits differ.** The searches on `{plain(budget['dataset'])}` did not set the same records "
            f"aside for validation: {'; '.join(split_words(text) for text in splits)}. A record that validated in one "
            "of them was scored there outside any guarantee, so the total for the data set covers only records that "
            "trained in every one."
        )
    return said


def _numbers(card: Mapping[str, Any]) -> list[str]:
    claim, spent, winner, budget = card["claim"], card["spent"], card["winner"], card["dataset_budget"]
    delta = number(claim["delta"])
    rows = [
        ("**claimed**", number(claim["epsilon"]), delta, "the guarantee, for the whole search"),
        (
            "at the cap",
            up(claim["epsilon_at_step_cap"]),
            delta,
            f"what {count(claim['step_cap'], 'step')} cost, the most that may be taken",
        ),
        (
            "spent",
            up(spent["epsilon_spent"]),
            delta,
            f"{count(spent['leased_steps'], 'step')} in {count(spent['trials'], 'trial')}: not a guarantee",
        ),
        (
            "one run",
            up(winner["single_run_epsilon"]),
            delta,
            "the exported trial as if it were the only one: not a guarantee",
        ),
        (
            "data set",
            up(budget["committed_epsilon"]),
            number(budget["committed_delta"]),
            "committed by all searches on these records: their caps added up",
        ),
    ]
    return ["| | ε | δ | what it is |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
