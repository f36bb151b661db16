"""The plan of a search: trials, steps, noise and ε. Planning reads no private record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from search_spaces import Domain, parse_domain
from trainables.data import public_train_size
from tuner.errors import TunerError
from tuner.plan.caps import Alternative
from tuner.plan.modes import PLANNERS, PublicData, ScorePlan, SealedFacts, plan_scores
from tuner.plan.shapes import Choice, Choices, rung_steps, steps_per_trial
from tuner.privacy.accountant.filters import Filter, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.privacy.modes import MODES, Mode
from tuner.study.promotion import check_promotion, level_steps
from tuner.study.types import TrialShape

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment

__all__ = ["Plan", "PromotedLevels", "make_plan", "mechanism_of", "plan_from", "rung_steps", "steps_per_trial"]


@dataclass(frozen=True, kw_only=True)
class PromotedLevels:
    """A parameter that rises within every trial.

    Attributes:
        levels: its values.
        from_step: step at which each value begins, in a trial of the nominal length.
    """

    levels: tuple[int, ...]
    from_step: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trials of a search, and the most that they cost.

    Attributes:
        name: the experiment's name.
        method: training method of every trial.
        model: model of every trial.
        dataset: name of the private data set.
        unit: what is protected: a ``record``, or a ``user`` with all records.
        private: False when the run has no guarantee (``privacy.private: false``).
        accounting: ``composition``, ``selection`` or ``public``.
        train_size: PUBLIC number of training records (users) after the validation split.
        batch_size: expected batch size of the longest trial.
        nominal: mechanism of the longest trial's steps; its noise is the smallest one if noise is searched.
        noise_source: ``calibrated`` (``auto`` in the file), ``given`` or ``searched``.
        steps_per_trial: steps of the longest trial.
        rungs: steps at which the longest trial reports; a shorter trial reports at the same fractions.
        epochs: passes of a trial over its records; None if no priced parameter is searched.
        free: searched parameters that do not affect the budget.
        priced: domains of the searched parameters that affect the budget.
        promoted: the parameters that rise within every trial.
        trials: number of trials; the mean number in a sealed search.
        trials_that_fit: number of trials that fit the budget if none is pruned and all are the most expensive.
        trials_at_most: number that fits if all are the cheapest; None if all trials cost the same.
        epsilon: the cap that the file asks for, which is the claim of the whole search.
        delta: δ of every ε here.
        epsilon_trial: ε of the most expensive trial, not pruned.
        epsilon_planned: ε of all planned trials.
        epsilon_at_cap: ε of everything that the cap allows, at most `epsilon`.
        training_filter: the filter of the training steps.
        cap_reason: why this filter was chosen.
        alternatives: the filters that were considered.
        validation: the protected scores; None if scores are outside the guarantee.
        selection: compute and price of a sealed search; None in other modes.
        public: the public records of ``accounting: public``; None in other modes.
    """

    name: str
    method: str
    model: str
    dataset: str
    unit: str
    private: bool
    accounting: str
    train_size: int
    batch_size: int
    nominal: SampledGaussian
    noise_source: str
    steps_per_trial: int
    rungs: tuple[int, ...]
    epochs: float | None
    free: tuple[str, ...]
    priced: Mapping[str, Domain]
    promoted: Mapping[str, PromotedLevels]
    trials: int
    trials_that_fit: int
    trials_at_most: int | None
    epsilon: float
    delta: float
    epsilon_trial: float
    epsilon_planned: float
    epsilon_at_cap: float
    training_filter: Filter
    cap_reason: str
    alternatives: tuple[Alternative, ...]
    validation: ScorePlan | None
    selection: SealedFacts | None
    public: PublicData | None

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the search.

        Raises:
            TunerError: trials choose among several mechanisms.
        """
        if set(self.priced) - {"epochs"}:
            chosen = ", ".join(self.priced)
            raise TunerError("plan-has-no-mechanism", f"Trials choose {chosen}, so they have several mechanisms.")
        return self.nominal

    @property
    def cap(self) -> str:
        """Kind of the filter: ``total_steps``, ``coupon_book``, ``fixed_order`` or ``sealed``."""
        return self.training_filter.kind

    @property
    def step_cap(self) -> int | None:
        """The most steps of all trials together; None if the filter does not count steps."""
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
    def score_noise(self) -> float | None:
        """Standard deviation of a released count of correct answers."""
        return None if self.validation is None else self.validation.noise

    @property
    def private_trials(self) -> int:
        """Trials on the private records; their mean if the number of runs is hidden."""
        return self.mode.private_trials(self.trials)

    @property
    def mode(self) -> Mode:
        """The accounting mode."""
        return MODES[self.accounting]

    @cached_property
    def choices(self) -> Choices:
        """The choices of trials that affect the budget."""
        return Choices(
            train_size=self.train_size,
            batch_size=self.batch_size,
            epochs=self.epochs or self.steps_per_trial * self.batch_size / self.train_size,
            noise=None if "noise_multiplier" in self.priced else self.nominal.noise_multiplier,
            searched=self.priced,
        )

    @property
    def searched(self) -> tuple[str, ...]:
        """All searched parameters, the priced ones last."""
        return (*self.free, *self.priced)

    def shape_of(self, parameters: Mapping[str, object]) -> TrialShape:
        """Return the steps, mechanism and rungs of a trial with these parameters.

        Raises:
            KeyError: a searched and priced parameter is missing.
        """
        if self.priced:
            return self.choices.shape(parameters, rungs=self.rungs, released=self.validation is not None)
        return TrialShape(
            batch_size=self.batch_size,
            sample_rate=self.nominal.sample_rate,
            noise_multiplier=self.nominal.noise_multiplier,
            steps=self.steps_per_trial,
            rungs=self.rungs,
            releases=0 if self.validation is None else len(self.rungs),
        )

    def cheapest(self) -> tuple[TrialShape, ...]:
        """Return the cheapest shapes: if any trial fits, one of these does. Empty if all trials are alike."""
        if not self.priced:
            return ()
        ends = self.choices.ends(rungs=self.rungs, released=self.validation is not None)
        shapes = {(mechanism_of(shape), shape.steps): shape for shape in ends}
        return tuple(shapes[trial] for trial in self.training_filter.cheapest(list(shapes)))

    @property
    def dearest(self) -> Choice:
        """The choice with the most expensive trial, or nearly; the comparison of modes uses it."""
        return self.choices.dearest[0]

    def with_trials(self, trials: int) -> Plan:
        """Return this plan for another number of trials. Noise, steps and cap do not change."""
        private = self.mode.private_trials(trials)
        least, most = self.training_filter.trials_that_fit(self.choices.menu, private)
        return replace(
            self,
            trials=trials,
            trials_that_fit=trials if self.mode.searches_public else least,
            trials_at_most=most if most != least else None,
            epsilon_planned=self.training_filter.epsilon_of_planned(self.choices.menu, private, self.delta),
        )

    def as_dict(self) -> dict[str, object]:
        """Return plain values for ``--json`` and the sweep's folder; `plan_from` reads them."""
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


_PARTS = (("validation", ScorePlan), ("selection", SealedFacts), ("public", PublicData))
"""Parts of a plan that some searches have."""

_DERIVED = ("cap", "step_cap")
"""Values of the JSON that follow from the filter; a stored plan must agree with them."""


def plan_from(values: Mapping[str, Any], *, trials: int) -> Plan:
    """Return the plan that `Plan.as_dict` wrote, for a sweep that now has `trials` trials in all.

    Raises:
        TunerError: a value is missing, unknown or malformed.
    """
    plain = dict(values)
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
            raise _unreadable(f"{name} is {value!r}, and its filter has {getattr(plan, name)!r}")
    return plan.with_trials(trials)


def _unreadable(why: str) -> TunerError:
    return TunerError("plan-unreadable", f"The stored plan cannot be used: {why}. Restore plan.json from a copy.")


def mechanism_of(shape: TrialShape) -> SampledGaussian:
    """Return the mechanism of the steps of a planned trial, whose shape always names it."""
    return SampledGaussian(shape.sample_rate, shape.noise_multiplier)  # type: ignore[arg-type]  # it refuses None


def make_plan(experiment: Experiment, request: DatasetRequest) -> Plan:
    """Plan the search of an experiment file.

    With ``noise_multiplier: auto`` the noise is the smallest with which all planned trials fit, and the cap admits just
    these. With a number, or with searched noise, the cap is the largest that fits ε.

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
    mode = experiment.mode
    trials = mode.private_trials(search.trials)
    claim = filter.claim(privacy.delta)
    least, most = filter.trials_that_fit(choices.menu, trials)
    spare = experiment.resources.concurrent_trials
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
        trials=search.trials,
        trials_that_fit=search.trials if mode.searches_public else least,
        trials_at_most=most if most != least else None,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        epsilon_trial=max(epsilon(choice.mechanism, choice.longest, privacy.delta) for choice in choices.dearest),
        epsilon_planned=filter.epsilon_of_planned(choices.menu, trials, privacy.delta),
        epsilon_at_cap=claim,
        training_filter=filter,
        cap_reason=chosen.reason,
        alternatives=chosen.alternatives,
        validation=plan_scores(experiment, request, planned=trials * len(rungs), spare=spare),
        selection=planned.selection,
        public=planned.public,
    )
