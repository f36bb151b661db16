"""The privacy card as a page that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.privacy.card import card_hash

__all__ = ["render_markdown"]

_TITLES = {
    "claim": "The claim",
    "setting": "Who holds and who sees what",
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
"""The order of the page; what is not named here comes after it."""


def render_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown: every field of the JSON, the claim first. `verify` renders again and compares.

    Args:
        card: what `build_card` made, or `parse_card` read.

    Returns:
        Markdown text that ends in a newline.
    """
    claim, spent, winner = card["claim"], card["spent"], card["winner"]
    open_ends = [row["assumption"] for row in card["assumptions"] if row["status"] == "not covered"]
    lines = [
        f"# Privacy card: {claim['search']}",
        "",
        f"**{claim['statement']}.**",
        "",
        f"**Not covered:** {'; '.join(open_ends)}; whoever runs the search (the operator is trusted); attacks on "
        "floating-point noise and on timing.",
        "",
        "**Check it:** `tune verify` with this card's JSON file recomputes every number from the ledger, by several "
        "accountants, and says yes or no.",
        "",
        "| | ε | δ | what it is |",
        "|---|---|---|---|",
        f"| claimed | {claim['epsilon']!r} | {claim['delta']!r} | the guarantee: {_words(claim['adjacency'])}, unit: "
        f"{claim['unit']} |",
        f"| at the cap | {claim['epsilon_at_step_cap']!r} | {claim['delta']!r} | what {claim['step_cap']} steps cost, "
        "the most that may be taken |",
        f"| spent | {spent['epsilon_spent']!r} | {claim['delta']!r} | {_count(spent['leased_steps'], 'step')} in "
        f"{_count(spent['trials'], 'trial')}: not a guarantee |",
        f"| one run | {winner['single_run_epsilon']!r} | {claim['delta']!r} | the exported trial as if it were the "
        "only one: not a guarantee |",
        "",
        f"Card hash: `{card_hash(card)}`",
    ]
    known = [name for name in _TITLES if name in card]
    for name in [*known, *sorted(card.keys() - _TITLES.keys())]:
        # The statement stands at the top already.
        section: Any = {key: claim[key] for key in claim if key != "statement"} if name == "claim" else card[name]
        body = _assumptions(section) if name == "assumptions" else _lines(section, 0)
        lines += ["", f"## {_TITLES.get(name, _words(name))}", "", *body]
    return "\n".join(lines) + "\n"


def _assumptions(rows: list[Mapping[str, str]]) -> list[str]:
    return [f"- **{row['assumption']}** – {row['status']} ({row['why']})" for row in rows]


def _lines(value: Any, depth: int) -> list[str]:  # noqa: ANN401 - any JSON value
    pad = "  " * depth
    if isinstance(value, Mapping):
        out = []
        for key in sorted(value):
            inner = value[key]
            if isinstance(inner, Mapping | list) and inner:
                out += [f"{pad}- {_words(key)}:", *_lines(inner, depth + 1)]
            else:
                out.append(f"{pad}- {_words(key)}: {_plain(inner)}")
        return out
    if isinstance(value, list):
        return [
            f"{pad}- " + ", ".join(f"{_words(key)} {_plain(item[key])}" for key in sorted(item))
            if isinstance(item, Mapping)
            else f"{pad}- {_plain(item)}"
            for item in value
        ]
    return [f"{pad}{_plain(value)}"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else repr(value)
