"""The privacy card as a page that a data protection officer reads, with the details for a reviewer at its end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.privacy.card import card_hash

__all__ = ["render_markdown"]

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


def render_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown, from the card alone: `verify` renders again and compares.

    The claim is exact; figures in the table are rounded up to 4 significant digits, so that none reads as less than it
    is; the details have every figure as the JSON has it.

    Args:
        card: what `build_card` made, or `parse_card` read.

    Returns:
        Markdown of headings, paragraphs, flat lists and a table (`tuner.report.markdown` shows it); ends in a newline.

    Raises:
        KeyError: the card lacks a field.
        ValueError: its ε or δ is none.
    """
    claim = card["claim"]
    open_ends = [_plain(row["assumption"]) for row in card["assumptions"] if row["status"] == "not covered"]
    parts = [
        f"# Privacy card: {_plain(claim['search'])}",
        f"**{_statement(claim)}.**",
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
        f"Card hash: `{card_hash(card)}`",
        "## Details for a reviewer",
    ]
    for name in [*(name for name in _TITLES if name in card), *sorted(card.keys() - _TITLES.keys())]:
        parts += [f"### {_TITLES.get(name, _words(name))}", "\n".join(_section(name, card[name]))]
    return "\n\n".join(parts) + "\n"


def _statement(claim: Mapping[str, Any]) -> str:
    """The claim's sentence, with its two numbers named."""
    exact = f"({claim['epsilon']!r}, {claim['delta']!r})-"
    return f"{_pair(claim['epsilon'], claim['delta'])}: {_plain(claim['statement']).removeprefix(exact)}"


def _meaning(card: Mapping[str, Any]) -> list[str]:
    """The claim in plain words: what the numbers are, of whom they speak, for how much they hold, who may see what."""
    claim, spent = card["claim"], card["spent"]
    unit = _plain(claim["unit"])
    epsilon, delta = claim["epsilon"], claim["delta"]
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a claim must have a finite ε > 0 and a δ in (0, 1), got {epsilon!r} and {delta!r}")
    # TPR <= e^ε FPR + δ and its mirror image, added: the best guess between two worlds is right that often.
    right = _percent((1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))
    return [
        "**What is promised.** How far all that is shown of this search can depend on any one record is bounded by two "
        "numbers, ε and δ, whatever else the reader knows and whatever is computed from it later. What the records "
        "teach in common, which is what a model is for, is not hidden.",
        f"**What ε and δ are.** ε bounds how much {unit} can change the odds of anything that is seen: by a factor of "
        f"at most e^ε, here {_factor(epsilon)}. δ is, roughly, the probability that this bound fails: "
        f"{_number(delta)}, 1 in {math.floor(1 / delta + 1e-6)}. The smaller both are, the better the protection. In "
        "the worst case, an observer who knows all other records and has to tell, at even odds, whether one record was "
        f"used is right in at most {right} of all cases; 50 % is a guess, 100 % is no protection. That is a bound, "
        "not a measured attack.",
        f"**Who is protected.** The unit is {unit}. A person who has several records in the data is protected less "
        "than these numbers say.",
        "**For what it holds.** The numbers are the cap of the whole search, set before it began: for all trials "
        f"together, at most {_count(claim['step_cap'], 'training step')}, and not for one trial. "
        f"{_count(spent['leased_steps'], 'step')} in {_count(spent['trials'], 'trial')} had been charged when this "
        "card was made; that does not lower the claim.",
        f"**Who may see what.** Under the guarantee may be shown: {_plain(card['released'])}. Not so: "
        f"{_plain(card['kept_from_analysts'])}. Scores are computed on validation and test records without noise, and "
        "those records are not protected.",
    ]


def _alarms(budget: Mapping[str, Any]) -> list[str]:
    """What the owner of the data should know before believing a total."""
    said, cap = [], budget["cap"]
    epsilon, delta = budget["committed_epsilon"], budget["committed_delta"]
    if cap and not (epsilon <= cap["epsilon"] and delta <= cap["delta"]):
        said.append(
            f"**Over the cap of the data set.** The searches on `{_plain(budget['dataset'])}` have committed "
            f"{_pair(epsilon, delta)} together, more than the cap that its owner has set: "
            f"{_pair(cap['epsilon'], cap['delta'])}. This search's own claim stands; nothing more may start."
        )
    splits = budget["validation_splits"]
    if len(splits) > 1:
        said.append(
            f"**Validation splits differ.** The searches on `{_plain(budget['dataset'])}` did not set the same records "
            f"aside for validation: {'; '.join(_split(split) for split in splits)}. A record that validated in one of "
            "them was scored there outside any guarantee, so the total for the data set covers only records that "
            "trained in every one."
        )
    return said


def _numbers(card: Mapping[str, Any]) -> list[str]:
    claim, spent, winner, budget = card["claim"], card["spent"], card["winner"], card["dataset_budget"]
    delta = _number(claim["delta"])
    rows = [
        ("**claimed**", _number(claim["epsilon"]), delta, "the guarantee, for the whole search"),
        (
            "at the cap",
            _up(claim["epsilon_at_step_cap"]),
            delta,
            f"what {_count(claim['step_cap'], 'step')} cost, the most that may be taken",
        ),
        (
            "spent",
            _up(spent["epsilon_spent"]),
            delta,
            f"{_count(spent['leased_steps'], 'step')} in {_count(spent['trials'], 'trial')}: not a guarantee",
        ),
        (
            "one run",
            _up(winner["single_run_epsilon"]),
            delta,
            "the exported trial as if it were the only one: not a guarantee",
        ),
        (
            "data set",
            _up(budget["committed_epsilon"]),
            _number(budget["committed_delta"]),
            "committed by all searches on these records: their caps added up",
        ),
    ]
    return ["| | ε | δ | what it is |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]


def _section(name: str, value: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    if name == "assumptions":
        return [f"- **{_plain(row['assumption'])}**: {_plain(row['status'])} ({_plain(row['why'])})" for row in value]
    if isinstance(value, list):
        return [f"- {_plain(item)}" for item in value] or ["none"]
    if not isinstance(value, Mapping):
        return [_plain(value)]
    labels = _LABELS.get(name, {})
    # The order is the labels', never the mapping's: a card that was read has another than one that was made.
    keys = [*(key for key in labels if key in value), *sorted(value.keys() - labels.keys())]
    hidden = {"statement"} if name == "claim" else set()  # it stands at the top
    return [f"- {labels.get(key, _words(key))}: {_detail(key, value[key])}" for key in keys if key not in hidden]


def _detail(key: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    """One value on one line, exact."""
    if key == "validation_splits":
        return "; ".join(_split(split) for split in value) or "none"
    if key == "curve":
        return "; ".join(f"ε = {_plain(row['epsilon'])} at δ = {_plain(row['delta'])}" for row in value) or "none"
    if key == "other_searches":
        return "; ".join(_other(row) for row in value) or "none"
    if isinstance(value, Mapping) and value:
        names = {"epsilon": "ε", "delta": "δ"}
        opaque = key in {"parameters", "versions"}  # names that are not ours: shown as they are
        return ", ".join(
            f"{inner if opaque else names.get(inner, _words(inner))} = {_plain(value[inner])}"
            for inner in sorted(value)
        )
    if isinstance(value, list) and value:
        return "; ".join(_plain(item) for item in value)
    return _CODES.get(value, _plain(value)) if isinstance(value, str) else _plain(value)


def _other(row: Mapping[str, Any]) -> str:
    return (
        f"{_plain(row['search'])} (opened {_plain(row['opened'])}, cap ε = {_plain(row['epsilon'])}, "
        f"δ = {_plain(row['delta'])}, {_count(row['leased_steps'], 'step')} charged)"
    )


def _split(text: str) -> str:
    """A split, which the card has as the ledger's canonical JSON, in words."""
    split = json.loads(text)
    if not isinstance(split, Mapping):
        return "not recorded" if split is None else _plain(split)
    return ", ".join(
        f"{_words(key)} {_plain(split[key])}" for key in sorted(split, key=lambda key: (key != "set", key))
    )


def _pair(epsilon: float, delta: float) -> str:
    return f"ε = {_number(epsilon)}, δ = {_number(delta)}"


def _number(value: float) -> str:
    """All its digits, without the `.0` of a whole number."""
    return repr(value).removesuffix(".0")


def _up(value: float, digits: int = 4) -> str:
    """Rounded up to some significant digits: no figure may read as less than it is."""
    if not (isinstance(value, float) and math.isfinite(value) and value > 0):
        return _number(value)
    near = float(f"{value:.{digits}g}")
    if near < value:
        near = float(f"{near + 10.0 ** (math.floor(math.log10(value)) - digits + 1):.{digits}g}")
    return f"{near:.{digits}g}"


def _percent(share: float) -> str:
    """Rounded up too; the small part taken off is the rounding of the doubles themselves."""
    return f"{math.ceil(min(share, 1.0) * 10_000 - 1e-9) / 100:.2f} %"


def _factor(epsilon: float) -> str:
    if epsilon > 12:
        return "more than 100000"
    factor = math.exp(epsilon)
    return _up(factor, 3) if factor < 100 else str(math.ceil(factor))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value on one line."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(key)} {_plain(value[key])}" for key in sorted(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(item) for item in value)
    return " ".join(value.split()) if isinstance(value, str) else repr(value)
