"""What leaves a sweep: the best trial's model, its configuration as a file that trains again, and its privacy card."""

from __future__ import annotations

import importlib.metadata as metadata
import math
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuner
from trainables.rungs import checkpoint_path
from tuner.errors import InputError, TunerError
from tuner.experiment import load_experiment
from tuner.plan.plan import Plan, plan_from
from tuner.study.promotion import rungs_of_levels
from tuner.sweep import folder as sweeps
from tuner.sweep.ready import training_spec
from tuner.sweep.registration import hold_to_ledger, refuse_if_charged, split_of
from tuner.sweep.sealed import WINNER, read_winner, require_trained
from tuner.sweep.winner import By, winner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainables.data import DatasetInfo, DatasetRequest
    from trainables.training import PrivateTraining
    from tuner.experiment import Experiment
    from tuner.privacy.card.card import CardFacts
    from tuner.privacy.ledger.state import SearchState
    from tuner.sweep.folder import SweepFolder

__all__ = ["export_sweep", "export_text", "standalone_yaml"]

_LIBRARIES = ("torch", "numpy", "opacus", "dp-accounting", "optuna", "ray", "cryptography", "scikit-learn")
_GENERATOR = "AES-256-CTR with fast key erasure, keyed by the operating system, Box-Muller in double precision"
_MODEL, _EXPERIMENT = "model.safetensors", "experiment.yaml"
_CLAIM = ("epsilon", "delta")
_CARD, _CARD_PAGE = "privacy_card.json", "privacy_card.md"


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The trial that leaves.

    Attributes:
        id: of the trial in the ledger; of a sealed search a word.
        number: of the trial; None of a sealed search, where it would tell of the others.
        parameters: its flat parameters.
        score: its last.
        seed: of its initialisation.
        checkpoint: its state, for the operator alone.
        by: what chose it; None of a sealed search.
        why: in words, where another trial has a score that is as good or better.
    """

    id: str
    number: int | None
    parameters: Mapping[str, object]
    score: float | None
    seed: int
    checkpoint: Path
    by: By | None = None
    why: str = ""


def export_sweep(sweep: SweepFolder, out: Path, *, data_dir: str | None, by: By | None = None) -> dict[str, Any]:
    """Write the trial that wins of an ended sweep into a folder, and issue its privacy card.

    The test set is scored here and nowhere else, once a sweep: its score is kept in the sweep's folder and used again.

    Args:
        sweep: the sweep.
        out: folder to write; its files of the same names are replaced.
        data_dir: folder with the data sets.
        by: what chooses the trial; by default the score. A curve is that of a unimodal search, while one top stands.

    Returns:
        What was written: ``folder``, ``trial``, ``files``, ``scores``, ``claim``; ``protected`` has (ε, δ) of noised
        validation scores, or None; ``chosen``, by what and why, is not told of a sealed search.

    Raises:
        InputError: the sweep was not private, is still running, no trial is complete, or a curve is to choose where
            none is believed in.
        TunerError: the winner's checkpoint is gone, or the sweep's files, study or data are not those that the ledger
            was charged for. Then nothing was written.
    """
    from trainables.data import check_present, info
    from tuner.privacy.card.card import build_card, card_text, file_hash, issue_card
    from tuner.privacy.card.curve import render_svg
    from tuner.privacy.card.page import CURVE_FILE, render_markdown
    from tuner.privacy.ledger.ledger import Ledger

    sweep.require_whole()
    experiment = load_experiment(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    if not plan.private:
        refuse_if_charged(sweep, experiment.ledger)
        raise InputError(
            f"only a private sweep can be exported, got {sweep.id} with privacy.private: false. "
            "Run it again with private: true; its noise was seeded, so nothing protects the records in its model."
        )
    if plan.accounting == "public":
        raise InputError(f"only what trained on the private records can be exported, got the search {sweep.id}.")
    # The ledger first: without it there is no claim, and then nothing is written.
    ledger = Ledger.open(experiment.ledger, create=False)
    if ledger.search_state(sweep.id).status == "open":
        state = sweep.read_status().get("state")
        fix = (
            ""
            if plan.accounting == "selection"
            else " (with --set search.trials=N of the trials begun it starts no new one)"
        )
        raise InputError(
            f"only a sweep that has ended can be exported, got {sweep.id} which is {state}. "
            f"Let it end: tune resume {sweep.id}{fix}."
        )
    request = experiment.dataset_request(data_dir)
    check_present(request)
    hold_to_ledger(ledger.search_state(sweep.id), experiment, plan, request=request)
    charged = ledger.search_state(sweep.id)
    best = _sealed(sweep, charged, by) if charged.sealed else _best(sweep, experiment, plan, charged, by)
    about = info(request)
    training = _load(experiment, request, plan, best)
    if not charged.sealed:
        _require_charged(charged, best.id, best.number, training.step)
    validation = {} if best.score is None else {experiment.search.metric.name: best.score}
    facts = _facts(sweep, experiment, plan, best, about=about, max_grad_norm=training.max_grad_norm, scores=validation)
    # Whether there can be a card is known here: a refusal leaves no file behind, and the test set unused.
    build_card(facts, state=ledger.dataset_state(charged.dataset))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out must be a folder that can be written, got {out}: {error.strerror}.") from error
    scores = {**validation, **_test_score(sweep, best, training)}
    _write_model(training, out / _MODEL)
    (out / _EXPERIMENT).write_text(standalone_yaml(experiment, plan, best))
    exported = {name: file_hash(out / name) for name in (_MODEL, _EXPERIMENT)}
    card = issue_card(ledger, replace(facts, scores=scores, files=exported))
    (out / _CARD).write_text(card_text(card))
    (out / CURVE_FILE).write_text(render_svg(card))
    (out / _CARD_PAGE).write_text(render_markdown(card))
    files = [out / name for name in (_EXPERIMENT, _MODEL, _CARD, _CARD_PAGE, CURVE_FILE)]
    trial = {"number": best.number, "id": best.id, "parameters": dict(best.parameters)}
    return {
        "folder": str(out),
        "sweep": sweep.id,
        "trial": {name: value for name, value in trial.items() if value is not None},
        **({} if best.by is None else {"chosen": {"by": best.by, "why": best.why}}),
        "files": [str(path) for path in files],
        "scores": scores,
        "protected": None if plan.validation_claim is None else dict(zip(_CLAIM, plan.validation_claim, strict=True)),
        "claim": {"epsilon": card["claim"]["epsilon"], "delta": card["claim"]["delta"]},
    }


def _facts(
    sweep: SweepFolder,
    experiment: Experiment,
    plan: Plan,
    best: _Best,
    *,
    about: DatasetInfo,
    max_grad_norm: float,
    scores: dict[str, float],
) -> CardFacts:
    """What the card says that the ledger does not know."""
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.card.card import CardFacts

    shape, sealed = plan.shape_of(best.parameters), plan.accounting == "selection"
    if shape.sample_rate is None or shape.noise_multiplier is None:
        raise TunerError(f"a private trial must have a rate and noise, got none for {best.id}. Restore its plan.")
    users = plan.unit == "user"
    return CardFacts(
        search=sweep.id,
        winner=best.id,
        winner_run=(SampledGaussian(shape.sample_rate, shape.noise_multiplier), shape.steps) if sealed else None,
        method=plan.method,
        model=plan.model,
        parameters=dict(best.parameters),
        batch_size=shape.batch_size,
        max_grad_norm=max_grad_norm,
        public_size=plan.train_size,
        public_size_is_public=about.path is None,
        records_per_user=experiment.dataset.records_per_user if users else None,
        sampler=experiment.search.sampler.name,
        pruner=experiment.search.pruner.name,
        validation={
            "source": f"{experiment.dataset.validation.fraction:g} of the training file of {plan.dataset}",
            "split": _split_words(about, users=users),
            "key": dict(split_of(experiment)),
        },
        random_generator=_GENERATOR,
        versions=_versions(),
        private=plan.private,
        scores=scores,
        preprocessing=_preprocessing(about),
    )


def _split_words(about: DatasetInfo, *, users: bool) -> str:
    if users:
        return "by a public keyed hash of each user: adding a user moves no other"
    of = "content" if about.path else "published index"
    return f"by a public keyed hash of each record's {of}: adding a record moves no other"


def export_text(values: dict[str, Any]) -> str:
    """What `export_sweep` did, in words."""
    number = values["trial"].get("number")
    what = "the winner" if number is None else f"trial {number}"
    lines = [f"exported {what} of {values['sweep']} to {values['folder']}"]
    lines += [f"  {why}" for why in [values.get("chosen", {}).get("why")] if why]
    lines += [f"  {path}" for path in values["files"]]
    lines += [
        f"  {name} {score:.4f}  ({_how_scored(name, values['protected'])})" for name, score in values["scores"].items()
    ]
    claim = values["claim"]
    lines.append(f"MLflow: {values['tracking']}")
    lines.append(f"The guarantee is the search's cap: ε = {claim['epsilon']:g} at δ = {claim['delta']:g}.")
    lines.append(f"next: tune verify {values['folder']}/{_CARD}    tune train {values['folder']}/{_EXPERIMENT}")
    return "\n".join(lines)


def _how_scored(name: str, protected: Mapping[str, float] | None) -> str:
    """Whether a score is inside the guarantee: protected ones are, but none of the test set."""
    if name.startswith("test_"):
        return "outside the guarantee; the test set is scored once a sweep, here"
    if protected is None:
        return "outside the guarantee"
    return f"noised, inside the guarantee (ε = {protected['epsilon']:g}, δ = {protected['delta']:g})"


def standalone_yaml(experiment: Experiment, plan: Plan, best: _Best) -> str:
    """An experiment file of one trial with the best values: what `tune train` runs.

    Its cap is what that one run costs, rounded up in the seventh digit: training it again is a charge of its own. It is
    an ordinary search of one trial, whatever the mode was of the search that found the values.
    """
    from tuner.experiment.yamlfile import dump
    from tuner.privacy.accountant.mechanism import SampledGaussian
    from tuner.privacy.accountant.pld import epsilon

    shape = plan.shape_of(best.parameters)
    if shape.sample_rate is None or shape.noise_multiplier is None:
        raise TunerError(f"a private trial must have a rate and noise, got none for {best.id}. Restore its plan.")
    cost = epsilon(SampledGaussian(shape.sample_rate, shape.noise_multiplier), shape.steps, plan.delta)
    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = f"{experiment.name[:57]}-best"
    values["seed"] = best.seed
    values["tracking"]["experiment"] = values["name"]
    values["trainable"]["batch_size"] = shape.batch_size
    if "epochs" in plan.priced:
        values["trainable"]["epochs"] = best.parameters["epochs"]
    privacy = {"epsilon": _round_up(cost), "noise_multiplier": shape.noise_multiplier, "accounting": "composition"}
    values["privacy"] |= {**privacy, "cap": "auto", "order": "auto"}
    values["privacy"].pop("runs")
    if experiment.dataset.validation.protected:
        # Few scores are drawn of one trial: their noise follows from the smaller budget.
        values["dataset"]["validation"] |= {"epsilon": None, "delta": None, "noise": "auto"}
    space = {name: value for name, value in best.parameters.items() if name not in plan.priced}
    one: dict[str, object] = {"trials": 1, "sampler": "random", "pruner": "none", "when_sure": "go_on"}
    values["search"] |= one | {"space": space, "public": None}
    if plan.priced and (fractions := rungs_of_levels(space, rungs=plan.rungs, steps=shape.steps)):
        # The rungs of another length are other steps, by rounding: K is to rise where it rose.
        values["search"]["rungs"] = fractions
    values["resources"]["concurrent_trials"] = 1
    head = (
        f"# tune train {_EXPERIMENT}\n#\n"
        f"# The configuration of the best trial of {experiment.name}. Training it is a NEW charge of epsilon = "
        f"{values['privacy']['epsilon']:g} on the data;\n# the exported model was paid for by the search.\n"
    )
    if best.why:
        head += f"# Chosen: {best.why}.\n"
        if best.by == "score":
            head += "# Trained again it may well score less; what the curve believes in is exported by --by curve.\n"
    return head + dump(values)


def _round_up(epsilon: float) -> float:
    scale = 10.0 ** (6 - math.ceil(math.log10(epsilon)))
    return math.ceil(epsilon * scale) / scale


def _best(sweep: SweepFolder, experiment: Experiment, plan: Plan, charged: SearchState, by: By | None) -> _Best:
    from tuner.study.views import read_trials
    from tuner.sweep.sweep_study import open_sweep_study

    study = open_sweep_study(sweep, experiment, plan)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    for trial in trials:
        _require_charged(charged, trial.id, trial.number, trial.step)
    chosen = winner_of(study, trials, experiment, by=by)
    if chosen is None:
        raise InputError(
            f"a sweep must have a complete trial to be exported, got {sweep.id} with none. See: tune show {sweep.id}"
        )
    if by == "curve" and chosen.by != by:
        raise _no_curve(sweep)
    best = chosen.trial
    path = checkpoint_path(sweep.root, best.id)
    if path is None:
        raise TunerError(
            f"the winner's model must lie in {sweep.trials / best.id}, and is gone. Restore the folder from a copy."
        )
    return _Best(
        id=best.id,
        number=best.number,
        parameters=dict(best.parameters),
        score=best.last_score,
        seed=(experiment.seed + best.number) % 2**32,  # the trial's own, as `training_spec` counts it
        checkpoint=path,
        by=chosen.by,
        why=chosen.why,
    )


def _no_curve(sweep: SweepFolder) -> InputError:
    return InputError(
        "--by curve takes a unimodal search whose assumption of one top stands, and that is not sealed, got "
        f"{sweep.id}. Leave it out, or give --by score."
    )


def _sealed(sweep: SweepFolder, charged: SearchState, by: By | None) -> _Best:
    """The one run that left a sealed sweep; nothing else of it is looked at."""
    if by == "curve":
        raise _no_curve(sweep)
    winner = read_winner(sweep)
    if winner is None:
        raise InputError(
            f"only a sealed sweep that has ended can be exported, got {sweep.id}. Let it end: tune resume {sweep.id}."
        )
    if not winner.found:
        raise InputError(f"a sealed sweep must have a winner to be exported, got {sweep.id} which released none.")
    if not charged.begun:
        raise TunerError(f"a sealed sweep must have been charged, and {sweep.id} was not. Restore its ledger.")
    return _Best(
        id=WINNER,
        number=None,
        parameters=dict(winner.parameters),
        score=winner.score,
        seed=winner.seed,
        checkpoint=winner.checkpoint,
    )


def _require_charged(charged: SearchState, trial: str, number: int | None, steps: int) -> None:
    leased = charged.trials[trial].leased if trial in charged.trials else 0
    if leased < steps:
        raise TunerError(
            f"every step of a sweep must be in its ledger, got trial {number} with {steps} steps, of which "
            f"{leased} were charged. The sweep's folder or the ledger was changed; restore both from a copy."
        )


def _preprocessing(about: DatasetInfo) -> str:
    if about.path is not None:
        return "by the user, before this program: taken to use public constants only (bytes are divided by 255 here)"
    return f"public constants only, nothing learnt from the records; {about.provenance}"


class _Paid:
    """The winner's steps are paid for; an export takes none."""

    def lease(self, steps: int) -> None:
        """Refuse: nothing is trained here."""
        raise TunerError(f"an export takes no private step, got a request for {steps}")

    def leased(self) -> int:
        """Nothing is leased here."""
        return 0

    def restarts(self) -> int:
        """It is never cut off."""
        return 0

    def release(self, count: int = 1) -> None:
        """Refuse: no validation record is looked at here."""
        raise TunerError(f"an export releases no validation score, got a request for {count}")

    def released(self) -> int:
        """Nothing is released here."""
        return 0


def _load(experiment: Experiment, request: DatasetRequest, plan: Plan, best: _Best) -> PrivateTraining:
    from trainables.training import PrivateTraining

    spec = training_spec(
        experiment, request, plan, parameters=dict(best.parameters), number=best.number or 0, seed=best.seed
    )
    if plan.accounting == "selection":
        require_trained(best.checkpoint, spec)  # the file of its settings lies outside `sealed/`
    training = PrivateTraining(spec, _Paid())
    training.load(best.checkpoint)
    return training


def _test_score(sweep: SweepFolder, best: _Best, training: PrivateTraining) -> dict[str, float]:
    """The test scores, taken once: a second look at the test set would be a search over it."""
    path = sweep.root / "test_scores.json"
    if path.exists():
        known = sweeps.read_json(path)
        if known.get("trial") != best.id:
            raise InputError(
                f"the test set is scored once a sweep: it was for {known.get('trial')}, and {best.id} is now chosen. "
                f"Choose as before (--by), or remove {path} only if you accept that its score is then chosen on the "
                "test set."
            )
        scores = known["scores"]
        if not isinstance(scores, dict):
            raise TunerError(f"{path} must hold the test scores, got {scores!r}. Restore it from a copy.")
        return {str(name): float(value) for name, value in scores.items()}
    scores = training.evaluate("test")
    sweeps.write_json(path, {"trial": best.id, "scores": scores})
    return scores


def _write_model(training: PrivateTraining, path: Path) -> None:
    """The model's parameters alone: the checkpoint's generator must never leave the operator."""
    from safetensors.torch import save_file

    state = {name: value.detach().cpu().contiguous() for name, value in training.model.state_dict().items()}
    save_file(state, str(path))


def _versions() -> dict[str, str]:
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    return {"dp-tuner": tuner.__version__, "python": platform.python_version(), **libraries}
