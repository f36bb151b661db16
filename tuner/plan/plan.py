"""Pure: from an experiment to its trials, steps, noise and ε. Nothing is read from private records and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from search_spaces import parse_domain
from trainables.data import public_train_size
from tuner.errors import TunerError
from tuner.plan.caps import compose, epsilon_of_planned, trials_within
from tuner.plan.modes import plan_public, plan_scores, plan_sealed, proxy, sealed_facts
from tuner.plan.shapes import Choice, Choices, rung_steps, steps_per_trial
from tuner.privacy.accountant.filters import Allowance, CouponBook, FixedOrder, TotalSteps, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import epsilon
from tuner.study.promotion import check_promotion, level_steps

if TYPE_CHECKING:
    from trainables.data import DatasetRequest
    from tuner.experiment import Experiment
    from tuner.study.types import TrialShape

__all__ = ["Plan", "make_plan", "plan_from", "rung_steps", "steps_per_trial"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a search will do and what it may cost at most.

    Attributes:
        name: the experiment's name.
        method: training method of every trial.
        model: model of every trial.
        dataset: name of the private data set.
        train_size: PUBLIC number of training records (users) after the validation split; the n of `sample_rate`.
        batch_size: expected batch size under Poisson sampling; of the longest trial where it is searched.
        sample_rate: `batch_size` / `train_size`.
        noise_multiplier: noise standard deviation / clipping norm; the least where it is searched.
        noise_source: ``calibrated`` (``auto`` in the file), ``given`` or ``searched``.
        trials: trials asked for; the mean of their number in a sealed search.
        trials_that_fit: how many of them fit the budget when none is pruned, whatever they choose.
        steps_per_trial: steps of a trial that is not pruned; of the longest where they differ.
        rungs: the steps at which such a trial reports; a shorter one at the same fractions of its own.
        step_cap: total steps that the search may ever take; the ledger enforces it. None where steps of different
            price are counted, or where nothing is counted because the search is sealed.
        epsilon: the cap that the file asks for: what is claimed for the whole search.
        delta: δ of every ε here.
        epsilon_trial: ε of one trial that is not pruned, by itself; of the dearest where they differ.
        epsilon_planned: ε of all planned trials.
        epsilon_at_cap: ε of all that the cap allows, at most `epsilon`.
        private: False when the run carries no guarantee (``privacy.private: false``).
        free: searched parameters that cost the accountant nothing.
        unit: what is protected: a ``record``, or a ``user`` with all records.
        accounting: ``composition``, ``selection`` or ``public``.
        cap: ``total_steps``, ``coupon_book``, ``fixed_order`` or ``sealed``.
        cap_reason: why this cap.
        alternatives: the caps that were looked at: cap, noise_multiplier, trials (that fit), epsilon (of the planned).
        allowance: the cap as the ledger keeps it.
        trials_at_most: how many of the trials fit when all choose what is cheapest; None where all cost the same.
        epochs: passes of a trial; None where nothing priced is searched.
        priced: the domains of what is searched and priced, as they stand in the file.
        validation: of protected scores: epsilon, delta, noise (of a count), releases, size (public number of
            validation records), standard_error (of a score), allowance; None where they are outside the guarantee.
        selection: of a sealed search: law, mean, shape, at_most, quantiles (in runs), truncation_share (of δ), ratio,
            price (ε over that of one run), price_without_ratio; None otherwise.
        public: of a search on public data: name, train_size, sample_rate; None otherwise.
        promoted: name → levels and from_step (of a trial of `steps_per_trial`) of what rises within every trial.
    """

    name: str
    method: str
    model: str
    dataset: str
    train_size: int
    batch_size: int
    sample_rate: float
    noise_multiplier: float
    noise_source: str
    trials: int
    trials_that_fit: int
    steps_per_trial: int
    rungs: tuple[int, ...]
    step_cap: int | None
    epsilon: float
    delta: float
    epsilon_trial: float
    epsilon_planned: float
    epsilon_at_cap: float
    private: bool
    free: tuple[str, ...]
    unit: str
    accounting: str
    cap: str
    cap_reason: str
    alternatives: tuple[Mapping[str, Any], ...] = ()
    allowance: Mapping[str, Any]
    trials_at_most: int | None
    epochs: float | None
    priced: Mapping[str, Any]
    validation: Mapping[str, Any] | None
    selection: Mapping[str, Any] | None = None
    public: Mapping[str, Any] | None
    promoted: Mapping[str, Any]

    @property
    def mechanism(self) -> SampledGaussian:
        """The mechanism of every step of the search.

        Raises:
            TunerError: trials choose among several.
        """
        if set(self.priced) - {"epochs"}:
            raise TunerError(f"one mechanism for all trials is asked for, got trials that choose {set(self.priced)}.")
        return SampledGaussian(self.sample_rate, self.noise_multiplier)

    @cached_property
    def training_allowance(self) -> Allowance:
        """The cap of what trains."""
        return from_body(self.allowance)

    @property
    def validation_allowance(self) -> Allowance | None:
        """The cap of the protected scores."""
        return None if self.validation is None else from_body(self.validation["allowance"])

    @property
    def validation_claim(self) -> tuple[float, float] | None:
        """(ε, δ) of the protected scores."""
        return None if self.validation is None else (self.validation["epsilon"], self.validation["delta"])

    @property
    def score_noise(self) -> float | None:
        """Standard deviation of a released count of right answers."""
        return None if self.validation is None else float(self.validation["noise"])

    @property
    def private_trials(self) -> int:
        """Trials on the private records: their mean number in a sealed search, one after a search on public data."""
        return 1 if self.accounting == "public" else self.trials

    @cached_property
    def choices(self) -> Choices:
        """What trials choose that is priced."""
        return Choices(
            train_size=self.train_size,
            batch_size=self.batch_size,
            epochs=self.epochs or self.steps_per_trial * self.batch_size / self.train_size,
            noise=None if "noise_multiplier" in self.priced else self.noise_multiplier,
            searched={name: parse_domain(spec) for name, spec in self.priced.items()},
        )

    @property
    def searched(self) -> tuple[str, ...]:
        """All that is searched, what is priced last."""
        return (*self.free, *self.priced)

    def shape_of(self, parameters: Mapping[str, object]) -> TrialShape:
        """What a trial with these parameters takes, and where it reports.

        Raises:
            KeyError: a searched and priced one is missing.
        """
        if self.priced:
            return self.choices.shape(parameters, rungs=self.rungs, released=self.validation is not None)
        from tuner.study.types import TrialShape

        return TrialShape(
            batch_size=self.batch_size,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps_per_trial,
            rungs=self.rungs,
            releases=0 if self.validation is None else len(self.rungs),
        )

    def cheapest(self) -> tuple[TrialShape, ...]:
        """Shapes of which one fits the budget whenever any does; none where all trials have one shape."""
        if not self.priced:
            return ()
        ends = self.choices.ends(rungs=self.rungs, released=self.validation is not None)
        match self.training_allowance:
            case FixedOrder() as filtering:
                price = {shape: shape.steps * filtering.price(_mechanism(shape)) for shape in ends}
                return (min(ends, key=lambda shape: price[shape]),)
            case CouponBook():
                return tuple({_mechanism(s): s for s in sorted(ends, key=lambda s: -s.steps)}.values())
            case _:
                return (min(ends, key=lambda shape: shape.steps),)

    @property
    def dearest(self) -> Choice:
        """The choice whose longest trial is the dearest, or nearly: what the modes are compared for."""
        return self.choices.dearest[0]

    def as_dict(self) -> dict[str, object]:
        """Plain values, for ``--json`` and for the sweep's folder."""
        return asdict(self)


def _mechanism(shape: TrialShape) -> SampledGaussian:
    return SampledGaussian(shape.sample_rate, shape.noise_multiplier)  # type: ignore[arg-type]  # it refuses None


def make_plan(experiment: Experiment, request: DatasetRequest) -> Plan:
    """Plan the search that an experiment file asks for.

    With ``noise_multiplier: auto`` the noise is the smallest with which all planned trials fit, and they are the cap.
    With a number, or with noise that is searched, the cap is the largest that fits ε, whatever was planned.

    Raises:
        BudgetRefusedError: not even one trial fits the search's own ε.
        InputError: the shortest trial has too few steps for the levels of what is promoted.
    """
    train_size = public_train_size(request)
    privacy, search = experiment.privacy, experiment.search
    asked = Choices.of(experiment, train_size)
    extra: dict[str, Any] = {}
    allowance: Allowance
    match privacy.accounting:
        case "selection":
            allowance, choices = plan_sealed(experiment, asked)
            extra["cap_reason"] = "charged as a whole when it begins, since how many runs it makes is hidden"
        case "public":
            allowance, choices = plan_public(experiment, asked)
            extra["cap_reason"] = "one private run, after a search on public records that costs nothing"
        case _:
            cap = compose(
                asked,
                trials=search.trials,
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                cap=privacy.cap,
                order=privacy.order,
            )
            allowance, choices = cap.allowance, cap.choices
            extra |= {"cap_reason": cap.reason, "alternatives": cap.alternatives if len(cap.alternatives) > 1 else ()}
    batch_size, steps, noise = choices.nominal
    rungs = rung_steps(search.rungs, steps)
    space = experiment.space
    check_promotion(space, rungs, shortest=min(choice.shortest for choice in choices.menu))
    trials = 1 if privacy.accounting == "public" else search.trials
    claim = allowance.claim(privacy.delta)
    if allowance.kind == "sealed":
        extra["selection"] = sealed_facts(allowance, claim=claim, delta=privacy.delta)  # type: ignore[arg-type]
    least, most = trials_within(allowance, choices, trials)
    spare = experiment.resources.concurrent_trials
    return Plan(
        name=experiment.name,
        method=experiment.trainable.method,
        model=experiment.trainable.model,
        dataset=experiment.dataset.name,
        train_size=train_size,
        batch_size=batch_size,
        sample_rate=batch_size / train_size,
        noise_multiplier=noise or 0.0,
        noise_source="calibrated" if asked.calibrates else "searched" if asked.noise is None else "given",
        trials=search.trials,
        trials_that_fit=search.trials if privacy.accounting == "public" else least,
        trials_at_most=most if most != least else None,
        steps_per_trial=steps,
        rungs=rungs,
        step_cap=allowance.step_cap if isinstance(allowance, TotalSteps) else _coupons(allowance),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        epsilon_trial=max(epsilon(choice.mechanism, choice.longest, privacy.delta) for choice in choices.dearest),
        epsilon_planned=epsilon_of_planned(allowance, choices, trials, privacy.delta),
        epsilon_at_cap=claim,
        private=privacy.private,
        free=tuple(space.free),
        unit=privacy.unit,
        accounting=privacy.accounting,
        cap=allowance.kind,
        allowance=allowance.body(),
        epochs=experiment.trainable.epochs if asked.searched else None,
        priced={name: domain.to_spec() for name, domain in asked.searched.items()},
        validation=plan_scores(experiment, request, planned=trials * len(rungs), spare=spare),
        public=proxy(experiment) if privacy.accounting == "public" else None,
        promoted={
            name: {"levels": list(levels), "from_step": list(level_steps(len(levels), rungs))}
            for name, levels in space.promoted.items()
        },
        **extra,
    )


def _coupons(allowance: Allowance) -> int | None:
    return sum(steps for _, steps in allowance.quotas) if isinstance(allowance, CouponBook) else None


def plan_from(values: Mapping[str, object], *, trials: int) -> Plan:
    """A stored plan again, for a sweep that goes on to `trials` trials: noise, steps and cap stay as they were.

    Args:
        values: what `Plan.as_dict` gave, after JSON.
        trials: how many trials the sweep now has in all.

    Raises:
        TunerError: the stored values are not those of a plan.
    """
    known = {each.name for each in fields(Plan)}
    if set(values) != known:
        raise TunerError(f"a stored plan must have the values of a plan, got {sorted(set(values) ^ known)} apart.")
    stored: dict[str, Any] = dict(values)
    plan = Plan(**{**stored, **{name: tuple(stored[name]) for name in ("rungs", "free", "alternatives")}})
    private = 1 if plan.accounting == "public" else trials
    least, most = trials_within(plan.training_allowance, plan.choices, private)
    return replace(
        plan,
        trials=trials,
        trials_that_fit=trials if plan.accounting == "public" else least,
        trials_at_most=most if most != least else None,
        epsilon_planned=epsilon_of_planned(plan.training_allowance, plan.choices, private, plan.delta),
    )
