"""The trial that is exported: the winner of an open search, or the released run of a sealed search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.rungs import checkpoint_path
from tuner.errors import InputError, TunerError
from tuner.sweep.sealed import WINNER, read_winner
from tuner.sweep.trial_spec import seed_of
from tuner.sweep.winner import By, choose_winner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.experiment import Experiment
    from tuner.plan.plan import Plan
    from tuner.privacy.ledger.state import SearchState
    from tuner.sweep.folder import SweepFolder

__all__ = ["ExportedTrial", "NoFurtherCharge", "trial_to_export"]


@dataclass(frozen=True, kw_only=True)
class ExportedTrial:
    """The trial that is exported.

    Attributes:
        id: id of the trial in the ledger. For a sealed search, it is the same fixed word for every winner.
        number: number of the trial; None for a sealed search, where it would reveal something about the other runs.
        checkpoint: file with the trial's state; only the operator may see it.
        trained: False if no run of a sealed search ended with a score. The model is then the initial one.
        by: the rule that chose the trial; None for a sealed search.
        why: the reason for the choice if the score and the fitted curve prefer different trials; otherwise empty.
        committed: whether it is the committed run that followed the search.
        steps: steps of the model, which interruptions may have shortened; None for a sealed search, which repeats runs.
    """

    id: str
    number: int | None
    parameters: Mapping[str, object]
    score: float | None
    seed: int
    checkpoint: Path
    trained: bool = True
    by: By | None = None
    why: str = ""
    committed: bool = False
    steps: int | None = None


def trial_to_export(
    sweep: SweepFolder, experiment: Experiment, plan: Plan, charged: SearchState, by: By | None
) -> ExportedTrial:
    """Return the winning trial of an ended sweep. `by` is the rule that chooses it; None is the default rule.

    Raises:
        InputError: no trial is complete, or `by` is ``curve`` and the sweep has no usable curve.
        TunerError: the trial's checkpoint is missing.
    """
    if charged.hides_runs:
        return _released_run(sweep, charged, by)
    from tuner.study.views import read_trials
    from tuner.sweep.sweep_study import open_sweep_study

    study = open_sweep_study(sweep, experiment, plan)
    trials = read_trials(study, mode=experiment.search.metric.mode, steps_planned=plan.steps_per_trial)
    chosen = choose_winner(study, trials, experiment, plan.score_error(experiment), by=by)
    if chosen is None:
        if plan.commit is not None and by is None:
            raise InputError(
                "no-complete-trial",
                f"The committed run of {sweep.id} is not complete, and only that run is exported. To export the best "
                f"trial of the search instead, which has more noise, add `--by score`. See: {sweep.command('show')}",
            )
        raise InputError(
            "no-complete-trial", f"{sweep.id} has no complete trial to export. See: {sweep.command('show')}"
        )
    if by == "curve" and chosen.by != by:
        raise _no_curve(sweep)
    best = chosen.trial
    path = checkpoint_path(sweep.root, best.id)
    if path is None:
        raise TunerError(
            "checkpoint-missing",
            f"The winner's model is missing in {sweep.trials / best.id}. Restore the folder from a copy.",
        )
    return ExportedTrial(
        id=best.id,
        number=best.number,
        parameters=dict(best.parameters),
        score=best.last_score,
        seed=seed_of(experiment, best.number),
        checkpoint=path,
        by=chosen.by,
        why=chosen.why,
        committed=best.committed,
        steps=best.step,
    )


def _no_curve(sweep: SweepFolder) -> InputError:
    return InputError(
        "no-curve",
        f"`--by curve` cannot be used for {sweep.id}. It works only for a unimodal search that is not sealed, "
        "and whose scores do not contradict a single maximum. Leave `--by` out, or use `--by score`.",
    )


def _released_run(sweep: SweepFolder, charged: SearchState, by: By | None) -> ExportedTrial:
    """Return the released run of a sealed sweep. Nothing else of the sweep is read."""
    if by == "curve":
        raise _no_curve(sweep)
    winner = read_winner(sweep)
    if winner is None:
        raise InputError(
            "sweep-not-finished",
            f"The sealed sweep {sweep.id} cannot be exported before it has ended. Resume it with: "
            f"{sweep.command('resume')}",
        )
    if not winner.found:
        raise InputError(
            "no-complete-trial", f"The sealed sweep {sweep.id} released no winner, so there is nothing to export."
        )
    if not charged.begun:
        raise TunerError(
            "search-not-charged",
            f"The sealed sweep {sweep.id} has a winner, but is not charged in its ledger. Restore the ledger from "
            "a copy.",
        )
    return ExportedTrial(
        id=WINNER,
        number=None,
        parameters=dict(winner.parameters),
        score=winner.score,
        seed=winner.seed,
        checkpoint=winner.checkpoint,
        trained=winner.trained,
    )


class NoFurtherCharge:
    """Object that replaces the budget while a trial is exported. It refuses every further charge."""

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Refuse to charge steps."""
        raise TunerError("internal-error", f"An export must not charge steps (asked for {steps}). Please report this.")

    def release(self, count: int = 1, *, noise: float) -> None:
        """Refuse to charge validation scores."""
        raise TunerError("internal-error", f"An export must not charge scores (asked for {count}). Please report this.")

    def leased(self) -> int:
        """Return 0, because an export leases no steps."""
        return 0

    def restarts(self) -> int:
        """Return 0, because an export is not resumed."""
        return 0

    def released(self) -> int:
        """Return 0, because an export releases no validation scores."""
        return 0
