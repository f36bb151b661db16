"""The command `audit`: the private training of an experiment file, on made-up public records, without a charge."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import prod, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from search_spaces import MINIMA
from trainables.data import DatasetRequest
from tuner.errors import InputError
from tuner.privacy.accountant.filters import OneRelease, VotedLabels
from tuner.study.promotion import each_level
from tuner.sweep.identity import admit_open_use
from tuner.sweep.preflight import ReadySearch, build_model, check_model, prepare, running_own_model
from tuner.sweep.releases import voting_of
from tuner.sweep.start_weights import start_file
from tuner.sweep.trial_spec import training_spec

if TYPE_CHECKING:
    from trainables.audit.canaries import Canaries

__all__ = ["audit_command", "audit_text"]

_SAMPLE_RATE: Final = 0.5
_NOISE: Final = 6.0
_LEARNING_RATE: Final = 1e-3
_FEWEST: Final = 32
_MINIMUM_NOISE: Final = 1.0
_RANDOM_RECORDS: Final = 40
_RELEASED_ROWS: Final = 200_000
_MINIMUM_RUNS: Final = 1_000


def audit_command(
    file: str, overrides: Sequence[str], *, data_dir: str | None, canaries: int, steps: int, public: str | None = None
) -> dict[str, Any]:
    """Audit the method, model and clipping of an experiment file.

    Formal guarantee: no training or validation record of the experiment is read, and nothing is charged. As `tune plan`
    does, it reads the shape and the number of classes from the file of test records. With `public`, a file of records
    that everyone may see, these take the place of the made-up records, if the ledger admits them.

    Returns:
        The values of `tune audit --json`. "ok" is False if the bound exceeds the claim, a record moved a clipped sum
        further than the clipping norm, or the weights do not follow from the noised gradients.

    Raises:
        InputError: the file has problems, its search is not private, or its inputs are too small for an audit.
        BudgetRefusedError: the ledger does not admit the public file.
        trainables.errors.DatasetError: the public file breaks a rule.
    """
    from trainables.audit.canaries import canary_request, one_hot_canaries
    from trainables.audit.one_run import audit_run
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    prepared = prepare(file, overrides, data_dir=data_dir, need_data=False)
    plan, about = prepared.plan, prepared.about
    if not plan.private:
        raise InputError(
            "audit-not-private",
            f"{prepared.places.of('privacy.private')}: must be true for an audit (got false), because without a claim "
            "there is nothing to audit. Remove the key.",
        )
    check_model(prepared)
    if isinstance(plan.training_filter, OneRelease):
        return _audit_release(prepared, plan.training_filter)
    if isinstance(plan.training_filter, VotedLabels):
        return _audit_votes(prepared, plan.training_filter)
    if plan.method in MINIMA:
        return _audit_minimum(prepared)
    if public is not None:
        records = _public_records(prepared, public, most=canaries)
    else:
        records = one_hot_canaries(input_shape=about.input_shape, classes=about.classes, most=canaries, task=about.task)
    if len(records) < _FEWEST and public is not None:
        raise InputError(
            "audit-too-few-canaries",
            f"An audit needs at least {_FEWEST} records, but {public} has {len(records)} training records. Name a "
            "larger file, or leave `--public-data` out.",
        )
    if len(records) < _FEWEST:
        raise InputError(
            "audit-too-few-canaries",
            f"An audit needs at least {_FEWEST} canaries, but inputs of shape {about.input_shape} with "
            f"{about.classes} classes allow only {len(records)}. Audit the model on larger inputs.",
        )
    claim = epsilon(SampledGaussian(_SAMPLE_RATE, _NOISE), steps, plan.delta)
    ((_, parameters), *_) = each_level(prepared.experiment.space.sample(_Middle()), rungs=plan.rungs)
    spec = training_spec(prepared.experiment, prepared.request, plan, parameters=parameters, number=0)
    with tempfile.TemporaryDirectory() as folder, running_own_model(prepared):
        request = canary_request(
            Path(folder),
            input_shape=about.input_shape,
            classes=about.classes,
            public_size=len(records) // 2,
            task=about.task,
        )
        spec = replace(
            spec,
            dataset=request,
            batch_size=max(1, round(_SAMPLE_RATE * len(records) / 2)),
            sample_rate=_SAMPLE_RATE,
            noise_multiplier=_NOISE,
            steps=steps,
            score_noise=None,
            # Near its initialisation, the gradients of the canaries stay large. No claim depends on the rate.
            parameters={**spec.parameters, "learning_rate": _LEARNING_RATE},
            device="cpu",
        )
        found = audit_run(spec, records, delta=plan.delta, claim=claim)
        moved = _sensitivity(prepared, parameters)
    return _findings(
        prepared,
        parameters=parameters,
        records="made-up" if public is None else public,
        mechanism={"sample_rate": _SAMPLE_RATE, "noise_multiplier": _NOISE, "steps": steps},
        claim=claim,
        canaries=asdict(found),
        sensitivity=moved,
    )


def _findings(
    prepared: ReadySearch,
    *,
    mechanism: Mapping[str, object],
    claim: float,
    canaries: Mapping[str, Any],
    sensitivity: Mapping[str, Any],
    parameters: Mapping[str, object] = MappingProxyType({}),
    records: str = "made-up",
) -> dict[str, Any]:
    """Return the values of an audit. It is fine if neither the canaries nor the sensitivity exceed what is claimed."""
    plan = prepared.plan
    explained = canaries["epsilon_at_least"] <= claim and not canaries["unexplained"]
    return {
        "experiment": plan.name,
        "method": plan.method,
        "model": plan.model,
        "parameters": dict(parameters),
        "records": records,
        "mechanism": dict(mechanism),
        "claim": {"epsilon": claim, "delta": plan.delta, "unit": "record"},
        "canaries": dict(canaries),
        "sensitivity": {"unit": "record", **sensitivity},
        "ok": bool(explained and sensitivity["largest_ratio"] <= 1),
    }


def _audit_release(prepared: ReadySearch, limit: OneRelease) -> dict[str, Any]:
    """Audit the draw of a release on made-up records. The model does not matter, because it reads the release alone."""
    from trainables.audit.released import audit_release, probe_clip
    from trainables.release.draw import Randomiser

    plan, about, each = prepared.plan, prepared.about, limit.randomiser
    randomiser = Randomiser(clip=each.clip, noise=each.noise, label_epsilon=each.label_epsilon, classes=each.classes)
    claim = limit.claim(plan.delta)
    found = audit_release(randomiser, size=prod(about.input_shape), rows=_RELEASED_ROWS, delta=plan.delta)
    moved = probe_clip(randomiser, input_shape=about.input_shape)
    return _findings(prepared, mechanism=limit.body(), claim=claim, canaries=asdict(found), sensitivity=asdict(moved))


def _audit_votes(prepared: ReadySearch, limit: VotedLabels) -> dict[str, Any]:
    """Audit the draw of voted labels on made-up votes. The model does not matter, because it reads the labels alone."""
    from trainables.audit.voted import audit_votes

    plan, about, each = prepared.plan, prepared.about, limit.noise
    claim = limit.claim(plan.delta)
    found, most = audit_votes(
        voting_of(limit),
        teachers=about.teachers or 2,
        classes=about.classes,
        queries=each.queries,
        delta=plan.delta,
    )
    return _findings(prepared, mechanism=limit.body(), claim=claim, canaries=asdict(found), sensitivity=asdict(most))


def _audit_minimum(prepared: ReadySearch) -> dict[str, Any]:
    """Audit the one step of a perturbed minimum on made-up records, and its gradients on hostile ones.

    The step claims to be a Gaussian mechanism, so what the runs show of μ is turned into an ε.
    """
    from trainables.audit.bound import CONFIDENCE
    from trainables.audit.minimum import audit_minimum, probe_gradient
    from trainables.methods import METHODS
    from trainables.methods.output_perturbation import OutputPerturbation
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    plan, about = prepared.plan, prepared.about
    parameters = prepared.experiment.space.sample(_Middle())
    values: dict[str, Any] = {name: value for name, value in parameters.items() if name not in plan.priced}
    settings = METHODS[plan.method](batch_size=1, steps=1, noise_multiplier=_MINIMUM_NOISE, **values)
    if not isinstance(settings, OutputPerturbation):
        raise TypeError("a method of MINIMA")
    found = audit_minimum(settings, noise_multiplier=_MINIMUM_NOISE, runs=_MINIMUM_RUNS)
    moved = probe_gradient(settings, input_shape=about.input_shape, classes=about.classes)
    claim = epsilon(SampledGaussian(1.0, _MINIMUM_NOISE), 1, plan.delta)
    shown = epsilon(SampledGaussian(1.0, 1 / found.mu_at_least), 1, plan.delta) if found.mu_at_least else 0.0
    canaries = {
        "canaries": found.runs,
        "guesses": found.runs,
        "right": found.right,
        "delta": plan.delta,
        "confidence": CONFIDENCE,
        "epsilon_at_least": shown,
        "unexplained": None,
    }
    return _findings(
        prepared,
        parameters=parameters,
        mechanism={"sample_rate": 1.0, "noise_multiplier": _MINIMUM_NOISE, "steps": 1},
        claim=claim,
        canaries=canaries,
        sensitivity=asdict(moved),
    )


def _public_records(prepared: ReadySearch, file: str, *, most: int) -> Canaries:
    """Return the first training records of a public file, after the ledger has admitted them."""
    from trainables.audit.canaries import Canaries
    from trainables.data import as_it_is, check_present, info, load_records

    path = str(Path(file).absolute())
    request = DatasetRequest(
        name="audit-public", path=path, public_size=1, validation_fraction=0.0, task=prepared.about.task
    )
    check_present(request)
    request = as_it_is(request)
    known, about = info(request), prepared.about
    if (known.input_shape, known.classes) != (about.input_shape, about.classes):
        raise InputError(
            "public-data-shape",
            f"{file}: the records must be like those of the experiment, of shape {about.input_shape} and with "
            f"{about.classes} classes (got {known.input_shape} and {known.classes}). Name another file.",
        )
    admitted = admit_open_use(prepared.experiment.ledger, request, beside=prepared.request)
    if admitted.refusal is not None:
        raise admitted.refusal
    splits = load_records(request)
    return Canaries(inputs=splits.x_train[:most], targets=splits.y_train[:most])


def _sensitivity(prepared: ReadySearch, parameters: dict[str, object]) -> dict[str, Any]:
    """Insert hostile records next to public ones, and return how far the clipped sum moved at most."""
    import torch

    from trainables.audit.sensitivity import SensitivityProbe
    from trainables.engine.layout import Layout
    from trainables.gradients import gradient_source
    from trainables.methods import from_parameters

    experiment, about = prepared.experiment, prepared.about
    trainable, users = experiment.trainable, prepared.request.unit == "user"
    activation = str(parameters.get("activation", trainable.activation))
    start = start_file(experiment)
    module = build_model(
        experiment,
        input_shape=about.input_shape,
        classes=about.outputs,
        activation=activation,
        weights=None if start is None else start.weights,
    )
    source = gradient_source(
        module, Layout.of(module), about.input_shape, precision=trainable.precision, task=about.task
    )
    free = {name: value for name, value in parameters.items() if name not in prepared.plan.priced}
    free.pop("activation", None)
    settings = from_parameters(
        trainable.method, free, batch_size=5, steps=1, noise_multiplier=1.0, optimizer=trainable.optimizer
    )
    found = list(
        SensitivityProbe(module, source, settings).probe(
            about.input_shape,
            about.classes,
            records=_RANDOM_RECORDS,
            records_per_user=min(prepared.request.records_per_user, 4) if users else 0,
            generator=torch.Generator().manual_seed(0),
        )
    )
    worst = max(found, key=lambda each: each.length / each.bound if each.length == each.length else float("inf"))
    ratio = worst.length / worst.bound if worst.length == worst.length else float("inf")
    return {"samples": len(found), "unit": prepared.request.unit, "largest_ratio": ratio, "record": worst.record}


def _more(values: dict[str, Any]) -> str:
    """Return what may raise a bound of 0."""
    if values["records"] != "made-up":
        return "Leave `--public-data` out: made-up records are easier to recognise."
    return "A linear model on larger inputs, or more `--canaries` and `--steps`, can give a higher bound."


class _Middle:
    """Suggester of the middle of every domain, so that an audit needs no random configuration."""

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        return sqrt(low * high) if log else (low + high) / 2

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        return round(sqrt(low * high)) if log else (low + high) // 2

    def choice(self, name: str, options: tuple[str | int | float | bool, ...]) -> str | int | float | bool:
        return options[0]


def _told(unexplained: float | None) -> str:
    if unexplained is None:
        return "not recomputed, because the update or its learning rate (schedule gen) contains noise of its own"
    if unexplained:
        return f"a weight differs by {unexplained:.2g} from what follows from the noised gradients alone"
    return "the weights follow from the noised gradients and public numbers alone"


def audit_text(values: dict[str, Any]) -> str:
    """Return the answer of `tune audit` as text."""
    found, claim, moved, how = (values[name] for name in ("canaries", "claim", "sensitivity", "mechanism"))
    bound = found["epsilon_at_least"]
    on = "made-up records" if values["records"] == "made-up" else f"the public records of {values['records']}"
    more = f"one more {moved['unit']}"
    if "steps" in how:
        run = f" ({how['steps']} steps, sample rate {how['sample_rate']:g}, noise {how['noise_multiplier']:g})"
        moves = f"{more} moves the clipped sum by"
    elif "answers" in how:
        answers = f"at most {how['answers']} answers, noise {how['answer_noise']:g}"
        run = f" ({how['queries']} tests, noise {how['threshold_noise']:g}; {answers})"
        moves = "the number of labels in a draw is"
    else:
        run, moves = (
            f" (one row: clip {how['clip']:g}, noise {how['noise']:g})",
            f"{more} has, after the clip, a norm of",
        )
    lines = [
        f"audit of {values['method']} with {values['model']}, on {on}; nothing was charged",
        f"  claim of the audited run    ε = {claim['epsilon']:.3g} at δ = {claim['delta']:g}{run}",
        f"  lower bound of its true ε   {bound:.3g} ({found['right']} of {found['guesses']} guesses right, confidence "
        f"{found['confidence']:.0%})",
        f"  sensitivity                 {moves} at most "
        f"{moved['largest_ratio']:.3f} of the limit that the noise covers ({moved['samples']} samples tried)",
        *([f"  update                      {_told(found['unexplained'])}"] if "steps" in how else []),
    ]
    if values["ok"]:
        lines.append("  no fault was found. This is no proof: the bound may be low because the audit is weak.")
        if bound == 0:
            lines.append(
                f"  The bound is 0 because {found['right']} right guesses of {found['guesses']} can be luck: blind "
                f"guesses are right in half of all cases. {_more(values)}"
            )
    else:
        lines.append(
            "  A FAULT WAS FOUND: the guarantee does not hold for this training. Do not train this way on private data."
        )
    return "\n".join(lines)
