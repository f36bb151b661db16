"""Faults around the search: the driver's budget, executors, records, gates of the experiment file, sweeps."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="repeated-steps-not-reserved",
        breaks="a trial that repeats steps after an interruption does not pay for them",
        file="tuner/study/budget_room.py",
        old="        return self.reserve(trial_id, Ask(steps, remaining.sample_rate,",
        new="        return True or self.reserve(trial_id, Ask(steps, remaining.sample_rate,",
        test="tests/study/test_driver.py::test_an_interrupted_trial_continues_and_pays_again_only_for_what_it_repeats",
    ),
    Fault(
        name="score-of-a-restored-trial-not-reserved",
        breaks="a restored trial draws its protected score again without paying",
        file="tuner/study/budget_room.py",
        old="releases = max(remaining.releases - (held.releases if held else 0), 0)",
        new="releases = 0",
        test="tests/study/test_driver_shapes.py"
        "::test_at_every_moment_what_is_reserved_is_what_the_trials_may_still_take",
    ),
    Fault(
        name="protected-scores-not-asked-for",
        breaks="a trial is priced without its protected scores, so pruning looks at scores nobody paid for",
        file="tuner/plan/shapes.py",
        old="releases=len(own) if released else 0,",
        new="releases=0,",
        test="tests/plan/test_plan.py::test_protected_scores_have_a_budget_and_a_standard_error",
    ),
    Fault(
        name="worst-trial-wins",
        breaks="the wrong trial is shown and exported as the best",
        file="tuner/study/best.py",
        old='return score > than if mode == "max" else score < than',
        new="return score < than",
        test="tests/study/test_best.py::test_all_views_name_the_same_trial_in_whatever_order_trials_end",
    ),
    Fault(
        name="two-drivers-of-one-study",
        breaks="two processes drive one study and start its trials twice",
        file="tuner/study/storage.py",
        old="take_lock(folder / _DRIVER_LOCK)",
        new="take_lock(folder / f\"{__import__('os').getpid()}.lock\")",
        test="tests/study/test_storage.py::test_the_lock_ends_with_the_process_that_holds_it",
    ),
    Fault(
        name="broken-ledger-fails-one-trial",
        breaks="a ledger that cannot be used ends one trial, and the next one takes steps",
        file="tuner/executors/local.py",
        old="        except LedgerError:\n",
        new="        except ZeroDivisionError:\n",
        test="tests/executors/test_local.py::test_a_broken_ledger_stops_the_sweep_and_nothing_is_hidden",
    ),
    Fault(
        name="refused-lease-takes-the-step",
        breaks="the executor continues a trial whose charge was refused",
        file="trainables/rungs.py",
        old="            training = self._training = self.make_training(self.spec, self.charge)",
        new="            self.charge.lease = lambda steps, **_: None\n"
        "            training = self._training = self.make_training(self.spec, self.charge)",
        test="tests/executors/test_local.py::test_a_refused_lease_takes_no_step",
    ),
    Fault(
        name="traceback-shown-to-analysts",
        breaks="the message of a training's error, which may hold data, is stored with the trial",
        file="trainables/rungs.py",
        old='    return f"{type(error).__name__} in the training.',
        new='    return f"{type(error).__name__}: {error} in the training.',
        test="tests/executors/test_local.py::test_a_trial_that_raises_is_failed_and_the_sweep_goes_on",
    ),
    Fault(
        name="private-values-recorded",
        breaks="everything that a trial reports is sent to MLflow, training scores included",
        file="tuner/recorder/recorder.py",
        old='if name.startswith("validation_") or name in (self._sweep.metric, _RATE)',
        new="if name",
        test="tests/recorder/test_recorder.py::test_metrics_that_depend_on_private_records_are_withheld",
    ),
    Fault(
        name="times-to-the-millisecond",
        breaks="timestamps reveal how long steps took, and so how many records were drawn",
        file="tuner/recorder/records.py",
        old="minute = int(self._now() * 1000) // MINUTE_MS * MINUTE_MS",
        new="minute = int(self._now() * 1000)",
        test="tests/recorder/test_records.py::test_time_goes_forward_and_tells_no_more_than_the_minute",
    ),
    Fault(
        name="records-not-on-the-disk",
        breaks="a record counts as written though the disk refused it",
        file="tuner/recorder/spool.py",
        old="            try:\n                os.fsync(self._descriptor)\n            except OSError as error:",
        new="            try:\n                os.fsync\n            except OSError as error:",
        test="tests/recorder/test_spool.py::test_after_a_failed_fsync_nothing_more_is_taken",
    ),
    Fault(
        name="file-accepts-nan",
        breaks="an experiment file may say NaN or infinity for ε",
        file="tuner/experiment/values.py",
        old="Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]",
        new="Positive = Annotated[float, Field(gt=0)]",
        test="tests/experiment/test_gates.py::test_no_number_may_be_nan_or_infinite",
    ),
    Fault(
        name="file-accepts-delta-of-one-over-n",
        breaks="δ may be 1/n and more, at which publishing a whole record passes",
        file="tuner/experiment/gates/privacy.py",
        old="not privacy.delta < 1 / size:",
        new="not privacy.delta < 2 / size:",
        test="tests/experiment/test_gates.py::test_each_gate_refuses_by_key_and_code_and_lets_its_control_pass",
    ),
    Fault(
        name="file-accepts-private-records-as-public",
        breaks="a search on public records runs on the private ones, uncharged",
        file="tuner/experiment/gates/modes.py",
        old="    if owners[0] == owners[1] or (",
        new="    if (",
        test="tests/experiment/test_gates.py::test_each_gate_refuses_by_key_and_code_and_lets_its_control_pass",
    ),
    Fault(
        name="settings-of-the-claim-not-hashed",
        breaks="a sweep resumes with other noise than its claim was made for",
        file="tuner/sweep/settings.py",
        old='MAY_CHANGE = ("search.trials",',
        new='MAY_CHANGE = ("privacy.", "search.trials",',
        test="tests/experiment/test_settings.py::test_every_option_that_is_on_is_in_the_hash",
    ),
)
