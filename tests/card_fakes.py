"""One search of every kind in a ledger, and the facts of its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledgers import division_of, lease

from tuner.privacy.accountant.filters import CouponBook, FixedOrder, Sealed, TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.card.own_words import CardFacts
from tuner.privacy.ledger.ledger import Ledger

MECHANISM = SampledGaussian(0.05, 2.0)
OTHER = SampledGaussian(0.02, 1.5)
SCORES = SampledGaussian(1.0, 60.0)

IssuedCards = dict[str, tuple[Ledger, dict[str, Any]]]
"""A ledger and the card issued from it, by kind of search."""

FACTS = CardFacts(
    search="first",
    winner="a",
    parameters={"learning_rate": 0.1 + 0.2},
    max_grad_norm=1.0,
    public_size=1280,
    public_size_is_public=True,
    preprocessing="standardised by public constants only; nothing was learnt from the records",
    sampler="tpe",
    pruner="none",
    scores={"validation_accuracy": 0.91},
    versions={"dp-accounting": "0.6.0"},
    private=True,
)

DETAILS = {
    "method": "dplis",
    "model": "logistic_regression",
    "split": {"set": "digits", "fraction": 0.1, "seed": 0},
}
PUBLIC = {
    "dataset": "fashion_mnist",
    "path": None,
    "sweep": "proxy-1",
    "trials": 12,
    "sampler": "tpe",
    "pruner": "none",
    "declared_by": "the experiment file",
}


def _order() -> FixedOrder:
    found = FixedOrder.of(order=8.0, epsilon=4.0, delta=1e-5)
    assert found is not None
    return found


_GEOMETRIC = RunLaw(name="geometric", mean=10.0)
KINDS: Mapping[str, Mapping[str, Any]] = {
    "total_steps": {"filter": TotalSteps(MECHANISM, 1000), "epsilon": 4.0},
    "coupon_book": {"filter": CouponBook(((MECHANISM, 300), (OTHER, 700))), "epsilon": 4.0},
    "fixed_order": {"filter": _order(), "epsilon": 4.0},
    "sealed": {
        "filter": Sealed(_GEOMETRIC, 400, ((MECHANISM, 120), (OTHER, 200))),
        "epsilon": 4.0,
    },
    "validation": {
        "filter": TotalSteps(MECHANISM, 1000),
        "epsilon": 4.0,
        "validation": TotalSteps(SCORES, 40),
        "validation_claim": (0.6, 1e-6),
    },
    "sealed_validation": {
        "filter": Sealed(_GEOMETRIC, 400, ((MECHANISM, 120),)),
        "epsilon": 4.0,
        "validation": Sealed(_GEOMETRIC, 400, ((SCORES, 4),)),
        "validation_claim": (0.6, 1e-6),
    },
    "user": {
        "filter": TotalSteps(MECHANISM, 1000),
        "epsilon": 4.0,
        "validation": TotalSteps(SCORES, 40),
        "validation_claim": (0.6, 1e-6),
        "unit": "user",
        "division": division_of({record: [str(record // 3)] for record in range(30)}),
    },
    "blocks": {
        "filter": TotalSteps(MECHANISM, 1000),
        "epsilon": 4.0,
        "dataset": "sales/2026-10",
        "blocks": ("sales/2026-11",),
    },
    "public": {"filter": TotalSteps(MECHANISM, 200), "epsilon": 2.0, "details": {"public_search": PUBLIC}},
}


def open_first(ledger: Ledger, *, details: Mapping[str, Any] = DETAILS, **settings: Any) -> None:  # noqa: ANN401 - as `Ledger.open_search`
    """Open a search `first` whose entry says what a sweep's would."""
    dataset = settings.pop("dataset", "digits")
    ledger.open_search(dataset, "first", delta=1e-5, details={**DETAILS, **details}, **settings)


def set_caps(ledger: Ledger, kind: str) -> None:
    """Set a cap of the data set of that kind of search, or of each of its blocks."""
    for dataset in (KINDS[kind].get("dataset", "digits"), *KINDS[kind].get("blocks", ())):
        ledger.set_cap(dataset, 20.0, 1e-3)


def charged(ledger: Ledger, kind: str) -> CardFacts:
    """Open and charge a search `first` of that kind; the facts of its card."""
    settings = KINDS[kind]
    open_first(ledger, **settings)
    if settings["filter"].charged_whole:
        ledger.begin_sealed("first", "0" * 64)
        ledger.close_search("first")
        return replace(FACTS, winner="winner", winner_run=(MECHANISM, 120), sampler="random")
    trials = {"a": 120} if kind == "public" else {"a": 120, "b": 60}
    for trial, steps in trials.items():
        releases = 4 if "validation" in settings else 0
        ledger.reserve_together("first", trial, {"training": 120, "validation": releases}, mechanism=MECHANISM)
        lease(ledger, "first", trial, steps)
        for _ in range(releases):
            lease(ledger, "first", trial, 1, pool="validation")
        ledger.settle("first", trial, steps)
    ledger.close_search("first")
    return replace(FACTS, records_per_user=16) if kind == "user" else FACTS
