"""What was spent so far, of a search whose steps may be told."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject
from tuner.privacy.ledger.odometer import LABEL, read_search

__all__ = ["SPENT"]


def _value(subject: Subject) -> dict[str, Any]:
    found = subject.search
    if subject.mode.runs_hidden:
        return {
            "label": "not told: the steps or the trials of a sealed search would tell how many runs there were. It was "
            "charged as a whole before its first run"
        }
    odometer = read_search(found)
    leased = sorted(found.training.leased.items(), key=lambda part: (part[0].sample_rate, part[0].noise_multiplier))
    return {
        "label": f"ODOMETER, not a guarantee: steps stopped adaptively; {LABEL.rpartition(': ')[2]}",
        "leased_steps": found.leased_steps,
        "trials": len(found.trials),
        "mechanisms": [
            {"sample_rate": mechanism.sample_rate, "noise_multiplier": mechanism.noise_multiplier, "steps": steps}
            for mechanism, steps in leased
            if steps
        ],
        "epsilon_spent": odometer.training.epsilon,
        "released_scores": found.validation.leased_steps if found.validation is not None else None,
        "epsilon_spent_on_validation": odometer.validation.epsilon if odometer.validation else None,
    }


SPENT = CardSection(
    name="spent",
    title="Spent so far",
    value=_value,
    fields={
        "label": Field("what it is"),
        "leased_steps": Field("steps charged"),
        "trials": Field("trials"),
        "mechanisms": Field("of which kinds"),
        "epsilon_spent": Field("ε of these steps"),
        "released_scores": Field("scores released"),
        "epsilon_spent_on_validation": Field("ε of these scores"),
    },
)
