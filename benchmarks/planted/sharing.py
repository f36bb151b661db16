"""Faults in the data: splits, users, bounds on their records, and copies of known data sets."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="split-by-place",
        breaks="removing a row moves all records behind it to the other side of the split",
        file="trainables/data/loading.py",
        old="        held = aside_by_content(x, y, fraction=fraction, key=key)",
        new="        held = aside(len(y), fraction=fraction, key=key)",
        test="tests/trainables/data/test_data.py::test_removing_a_record_moves_no_other_of_a_users_file",
    ),
    Fault(
        name="users-records-on-both-sides",
        breaks="a protected user both trains and validates",
        file="trainables/data/loading.py",
        old="        held = aside_by_user(users, fraction=fraction, key=key)",
        new="        held = aside_by_content(x, y, fraction=fraction, key=key)",
        test="tests/trainables/data/test_users.py::test_validation_records_are_those_of_whole_users",
    ),
    Fault(
        name="user-bound-ignored",
        breaks="a user contributes more records than the bound that is claimed",
        file="trainables/data/loading.py",
        old="most, key = request.records_per_user,",
        new="most, key = 2 * request.records_per_user,",
        test="tests/trainables/data/test_users.py::test_a_file_with_users_is_loaded_user_by_user",
    ),
    Fault(
        name="test-users-train",
        breaks="a user of the test set trains as well",
        file="trainables/data/user.py",
        old="kept &= ~np.isin(users.astype(str), others.astype(str))",
        new="pass",
        test="tests/trainables/data/test_users.py::test_a_user_of_the_test_is_none_of_the_training",
    ),
    Fault(
        name="users-told-apart-by-the-type-of-their-names",
        breaks="users stored as strings are split and bounded in another way than the same users stored as numbers",
        file="trainables/data/splits.py",
        old="    return str(user).encode(",
        new="    return repr(user).encode(",
        test="tests/trainables/data/test_users.py::test_users_are_the_same_whatever_type_their_names_are_stored_as",
    ),
    Fault(
        name="copy-of-a-shipped-set-has-its-own-budget",
        breaks="the same records under another name get a second budget",
        file="trainables/data/__init__.py",
        old="    return copied, loading.records_sha256",
        new="    return None, loading.records_sha256",
        test="tests/trainables/data/test_shipped.py::test_a_copy_with_other_types_shapes_or_test_records_is_known",
    ),
    Fault(
        name="length-of-own-training-data-told",
        breaks="the refusal of a file tells the number of training records",
        file="trainables/data/user_file.py",
        old='    shown = "they differ" if name.endswith("train") else',
        new='    shown = "they differ" if not name else',
        test="tests/cli/test_own_files.py::test_a_file_that_no_trial_could_train_on_is_refused_by_every_command",
    ),
    Fault(
        name="training-record-decides-a-refusal",
        breaks="whether a search starts depends on one training record",
        file="trainables/data/user.py",
        old='    arrays = user_file.read_arrays_of(path, ("x_test", "y_test", "classes"))\n',
        new='    arrays = user_file.read_arrays_of(path, (*KEYS, "classes"))\n'
        '    user_file.refuse(path, ["NaN"] if np.isnan(arrays["x_train"]).any() else [])\n',
        test="tests/cli/test_own_files.py::test_what_one_training_record_holds_refuses_nothing",
    ),
    Fault(
        name="windows-that-overlap",
        breaks="a word of a text is in 21 records, so that a claim for one of them says little about it",
        file="trainables/data/text.py",
        old="    return numbers[: whole * (CONTEXT + 1)].reshape(whole, CONTEXT + 1)",
        new="    rows = [numbers[each : each + CONTEXT + 1] for each in range(whole)]\n"
        "    return np.array(rows).reshape(whole, CONTEXT + 1)",
        test="tests/trainables/data/test_users.py"
        "::test_a_word_is_in_one_record_and_a_change_stays_within_its_paragraph",
    ),
    Fault(
        name="windows-beyond-a-paragraph",
        breaks="one word more in a paragraph changes all records of the speech after it",
        file="trainables/data/text.py",
        old='for line in text.split("\\n")]',
        new="for line in [text]]",
        test="tests/trainables/data/test_users.py"
        "::test_a_word_is_in_one_record_and_a_change_stays_within_its_paragraph",
    ),
    Fault(
        name="other-records-than-those-charged",
        breaks="trials train on the records of a file that was replaced after the search was charged",
        file="tuner/sweep/preflight.py",
        old="            request = as_it_is(request)\n",
        new="",
        test="tests/cli/test_own_files.py::test_no_trial_uses_other_records_than_those_that_were_charged",
    ),
    Fault(
        name="other-records-at-a-resume",
        breaks="a resume trains on the records of a file that was replaced after it was compared with the ledger",
        file="tuner/runner/start.py",
        old="    request = as_it_is(request)\n",
        new="",
        test="tests/cli/test_own_files.py::test_no_trial_uses_other_records_than_those_that_were_charged",
    ),
    Fault(
        name="two-splits-of-one-fingerprint",
        breaks="a file with -0.0 for 0.0 counts as the same records, and validates on records that trained",
        file="trainables/data/user.py",
        old="    return np.asarray(scaled + np.float32(0))",
        new="    return np.asarray(scaled)",
        test="tests/trainables/data/test_as_it_is.py::test_files_with_one_fingerprint_have_one_split",
    ),
    Fault(
        name="file-written-while-it-is-read",
        breaks="a training reads records that were written after the file's checksum was compared",
        file="trainables/data/user_file.py",
        old="        if content and _written(opened) != before:",
        new="        if False and _written(opened) != before:",
        test="tests/trainables/data/test_as_it_is.py::test_a_file_that_is_written_while_it_is_read_is_refused",
    ),
    Fault(
        name="landscape-of-any-file",
        breaks="exact losses of another data set's training records are shown, with the split of an export",
        file="tuner/sweep/identity.py",
        old="        if any((search.fingerprint, charged_users(search)) != now for search in charged):",
        new="        if not charged:",
        test="tests/cli/test_own_files.py::test_the_records_of_a_file_that_was_replaced_are_not_measured",
    ),
    Fault(
        name="changed-file-has-the-same-split",
        breaks="a total over a changed file is claimed for people who validated without protection",
        file="tuner/privacy/ledger/state.py",
        old='        if split is None or self.records is None or not (by_values and split.get("fraction")):',
        new="        if True:",
        test="tests/cli/test_own_records.py::test_a_total_over_a_changed_file_does_not_hold_for_validation_records",
    ),
    Fault(
        name="capped-records-used-openly",
        breaks="records are used without protection under another name, before the first search that charges them",
        file="tuner/sweep/identity.py",
        old="if state.has_own or table_of(name) not in DATASETS)",
        new="if state.has_own)",
        test="tests/cli/test_identity.py"
        "::test_a_file_is_not_used_openly_once_a_cap_names_records_that_nobody_has_searched",
    ),
)
