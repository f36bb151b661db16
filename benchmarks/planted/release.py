"""Faults of releases: a distance or a clip that is too small, rows that are counted, a release that is not charged."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="release-half-distance",
        breaks="the noise of a release covers the norm of one record, and not the distance of two",
        file="tuner/privacy/accountant/noisy_records.py",
        old="        return 2 * self.clip / self.noise\n",
        new="        return self.clip / self.noise\n",
        test="tests/privacy/accountant/test_noisy_records.py"
        "::test_two_accountants_agree_and_the_calibrated_noise_is_the_smallest",
    ),
    Fault(
        name="release-not-clipped",
        breaks="a long record stands out of a release",
        file="trainables/release/draw.py",
        old="    return torch.where(factor < 1, rows * factor * _SHRINK, rows * _SHRINK)\n",
        new="    return rows * _SHRINK\n",
        test="tests/trainables/release/test_draw.py::test_norms_that_round_up_are_clipped_too",
    ),
    Fault(
        name="release-counts-records",
        breaks="a release has one row for each record, so its length tells the number of records",
        file="trainables/release/draw.py",
        old="    count = max(len(flat), rows)\n",
        new="    count = rows = len(flat)\n",
        test="tests/trainables/release/test_draw.py"
        "::test_the_number_of_rows_and_their_law_tell_nothing_of_the_number_of_records",
    ),
    Fault(
        name="release-not-charged",
        breaks="a release is drawn without a charge, and counts nothing when its search is closed",
        file="tuner/privacy/ledger/ledger.py",
        old='                write(dataset, "release", {"search": search})\n',
        new="",
        test="tests/privacy/ledger/test_release_entries.py::test_it_is_charged_when_it_is_opened_and_stored_once",
    ),
    Fault(
        name="release-stored-twice",
        breaks="a release is drawn twice for one charge",
        file="tuner/privacy/ledger/search_rules.py",
        old="    if not _is_release(search) or not search.begun or search.stored is not None:\n",
        new="    if not _is_release(search) or not search.begun:\n",
        test="tests/privacy/ledger/test_release_entries.py::test_it_is_charged_when_it_is_opened_and_stored_once",
    ),
    Fault(
        name="release-not-compared",
        breaks="a file that was put in the place of a charged release is used",
        file="tuner/sweep/releases.py",
        old='                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256\n',
        new="                return bool(file.read(1))\n",
        test="tests/cli/test_release.py::test_a_release_that_is_gone_is_charged_again_and_drawn_anew",
    ),
)
