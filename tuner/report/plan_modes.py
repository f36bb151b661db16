"""Rows of a plan that depend on its accounting mode: the number of runs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.privacy.accountant.filters import OneRelease, Sealed, VotedLabels
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.modes import COMPOSITION, PUBLIC, RELEASE, SELECTION, VOTES
from tuner.report.facts import public_records
from tuner.report.wording import plural

if TYPE_CHECKING:
    from tuner.plan.commit import CommitPlan
    from tuner.plan.full_runs import Bought
    from tuner.plan.modes import SealedFacts
    from tuner.plan.plan import Plan

__all__ = ["MODE_ROWS", "ModeRows"]

_RUNGS = " (rungs, at which a trial is scored)"
"""Text after the word "reports". It gives the name of reports in the experiment file."""


@dataclass(frozen=True)
class ModeRows:
    """Rows of one mode. Each row is a name and a value."""

    trials: Callable[[Plan], Iterator[tuple[str, str]]]  # the number of runs and their steps
    cost: Callable[[Plan], Iterator[tuple[str, str]]]  # their ε


def _trials(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.public is not None and plan.public.proxy_trials is not None:
        where = f"{plan.public.name} ({plan.public.train_size} training records, declared public)"
        yield "first on", f"{where}: {plural(plan.public.proxy_trials, 'trial')}, nothing charged"
    least, most = plan.trials_that_fit, plan.trials_at_most
    fit = f"{least}" if most is None else f"{least} to {most}, depending on their parameters,"
    if plan.rung_wise is None:
        yield "trials", f"{plan.trials} at most; {fit} fit the budget if none is pruned"
    else:
        yield from _rung_wise(plan, plan.rung_wise)
    shortest = min((choice.shortest for choice in plan.choices.menu), default=plan.steps_per_trial)
    each = f"{plan.steps_per_trial}" if shortest == plan.steps_per_trial else f"{shortest} to {plan.steps_per_trial}"
    reports = f"{len(plan.rungs)} reports{_RUNGS} at the same fractions of its steps"
    reports = _reports(plan) if shortest == plan.steps_per_trial else reports
    most = plan.step_cap if plan.commit is None else plan.commit.search_steps
    all_of_it = "" if most is None else f"; at most {most} in all"
    yield "steps", f"{each} a trial, {reports}{all_of_it}"
    if plan.commit is not None:
        yield from _commit(plan, plan.commit)


def _commit(plan: Plan, commit: CommitPlan) -> Iterator[tuple[str, str]]:
    """Yield the rows of the committed run, which follows the trials."""
    start = "from the beginning" if commit.start == "scratch" else "from the weights of the best trial"
    yield (
        "committed run",
        f"one run of {plural(commit.steps, 'step')} {start} follows the trials, and only its model is released",
    )
    more = commit.noise_multiplier / commit.noise_alone - 1
    alone = f"the {commit.noise_alone:g} of one run without a search"
    yield "its noise", f"noise multiplier {commit.noise_multiplier:g} (calibrated), {more:.1%} more than {alone}"
    share = f"{commit.share:.3g} of the budget (as squared privacy loss) is for the trials"
    yield "share", f"{share}, {1 - commit.share:.3g} for the committed run"


def _rung_wise(plan: Plan, found: Bought) -> Iterator[tuple[str, str]]:
    runs, advised = f"{found.full_runs:g}", f"{found.recommended:g}"
    yield (
        "trials",
        f"{plan.trials} at most. They share the steps of {runs} whole runs (full_runs). Each reserves its steps "
        "rung by rung",
    )
    there = [f"{trials} at step {step}" for step, trials in zip(found.levels, found.reached, strict=True)]
    yield "trials by step", f"{', '.join(there)}, if none fails and all are equally long"
    yield (
        "winner",
        f"in simulated searches, it scores {100 * found.loss:.1f} % below the best; recommended full_runs: {advised}",
    )


def _cost(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.commit is not None:
        yield "ε of the committed run", f"{epsilon(plan.commit.mechanism, plan.commit.steps, plan.delta):.6g}"
    yield f"ε of {'the costliest trial' if plan.priced else 'one trial'}", f"{plan.epsilon_trial:.6g}"
    both = ", including the committed run" if plan.commit is not None else ""
    yield "ε of all planned", f"{plan.epsilon_planned:.6g}{both}"
    yield _at_cap(plan)


def _sealed_trials(plan: Plan) -> Iterator[tuple[str, str]]:
    sealed, facts = _sealed(plan)
    law, several = sealed.law, facts.quantiles
    shape = f", shape {law.shape:g}" if law.name == "negative_binomial" else ""
    yield "runs", f"a random number that is never shown: {law.name}{shape}, mean {law.mean:g}"
    at_most = [f"{several[name]} runs in {name} %" for name in ("50", "90", "99")]
    yield "compute", f"at most {', '.join(at_most)} of searches; never more than {sealed.at_most} runs"
    steps = [f"{several[name] * plan.steps_per_trial}" for name in ("50", "90", "99")]
    yield "in steps", f"{', '.join(steps)}; {several['at_most'] * plan.steps_per_trial} at the maximum number of runs"
    yield "steps", f"{plan.steps_per_trial} a run, {_reports(plan)}"


def _sealed_cost(plan: Plan) -> Iterator[tuple[str, str]]:
    sealed, facts = _sealed(plan)
    low, high = sealed.ratio
    yield "ε of one run", f"{plan.epsilon_trial:.6g}"
    yield "ε of the winner", f"{plan.epsilon_at_cap:.6g}, {facts.price:.3g} times the ε of one run"
    yield "limit on runs", f"costs {100 * facts.truncation_share:.2g} % of δ"
    if (low, high) != (1.0, 1.0):
        instead = f"{facts.price:.3g} instead of {facts.price_without_ratio:.3g} times the ε of one run"
        yield "bounded sampler", f"its density is {low:g} to {high:g} times the prior's; the winner costs {instead}"


def _public_trials(plan: Plan) -> Iterator[tuple[str, str]]:
    records = public_records(plan)
    size = f"{records.train_size} training records, declared public"
    yield "searches on", f"{records.name} ({size}): {plural(plan.trials, 'trial')}, nothing charged"
    yield "then", f"the best configuration is trained once on {plan.dataset}"
    yield "steps", f"{plan.steps_per_trial} each, {_reports(plan)}"


def _public_cost(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "ε of the charged run", f"{plan.epsilon_trial:.6g}"
    yield _at_cap(plan)


def _release_trials(plan: Plan) -> Iterator[tuple[str, str]]:
    found = _release(plan)
    each = found.randomiser
    yield (
        "release",
        f"one noisy copy of the records, {plural(found.rows, 'row')} (their number is public), in a secret order",
    )
    yield "features", f"clipped to the norm {each.clip:g}; noise of standard deviation {each.noise:g} on each"
    if plan.private:
        yield (
            "labels",
            f"each label stays unchanged with probability {each.kept:.1%}; {each.classes} classes (ε of a label: "
            f"{each.label_epsilon:g})",
        )
    else:
        yield "labels", "released without noise"
    yield "trials", f"{plan.trials} on the release. They charge nothing, and neither do later searches on this release"
    yield "steps", f"{plan.steps_per_trial} a trial of {plan.batch_size} rows, {_reports(plan)}"


def _release_cost(plan: Plan) -> Iterator[tuple[str, str]]:
    found = _release(plan)
    local = found.randomiser.epsilon(plan.delta)
    yield "ε of the release", f"{plan.epsilon_at_cap:.6g}, within the cap of {plan.epsilon:g}"
    if found.clone_epsilon is not None:
        yield "ε of a row", f"{local:.6g} by itself; the secret order hides the row among the others"
    yield "ε of the trials", "0, also in every later search on the same release"


def _release(plan: Plan) -> OneRelease:
    if isinstance(plan.training_filter, OneRelease):
        return plan.training_filter
    raise TunerError("plan-incomplete", "The plan of this search has no release. Restore plan.json from a copy.")


def _votes_trials(plan: Plan) -> Iterator[tuple[str, str]]:
    found = _votes(plan)
    each = found.noise
    yield (
        "labels",
        f"by the votes of teachers on {plural(each.queries, 'public input')}; at most {each.answers} answers",
    )
    yield (
        "tests",
        f"an input is answered if its largest count plus noise of {each.threshold_noise:g} votes is at least "
        f"{found.threshold:g}",
    )
    yield "answers", f"the class whose count is the largest after noise of {each.answer_noise:g} votes on each count"
    yield (
        "trials",
        f"{plan.trials} student models. They charge nothing, and neither do later searches on these labels",
    )
    yield "steps", f"{plan.steps_per_trial} a trial of {plan.batch_size} labels, {_reports(plan)}"


def _votes_cost(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "ε of the labels", f"{plan.epsilon_at_cap:.6g}, within the cap of {plan.epsilon:g}, whatever the votes are"
    yield "given the votes", "a smaller ε may hold, but it depends on the votes, which are private, so it is not shown"
    yield "ε of the trials", "0, also in every later search on the same labels"


def _votes(plan: Plan) -> VotedLabels:
    if isinstance(plan.training_filter, VotedLabels):
        return plan.training_filter
    raise TunerError("plan-incomplete", "The plan of this search has no voted labels. Restore plan.json from a copy.")


def _reports(plan: Plan) -> str:
    if len(plan.rungs) > 10:
        return f"{len(plan.rungs)} reports{_RUNGS}"
    return f"reports at {', '.join(map(str, plan.rungs))}{_RUNGS}"


def _at_cap(plan: Plan) -> tuple[str, str]:
    return "ε of the whole cap", f"{plan.epsilon_at_cap:.6g}, within the search's cap of {plan.epsilon:g}"


def _sealed(plan: Plan) -> tuple[Sealed, SealedFacts]:
    if isinstance(plan.training_filter, Sealed) and plan.selection is not None:
        return plan.training_filter, plan.selection
    raise TunerError(
        "plan-incomplete",
        "The plan of this sealed search has no distribution of the number of runs. Restore plan.json from a copy.",
    )


MODE_ROWS: Mapping[str, ModeRows] = {
    COMPOSITION.name: ModeRows(_trials, _cost),
    SELECTION.name: ModeRows(_sealed_trials, _sealed_cost),
    PUBLIC.name: ModeRows(_public_trials, _public_cost),
    RELEASE.name: ModeRows(_release_trials, _release_cost),
    VOTES.name: ModeRows(_votes_trials, _votes_cost),
}
"""The rows of each mode, by the mode's name."""
