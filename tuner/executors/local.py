"""Run a sweep in this process, one trial at a time: for tests, small data and `tune run --local`."""

from __future__ import annotations

from pathlib import Path

from trainables.rungs import MakeTraining, TrainingLoop, log_for_operator, why_failed
from tuner.errors import LedgerError, TunerError
from tuner.executors.base import ChargeFor, SpecFor, act, check_stop, checkpoint_finder, interrupted, private_training
from tuner.study.driver import StudyDriver
from tuner.study.storage import exclusive
from tuner.study.types import Stop, Suggestion, TrialStatus, Wait

__all__ = ["run"]


def run(
    driver: StudyDriver,
    spec_for: SpecFor,
    charge_for: ChargeFor,
    *,
    folder: Path,
    make_training: MakeTraining | None = None,
) -> Stop:
    """Run trials until the driver says stop.

    Args:
        driver: decides; `reconcile` is called here.
        spec_for: what to train for a suggestion.
        charge_for: what pays for a trial's steps.
        folder: the sweep's folder, for checkpoints and the operator's log.
        make_training: makes a training of a spec and a charge; `trainables.training.PrivateTraining` by default.

    Returns:
        Why no further trial was started.

    Raises:
        tuner.errors.SweepInterrupted: Ctrl-C; what ran stays RUNNING in the storage and is continued by the next run.
        tuner.errors.TunerError: the first trials all failed, or the ledger or the storage cannot be used.
    """
    make = make_training or private_training()
    with exclusive(folder):
        driver.reconcile(checkpoint_finder(folder))
        try:
            while True:
                decision = driver.next()
                if isinstance(decision, Stop):
                    return check_stop(decision, folder)
                if isinstance(decision, Wait):
                    raise TunerError("the driver waits for a trial although none runs; please report this as a bug")
                _run_trial(driver, decision, make, spec_for, charge_for(decision.trial_id), folder)
        except KeyboardInterrupt as interrupt:
            raise interrupted() from interrupt


def _run_trial(
    driver: StudyDriver,
    suggestion: Suggestion,
    make: MakeTraining,
    spec_for: SpecFor,
    charge: object,
    folder: Path,
) -> None:
    loop = TrainingLoop(
        make,
        spec_for(suggestion),
        charge,
        folder=folder,
        trial_id=suggestion.trial_id,
        rung_steps=suggestion.shape.rungs,
    )
    while True:
        try:
            rung = loop.advance()
        except LedgerError:
            raise  # the ledger cannot be used: no further step may be taken by anyone
        except Exception as error:  # noqa: BLE001 - whatever a model raises ends this trial only; it is logged and recorded
            log_for_operator(folder, suggestion.trial_id, error)
            driver.finish(
                suggestion.trial_id, outcome=TrialStatus.FAILED, steps_taken=loop.step, reason=why_failed(error)
            )
            return
        if not act(driver, suggestion.trial_id, rung.step, rung.metrics):
            return
