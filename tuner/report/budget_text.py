"""Text for the terminal about the budgets of data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.privacy.ledger.amounts import amounts
from tuner.report.wording import plural

_FIRST = "The claim of a search covers that ONE search. Only the cap of a data set bounds all its searches together."

__all__ = ["amounts_text", "budget_text", "changed_text", "share_in_force"]


def budget_text(values: dict[str, Any]) -> str:
    """Return the budgets of data sets as text."""
    lines = [_FIRST, f"ledger {values['ledger']}"]
    for dataset in values["datasets"]:
        lines += ["", *_dataset_lines(dataset)]
    for name, error in values["damaged"].items():
        lines += ["", f"{name}: DAMAGED. Nothing can be charged to it or claimed for it. {error}"]
    if not values["datasets"] and not values["damaged"]:
        lines.append("no data set has been used")
    lines += [
        "",
        "Without protected validation, no guarantee covers the scores on validation records. In this case, use the",
        "same split and the same file in every search, so that no training record of one search is a validation record",
        "of another.",
    ]
    return "\n".join(lines)


def changed_text(values: dict[str, Any]) -> str:
    """Return the result of `set_cap`, `grant` or `revoke` as text."""
    shares = [f"  {_share_text(share)}" for share in values["shares"]] if values["divided"] else []
    first = " ".join([f"{values['dataset']}: {values['summary']}.", *values["notes"]])
    return "\n".join([first, *shares])


def share_in_force(share: dict[str, float] | None) -> bool:
    """Return whether a share is in force. A revoked share stays in the ledger with ε = 0."""
    return share is not None and share["epsilon"] > 0


def _dataset_lines(dataset: dict[str, Any]) -> list[str]:
    odometer = dataset["odometer"]
    lines = [f"{dataset['dataset']}: {dataset['summary']}", f"  {dataset['claim']}"]
    if dataset["cap"] is not None:
        left = amounts_text(dataset["left"])
        if dataset["over"]:
            lines.append(
                f"  more is committed than the cap allows, so no search can start. The guarantee is not the cap, but "
                f"{amounts_text(dataset['guarantee'])}"
            )
        lines.append(f"  rule: {dataset['rule']}")
        lines.append(f"  left for the sums of ε and δ: {left}" if dataset["order"] else f"  left: {left}")
        if dataset["order"] is not None:
            used = dataset["order_used"]
            lines.append(
                "  Rényi filter: admits no search, because one search has an infinite divergence at its order"
                if used is None
                else f"  Rényi filter: {100 * used:.4g} % committed"
            )
    lines.append(
        f"  spent so far ({odometer['label']}): ε = {odometer['epsilon_spent']:.6g} at δ = {odometer['delta']:g}, "
        f"{odometer['delta_is']}"
    )
    if dataset["division"] is not None:
        lines.append(f"  the total for one user relies on {dataset['division']}")
    if dataset["division_fault"] is not None:
        lines.append(f"  WARNING: {dataset['division_fault']}")
    if dataset["divided"]:
        lines += ["  shares", *(f"    {_share_text(share)}" for share in dataset["shares"])]
    if dataset["searches"]:
        lines += ["  searches", *(f"    {_search_text(search)}" for search in dataset["searches"])]
    return lines


def _share_text(share: dict[str, Any]) -> str:
    if not share_in_force(share["granted"]):
        none = "no share" if share["granted"] is None else "share revoked"
        return f"{share['user']}: {none}; committed {amounts_text(share['committed'])}"
    return (
        f"{share['user']}: granted {amounts_text(share['granted'])}; committed {amounts_text(share['committed'])}; "
        f"left {amounts_text(share['left'])}"
    )


def _search_text(search: dict[str, Any]) -> str:
    user, kind = (
        f"by {search['user']}" if search["user"] else "user not recorded",
        f"per {search['unit']}, {search['mode']}",
    )
    text = f"{search['search']}  {search['status']}  {user}  {kind}  cap {amounts_text(search)}"
    if search["validation"] is not None:
        text += f" (validation {amounts_text(search['validation'])})"
    if search["trials"] is None:
        return f"{text}  opened {search['opened']}; nothing else is shown"
    steps = f"{search['steps_spent']} of {search['step_cap']}" if search["step_cap"] else str(search["steps_spent"])
    note = "" if search["counts"] else "  (charged nothing, so it counts as 0)"
    return f"{text}  {plural(search['trials'], 'trial')}, {steps} steps; {search['cap_text']}{note}"


def amounts_text(pair: Mapping[str, Any]) -> str:
    """Return an ε and a δ as text."""
    return amounts(pair["epsilon"], pair["delta"])
