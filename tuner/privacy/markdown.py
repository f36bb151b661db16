"""The privacy card as a page that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.privacy.card import card_hash

__all__ = ["render_markdown"]


def render_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown: every field of the JSON, the claim first. `verify` renders again and compares.

    Args:
        card: what `build_card` made, or `parse_card` read.

    Returns:
        Markdown text that ends in a newline.
    """
    claim, spent, winner = card["claim"], card["spent"], card["winner"]
    lines = [
        f"# Privacy card: {claim['search']}",
        "",
        f"**{claim['statement']}.**",
        "",
        f"- ε = {claim['epsilon']!r}, δ = {claim['delta']!r}, {claim['adjacency']}, unit: {claim['unit']}",
        f"- at the cap of {claim['step_cap']} steps the accountant says ε = {claim['epsilon_at_step_cap']!r}",
        f"- spent so far: ε = {spent['epsilon_spent']!r} over {spent['leased_steps']} steps ({spent['label']})",
        f"- the winner alone: ε = {winner['single_run_epsilon']!r} ({winner['label']})",
        "- validation: " + str(card["validation"]["guarantee"]),
        "",
        f"Card hash: `{card_hash(card)}`",
    ]
    for name in sorted(card):
        lines += ["", f"## {name.replace('_', ' ')}", ""]
        lines += _lines(card[name], 0)
    return "\n".join(lines) + "\n"


def _lines(value: Any, depth: int) -> list[str]:  # noqa: ANN401 - any JSON value
    pad = "  " * depth
    if isinstance(value, Mapping):
        out = []
        for key in sorted(value):
            inner = value[key]
            if isinstance(inner, Mapping | list) and inner:
                out += [f"{pad}- {key}:", *_lines(inner, depth + 1)]
            else:
                out.append(f"{pad}- {key}: {_plain(inner)}")
        return out
    if isinstance(value, list):
        return [
            f"{pad}- " + "; ".join(f"{key}: {_plain(item[key])}" for key in sorted(item))
            if isinstance(item, Mapping)
            else f"{pad}- {_plain(item)}"
            for item in value
        ]
    return [f"{pad}{_plain(value)}"]


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else repr(value)
