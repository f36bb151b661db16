"""Card sections: the caps for training and validation records, and the budget that is spent so far."""

from __future__ import annotations

from typing import Any

from search_spaces import MINIMA
from tuner.privacy.card.curve import claim_curve
from tuner.privacy.card.sections.section import CardSection, Field, Subject
from tuner.privacy.card.text import curve_text, detail
from tuner.privacy.ledger.odometer import LABEL, read_search
from tuner.privacy.ledger.state import PoolState

__all__ = ["SPENT", "TRAINING_CAP", "VALIDATION_CAP"]


def _estimate_text(value: float | None) -> str:
    """Return an estimate as text. Not every kind of cap has one."""
    return "not estimated" if value is None else detail(value)


_FIELDS = {
    "label": Field("what it is"),
    "protects": Field("what it protects"),
    "epsilon": Field("ε, the cap"),
    "delta": Field("δ"),
    "mechanism": Field("mechanism"),
    "noise": Field("standard deviation of the noise of a score, in correct answers"),
    "filter": Field("what the cap allows (the noise multiplier of steps is in units of the clipping norm)"),
    "planned": Field("runs for which the steps were planned"),
    "epsilon_at_cap": Field("ε of everything that the cap allows"),
    "discretisation_error": Field(
        "estimated amount by which the accountant's grid makes this ε too large", _estimate_text
    ),
    "joint": Field("both caps together"),
    "curve": Field("ε of everything that the cap allows, at each δ of the curve", curve_text),
}

_TWO_RELEASES = (
    "With `schedule: gen`, each step makes two Gaussian releases on one Poisson sample: the sum of clipped gradients "
    "with the noise g, and the loss probes with the noise l, each in units of its sensitivity. Together they cost as "
    "much as one release with the noise (g^-2 + l^-2)^(-1/2), and that noise is charged"
)

_MINIMUM = (
    "A step computes one perturbed minimum of a convex loss over all records. A step costs at most as much as this "
    "mechanism at sample rate 1"
)


def _cap(pool: PoolState, claim: tuple[float, float], protects: str) -> dict[str, Any]:
    filter, delta = pool.filter, claim[1]
    return {
        "label": filter.label,
        "protects": protects,
        "epsilon": claim[0],
        "delta": delta,
        "mechanism": filter.mechanism_label,
        "filter": filter.body(),
        "epsilon_at_cap": filter.claim(delta),
        "discretisation_error": filter.discretisation_error(delta),
        "curve": claim_curve(filter, delta),
    }


def _training(subject: Subject) -> dict[str, Any]:
    found = subject.search
    values = _cap(found.training, (found.epsilon, found.delta), subject.unit.training)
    if "probe_share" in found.details:
        values["mechanism"] += f". {_TWO_RELEASES}"
    if found.details.get("method") in MINIMA:
        values["mechanism"] += f". {_MINIMUM}"
    runs, steps = found.details.get("full_runs"), found.details.get("steps_per_trial")
    if runs is None:
        return values
    return values | {"planned": f"{runs:g} whole runs of at most {steps} steps each; trials reserve steps rung by rung"}


def _validation(subject: Subject) -> dict[str, Any] | None:
    found = subject.search
    if found.validation is None or found.validation_claim is None:
        return None
    return {
        **_cap(found.validation, found.validation_claim, subject.unit.validating),
        "mechanism": f"Gaussian noise, added to each released score. Without noise, the score is {subject.unit.score}; "
        f"one {found.unit} changes it by at most 1",
        "noise": sorted({mechanism.noise_multiplier for mechanism in found.validation.filter.mechanisms}),
        "joint": "each record is either a training or a validation record, and adding a record moves no other record. "
        "So the larger of the two caps holds for a record, not the sum of the caps",
    }


TRAINING_CAP = CardSection(name="training_cap", title="The cap for training records", value=_training, fields=_FIELDS)
VALIDATION_CAP = CardSection(
    name="validation_cap", title="The cap for validation records", value=_validation, fields=_FIELDS
)


def _spent(subject: Subject) -> dict[str, Any]:
    found = subject.search
    if subject.mode.on_release:
        return {
            "label": "the whole claim: it was charged before the release was drawn. Computations on the release cost "
            "nothing, so trials are not counted"
        }
    if subject.mode.runs_hidden:
        return {
            "label": "not shown, because the number of steps or trials would reveal the number of runs of a sealed "
            "search. The whole search was charged before its first run"
        }
    odometer = read_search(found)
    leased = sorted(found.training.leased.items())
    return {
        "label": "ESTIMATE, not a guarantee, because scores decided how many steps were taken; "
        f"{LABEL.rpartition(': ')[2]}",
        "leased_steps": found.leased_steps,
        "trials": len(found.trials),
        "mechanisms": [{**mechanism.body(), "steps": steps} for mechanism, steps in leased if steps],
        "epsilon_spent": odometer.training.epsilon,
        "released_scores": found.validation.leased_steps if found.validation is not None else None,
        "epsilon_spent_on_validation": odometer.validation.epsilon if odometer.validation else None,
    }


SPENT = CardSection(
    name="spent",
    title="Spent so far",
    value=_spent,
    fields={
        "label": Field("what it is"),
        "leased_steps": Field("steps charged"),
        "trials": Field("trials"),
        "mechanisms": Field("mechanisms of these steps"),
        "epsilon_spent": Field("ε of these steps"),
        "released_scores": Field("scores released"),
        "epsilon_spent_on_validation": Field("ε of these scores"),
    },
)
