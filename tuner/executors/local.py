"""Executor that runs one trial at a time in this process, for tests, small data sets and `tune run --local`."""

from __future__ import annotations

from dataclasses import replace

from trainables.errors import WalledError
from trainables.rungs import TrainingLoop, stops_sweep, why_lost
from tuner.errors import LedgerError, TunerError
from tuner.executors.base import TrialSetup, act, check_stop, checkpoint_finder, interrupted, lose
from tuner.study.driver import StudyDriver
from tuner.study.storage import exclusive
from tuner.study.types import Stop, Suggestion, Wait

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Executor that runs one trial after the other in this process."""

    def run(self, driver: StudyDriver, setup: TrialSetup) -> Stop:
        """Run trials until the driver stops; see `tuner.executors.base.Executor`."""
        import trainables.training  # noqa: F401 - not behind the wall, where torch would keep the wall's streams

        with exclusive(setup.folder):
            driver.reconcile(checkpoint_finder(setup.folder))
            try:
                while True:
                    decision = driver.next()
                    if isinstance(decision, Stop):
                        return check_stop(decision, setup.folder)
                    if isinstance(decision, Wait):
                        raise TunerError(
                            "internal-error",
                            "The driver is waiting for a running trial, but no trial is running. Report this bug.",
                        )
                    _run_trial(driver, decision, setup)
            except KeyboardInterrupt as interrupt:
                raise interrupted() from interrupt


def _run_trial(driver: StudyDriver, suggestion: Suggestion, setup: TrialSetup) -> None:
    loop = TrainingLoop(
        setup.make_training,
        setup.spec_for(suggestion),
        setup.charge_for(suggestion.trial_id),
        folder=setup.folder,
        trial_id=suggestion.trial_id,
        rung_steps=suggestion.shape.rungs,
        saves=suggestion.shape.stops,
        scored=suggestion.scored,
    )
    while True:
        try:
            rung = loop.advance()
        except LedgerError:
            raise  # the ledger is unusable, so no trial may take a further step
        except WalledError:
            driver.raised(suggestion.trial_id)
            return
        except Exception as error:  # noqa: BLE001 - it cannot depend on a record, and ends only its own trial
            stops = setup.stops_when_lost or stops_sweep(error)
            lose(driver, replace(setup, stops_when_lost=stops), suggestion.trial_id, why_lost(error))
            return
        if not act(driver, suggestion.trial_id, rung.step, rung.metrics):
            return
