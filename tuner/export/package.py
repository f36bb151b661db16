"""Export of a sweep: the best trial's model, its configuration and its privacy card."""

from __future__ import annotations

import importlib.metadata as metadata
import platform
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuner
from trainables.errors import TrainableError, WalledError
from trainables.model_names import MODELS
from trainables.wall import behind, logging_to
from tuner.errors import InputError, TunerError
from tuner.experiment import load_experiment
from tuner.export.configuration import standalone_yaml
from tuner.export.exported_trial import ExportedTrial, NoFurtherCharge, trial_to_export
from tuner.files import replacing, unwritable, write_json, write_text
from tuner.plan.plan import Plan, mechanism_of, plan_from
from tuner.privacy.card.page import CURVE_FILE
from tuner.privacy.ledger.amounts import amount, amounts
from tuner.sweep import folder as sweeps
from tuner.sweep.identity import division_of
from tuner.sweep.ledger_head import charged_search, require_charged, require_not_behind
from tuner.sweep.preflight import find_own_model
from tuner.sweep.registration import hold_release_to_ledger, hold_to_ledger, refuse_if_charged
from tuner.sweep.releases import hold_release, release_name, require_release
from tuner.sweep.sealed import require_trained
from tuner.sweep.start_weights import exported_metadata, exported_search, start_file
from tuner.sweep.status import RESUMABLE, RUNNING, SweepState, resume_command, state_of
from tuner.sweep.trial_spec import on_release, training_spec
from tuner.sweep.winner import By

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trainables.data import DatasetInfo, DatasetRequest
    from trainables.release.training import ReleasedTraining
    from trainables.training import PrivateTraining
    from tuner.experiment import Experiment
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.releases import StoredRelease

__all__ = ["export_sweep", "export_text", "is_free", "require_free", "require_writable"]

_MODEL, _EXPERIMENT = "model.safetensors", "experiment.yaml"
_CLAIM = ("epsilon", "delta")
_CARD, _CARD_PAGE = "privacy_card.json", "privacy_card.md"


def export_sweep(sweep: SweepFolder, out: Path, *, data_dir: str | None, by: By | None = None) -> dict[str, Any]:
    """Write the winning trial of an ended sweep into a folder, and issue its privacy card.

    Only an earlier export of the same search is replaced. The first export of a sweep scores the test set and keeps the
    score in the sweep's folder. Later exports reuse this score. `tuner.sweep.winner` explains the rule `by`.

    Returns:
        The values of `tune export --json`. ``protected`` is the (ε, δ) of the validation scores, or None if they have
        no noise. ``chosen`` is the rule that chose the trial, with a reason. It is missing for a sealed search.

    Raises:
        InputError: the sweep was not private, has not ended or has no complete trial; `by` is ``curve`` and the sweep
            has no usable curve; or the folder has other files of the same names.
        TunerError: the winner's checkpoint is missing, or the charge in the ledger belongs to other files, to another
            study or to other data. Nothing was written.
    """
    from trainables.data import as_it_is, check_present, info
    from trainables.training import PrivateTraining
    from tuner.privacy.card.card import build_card, card_text, file_hash, issue_card
    from tuner.privacy.card.claims import claim_of_card
    from tuner.privacy.card.curve import render_svg
    from tuner.privacy.card.own_words import CardFacts
    from tuner.privacy.card.page import render_markdown
    from tuner.privacy.ledger.admission import require_writer
    from tuner.privacy.ledger.ledger import Ledger

    sweep.require_whole()
    experiment = load_experiment(sweep.experiment)
    plan = plan_from(sweeps.read_json(sweep.plan), trials=experiment.search.trials)
    if not plan.private:
        refuse_if_charged(sweep, experiment.ledger)
        raise InputError(
            "sweep-not-private",
            f"{sweep.id} is not private (`privacy.private: false`) and cannot be exported: its noise was seeded, "
            "so nothing protects the records that its model was trained on. Run it again with `private: true`.",
        )
    if plan.mode.searches_public:
        raise InputError(
            "sweep-not-private",
            f"{sweep.id} searched on public records, so it cannot be exported. Export its charged run, in which the "
            "best configuration was trained on the private records.",
        )
    start_file(experiment)  # refuses weights with another hash
    # The ledger comes first: without it there is no claim, and nothing is written.
    ledger = Ledger.open(experiment.ledger, create=False)
    released = plan.mode.on_release
    if released:
        require_release(sweep)
    charged = charged_search(sweep, ledger, release_name(sweep) if released else sweep.id)
    require_writer(ledger.user(), charged.user, sweep.id)  # the card is recorded at the end
    if charged.status == "open" or (released and state_of(sweep) in {*RUNNING, *RESUMABLE}):
        now = state_of(sweep)
        if now in RUNNING:
            raise InputError(
                "sweep-not-finished",
                f"{sweep.id} cannot be exported while it runs. Wait until it ends ({sweep.command('watch')}), or "
                f"end it with: {sweep.command('stop')}",
            )
        fix = (
            ""
            if plan.mode.runs_hidden
            else " (to start no new trials, add --set search.trials=N, where N is the number of started trials)"
        )
        why = f"before it has ended (it is {now})."
        if now == SweepState.FAILED:
            why = f"because it failed: {sweep.read_status().get('detail')}"
        raise InputError(
            "sweep-not-finished",
            f"{sweep.id} cannot be exported {why} Resume it with: {resume_command(sweep)}{fix}.",
        )
    request = experiment.dataset_request(data_dir)
    check_present(request)
    request = as_it_is(request)
    require_not_behind(sweep, ledger, charged)
    release = hold_release(sweep, ledger) if released else None
    with logging_to(sweep.operator_log):
        division = division_of(ledger, experiment, request)
        (hold_release_to_ledger if released else hold_to_ledger)(
            ledger, charged, experiment, plan, request=request, division=division
        )
    best = trial_to_export(sweep, experiment, plan, charged, by)
    about = info(request)
    log = sweep.operator_log
    training = behind(log, partial(_load, experiment, request, plan, best, release), lets_out=_refuses)
    if not charged.charged_whole:
        require_charged(charged, best.id, best.number, training.step)
    score_error = plan.score_error(experiment)
    validation = {} if best.score is None else {experiment.search.metric.name: best.score}
    shape = plan.shape_of(best.parameters, committed=best.committed)
    facts = CardFacts(
        search=charged.search,
        model=plan.model if released else None,
        winner=best.id,
        winner_run=(mechanism_of(shape), shape.steps) if plan.mode.runs_hidden else None,
        parameters=dict(best.parameters),
        max_grad_norm=training.max_grad_norm if isinstance(training, PrivateTraining) else None,
        public_size=plan.train_size,
        public_size_is_public=about.path is None,
        records_per_user=experiment.dataset.records_per_user if plan.unit == "user" else None,
        sampler=experiment.search.sampler.name,
        pruner=experiment.search.pruner.name,
        versions=_versions(),
        private=plan.private,
        scores=validation,
        preprocessing=_preprocessing(about, experiment.trainable.model),
    )
    # Build the card before anything is written: if it is refused, no file was written and the test set was not used.
    state, *others = ledger.states_of(charged.datasets)
    build_card(facts, state=state, others=others)
    origin = {"ledger": ledger.id, "entries": state.seq, "head": state.head}
    require_free(out, sweep.id)
    require_writable(out)  # before the test set is scored
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from error
    scores = {**validation, **_test_score(sweep, best, training)}
    metadata = exported_metadata(experiment, sweep.id, charged.datasets)
    _write_model(behind(log, partial(_weights, training)), out / _MODEL, metadata)
    write_text(out / _EXPERIMENT, standalone_yaml(experiment, plan, best, origin=origin))
    exported = {name: file_hash(out / name) for name in (_MODEL, _EXPERIMENT)}
    card = issue_card(ledger, replace(facts, scores=scores, files=exported))
    write_text(out / _CARD, card_text(card))
    write_text(out / CURVE_FILE, render_svg(card))
    write_text(out / _CARD_PAGE, render_markdown(card))
    files = [out / name for name in (_EXPERIMENT, _MODEL, _CARD, _CARD_PAGE, CURVE_FILE)]
    trial = {"number": best.number, "id": best.id, "parameters": dict(best.parameters)}
    again = "run" if plan.mode.on_release else "train"  # one training from a release is a search with one trial
    return {
        "folder": str(out),
        "sweep": sweep.id,
        "trial": {name: value for name, value in trial.items() if value is not None},
        **({} if best.by is None else {"chosen": {"by": best.by, "why": best.why}}),
        "files": [str(path) for path in files],
        "scores": scores,
        "extrapolation": training.extrapolation,
        "errors": {name: score_error.of(score) for name, score in validation.items() if score_error is not None},
        "protected": None if plan.validation_claim is None else dict(zip(_CLAIM, plan.validation_claim, strict=True)),
        "first_line": claim_of_card(card),
        "claim": {"epsilon": card["claim"]["epsilon"], "delta": card["claim"]["delta"]},
        "next": [f"tune verify {shlex.quote(f'{out}/{_CARD}')}", f"tune {again} {shlex.quote(f'{out}/{_EXPERIMENT}')}"],
    }


def require_free(out: Path, search: str | None = None) -> None:
    """Raise an InputError if an export would replace files, except those of an earlier export of the same search."""
    taken, found = _taken(out), exported_search(out)
    if taken and (search is None or found != search):
        whose = f"the export of {found}" if found is not None else "files that the export would replace"
        raise InputError(
            "output-taken", f"The folder {out} has {whose}: {', '.join(taken)}. Choose another folder with `--out`."
        )


def is_free(out: Path, search: str) -> bool:
    """Return whether a search can be exported to a folder without replacing other files."""
    return (out.is_dir() or not out.exists()) and (not _taken(out) or exported_search(out) == search)


def _taken(out: Path) -> list[str]:
    return [name for name in (_MODEL, _EXPERIMENT, _CARD, _CARD_PAGE, CURVE_FILE) if (out / name).exists()]


def require_writable(out: Path) -> None:
    """Raise an InputError if a folder for an export could not be made or written. Nothing is made."""
    if (error := unwritable(out)) is not None:
        raise _unwritable(out, error)


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(
        "output-unwritable",
        f"The folder {out} of `--out` cannot be written ({error.strerror}). Choose another folder.",
    )


def export_text(values: dict[str, Any]) -> str:
    """Return a text that describes what `export_sweep` did."""
    number = values["trial"].get("number")
    what = "the winner" if number is None else f"trial {number}"
    lines = [values["first_line"], f"exported {what} of {values['sweep']} to {values['folder']}"]
    if why := values.get("chosen", {}).get("why"):
        lines.append(f"  {why}")
    lines += [f"  {path}" for path in values["files"]]
    lines.append(f"  extrapolation {values['extrapolation']:g}  (of the average of the weights; 0 is none)")
    lines += [
        f"  {name} {score:.4f}{_plus_minus(values['errors'].get(name))}  ({_how_scored(name, values['protected'])})"
        for name, score in values["scores"].items()
    ]
    claim = values["claim"]
    lines.append(f"MLflow: {values['tracking']}")
    lines.append(f"The guarantee is the search's cap: ε = {amount(claim['epsilon'])} at δ = {amount(claim['delta'])}.")
    lines.append(f"next: {'    '.join(values['next'])}")
    return "\n".join(lines)


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f" ± {error:.2g}"


def _how_scored(name: str, protected: Mapping[str, float] | None) -> str:
    """Return as text whether the guarantee covers a score. It never covers a score on the test set."""
    if name.startswith("test_"):
        return "not covered by the guarantee; an export scores the test set only once for each search"
    if protected is None:
        return "not covered by the guarantee"
    return f"with noise, covered by the guarantee ({amounts(protected['epsilon'], protected['delta'])})"


def _preprocessing(about: DatasetInfo, model: str) -> str:
    own = "" if model in MODELS else f"; the user's own {model} is assumed to use public constants only"
    if about.path is not None:
        byte = "dp-tuner then divides byte values by 255"
        return f"done by the user, and assumed to use public constants only; {byte}{own}"
    record = f"; one record is {about.record}" if about.record else ""
    return f"uses {about.scaling}{own}; {about.provenance}{record}"


def _refuses(error: Exception) -> bool:
    """Return whether an error is a refusal of ours, which no training record decides."""
    return isinstance(error, TrainableError | TunerError) and not isinstance(error, WalledError)


def _load(
    experiment: Experiment, request: DatasetRequest, plan: Plan, best: ExportedTrial, release: StoredRelease | None
) -> PrivateTraining | ReleasedTraining:
    from trainables.release.training import ReleasedTraining
    from trainables.training import PrivateTraining

    find_own_model(experiment)
    spec = training_spec(
        experiment,
        request,
        plan,
        parameters=dict(best.parameters),
        number=best.number or 0,
        seed=best.seed,
        committed=best.committed,
    )
    if plan.mode.runs_hidden:
        require_trained(best.checkpoint, spec, trained=best.trained)
    training: PrivateTraining | ReleasedTraining
    if release is None:
        training = PrivateTraining(spec, NoFurtherCharge())
    else:
        training = ReleasedTraining(on_release(spec, release), NoFurtherCharge())
    training.load(best.checkpoint)
    return training


def _test_score(
    sweep: SweepFolder, best: ExportedTrial, training: PrivateTraining | ReleasedTraining
) -> dict[str, float]:
    """Return the test scores. Only one trial of a sweep gets them, so that nobody can choose a trial by test scores."""
    path = sweep.root / "test_scores.json"
    if path.exists():
        known = sweeps.read_json(path)
        if known.get("trial") != best.id:
            raise InputError(
                "test-set-used",
                f"The test set is used once for each search. It was used for {known.get('trial')}, but this command "
                f"chooses {best.id}: `--by` is another one, or the search went on since. Use the same `--by` as "
                f"before. If you remove {path}, the test set is used again, and the score is biased.",
            )
        scores = known["scores"]
        if not isinstance(scores, dict):
            raise TunerError(
                "sweep-file-unreadable", f"{path} has no test scores (got {scores!r}). Restore it from a copy."
            )
        return {str(name): float(value) for name, value in scores.items()}
    scores = behind(sweep.operator_log, partial(training.evaluate, "test"))
    write_json(path, {"trial": best.id, "scores": scores})
    return scores


def _weights(training: PrivateTraining | ReleasedTraining) -> dict[str, Tensor]:
    """Return the model's parameters. The checkpoint's random generator is left out: only the operator may see it."""
    return {name: value.detach().cpu().contiguous() for name, value in training.model.state_dict().items()}


def _write_model(weights: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    from safetensors.torch import save

    with replacing(path) as file:
        file.write(save(weights, metadata))


def _versions() -> dict[str, str]:
    from tuner.privacy.card.own_words import LIBRARIES

    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {"dp-tuner": tuner.__version__, "python": platform.python_version(), **libraries}
