"""The plan of a search: trials, steps, noise and ε. Planning reads no private record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from search_spaces import Domain, parse_domain
from trainables.data import public_train_size
from trainables.score_error import ScoreError
from tuner.errors import TunerError
from tuner.plan.caps import Alternative
from tuner.plan.commit import SAVES, CommitPlan
from tuner.plan.full_runs import Bought, scores_at_most
from tuner.plan.modes import PLANNERS, PublicData, ScorePlan, SealedFacts, plan_scores
from tuner.plan.shapes import Choice, Choices, rung_steps
from tuner.privacy.accountant.filters import Filter, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.modes import MODES, Mode
from tuner.study.promotion import check_promotion, level_steps
from tuner.study.types import TrialShape

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment

__all__ = ["Plan", "PromotedLevels", "make_plan", "mechanism_of", "plan_from"]


@dataclass(frozen=True, kw_only=True)
class PromotedLevels:
    """The levels of a parameter that rises within every trial."""

    levels: tuple[int, ...]
    from_step: tuple[int, ...]  # step of the longest trial at which each level begins


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trials of a search and their maximum privacy cost."""

    name: str
    method: str
    model: str
    dataset: str
    unit: str  # "record", or "user" with all records of a user
    private: bool  # False: no guarantee (`privacy.private: false`)
    accounting: str  # name of the mode: "composition", "selection" or "public"
    train_size: int  # PUBLIC number of training records (users) after the validation split
    batch_size: int  # expected batch size of the longest trial
    nominal: SampledGaussian  # mechanism of the longest trial; the smallest noise if noise is searched
    noise_source: str  # "calibrated" (`auto` in the file), "given" or "searched"
    steps_per_trial: int  # of the longest trial
    rungs: tuple[int, ...]  # where the longest trial reports; a shorter one reports at the same fractions
    epochs: float | None  # None if no parameter that affects the budget is searched
    free: tuple[str, ...]  # searched parameters that do not affect the budget
    priced: Mapping[str, Domain]  # searched parameters that affect the budget
    promoted: Mapping[str, PromotedLevels]
    trials: int  # in a sealed search, the mean number
    rung_wise: Bought | None  # what a smaller number of whole runs buys; None if all trials are planned whole
    trials_that_fit: int  # if none is pruned and all are the most expensive
    trials_at_most: int | None  # if all are the cheapest; None if all trials cost the same
    epsilon: float  # the cap that the file asks for, which is the claim of the whole search
    delta: float  # of every ε here
    epsilon_trial: float  # of the most expensive trial, not pruned
    epsilon_planned: float  # of all planned trials
    epsilon_at_cap: float  # of everything that the cap allows, at most `epsilon`
    training_filter: Filter
    cap_reason: str
    alternatives: tuple[Alternative, ...]
    commit: CommitPlan | None  # the committed run; None if the best trial is released
    validation: ScorePlan | None  # the protected scores; None if scores are outside the guarantee
    selection: SealedFacts | None  # only of a sealed search
    public: PublicData | None  # only of a search with public records

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the search.

        Raises:
            TunerError: the search has more than one mechanism.
        """
        if set(self.priced) - {"epochs"}:
            chosen = ", ".join(self.priced)
            raise TunerError(
                "plan-has-no-mechanism",
                f"Trials differ in sample rate or noise, because the file searches {chosen}.",
            )
        return self.nominal

    @property
    def cap(self) -> str:
        """Kind of the filter: ``total_steps``, ``coupon_book``, ``fixed_order`` or ``sealed``."""
        return self.training_filter.kind

    @property
    def step_cap(self) -> int | None:
        """Maximum total number of steps of all trials; None if the filter does not count steps."""
        return self.training_filter.most_steps

    @property
    def validation_filter(self) -> Filter | None:
        """The filter of the protected scores."""
        return None if self.validation is None else self.validation.filter

    @property
    def validation_claim(self) -> tuple[float, float] | None:
        """(ε, δ) of the protected scores."""
        return None if self.validation is None else (self.validation.epsilon, self.validation.delta)

    @property
    def full_runs(self) -> float | None:
        """Number of whole runs for which the budget is planned; None if all trials are planned whole."""
        return None if self.rung_wise is None else self.rung_wise.full_runs

    @property
    def score_noise(self) -> float | None:
        """Standard deviation of a released count of correct answers."""
        return None if self.validation is None else self.validation.noise

    def score_error(self, experiment: Experiment) -> ScoreError | None:
        """Return the standard error of the search's scores, or None if the error of the metric is not known.

        The scores of a public search are computed on public records and have no noise.
        """
        if experiment.search.metric.name != "validation_accuracy":
            return None
        fraction = experiment.dataset.validation.fraction
        if self.public is not None and self.mode.searches_public:
            return ScoreError.of_split(self.public.train_size, fraction)
        return ScoreError.of_split(self.train_size, fraction, noise=self.score_noise or 0.0)

    @property
    def private_trials(self) -> int:
        """Number of trials on the private records, or its mean if the search hides it."""
        return self.mode.private_trials(self.trials)

    @property
    def planned_scores(self) -> int:
        """Number of scores of the planned trials on private records, or its mean if the search hides it."""
        if self.full_runs is not None:
            return scores_at_most(self.rungs, trials=self.trials, full_runs=self.full_runs)
        return self.private_trials * len(self.rungs)

    @property
    def mode(self) -> Mode:
        """The accounting mode."""
        return MODES[self.accounting]

    @cached_property
    def choices(self) -> Choices:
        """Values and domains of the parameters that affect the budget."""
        return Choices(
            train_size=self.train_size,
            batch_size=self.batch_size,
            epochs=self.epochs or self.steps_per_trial * self.batch_size / self.train_size,
            noise=None if "noise_multiplier" in self.priced else self.nominal.noise_multiplier,
            searched=self.priced,
        )

    @property
    def searched(self) -> tuple[str, ...]:
        """All searched parameters. Those that affect the budget are last."""
        return (*self.free, *self.priced)

    def shape_of(self, parameters: Mapping[str, object], *, committed: bool = False) -> TrialShape:
        """Return the steps, mechanism and rungs of a trial with these flat parameters, or of the committed run."""
        if committed and self.commit is not None:
            return self.commit.shape(self.rungs, released=self.validation is not None)
        shape = self.choices.shape(parameters, rungs=self.rungs, released=self.validation is not None)
        return replace(shape, save_every=max(shape.steps // SAVES, 1)) if self.has_one_trial else shape

    @property
    def has_one_trial(self) -> bool:
        """Whether the budget is that of one trial, which has no spare steps: an interruption shortens it."""
        one = self.trials == 1 or self.trials_that_fit == 1  # a resume may ask for more than was planned
        return one and self.full_runs is None and not self.mode.runs_hidden

    def cheapest(self) -> tuple[TrialShape, ...]:
        """Return the cheapest shapes, or none if all trials cost the same. If no cheapest shape fits, no trial fits."""
        if not self.priced:
            return ()
        ends = self.choices.ends(rungs=self.rungs, released=self.validation is not None)
        shapes = {(mechanism_of(shape), shape.steps): shape for shape in ends}
        return tuple(shapes[trial] for trial in self.training_filter.cheapest(list(shapes)))

    @property
    def dearest(self) -> Choice:
        """Batch size and noise whose longest trial has the highest estimated cost. The mode comparison uses them.

        If a committed run follows the search, it is this run.
        """
        if self.commit is not None:
            return self.commit.choice
        return self.choices.dearest[0]

    def as_dict(self) -> dict[str, object]:
        """Return the plan as plain values for ``--json`` and for the sweep's folder. `plan_from` reads them."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "nominal"}
        return values | {
            **asdict(self.nominal),
            **{name: getattr(self, name) for name in _DERIVED},
            "priced": {name: domain.to_spec() for name, domain in self.priced.items()},
            "promoted": {name: asdict(promotion) for name, promotion in self.promoted.items()},
            "training_filter": self.training_filter.body(),
            "alternatives": [asdict(each) for each in self.alternatives],
            **{name: None if (part := getattr(self, name)) is None else asdict(part) for name, _ in _PARTS},
        }


_PARTS = (
    ("commit", CommitPlan),
    ("validation", ScorePlan),
    ("selection", SealedFacts),
    ("public", PublicData),
    ("rung_wise", Bought),
)
"""Fields of a plan that are None for some searches, and the class of each field's other values."""

_DERIVED = ("cap", "step_cap")
"""Fields of the JSON that are computed from the filter. A stored plan with other values is refused."""


def plan_from(values: Mapping[str, Any], *, trials: int) -> Plan:
    """Return the plan that `Plan.as_dict` wrote, after changing its total number of trials to `trials`.

    The noise, the steps and the cap stay as stored.

    Raises:
        TunerError: a value is missing, unknown or malformed.
    """
    plain = dict(values)
    if plain.get("accounting") not in MODES:
        raise _unreadable(f"accounting is {plain.get('accounting')!r}, but must be one of {', '.join(MODES)}")
    try:
        derived = {name: plain.pop(name) for name in _DERIVED}
        for name, part in _PARTS:
            plain[name] = None if plain[name] is None else part(**plain[name])
        plan = Plan(
            nominal=SampledGaussian(plain.pop("sample_rate"), plain.pop("noise_multiplier")),
            rungs=tuple(plain.pop("rungs")),
            free=tuple(plain.pop("free")),
            priced={name: parse_domain(spec) for name, spec in plain.pop("priced").items()},
            promoted={
                name: PromotedLevels(levels=tuple(each["levels"]), from_step=tuple(each["from_step"]))
                for name, each in plain.pop("promoted").items()
            },
            training_filter=from_body(plain.pop("training_filter")),
            alternatives=tuple(Alternative(**each) for each in plain.pop("alternatives")),
            **plain,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(str(error)) from error
    for name, value in derived.items():
        if value != getattr(plan, name):
            raise _unreadable(f"{name} is {value!r}, but the stored filter has {getattr(plan, name)!r}")
    if trials == plan.trials:
        return plan  # as it was planned; to compute ε again takes longer than all else of a status
    counts = _counts(
        plan.training_filter, plan.choices, plan.mode, trials, plan.full_runs, plan.delta, commit=plan.commit
    )
    return replace(plan, **counts)


def _counts(
    filter: Filter,
    choices: Choices,
    mode: Mode,
    trials: int,
    full_runs: float | None,
    delta: float,
    *,
    commit: CommitPlan | None,
) -> dict[str, Any]:
    """Return the values of a plan that depend on its number of trials."""
    private = mode.private_trials(trials)
    least, most = filter.trials_that_fit(choices.menu, private)
    if commit is None:
        planned = filter.epsilon_of_planned(choices.menu, full_runs or private, delta)
    else:
        (trial,) = choices.menu
        planned = commit.filter(trial.mechanism, search_steps=private * trial.longest).claim(delta)
    return {
        "trials": trials,
        "trials_that_fit": trials if mode.searches_public else least,
        "trials_at_most": most if most != least else None,
        "epsilon_planned": planned,
    }


def _unreadable(why: str) -> TunerError:
    return TunerError("plan-unreadable", f"The stored plan cannot be used: {why}. Restore plan.json from a copy.")


def mechanism_of(shape: TrialShape) -> SampledGaussian:
    """Return the mechanism of a planned trial's steps. The shape of a planned trial always has a mechanism."""
    return SampledGaussian(shape.sample_rate, shape.noise_multiplier)  # type: ignore[arg-type]  # it refuses None


def make_plan(experiment: Experiment, request: DatasetRequest) -> Plan:
    """Plan the search of an experiment file.

    Raises:
        BudgetRefusedError: not even one trial fits the search's own ε.
        InputError: the shortest trial has too few steps for the levels of a promoted parameter.
    """
    train_size = public_train_size(request)
    privacy, search, space = experiment.privacy, experiment.search, experiment.space
    asked = Choices.of(experiment, train_size)
    planned = PLANNERS[privacy.accounting](experiment, asked)
    chosen, filter, choices = planned.chosen, planned.chosen.filter, planned.chosen.choices
    batch_size, steps, noise = choices.nominal
    rungs = rung_steps(search.rungs, steps)
    check_promotion(space, rungs, shortest=min(choice.shortest for choice in choices.menu))
    commit = planned.commit
    scores = experiment.mode.private_trials(search.trials) * len(rungs)
    full_runs = None if planned.rung_wise is None else planned.rung_wise.full_runs
    if full_runs is not None:
        scores = scores_at_most(rungs, trials=search.trials, full_runs=full_runs)
    if commit is not None:
        scores += commit.shape(rungs, released=True).releases
    return Plan(
        name=experiment.name,
        method=experiment.trainable.method,
        model=experiment.trainable.model,
        dataset=experiment.dataset.name,
        unit=privacy.unit,
        private=privacy.private,
        accounting=privacy.accounting,
        train_size=train_size,
        batch_size=batch_size,
        nominal=SampledGaussian(batch_size / train_size, noise),
        noise_source="calibrated" if asked.calibrates else "searched" if asked.noise is None else "given",
        steps_per_trial=steps,
        rungs=rungs,
        epochs=experiment.trainable.epochs if asked.searched else None,
        free=tuple(space.free),
        priced=dict(asked.searched),
        promoted={
            name: PromotedLevels(levels=tuple(levels), from_step=tuple(level_steps(len(levels), rungs)))
            for name, levels in space.promoted.items()
        },
        rung_wise=planned.rung_wise,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        epsilon_trial=0.0
        if experiment.mode.on_release
        else max(epsilon(choice.mechanism, choice.longest, privacy.delta) for choice in choices.dearest),
        epsilon_at_cap=filter.claim(privacy.delta),
        training_filter=filter,
        cap_reason=chosen.reason,
        alternatives=chosen.alternatives,
        commit=commit,
        validation=plan_scores(experiment, request, planned=scores, spare=experiment.resources.concurrent_trials),
        selection=planned.selection,
        public=planned.public,
        **_counts(filter, choices, experiment.mode, search.trials, full_runs, privacy.delta, commit=commit),
    )
