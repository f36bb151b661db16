"""From plans and sweeps to what `tuner.report` shows: which facts, which words, which commands come next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.report.model import SweepReport, TrialRow, count
from tuner.report.text import PlanText

if TYPE_CHECKING:
    from tuner.experiment import Experiment
    from tuner.plan import Plan
    from tuner.privacy.budget import BudgetView
    from tuner.privacy.entries import DatasetState
    from tuner.search.types import TrialView
    from tuner.sweeps import SweepFolder

__all__ = ["dataset_line", "next_commands", "plan_text", "resume_command", "storage_option", "sweep_report"]


def plan_text(
    plan: Plan,
    *,
    source: str,
    dataset: DatasetState | None = None,
    warnings: Sequence[str] = (),
    wall_time: str = "",
) -> PlanText:
    """The plan in words.

    Args:
        plan: the plan.
        source: the file it came from, and whether it is shipped.
        dataset: what the data set's ledger holds now; None when the search is not private.
        warnings: of the experiment.
        wall_time: a guess, or empty.
    """
    few = len(plan.rungs) <= 10
    rungs = f"reports at {', '.join(map(str, plan.rungs))}" if few else f"{len(plan.rungs)} reports"
    facts = [
        ("file", source),
        ("trains", f"{plan.method}, {plan.model} on {plan.dataset} ({plan.train_size} training records, public)"),
        ("trials", f"{plan.trials} asked for, {plan.trials_that_fit} fit when none is pruned"),
        ("steps", f"{plan.steps_per_trial} a trial, {rungs}; at most {plan.step_cap} in all"),
        ("batch", f"{plan.batch_size} expected, Poisson, sample rate {plan.sample_rate:.6g}"),
        ("noise", f"noise multiplier {plan.noise_multiplier:g} ({plan.noise_source})"),
        ("searched", ", ".join(plan.free) or "nothing: one configuration"),
    ]
    if not plan.private:
        return PlanText(
            title=plan.name,
            facts=tuple(facts),
            sentence="NOT PRIVATE: privacy.private is false. Nothing is charged and nothing is claimed.",
            warnings=tuple(warnings),
        )
    facts += [
        ("ε of one trial", f"{plan.epsilon_trial:.6g}"),
        ("ε of all planned", f"{plan.epsilon_planned:.6g}"),
        ("ε of the cap on steps", f"{plan.epsilon_at_cap:.6g}, within the search's cap of {plan.epsilon:g}"),
    ]
    if dataset is not None:
        facts.append(("data set so far", dataset_line(dataset)))
    if wall_time:
        facts.append(("wall time", wall_time))
    return PlanText(
        title=plan.name,
        facts=tuple(facts),
        sentence=(
            f"The guarantee will be the cap: ε = {plan.epsilon:g} at δ = {plan.delta:g}, add or remove one training "
            "record, for everything the search shows. Validation and test scores are outside it."
        ),
        warnings=tuple(warnings),
    )


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
) -> SweepReport:
    """A sweep as the summary and the page show it."""
    rows = tuple(trial if isinstance(trial, TrialRow) else TrialRow.of(trial) for trial in trials)
    facts = [
        ("noise", f"noise multiplier {plan.noise_multiplier:g}, sample rate {plan.sample_rate:.6g}"),
        ("steps", f"{plan.steps_per_trial} a trial, cap {plan.step_cap}"),
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
        searched=plan.free,
    )
