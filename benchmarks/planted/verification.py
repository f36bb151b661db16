"""Faults in the privacy card and in its verification: numbers and words that are not checked."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="second-opinion-is-the-first",
        breaks="the second accountant uses the code of the first, so that one fault hides in both",
        file="tuner/privacy/verify/accountant/one_step.py",
        old="import numpy.typing as npt\n",
        new="import numpy.typing as npt\n\nfrom tuner.privacy.accountant import pld as _pld  # noqa: F401\n",
        test="tests/privacy/verify/test_independent.py::test_it_loads_nothing_but_numpy",
    ),
    Fault(
        name="lower-claim-confirmed",
        breaks="a claim that is smaller than what holds is confirmed",
        file="tuner/privacy/verify/accountant/bounds.py",
        old="    if claimed < low * (1 - 1e-9):",
        new="    if claimed < low * 0.5:",
        test="tests/privacy/verify/test_independent.py::test_a_wrong_claim_is_answered_no",
    ),
    Fault(
        name="not-confirmed-is-a-yes",
        breaks="a claim that could not be recomputed is confirmed",
        file="tuner/privacy/verify/report.py",
        old="return bool(self.checks) and all(check.ok for check in self.checks)",
        new="return bool(self.checks) and all(check.ok is not False for check in self.checks)",
        test="tests/privacy/verify/test_checks.py::test_what_is_too_large_for_an_accountant_is_not_confirmed",
    ),
    Fault(
        name="chain-not-verified",
        breaks="a card is confirmed on a ledger whose entries were changed",
        file="tuner/privacy/verify/checks.py",
        old="        damaged = ledger.verify_chain(dataset)\n",
        new="        damaged = dict.fromkeys(ledger.datasets()[:0])\n",
        test="tests/privacy/verify/test_checks.py::test_a_changed_ledger_is_refused",
    ),
    Fault(
        name="second-block-total-not-verified",
        breaks="the total of a search's second block is confirmed by the accountant that made it alone",
        file="tuner/privacy/verify/second_opinion.py",
        old="    for row in rows or ():\n",
        new="    for row in (rows or ())[:1]:\n",
        test="tests/privacy/verify/test_card_of_blocks.py"
        "::test_a_row_that_the_first_accountant_gets_wrong_is_found_by_the_second",
    ),
    Fault(
        name="second-block-chain-not-verified",
        breaks="a card is confirmed on a ledger whose entries on the search's second block were changed",
        file="tuner/privacy/verify/checks.py",
        old="        for block in names:\n",
        new="        for block in names[:1]:\n",
        test="tests/privacy/verify/test_card_of_blocks.py::test_a_ledger_whose_second_block_was_edited_is_found",
    ),
    Fault(
        name="void-block-hidden",
        breaks="the first line of every view shows the cap of one block and hides the void total of another",
        file="tuner/privacy/card/claims.py",
        old="    if void:\n",
        new="    if void and not held:\n",
        test="tests/privacy/card/test_totals.py"
        "::test_a_block_that_no_cap_bounds_is_never_hidden_behind_others",
    ),
    Fault(
        name="card-never-issued",
        breaks="a card is confirmed that its ledger never issued",
        file="tuner/privacy/verify/checks.py",
        old="    if found in known:\n",
        new="    if found:\n",
        test="tests/privacy/verify/test_checks.py::test_a_card_that_the_ledger_never_issued_is_refused",
    ),
    Fault(
        name="section-not-compared",
        breaks="one section of the card is not compared with the one rendered anew from the ledger",
        file="tuner/privacy/verify/differences.py",
        old="in sorted(wanted.keys() | found.keys()):",
        new='in sorted((wanted.keys() | found.keys()) - {"claim"}):',
        test="tests/privacy/verify/test_forged_cards.py"
        "::test_every_forged_card_is_found_but_for_the_operators_own_words",
    ),
    Fault(
        name="cap-not-checked-by-the-second-accountant",
        breaks="the claim of a cap is confirmed by the accountant that made it alone",
        file="tuner/privacy/verify/second_opinion.py",
        old='    yield _judged(check_name, cap["epsilon_at_cap"], at_cap)\n',
        new="    yield _judged(check_name, at_cap.high, at_cap)\n",
        test="tests/privacy/verify/test_checks.py::test_an_accountant_that_errs_twice_alike_is_found_out",
    ),
    Fault(
        name="exported-files-not-compared",
        breaks="a card is confirmed next to a model that it was not issued for",
        file="tuner/privacy/verify/checks.py",
        old="        elif found == digest:",
        new="        elif found:",
        test="tests/privacy/verify/test_forged_cards.py::test_a_card_is_for_the_files_that_were_exported_with_it",
    ),
    Fault(
        name="picture-not-compared",
        breaks="a card is confirmed next to a picture with other numbers",
        file="tuner/privacy/verify/checks.py",
        old="    if missing is not None:\n",
        new='    if missing == "":\n',
        test="tests/privacy/verify/test_forged_cards.py"
        "::test_a_picture_with_another_number_is_found_and_another_drawing_is_not_called_compared",
    ),
    Fault(
        name="card-for-a-seeded-study",
        breaks="a study with known noise gets a privacy card",
        file="tuner/privacy/card/card.py",
        old="    if not facts.private:\n",
        new="    if not facts.search:\n",
        test="tests/privacy/card/test_card.py::test_a_study_with_a_seed_gets_no_card",
    ),
    Fault(
        name="uncharged-steps-exported",
        breaks="a model with steps that were not charged is exported with a card",
        file="tuner/sweep/ledger_head.py",
        old="    if leased < found:\n",
        new="    if leased < 0:\n",
        test="tests/cli/test_held_to_ledger.py::test_a_study_with_steps_that_were_not_charged_is_not_exported",
    ),
    Fault(
        name="files-not-held-to-the-ledger",
        breaks="a sweep whose files were changed resumes and is exported under its old claim",
        file="tuner/sweep/registration.py",
        old="        if now != charged:\n",
        new="        if not what:\n",
        test="tests/cli/test_held_to_ledger.py::test_a_sweep_whose_files_are_others_neither_goes_on_nor_is_exported",
    ),
    Fault(
        name="checkpoint-exported",
        breaks="the exported model holds the key of future noise",
        file="tuner/export/package.py",
        old="    _write_model(behind(log, partial(_weights, training)), out / _MODEL)",
        new="    (out / _MODEL).write_bytes(best.checkpoint.read_bytes())",
        test="tests/cli/test_export.py::test_nothing_of_the_secret_generator_leaves",
    ),
    Fault(
        name="own-model-vouched-for",
        breaks="the card says of a user's own model that the engine enforces what was only tested",
        file="tuner/privacy/card/sections/assumptions.py",
        old='    return details.get("model") in MODELS and details.get("method") in METHODS\n',
        new='    return bool(details.get("model"))\n',
        test="tests/privacy/card/test_card.py::test_the_card_does_not_vouch_for_code_that_is_not_ours",
    ),
    Fault(
        name="edited-export-is-read",
        breaks="an edited split makes validation records of training records, whose exact losses are then shown",
        file="tuner/privacy/verify/exports.py",
        old="    if found is not None:\n",
        new="    if found == '':\n",
        test="tests/cli/test_landscape.py::test_an_edited_export_is_refused_by_every_reader",
    ),
    Fault(
        name="edited-card-is-read",
        breaks="a card that the ledger never recorded vouches for an edited export",
        file="tuner/privacy/verify/exports.py",
        old="    if ledger is not None:\n",
        new="    if ledger is not None and page:\n",
        test="tests/cli/test_landscape.py::test_an_edited_export_is_refused_by_every_reader",
    ),
)
