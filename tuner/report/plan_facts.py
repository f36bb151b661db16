"""Facts of a plan as text: its trials, cap and cost, and a comparison with other modes at the same budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from typing import TYPE_CHECKING

from search_spaces import MINIMA
from search_spaces.domains import Categorical, Fixed, as_yaml
from search_spaces.schedules import GEN
from search_spaces.spaces import DIVIDES
from tuner.experiment.prior import optimizers_of, rate_is_measured, recommended
from tuner.plan.probes import probe_error
from tuner.privacy.accountant.filters import CouponBook, FixedOrder
from tuner.privacy.card.claims import guarantee_words
from tuner.privacy.ledger.amounts import amounts
from tuner.report.facts import dataset_line
from tuner.report.plan_modes import MODE_ROWS
from tuner.report.text import PlanTable, PlanText
from tuner.report.wording import format_value, plural
from tuner.study.names import canonical_sampler

if TYPE_CHECKING:
    from search_spaces import Domain, SearchSpace
    from tuner.experiment import Experiment
    from tuner.plan.comparison import CandidateRow, Comparison
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.state import DatasetState

__all__ = [
    "CANDIDATE_HEADS",
    "candidate_cells",
    "minimum_facts",
    "plan_text",
    "plan_warnings",
    "release_facts",
    "search_facts",
]

CANDIDATE_HEADS = ("", "noise", "expected price", "whole runs", "")
"""Headings of the table of the ways to search."""

_LARGE_ERROR = 0.02
"""The plan warns if the standard error of a score is above this value, because trials often differ by less."""

_WHEN_SURE = {
    "stop": "stop: to save budget, the search ends when a complete trial is almost certainly near the best",
    "replicate": "replicate: the two best configurations are run again to find the better one",
}


def plan_text(
    plan: Plan,
    *,
    source: str,
    claim: str,
    datasets: Sequence[DatasetState] = (),
    warnings: Sequence[str] = (),
    wall_time: str = "",
    comparison: Comparison | None = None,
    user: str = "",
    search: Sequence[tuple[str, str]] = (),
) -> PlanText:
    """Return the plan as text. Optional facts that are not given are left out.

    Args:
        plan: the plan.
        claim: first line, from `tuner.report.facts.claim_headline`.
        source: the experiment file, and whether it is shipped with the program.
        datasets: states in the ledger of the data set, or of each block that the search uses.
        warnings: warnings about the experiment and the plan.
        wall_time: estimate of the wall time.
        comparison: what other ways to search cost for the same budget.
        user: user who would start the search. The user's share is shown if the cap is divided into shares.
        search: result of `search_facts`.
    """
    rows = MODE_ROWS[plan.accounting]
    facts = [("file", source), ("trains", _trains(plan)), *rows.trials(plan)]
    facts += [*(() if plan.mode.on_release else _batches(plan)), *_promoted(plan), *search, *_scores(plan)]
    if comparison is not None:
        facts.append(("auto takes" if comparison.is_choice else "auto would take", comparison.reason))
    if not plan.private:
        sentence = "NOT PRIVATE: privacy.private is false. Nothing is charged and nothing is claimed."
        return PlanText(title=plan.name, claim=claim, facts=tuple(facts), sentence=sentence, warnings=tuple(warnings))
    facts += [*_cap(plan), *rows.cost(plan)]
    for dataset in datasets:
        block = "" if len(datasets) == 1 else f" of {dataset.dataset}"
        facts += [(f"{block.removeprefix(' of ') or 'data set'} so far", dataset_line(dataset))]
        if not plan.mode.on_release:  # a stored release may be used again at no cost
            epsilon, delta = dataset.committed_epsilon + plan.epsilon, dataset.committed_delta + plan.delta
            facts.append(("with this search", f"committed {amounts(epsilon, delta)}"))
        facts += _share(dataset, user, block)
    if wall_time:
        facts.append(("wall time", wall_time))
    return PlanText(
        title=plan.name,
        claim=claim,
        facts=tuple(facts),
        tables=(_comparison(plan, comparison),) if comparison is not None else (),
        sentence=guarantee_words(
            plan.epsilon,
            plan.delta,
            mode=plan.mode,
            unit=plan.unit,
            protected=plan.validation is not None,
            planned=True,
        ),
        warnings=tuple(warnings),
    )


def search_facts(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """Return what is searched, what the shipped prior recommends, and facts about a unimodal search.

    In other searches, say that unimodal parameters have no effect.
    """
    search, space = experiment.search, experiment.space
    facts = [("searched", _searched(space)), *_prior(experiment)]
    if not search.is_unimodal:
        unused = f"{', '.join(space.unimodal)}: no effect, because neither the sampler nor the pruner is unimodal"
        return (*facts, ("unimodal in", unused)) if space.unimodal else tuple(facts)
    facts.append(("unimodal in", ", ".join(space.unimodal)))
    for name in space.unimodal:
        scales = [each for each in space.scales(name) if not isinstance(dict(space.parameters)[each], Categorical)]
        if scales:
            product = " × ".join((name, *(each for each in scales if each not in DIVIDES)))
            product += "".join(f" / {each}" for each in scales if each in DIVIDES)
            comparable = f"values of {name} alone are comparable only if the other factors are equal"
            facts.append(("curve over", f"{product} (an absolute standard deviation), because {comparable}"))
    if canonical_sampler(search.sampler.name) == "unimodal":
        from tuner.study.unimodal.inference.beliefs import Rules

        at_once = search.sampler.options.get("at_once", Rules.at_once)
        if experiment.resources.concurrent_trials > at_once:
            facts.append(
                (
                    "at a time",
                    f"{plural(at_once, 'trial')}, because at_once of the sampler is below resources.concurrent_trials",
                )
            )
    if search.when_sure != "go_on":
        facts.append(("when sure", _WHEN_SURE[search.when_sure]))
    return tuple(facts)


def release_facts(experiment: Experiment, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return facts about the two releases of a step with the schedule gen; none for other searches."""
    space = dict(experiment.space.parameters)
    share = space.get(f"schedule.{GEN}.probe_share")
    if share is None:
        return ()
    facts = []
    noise, probes = plan.nominal.noise_multiplier, probe_error(experiment, plan)
    if probes is not None:
        each = f"gradients with noise multiplier {probes.gradient:.4g}, and loss probes with {probes.probe:.4g}"
        facts.append(("a step of gen", f"two releases: {each}; together they cost as much as one with {noise:.4g}"))
        if probes.is_large:
            told = (
                f"the noise of a loss probe is {probes.value:.2g} times its largest value, so many probes are averaged"
            )
            facts.append(("noisy probes", f"{told}. A larger batch or a larger schedule.gen.probe_share helps"))
    else:
        facts.append(("a step of gen", "two releases, gradients and loss probes. Together they cost as much as one"))
    if not (isinstance(space["clipping"], Fixed) and space["clipping"].value == "automatic"):
        facts.append(
            (
                "clipping",
                "`clipping: automatic` is recommended with gen, because then the clipping norm needs no search",
            )
        )
    return tuple(facts)


def minimum_facts(experiment: Experiment, plan: Plan, *, classes: int) -> tuple[tuple[str, str], ...]:
    """Return what a perturbed minimum is, and up to which λ objective perturbation raises a smaller one."""
    if plan.method not in MINIMA:
        return ()
    facts = [("a run", "one Gaussian mechanism on all records, which gives a perturbed minimum of a convex loss")]
    clip = dict(experiment.space.parameters)["feature_clip"]
    if plan.method == "objective_perturbation" and plan.nominal.noise_multiplier:
        from trainables.convex.noise import TOLERANCE, objective_noise

        raised = [
            objective_noise(
                clip=float(value),
                classes=classes,
                normaliser=plan.train_size,
                weight_decay=0.0,
                noise_multiplier=plan.nominal.noise_multiplier,
                tolerance=TOLERANCE,
            ).weight_decay
            for value in clip.grid(2)
        ]
        ends = " to ".join(f"{value:.2g}" for value in sorted({min(raised), max(raised)}))
        facts.append(
            (
                "least weight_decay",
                f"{ends}, depending on feature_clip. A smaller value is raised to this minimum: the proof needs it",
            )
        )
    return tuple(facts)


def _prior(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield what the shipped prior recommends. The learning rate is that for the clipping norm of the space."""
    found = recommended(experiment.search.space, experiment)
    if not found:
        return
    rate, clip = found["learning_rate"], found["max_grad_norm"]
    low, high = rate.value * exp(-rate.spread), rate.value * exp(rate.spread)
    others = f"max_grad_norm {clip.value:.2g}, batch_size {found['batch_size'].value:.0f}"
    others += f" and epochs {found['epochs'].value:.2g}"
    optimizer = optimizers_of(experiment.search.space, experiment)[0]
    if not rate_is_measured(experiment, optimizer):
        yield (
            "recommended",
            f"nothing was measured for this kind of training. For others, {others} and a learning_rate of "
            f"{rate.value:.2g} are good. The best learning_rate here may be far lower: search it in a wide range, or "
            "set a value (docs/prior.md)",
        )
        return
    # The rate of sgd goes with the clipping norm: it is that for the norm in the space.
    is_sgd = optimizer == "sgd"
    own = " With the max_grad_norm of this file," if is_sgd else " And"
    yield (
        "recommended",
        f"{others} are good values for this budget.{own} a good learning_rate is {rate.value:.2g} (range "
        f"{low:.2g} to {high:.2g}). All were measured on public data sets, so they cost no ε (docs/prior.md)",
    )


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings of a plan, one sentence each. They should be read before the budget is spent."""
    found = []
    scores = plan.validation
    if scores is not None and scores.standard_error > _LARGE_ERROR:
        found.append(
            f"the noise on a protected score has a standard error of {100 * scores.standard_error:.2g} points: "
            "trials that differ by less cannot be told apart. Set more records aside for validation, report at fewer "
            "rungs, plan fewer trials, or raise dataset.validation.epsilon"
        )
    if plan.private and plan.trials_that_fit == 0:
        found.append(
            "no trial of the most expensive configuration fits the budget, so the sampler may suggest "
            "configurations that cannot run. Narrow the search space"
        )
    return tuple(found)


def _share(dataset: DatasetState, user: str, block: str) -> Iterator[tuple[str, str]]:
    """Return the user's share of a divided cap."""
    from tuner.privacy.ledger.history import share_lines

    if not (user and dataset.grants):
        return
    line = next((line for line in share_lines(dataset) if line.user == user), None)
    said = "none: the cap is divided, and a user without a share can start no search"
    if line is not None and line.granted is not None and line.left is not None:
        (epsilon, delta), left = line.granted, line.left
        said = f"granted {amounts(epsilon, delta)}; left {amounts(*left)}"
        if not epsilon:
            said = "revoked: you can start no search until a share is granted"
    yield f"your share ({user}){block}", said


def _trains(plan: Plan) -> str:
    units = "users" if plan.unit == "user" else plan.mode.inputs
    return f"{plan.method}, {plan.model} on {plan.dataset} ({plan.train_size} {units}; this number is public)"


def _batches(plan: Plan) -> Iterator[tuple[str, str]]:
    searched = plan.priced
    if "batch_size" in searched:
        rates = sorted(choice.sample_rate for choice in plan.choices.menu)
        drawn = f"{_among(searched['batch_size'])} expected (searched), Poisson"
        yield "batch", f"{drawn}, sample rate {rates[0]:.4g} to {rates[-1]:.4g}"
    else:
        yield "batch", f"{plan.batch_size} expected, Poisson, sample rate {plan.nominal.sample_rate:.6g}"
    if "noise_multiplier" in searched:
        yield "noise", f"noise multiplier {_among(searched['noise_multiplier'])} (searched)"
    else:
        whose = " for the trials" if plan.commit is not None else ""
        yield "noise", f"noise multiplier {plan.nominal.noise_multiplier:g}{whose} ({plan.noise_source})"


def _among(domain: Domain) -> str:
    if isinstance(domain, Categorical):
        *others, last = map(as_yaml, domain.options)
        return f"{', '.join(others)} or {last}" if others else last
    ends = [f"{end:.4g}" if isinstance(end, float) else as_yaml(end) for end in domain.grid(2)]
    return f"{ends[0]} to {ends[-1]}"


def _searched(space: SearchSpace) -> str:
    """Return the searched parameters with their values, or rate and clipping norm of the only configuration."""
    domains = dict(space.parameters)
    found = [
        f"{name} {_among(domains[name])}{' (changes the ε of a trial)' if name in space.priced else ''}"
        for name in space.searched
    ]
    values = [(name, domains.get(name)) for name in ("learning_rate", "max_grad_norm")]
    one = ", ".join(f"{name} {domain.value:.4g}" for name, domain in values if isinstance(domain, Fixed))
    return "; ".join(found) or f"nothing: one configuration{one and f' ({one})'}"


def _promoted(plan: Plan) -> Iterator[tuple[str, str]]:
    shorter = {"batch_size", "epochs"} & set(plan.priced)
    fractions = " (a shorter trial changes at the same fractions of its steps)" if shorter else ""
    for name, promotion in plan.promoted.items():
        first, *later = zip(promotion.levels, promotion.from_step, strict=True)
        rises = ", ".join(f"{level} from step {step}" for level, step in later)
        yield name, f"promoted: {first[0]} at first, {rises}{fractions}; the same in all trials, at no privacy cost"


def _scores(plan: Plan) -> Iterator[tuple[str, str]]:
    scores = plan.validation
    if scores is None:
        return
    noise = f"with noise of standard deviation {scores.noise:g}"
    yield "scores", f"protected: counts of correct answers among {scores.size} records, {noise}"
    yield "error of a score", f"{100 * scores.standard_error:.2g} points (standard error), from this noise alone"
    planned = plan.planned_scores
    left = scores.releases - planned
    told = plural(planned, "score")
    if left < 0:
        told = f"only {scores.releases} of the {planned} planned scores fit"
    elif left:
        told += f" and {left} in reserve for {'a restored trial' if left == 1 else 'restored trials'}"
    yield "score budget", f"{told} within ε = {scores.epsilon:g}, δ = {scores.delta:g}, for the validation records"


def _cap(plan: Plan) -> Iterator[tuple[str, str]]:
    kind = plan.cap.replace("_", " ")
    if plan.cap == "coupon_book":
        kind = "coupon book (a fixed number of steps for each pair of sample rate and noise)"
    yield "cap", f"{kind}: {plan.cap_reason}" if plan.cap_reason else kind
    if isinstance(plan.training_filter, CouponBook):
        quotas = plan.training_filter.quotas
        sizes = [f"{mechanism.sample_rate * plan.train_size:.0f}: {steps}" for mechanism, steps in quotas]
        noisy = "noise_multiplier" in plan.priced
        kinds = f"{plural(len(quotas), 'pair')} of sample rate and noise"
        said = kinds if noisy else f"steps by batch size: {', '.join(sizes)}"
        if plan.commit is not None:
            said = f"{plan.commit.search_steps} steps for all trials, {plan.commit.steps} for the committed run"
        yield "quotas", said
    if isinstance(plan.training_filter, FixedOrder):
        yield "Rényi order", f"{plan.training_filter.order:g}"
    for row in plan.alternatives:
        noise = "searched" if row.noise_multiplier is None else f"{row.noise_multiplier:g}"
        mark = "taken" if row.cap == plan.cap else "not taken"
        cost = f"ε of all planned trials {format_value(row.epsilon, 5)}"
        yield f"  {row.cap}", f"noise {noise}, {plural(row.trials, 'trial')} fit, {cost} ({mark})"


def _comparison(plan: Plan, comparison: Comparison) -> PlanTable:
    return PlanTable(
        title=f"ways to spend ε = {plan.epsilon:g}, with the expected price in points of accuracy below the best "
        "settings (docs/modes.md)",
        header=CANDIDATE_HEADS,
        rows=tuple(candidate_cells(row, "taken" if comparison.is_choice else "this file") for row in comparison.rows),
    )


def candidate_cells(row: CandidateRow, mark: str) -> tuple[str, ...]:
    """Return one way to search as cells of a table. `mark` is written next to the one that is taken."""
    if row.refused:
        return row.title, "–", "refused", "–", row.refused
    noise = "–" if row.noise_multiplier is None else f"{row.noise_multiplier:.4g}"
    price = "–" if row.price is None else f"{row.price.value:.2f} ± {row.price.error:.2f}"
    told = ", ".join(each for each in (mark * row.taken, row.unmeasured) if each)
    return row.title, noise, price, "–" if row.compute is None else f"{row.compute:.3g}", told
