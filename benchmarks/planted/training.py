"""Faults in a trial's training: charging before drawing, restored noise, protected scores, a worker's gates."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="labels-of-another-coding-are-other-records",
        breaks="private records with the labels −1 and 1 can be used openly as a file with the labels 0 and 1",
        file="trainables/data/loading.py",
        old="named = np.where(named == -1, 0, named)",
        new="named = named + 0",
        test="tests/trainables/test_tasks.py::test_labels_of_either_coding_are_the_same_records",
    ),
    Fault(
        name="lease-after-draw",
        breaks="steps are taken before they are charged, and a crash leaves them uncharged",
        file="trainables/training.py",
        old="            self._charge.lease(leased, sample_rate=used.sample_rate, "
        "noise_multiplier=used.noise_multiplier)\n"
        "            self._leased += leased\n"
        "            self._keep_key_or_change_it(leased=leased)\n"
        "            for _ in range(leased):\n",
        new='            pay = {"sample_rate": used.sample_rate, "noise_multiplier": used.noise_multiplier}\n'
        "            for _ in (n for n in range(leased) if n + 1 < leased or not "
        "self._charge.lease(leased, **pay)):\n",
        test="tests/trainables/test_training.py::test_every_lease_comes_before_its_steps",
    ),
    Fault(
        name="restored-steps-repeat-their-noise",
        breaks="a restored training takes other steps under noise that may have been released already",
        file="trainables/training.py",
        old='if lost or state["spec"] != spec_fingerprint(self.spec):\n'
        "            self._secret.rekey()\n"
        "        elif self.spec.replay_key is None:\n"
        '            self._continued = (state["leased"], state["released"])  # asked again at the first payment\n',
        new='if state["spec"] != spec_fingerprint(self.spec):\n            self._secret.rekey()\n',
        test="tests/trainables/test_training.py::test_repeated_steps_get_fresh_noise_and_are_paid",
    ),
    Fault(
        name="one-key-in-two-processes",
        breaks="two processes that load one checkpoint before either leases draw the same noise",
        file="trainables/training.py",
        old="            if (self._charge.leased(), self._released()) != expected:\n",
        new="            if (self._charge.leased(), self._released()) < expected:\n",
        test="tests/trainables/test_training.py::test_two_processes_that_load_one_checkpoint_draw_different_noise",
    ),
    Fault(
        name="training-records-scored",
        breaks="a score on training records is reported without a charge",
        file="trainables/training.py",
        old='if split not in ("validation", "test"):',
        new='if split not in ("validation", "test", "train"):',
        test="tests/trainables/test_training.py::test_training_records_are_never_scored",
    ),
    Fault(
        name="protected-score-not-charged",
        breaks="a protected score is drawn and reported without a charge",
        file="trainables/training.py",
        old="        self._charge.release(noise=noise)  # durable",
        new="        self._charge.released()  # durable",
        test="tests/trainables/test_protected.py::test_every_score_is_charged_once_and_before_it_is_computed",
    ),
    Fault(
        name="protected-score-over-the-true-size",
        breaks="a protected score is divided by the true number of validation records, which is private",
        file="trainables/training.py",
        old="return float(noised) / self._protected_size",
        new='return float(noised) / max(len(self._records["validation"][1]), 1)',
        test="tests/trainables/test_protected.py::test_a_released_score_has_its_law",
    ),
    Fault(
        name="user-counts-with-all-records",
        breaks="a user with many records moves a protected score by more than 1",
        file="trainables/scoring.py",
        old="minlength=len(records)) * _PARTS // records",
        new="minlength=len(records)) * _PARTS",
        test="tests/trainables/test_protected.py::test_one_user_more_adds_at_most_one_however_many_records",
    ),
    Fault(
        name="other-starting-weights",
        breaks="a search resumes, or is exported, with other weights than those that its card names as public",
        file="trainables/start.py",
        old="    if sha256 not in (None, found):",
        new="    if sha256 == found:\n        pass\n    if False:",
        test="tests/cli/test_start.py::test_other_weights_are_refused_by_resume_and_export_and_a_moved_file_is_not",
    ),
    Fault(
        name="start-from-a-private-model",
        breaks="a model that was trained on the private records passes for public weights",
        file="tuner/sweep/start_weights.py",
        old="        if table_of(dataset) in tables:",
        new="        if table_of(dataset) == tables:",
        test="tests/cli/test_start.py::test_weights_that_were_trained_on_these_records_are_refused",
    ),
    Fault(
        name="worker-accepts-seeded-noise",
        breaks="a private training draws noise from a known seed",
        file="trainables/spec.py",
        old="    if spec.noise_seed is not None:",
        new="    if spec.noise_seed == 0:",
        test="tests/trainables/test_training.py::test_gates",
    ),
)
