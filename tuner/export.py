"""What leaves a sweep: the best configuration as a file that trains again, its model, and its privacy card."""

from __future__ import annotations

import importlib.metadata as metadata
import math
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuner
from trainables.rungs import checkpoint_path
from tuner import sweeps
from tuner.entering import hold_to_ledger, refuse_if_charged, split_of
from tuner.errors import InputError, TunerError
from tuner.experiment import load
from tuner.plan import Plan, plan_from
from tuner.prepare import training_spec

if TYPE_CHECKING:
    from trainables.data import DatasetInfo
    from trainables.training import PrivateTraining
    from tuner.experiment import Experiment
    from tuner.privacy.entries import SearchState
    from tuner.search.types import TrialView
    from tuner.sweeps import SweepFolder

__all__ = ["export_sweep", "export_text", "standalone_yaml"]

_LIBRARIES = ("torch", "numpy", "opacus", "dp-accounting", "optuna", "ray", "cryptography", "scikit-learn")
_GENERATOR = "AES-256-CTR with fast key erasure, keyed by the operating system, Box-Muller in double precision"
_MODEL, _EXPERIMENT = "model.safetensors", "experiment.yaml"
_CARD, _CARD_PAGE = "privacy_card.json", "privacy_card.md"


def export_sweep(sweep: SweepFolder, out: Path, *, data_dir: str | None) -> dict[str, Any]:
    """Write the best trial of an ended sweep into a folder, and issue its privacy card.

    The test set is scored here and nowhere else, once a sweep: its score is kept in the sweep's folder and used again.

    Args:
        sweep: the sweep.
        out: folder to write; its files of the same names are replaced.
        data_dir: folder with the data sets.

    Returns:
        What was written: ``folder``, ``trial``, ``files``, ``scores``, ``claim``.

    Raises:
        InputError: the sweep was not private, is still running, or no trial is complete.
        TunerError: the winner's checkpoint is gone, or the sweep's files, study or data are not those that the ledger
            was charged for. Then nothing was written.
    """
    from trainables.data import check_present, fingerprint, info
    from tuner.privacy.card import CardFacts, card_text, issue_card
    from tuner.privacy.ledger import Ledger
    from tuner.privacy.markdown import render_markdown

    sweep.require_whole()
    experiment = load(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    if not plan.private:
        refuse_if_charged(sweep, experiment.ledger)
        raise InputError(
            f"only a private sweep can be exported, got {sweep.id} with privacy.private: false. "
            "Run it again with private: true; its noise was seeded, so nothing protects the records in its model."
        )
    # The ledger first: without it there is no claim, and then nothing is written.
    ledger = Ledger.open(experiment.ledger, create=False)
    if ledger.search_state(sweep.id).status == "open":
        raise InputError(
            f"only a sweep that has ended can be exported, got {sweep.id} which is {sweep.read_status().get('state')}. "
            f"Let it end: tune resume {sweep.id} (with --set search.trials=N of the trials begun it starts no new one)."
        )
    request = experiment.dataset_request(data_dir)
    check_present(request)
    hold_to_ledger(ledger.search_state(sweep.id), experiment, plan, data=fingerprint(request))
    charged = ledger.search_state(sweep.id)
    best = _winner(sweep, experiment, plan, charged)
    about = info(request)
    training = _load(sweep, experiment, plan, best, data_dir=data_dir)
    _require_charged(charged, best, training.step)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out must be a folder that can be written, got {out}: {error.strerror}.") from error
    validation = {} if best.last_score is None else {experiment.search.metric.name: best.last_score}
    scores = {**validation, **_test_score(sweep, best, training)}
    _write_model(training, out / _MODEL)
    (out / _EXPERIMENT).write_text(standalone_yaml(experiment, plan, best))
    card = issue_card(
        ledger,
        CardFacts(
            search=sweep.id,
            winner=best.id,
            method=plan.method,
            model=plan.model,
            parameters=dict(best.parameters),
            batch_size=plan.batch_size,
            max_grad_norm=training.max_grad_norm,
            public_size=plan.train_size,
            public_size_is_public=about.path is None,
            sampler=experiment.search.sampler.name,
            pruner=experiment.search.pruner.name,
            validation={
                "source": f"{experiment.dataset.validation.fraction:g} of the training file of {plan.dataset}",
                "split": f"by a public keyed hash of each record's {'content' if about.path else 'published index'}: "
                "adding a record moves no other",
                "key": dict(split_of(experiment)),
            },
            random_generator=_GENERATOR,
            versions=_versions(),
            private=plan.private,
            scores=scores,
            preprocessing=_preprocessing(about),
        ),
    )
    (out / _CARD).write_text(card_text(card))
    (out / _CARD_PAGE).write_text(render_markdown(card))
    files = [out / name for name in (_EXPERIMENT, _MODEL, _CARD, _CARD_PAGE)]
    return {
        "folder": str(out),
        "sweep": sweep.id,
        "trial": {"number": best.number, "id": best.id, "parameters": dict(best.parameters)},
        "files": [str(path) for path in files],
        "scores": scores,
        "claim": {"epsilon": card["claim"]["epsilon"], "delta": card["claim"]["delta"]},
    }


def export_text(values: dict[str, Any]) -> str:
    """What `export_sweep` did, in words."""
    lines = [f"exported trial {values['trial']['number']} of {values['sweep']} to {values['folder']}"]
    lines += [f"  {path}" for path in values["files"]]
    lines += [f"  {name} {score:.4f}" for name, score in values["scores"].items()]
    lines.append("  (outside the guarantee; the test set is scored once a sweep, here)")
    claim = values["claim"]
    lines.append(f"MLflow: {values['tracking']}")
    lines.append(f"The guarantee is the search's cap: ε = {claim['epsilon']:g} at δ = {claim['delta']:g}.")
    lines.append(f"next: tune verify {values['folder']}/{_CARD}    tune train {values['folder']}/{_EXPERIMENT}")
    return "\n".join(lines)


def standalone_yaml(experiment: Experiment, plan: Plan, best: TrialView) -> str:
    """An experiment file of one trial with the best values: what `tune train` runs.

    Its cap is what that one run costs, rounded up in the seventh digit: training it again is a charge of its own.
    """
    from tuner.experiment.yamlfile import dump

    values = experiment.model_dump(mode="json", by_alias=True)
    values["name"] = f"{experiment.name[:57]}-best"
    values["seed"] = experiment.seed + best.number  # the trial's own
    values["tracking"]["experiment"] = values["name"]
    values["privacy"]["epsilon"] = _round_up(plan.epsilon_trial)
    values["privacy"]["noise_multiplier"] = plan.noise_multiplier
    values["search"] |= {"trials": 1, "sampler": "random", "pruner": "none", "space": dict(best.parameters)}
    values["resources"]["concurrent_trials"] = 1
    head = (
        f"# tune train {_EXPERIMENT}\n#\n"
        f"# The best configuration of {experiment.name}. Training it is a NEW charge of epsilon = "
        f"{values['privacy']['epsilon']:g} on the data;\n# the exported model was paid for by the search.\n"
    )
    return head + dump(values)


def _round_up(epsilon: float) -> float:
    scale = 10.0 ** (6 - math.ceil(math.log10(epsilon)))
    return math.ceil(epsilon * scale) / scale


def _winner(sweep: SweepFolder, experiment: Experiment, plan: Plan, charged: SearchState) -> TrialView:
    from tuner.search.views import best_trial, read_trials
    from tuner.study import open_sweep_study

    mode = experiment.search.metric.mode
    study = open_sweep_study(sweep, experiment, plan)
    trials = read_trials(study, mode=mode, steps_planned=plan.steps_per_trial)
    for trial in trials:
        _require_charged(charged, trial, trial.step)
    best = best_trial(trials, mode=mode)
    if best is None:
        raise InputError(
            f"a sweep must have a complete trial to be exported, got {sweep.id} with none. See: tune show {sweep.id}"
        )
    return best


def _require_charged(charged: SearchState, trial: TrialView, steps: int) -> None:
    leased = charged.trials[trial.id].leased if trial.id in charged.trials else 0
    if leased < steps:
        raise TunerError(
            f"every step of a sweep must be in its ledger, got trial {trial.number} with {steps} steps, of which "
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


def _load(
    sweep: SweepFolder, experiment: Experiment, plan: Plan, best: TrialView, *, data_dir: str | None
) -> PrivateTraining:
    from trainables.training import PrivateTraining

    path = checkpoint_path(sweep.root, best.id)
    if path is None:
        raise TunerError(
            f"the best trial's model must lie in {sweep.trials / best.id}, and is gone. Restore the folder from a copy."
        )
    spec = training_spec(
        experiment,
        experiment.dataset_request(data_dir),
        plan,
        parameters=dict(best.parameters),
        number=best.number,
    )
    training = PrivateTraining(spec, _Paid())
    training.load(path)
    return training


def _test_score(sweep: SweepFolder, best: TrialView, training: PrivateTraining) -> dict[str, float]:
    """The test scores, taken once: a second look at the test set would be a search over it."""
    path = sweep.root / "test_scores.json"
    if path.exists():
        known = sweeps.read_json(path)
        if known.get("trial") != best.id:
            raise InputError(
                f"the test set is scored once a sweep: it was for {known.get('trial')}, and the best is now {best.id}. "
                f"Remove {path} only if you accept that its score is then chosen on the test set."
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
