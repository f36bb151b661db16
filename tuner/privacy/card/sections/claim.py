"""Card section: the claim, with its (ε, δ), its unit of protection and its scope."""

from __future__ import annotations

from typing import Any

from tuner.privacy.card.sections.section import CardSection, Field, Subject
from tuner.privacy.card.text import plain
from tuner.privacy.card.wording import UNITS
from tuner.privacy.modes import MODES

__all__ = ["CLAIM"]

_WHOLE = "guaranteed: this is the claim"
_MODES = {mode.name: mode.label for mode in MODES.values()}
_ADJACENCIES = {unit.adjacency: unit.adjacency_label for unit in UNITS.values()}


def _value(subject: Subject) -> dict[str, Any]:
    found, mode, unit = subject.search, subject.mode, subject.unit
    protected = found.validation is not None
    claim = {"epsilon": found.epsilon, "delta": found.delta}
    single = {"epsilon": subject.single_run_epsilon, "delta": found.delta}
    if mode.on_release:
        why = "guaranteed: the trials read the release and no training record"
        tuning = {"epsilon": 0.0, "delta": 0.0, "status": why}
        model = {**claim, "status": _WHOLE}
    elif mode.searches_public:
        tuning = {"epsilon": 0.0, "delta": 0.0, "status": "assumed: it used records declared public"}
        model = {**claim, "status": _WHOLE}
    else:
        tuning = {**claim, "status": "guaranteed: included in the claim, not added to it"}
        model = {**single, "status": _of_model(subject)}
    also = f" {unit.protected_too}" if protected else ""
    return {
        "statement": f"({found.epsilon!r}, {found.delta!r})-differential privacy for the {unit.protected}{also}. The "
        f"guarantee covers {mode.covers}",
        "search": found.search,
        "dataset": found.dataset,
        **claim,
        "covers": {"model": True, "tuning": True, "validation": protected, "test": False, "earlier_searches": False},
        "model_and_tuning": {**claim, "status": _WHOLE},
        "tuning_alone": tuning,
        "model_alone": model,
        "unit": unit.either if protected else unit.training,
        "adjacency": unit.adjacency,
        "mode": mode.name,
        "law_of_the_number_of_runs": found.filter.law_facts(found.epsilon)
        or "not applicable: the number of trials is shown"
        + (", and they cost nothing" if mode.on_release else ", and all trials are charged"),
        "views": {"release": "yes", "analyst": "yes", "operator": "no: the operator is trusted"},
        "accounting": found.filter.accounting,
    }


def _of_model(subject: Subject) -> str:
    """Return why the ε of the exported trial's steps is no guarantee. A sealed search hides whether it had one run."""
    if not subject.mode.runs_hidden and len(subject.search.trials) == 1:
        return "NOT a guarantee: this ε counts only the steps that the one trial took; the guarantee is the cap"
    return "NOT a guarantee: the model was chosen from several; see the section on the exported trial"


CLAIM = CardSection(
    name="claim",
    title="The claim in full",
    value=_value,
    fields={
        "statement": None,  # the first line of the page
        "search": Field("search"),
        "dataset": Field("data set"),
        "epsilon": Field("ε, the cap"),
        "delta": Field("δ"),
        "model_and_tuning": Field("the model and its tuning together"),
        "tuning_alone": Field("the tuning"),
        "model_alone": Field("the model alone, as if nothing had been tuned"),
        "unit": Field("unit of protection"),
        "adjacency": Field(
            "data sets whose results must be hard to tell apart", lambda name: _ADJACENCIES.get(name, plain(name))
        ),
        "covers": Field("what the guarantee covers"),
        "views": Field(
            "whether the guarantee holds against each group of readers (release: readers of the exported files; "
            "analyst: readers of everything that may be shown; operator: whoever runs the search and sees everything)"
        ),
        "mode": Field("how trials are charged", lambda name: _MODES.get(name, plain(name))),
        "law_of_the_number_of_runs": Field("distribution of the number of trials, if the number is hidden"),
        "accounting": Field("how ε is computed"),
    },
)
