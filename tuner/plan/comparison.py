"""What each way to search buys for the budget of a file, and the one that `accounting: auto` takes.

The choice is a function of the experiment file, of public facts about the data set, and of the prices of search that
are shipped with the program. It reads no record, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any, Self

from search_spaces import PARAMETERS
from search_spaces.domains import Fixed, is_number
from search_spaces.optimizers import SGD
from search_spaces.prior import left_out
from trainables.data import info, public_train_size
from trainables.errors import DatasetError
from trainables.model_sizes import dimension_of, family_of
from trainables.tasks import REGRESSION
from tuner.errors import BudgetRefusedError, ExperimentError, TunerError
from tuner.experiment.prior import optimizers_of, rate_is_measured, recommended
from tuner.experiment.sections import ChosenSection, CommitSection
from tuner.plan.candidates import (
    CANDIDATES,
    NO_SEARCH,
    CandidateRefused,
    as_candidate,
    kind_of_search,
    mark_chosen,
    written_space,
)
from tuner.plan.plan import Plan, make_plan
from tuner.plan.prices import (
    MOST_CLASSES,
    Expected,
    MeasuredSearch,
    Prices,
    Situation,
    best_arm,
    expected_gain,
    expected_price,
    shipped_prices,
)
from tuner.plan.probes import probe_error
from tuner.study.names import canonical_sampler

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment

__all__ = ["CandidateRow", "Comparison", "choose", "compare"]


_NEAR_RATE = log(2.0)
"""Largest distance, in the logarithm, of a rate from that of the prior at which the arm `prior` is as measured."""


@dataclass(frozen=True, kw_only=True)
class CandidateRow:
    """One way to search under the budget of the file.

    Attributes:
        candidate: name of the candidate.
        title: how the table calls it.
        noise_multiplier: noise of the released model, calibrated by the planner; None if the candidate is refused.
        price: expected accuracy that an oracle would have more, in points; None if it was not measured for such a
            training.
        gain: expected accuracy above that of no search, in points.
        compute: steps of all runs together, in whole runs.
        refused: why the file cannot be searched like this.
        unmeasured: why there is no expected price.
        taken: whether this is what the file does, or what `accounting: auto` takes.
    """

    candidate: str
    title: str
    noise_multiplier: float | None = None
    price: Expected | None = None
    gain: Expected | None = None
    compute: float | None = None
    refused: str = ""
    unmeasured: str = ""
    taken: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the row whose `dataclasses.asdict` this is."""
        expected = {name: values[name] and Expected(**values[name]) for name in ("price", "gain")}
        return cls(**{**values, **expected})


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rows of all candidates, the candidate that auto takes, and why in one sentence.

    `is_choice` is True for a file with `accounting: auto`. With another accounting, auto would take `best`.
    """

    rows: tuple[CandidateRow, ...]
    best: str
    reason: str
    is_choice: bool = False

    @property
    def chosen(self) -> ChosenSection:
        """The choice as a section of the experiment file."""
        return ChosenSection(candidate=self.best, reason=self.reason)


@dataclass(frozen=True)
class _Planned:
    """A candidate with its plan, or with the reason why it has none."""

    plan: Plan | None = None
    experiment: Experiment | None = None
    refused: str = ""
    error: TunerError | None = None


def choose(
    experiment: Experiment, request: DatasetRequest, *, prices: Prices | None = None
) -> tuple[Experiment, Plan, Comparison]:
    """Replace `accounting: auto` by what is expected to cost the least accuracy. Return its experiment and its plan.

    Args:
        experiment: the experiment of the file, whose space is as written.
        request: the private records, of which only public facts are asked for.
        prices: measured prices; by default those that are shipped with the program.

    Raises:
        BudgetRefusedError: not even one run fits the budget.
        ExperimentError: the file is refused whatever is chosen.
    """
    planned = {name: _plan(experiment, request, name) for name in CANDIDATES}
    single = planned[NO_SEARCH]
    if single.error is not None:
        raise single.error
    compared = _compared(experiment, request, planned, prices or shipped_prices())
    best = planned[compared.best]
    if best.experiment is None or best.plan is None:
        raise TunerError("internal-error", f"{compared.best} has no plan, but it was chosen. Please report this.")
    rows = tuple(replace(row, taken=row.candidate == compared.best) for row in compared.rows)
    return mark_chosen(best.experiment, compared.chosen), best.plan, replace(compared, rows=rows, is_choice=True)


def compare(experiment: Experiment, request: DatasetRequest, plan: Plan) -> Comparison:
    """Compare the file's own search, which has the given plan, with what `accounting: auto` could take instead."""
    own = kind_of_search(experiment)
    planned = {
        name: _Planned(plan, experiment) if name == own else _plan(experiment, request, name) for name in CANDIDATES
    }
    compared = _compared(experiment, request, planned, shipped_prices())
    return replace(compared, rows=tuple(replace(row, taken=row.candidate == own) for row in compared.rows))


def _plan(experiment: Experiment, request: DatasetRequest, candidate: str) -> _Planned:
    try:
        made = as_candidate(experiment, candidate)
        return _Planned(make_plan(made, request), made)
    except CandidateRefused as refused:
        return _Planned(refused=str(refused))
    except ExperimentError as error:
        return _Planned(refused=error.problems[0].rule, error=error)
    except BudgetRefusedError as error:
        return _Planned(refused="no noise fits the budget", error=error)
    except TunerError as error:
        return _Planned(refused=error.message.partition(". ")[0], error=error)


def _compared(
    experiment: Experiment,
    request: DatasetRequest,
    planned: Mapping[str, _Planned],
    prices: Prices,
) -> Comparison:
    rows = [row for row in prices.searches if row.dataset != left_out()]
    single = planned[NO_SEARCH].plan
    at = None if single is None else _situation(experiment, request, single.epsilon)
    found = []
    for name, each in planned.items():
        if each.plan is None:
            found.append(CandidateRow(candidate=name, title=_TITLES[name], refused=each.refused))
            continue
        row = CandidateRow(
            candidate=name,
            title=_title(name, each.plan),
            noise_multiplier=(each.plan.commit or each.plan.nominal).noise_multiplier,
            compute=_compute(name, each.plan),
        )
        found.append(_priced(replace(row, unmeasured=_unmeasured(name, each, at)), rows, at))
    if any(row.candidate == NO_SEARCH and row.price is None for row in found):
        found = [replace(row, gain=None) for row in found]
    best = best_arm({row.candidate: row.gain for row in found})
    reason = _why(found, best)
    if at is not None and any(row.price for row in found) and all(row.family != at.family for row in rows):
        reason += f"; we measured no {at.family} model, so the expected prices are those of other models"
    if best is None and not _knows_rate(experiment):
        reason += "; the learning_rate of this run is a guess"
        reason += ": write `accounting: composition` to search the rate" if experiment.is_auto else ""
    return Comparison(rows=tuple(found), best=best or NO_SEARCH, reason=reason)


def _priced(row: CandidateRow, rows: Sequence[MeasuredSearch], at: Situation | None) -> CandidateRow:
    """Return the row with its expected price and gain, or with the reason why it has none."""
    if at is None or row.unmeasured:
        return row
    price = expected_price(rows, row.candidate, at)
    if price is None:
        known = any(each.arm == row.candidate for each in rows)
        few = "too few similar data sets"
        if at.classes > MOST_CLASSES:
            few += f", and none with more than {MOST_CLASSES} classes"
        return replace(row, unmeasured=few if known else "not measured")
    gain = None if row.candidate == NO_SEARCH else expected_gain(rows, row.candidate, NO_SEARCH, at)
    return replace(row, price=price, gain=gain)


def _situation(experiment: Experiment, request: DatasetRequest, epsilon: float) -> Situation | None:
    """Return the public facts on which prices depend, or None if the number of parameters is not known."""
    try:
        about = info(request)
    except DatasetError:
        return None
    model, frozen = experiment.trainable.model, experiment.trainable.freeze
    if dimension_of(model, input_shape=about.input_shape, classes=about.outputs, frozen=frozen) is None:
        return None  # the prior does not know it either
    return Situation(
        epsilon=epsilon,
        trials=experiment.search.trials,
        axes=max(1, len(written_space(experiment).searched)),
        family=family_of(model),
        train_size=public_train_size(request),
        classes=about.outputs,
    )


def _unmeasured(candidate: str, planned: _Planned, at: Situation | None) -> str:
    """Return why the stored prices say nothing about such a training; empty if they may."""
    plan, experiment = planned.plan, planned.experiment
    if at is None or plan is None or experiment is None:
        return "not measured for this model"
    if plan.unit == "user":
        return "not measured for users"
    if experiment.trainable.task == REGRESSION:
        return "not measured for a regression"
    if experiment.trainable.start is not None:
        return "not measured with public weights"
    for optimizer in optimizers_of(experiment.search.space, experiment):
        if optimizer != SGD:
            return f"not measured with {optimizer}"
    sampler = canonical_sampler(experiment.search.sampler.name)
    if candidate == "commit" and (experiment.search.commit != CommitSection() or sampler != "surrogate"):
        return f"measured with `commit: {CommitSection().share:g}` and `sampler: surrogate` only"
    if plan.validation is not None and candidate not in (NO_SEARCH, "gen", "proxy"):
        return "not measured with protected scores"
    if candidate == NO_SEARCH and not _has_rate_of_prior(experiment):
        return "not measured at the learning rate of this file, which is far from the recommended one"
    error = probe_error(experiment, plan) if candidate == "gen" else None
    if error is not None and error.is_large:
        return (
            f"its loss probes are too noisy here (their standard error is {error.value:.2g} times their largest value)"
        )
    return ""


def _knows_rate(experiment: Experiment) -> bool:
    """Return whether the file names one learning rate, or the prior's was measured for models of this kind."""
    space = experiment.search.space
    named = any(is_number(space.get(name)) for name in ("learning_rate", *PARAMETERS["learning_rate"].aliases))
    return named or all(rate_is_measured(experiment, optimizer) for optimizer in optimizers_of(space, experiment))


def _has_rate_of_prior(experiment: Experiment) -> bool:
    """Return whether the rate of a single run is near the one for which the arm `prior` was measured."""
    space = dict(experiment.space.parameters)
    rate, clip = space["learning_rate"], space["max_grad_norm"]
    if not (isinstance(rate, Fixed) and isinstance(clip, Fixed)):
        return False
    known = recommended({"learning_rate": "default", "max_grad_norm": clip.value}, experiment).get("learning_rate")
    return known is not None and float(rate.value) > 0 and abs(log(float(rate.value) / known.value)) <= _NEAR_RATE


def _compute(candidate: str, plan: Plan) -> float:
    if plan.commit is not None:
        return 1 + plan.commit.search_steps / plan.commit.steps
    if plan.full_runs is not None:
        return plan.full_runs
    return float(plan.trials + 1 if candidate == "proxy" else plan.trials)


_TITLES: Mapping[str, str] = {
    NO_SEARCH: "no search, shipped prior",
    "gen": "no search, schedule: gen",
    "commit": "cheap search, one committed run",
    "full_runs": "fewer whole runs than trials",
    "composition": "whole trials, composed",
    "selection": "sealed search",
    "proxy": "public proxy, one charged run",
}


def _title(candidate: str, plan: Plan) -> str:
    if plan.full_runs is not None:
        return f"{plan.trials} trials share the steps of {plan.full_runs:g} whole runs"
    if candidate == "composition":
        return f"{plan.trials} whole trials, composed"
    return _TITLES[candidate]


def _why(rows: Sequence[CandidateRow], best: str | None) -> str:
    """Return one sentence of public facts: why the best candidate is taken, or why none is searched."""
    gains = {row.title: row.gain for row in rows if row.gain is not None}
    for row in rows:
        if row.candidate == best and row.gain is not None:
            gain = f"{row.gain.value:.2f} ± {row.gain.error:.2f} points"
            return f"{row.title}: expected to score {gain} above one run without a search"
    if not gains:
        others = [row for row in rows if row.candidate != NO_SEARCH]
        reasons = [row.unmeasured for row in rows if row.candidate == NO_SEARCH] + [row.unmeasured for row in others]
        reasons = list(filter(None, reasons)) or [row.refused for row in others]
        priced = {row.candidate for row in rows if row.price}
        if NO_SEARCH in priced and len(priced) > 1:  # as single figures, but not beside one run
            reasons = ["too few similar searches were measured beside one run"]
        known = "; ".join(dict.fromkeys(filter(None, reasons)))
        because = f"it is not known whether a search would score higher ({known})"
    else:
        title, gain_of_it = max(gains.items(), key=lambda each: each[1].value)
        found = f"{title}: {gain_of_it.value:+.2f} ± {gain_of_it.error:.2f} points of accuracy against one run"
        because = f"no other way is expected to score higher (the best one is {found})"
    return f"do not search, train once: {because}"
