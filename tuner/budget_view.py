"""The command `budget`: what every data set has committed and spent over all searches, and its cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainables.data import DATASETS
from tuner.errors import InputError
from tuner.presenting import dataset_line

if TYPE_CHECKING:
    from tuner.privacy.entries import DatasetState

__all__ = ["budget_text", "budget_values", "set_cap"]


def budget_values(url: str, dataset: str | None) -> dict[str, Any]:
    """All data sets of a ledger, or one.

    Raises:
        InputError: there is no ledger, or no such data set in it.
    """
    from tuner.privacy.ledger import Ledger

    if not Ledger.exists(url):
        raise InputError(
            f"a ledger must be there to be shown, got {url}. It is made by the first private search, or by "
            "`tune budget set`; name another with --ledger (before `show`)."
        )
    ledger = Ledger.open(url, create=False)
    names = ledger.datasets()
    if dataset is not None and dataset not in names:
        raise InputError(
            f"a data set must be in the ledger to be shown, got {dataset!r}. There are: {', '.join(names) or 'none'}."
        )
    wanted = names if dataset is None else (dataset,)
    return {"ledger": ledger.url, "datasets": [_dataset(ledger.dataset_state(name)) for name in wanted]}


def _dataset(state: DatasetState) -> dict[str, Any]:
    return {
        "dataset": state.dataset,
        "summary": dataset_line(state),
        "cap": None if state.cap is None else {"epsilon": state.cap.epsilon, "delta": state.cap.delta},
        "committed": {"epsilon": state.committed_epsilon, "delta": state.committed_delta},
        "odometer": {"epsilon_spent": state.epsilon_spent, "delta": state.odometer_delta},
        "searches": [
            {
                "search": search.search,
                "status": search.status,
                "epsilon": search.epsilon,
                "delta": search.delta,
                "counts": search.counts,
                "trials": len(search.trials),
                "steps_spent": search.leased_steps,
                "steps_reserved": search.reserved_steps,
                "step_cap": search.step_cap,
                "sample_rate": search.mechanism.sample_rate,
                "noise_multiplier": search.mechanism.noise_multiplier,
            }
            for search in state.searches
        ],
        "entries": state.seq,
        "head": state.head,
    }


def budget_text(values: dict[str, Any]) -> str:
    """The same in words."""
    lines = [f"ledger {values['ledger']}"]
    for dataset in values["datasets"]:
        lines += ["", f"{dataset['dataset']}: {dataset['summary']}"]
        odometer = dataset["odometer"]
        lines.append(
            "  spent so far (odometer, not a guarantee): "
            f"ε = {odometer['epsilon_spent']:.6g} at δ = {odometer['delta']:g}"
        )
        for search in dataset["searches"]:
            note = "" if search["counts"] else "  (took no step: counts 0)"
            lines.append(
                f"  {search['search']}  {search['status']}  cap ε = {search['epsilon']:g}, δ = {search['delta']:g}  "
                f"{search['trials']} trials, {search['steps_spent']} of {search['step_cap']} steps, "
                f"noise {search['noise_multiplier']:g}, rate {search['sample_rate']:.4g}{note}"
            )
    if len(lines) == 1:
        lines.append("no data set has been used")
    lines += [
        "",
        "The guarantee for a data set is what is committed, the sum of its searches' caps, for records that trained",
        "in all of them. What validated in one was scored there outside any guarantee: keep to one validation split.",
    ]
    return "\n".join(lines)


def set_cap(url: str, dataset: str, *, epsilon: float, delta: float) -> str:
    """Set a data set's cap, and say what it leaves.

    Raises:
        InputError: a number is not finite and positive.
    """
    from tuner.privacy.events import require_delta, require_epsilon
    from tuner.privacy.ledger import Ledger

    require_epsilon(epsilon)
    require_delta(delta)
    about = DATASETS.get(dataset)
    owner = dataset if about is None else about.budget_owner or dataset
    ledger = Ledger.open(url)
    unknown = about is None and dataset not in ledger.datasets()
    ledger.set_cap(owner, epsilon, delta)
    state = ledger.dataset_state(owner)
    note = " No shipped data set has this name and no search has used it yet." if unknown else ""
    note += f" ({dataset} is part of {owner}: one budget.)" if owner != dataset else ""
    over = "" if state.committed_epsilon <= epsilon and state.committed_delta <= delta else " Nothing more can start."
    return f"{owner}: {dataset_line(state)}.{over}{note}"
