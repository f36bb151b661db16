"""From plans and sweeps to what `tuner.report` shows: which facts, which words, which commands come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.report.model import SweepReport, TrialRow, count
from tuner.sealed import WINNER

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan import Plan
    from tuner.privacy.budget import BudgetView
    from tuner.privacy.states import DatasetState
    from tuner.sealed import Winner
    from tuner.search.types import TrialView
    from tuner.sweeps import SweepFolder

__all__ = [
    "CHARGED",
    "PUBLIC_CLAIM",
    "dataset_line",
    "next_commands",
    "resume_command",
    "sealed_report",
    "storage_option",
    "sweep_report",
]

CHARGED = "-charged"
"""What the name of a charged run has behind that of its public search."""

PUBLIC_CLAIM = (
    "Searched on records that the experiment file declares public: nothing is charged, and nothing is guaranteed for "
    "them. The best configuration is then trained once on the private records, and that run is charged."
)
"""Of the search of public mode, in the place of a guarantee."""


def dataset_line(state: DatasetState) -> str:
    """What all searches on a data set have committed, and its cap."""
    counted = sum(search.counts for search in state.searches)
    cap = f"cap ε = {state.cap.epsilon:g}, δ = {state.cap.delta:g}" if state.cap else "no cap set"
    return (
        f"{count(counted, 'search')}, committed ε = {state.committed_epsilon:g}, δ = {state.committed_delta:g}; {cap}"
    )


def storage_option(sweep: SweepFolder) -> str:
    """`` --storage FOLDER`` when the sweep does not lie where the commands look by themselves."""
    return "" if sweep.root.parent == Path("runs").resolve() else f" --storage {sweep.root.parent}"


def resume_command(sweep: SweepFolder) -> str:
    """The command with which this very sweep goes on."""
    return f"tune resume {sweep.id}{storage_option(sweep)}"


def next_commands(sweep: SweepFolder, *, has_best: bool) -> tuple[str, ...]:
    """The three commands to go on with."""
    where = storage_option(sweep)
    if not has_best:
        return (f"tune show {sweep.name}{where}", f"tune resume {sweep.name}{where}")
    return (
        f"tune export {sweep.name}{where}",
        f"tune verify exports/{sweep.name}/privacy_card.json",
        f"tune report {sweep.name}{where}",
    )


def sweep_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    state: str,
    trials: Sequence[TrialRow] | Sequence[TrialView],
    budget: BudgetView | None,
    dataset: DatasetState | None,
    reason: str = "",
    card: str = "",
    claim: str = "",
) -> SweepReport:
    """A sweep as the summary and the page show it."""
    rows = tuple(trial if isinstance(trial, TrialRow) else TrialRow.of(trial) for trial in trials)
    noise = "searched" if "noise_multiplier" in plan.priced else f"{plan.noise_multiplier:g}"
    rate = "searched" if "batch_size" in plan.priced else f"{plan.sample_rate:.6g}"
    cap = f", cap {plan.cap.replace('_', ' ') if plan.step_cap is None else plan.step_cap}"
    if plan.accounting != "composition":  # of all runs together nothing is counted, or there is only one
        cap = ""
    facts = [
        ("noise", f"noise multiplier {noise}, sample rate {rate}"),
        ("steps", f"{'up to ' if plan.priced else ''}{plan.steps_per_trial} a trial{cap}"),
    ]
    if dataset is not None:
        facts.append(("data set", f"{dataset.dataset}: {dataset_line(dataset)}"))
    facts.append(("folder", str(sweep.root)))
    return SweepReport(
        name=experiment.name,
        sweep=sweep.id,
        state=state,
        reason=reason,
        trials=rows,
        trials_planned=plan.trials,
        metric=experiment.search.metric.name,
        mode=experiment.search.metric.mode,
        budget=budget,
        subtitle=f"{plan.method}, {plan.model} on {plan.dataset}",
        next_commands=next_commands(sweep, has_best=any(row.state == "complete" for row in rows)),
        facts=tuple(facts),
        card=card,
        experiment=sweep.experiment.read_text(),
        searched=plan.searched,
        claim=claim,
    )


def sealed_report(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    *,
    state: str,
    winner: Winner | None,
    budget: BudgetView | None,
    dataset: DatasetState | None,
    card: str = "",
) -> SweepReport:
    """A sealed sweep as the summary and the page show it: its winner, once it is over, and nothing of the other runs.

    Args:
        sweep: the sweep.
        experiment: the search.
        plan: its plan, which was public before it began.
        state: ``running``, ``done``, ...
        winner: what was let out; None while it is not over.
        budget: of the whole search.
        dataset: what the data set's ledger holds.
        card: the privacy card as text.
    """
    rows: tuple[TrialRow, ...] = ()
    reason = ""
    if winner is not None and winner.found:
        rows = (TrialRow(number=0, state="complete", parameters=winner.parameters, score=winner.score, id=WINNER),)
    elif winner is not None:
        reason = "no winner: there was no run, or none ended with a score"
    report = sweep_report(
        sweep, experiment, plan, state=state, reason=reason, trials=rows, budget=budget, dataset=dataset, card=card
    )
    return replace(report, sealed=True)
