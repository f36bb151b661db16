"""Explanations of all error codes, for `tune explain` and the documentation."""

from __future__ import annotations

import search_spaces.errors
import trainables.errors

__all__ = ["EXPLANATIONS", "explanation"]

_PLATFORM: dict[str, str] = {
    # commands and sweeps
    # experiment files
    "experiment-not-found": "The name is neither a local file nor a shipped experiment. `tune ls --shipped` lists the "
    "shipped ones; `tune init` writes a template.",
    "file-exists": "A file of this name exists and would be overwritten. Choose another name, or use --force.",
    "file-not-writable": "The file cannot be written. Check the folder and its permissions.",
    "file-unreadable": "The experiment file cannot be read: it is missing, a folder, too large or not UTF-8 text.",
    "file-not-sections": "The file is empty, a list or one value. An experiment file has sections such as dataset: and "
    "privacy: at the left edge.",
    "yaml-invalid": "The text is not YAML. The line is where reading stopped; the mistake may be on the line before.",
    "yaml-unsupported": "Anchors, aliases, tags, several documents and deep nesting hide the meaning of a file and are "
    "refused. Write every value where it is used.",
    "override-invalid": "An override has the form --set path.to.key=value, and its path leads through sections.",
    "key-duplicate": "A key is given twice in one section. Only one of them could count. Remove the other.",
    "key-missing": "A required key is missing.",
    "key-unknown": "The section has no such key. The message names the nearest one.",
    "name-invalid": "The name of an experiment is the name of its folder, so few characters are allowed.",
    "value-wrong-type": "The value has another type than its key: a word for a number, a list for a section.",
    "value-not-finite": "NaN and infinity are refused wherever a number is read: no guarantee can be computed.",
    "value-empty": "The value is an empty word.",
    "value-out-of-range": "The value is outside the range that the message names.",
    "value-not-allowed": "The value is none of those that the message lists.",
    "rungs-invalid": "Rungs are a count of equally spaced reports, or rising fractions of a trial that end with 1.",
    "domain-outside-space": "A domain is given at a key that takes one value. Domains to search are in search.space.",
    "ledger-not-shared": "The file names another ledger than DP_TUNER_LEDGER. The caps of one ledger do not apply to "
    "charges in another, so one of the two must go.",
    "ledger-variable-invalid": "DP_TUNER_LEDGER is not the address of a ledger.",
    "dataset-unknown": "The data set is not a shipped one. Your own data need a path and a public size.",
    "dataset-name-taken": "Your own data have the name of a shipped data set. The budget is kept under the name, so it "
    "must be another.",
    "dataset-without-users": "The records do not name their users, so one user's records cannot be protected together.",
    "public-size-known": "The public size of a shipped data set is known. Leave the key out.",
    "public-size-missing": "The sample rate needs a public number of records (or users): the exact number is private.",
    "records-per-user-unused": "The bound on records per user applies only where users are protected.",
    "scores-not-protected": "A budget or noise is set for scores that are not protected.",
    "validation-budget-too-large": "The budget of the protected scores exceeds that of the search, which covers both "
    "sets of records.",
    "validation-empty": "Protected scores need at least one public validation record.",
    "metric-not-protectable": "Only counts of correct answers can be protected: one record can change a loss by any "
    "amount.",
    "method-unknown": "There is no such training method.",
    "model-unknown": "The model is neither a shipped one nor written as package.module:function.",
    "batch-norm-refused": "BatchNorm mixes the records of a batch before the clip, so one record's influence has no "
    "bound. Use group normalization or none.",
    "batches-not-poisson": "The accounting holds for Poisson samples. Shuffled or fixed-size batches have a weaker "
    "guarantee, and there is no last batch.",
    "batch-size-realised": "Dividing by the realised size of a batch would release it. The expected size is used.",
    "batch-size-too-large": "The batch is larger than the public number of records (or users): the sample rate would "
    "exceed 1.",
    "clip-not-per-record": "Only a clip of each record's gradient bounds the influence of one record.",
    "statistics-not-charged": "Statistics computed from the private records are a release that the budget does not "
    "cover. Use public constants.",
    "momentum-with-adam": "Adam has its own momentum; the key applies to SGD.",
    "workers-unsupported": "A trial has one worker in this version. Run more trials at once instead.",
    "delta-too-large": "With δ of 1 / n, publishing one whole record would be allowed. Write at most n^-1.1.",
    "accountant-unsupported": "All guarantees come from privacy loss distributions (pld), or from a filter at one "
    "Rényi order.",
    "adjacency-unsupported": "Neighbouring data sets differ by one added or removed record (or user).",
    "noise-zero": "Without noise there is no privacy. Studies without noise need private: false.",
    "noise-seed-private": "Noise from a fixed seed can be drawn again and protects nobody. Only studies with private: "
    "false may fix it.",
    "noise-given-twice": "The noise multiplier is given in privacy and searched in search.space. Leave one out.",
    "sampler-unknown": "There is no such sampler.",
    "pruner-unknown": "There is no such pruner.",
    "option-unknown": "The sampler or pruner has no such option.",
    "option-missing": "The pruner needs an option that is not given.",
    "option-invalid": "An option of the unimodal sampler or pruner has a value out of range.",
    "space-invalid": "The search space has an unknown parameter or a domain that cannot be searched.",
    "augmentation-needs-images": "Only images of shape (channels, height, width) are augmented.",
    "nothing-searched": "Several trials of one configuration would waste the budget. Search a parameter, or run one "
    "trial.",
    "metric-unknown": "There is no such metric.",
    "metric-not-validation": "A search may use validation scores only: test records are for the end, and scores on "
    "training records would leak them.",
    "metric-direction": "An accuracy is maximised and a loss is minimised.",
    "promotion-needs-rungs": "Each level of a promoted parameter begins at its own rung, so there must be as many.",
    "priced-value-fixed": "A parameter that affects the budget has one value: it is a setting, not part of the space.",
    "priced-with-public": "A search on public data calibrates one private run, so nothing that affects the budget can "
    "be searched.",
    "priced-range-sealed": "A sealed search needs finitely many configurations: a choice, not a range.",
    "cap-without-composition": "Caps apply to accounting: composition only.",
    "cap-needs-one-mechanism": "A cap on total steps holds for one sample rate and one noise multiplier.",
    "cap-needs-menu": "A coupon book has a quota for each of a few values and cannot hold a range.",
    "cap-menu-too-large": "Composing so many quotas takes minutes. A filter at a fixed order is as good.",
    "order-without-cap": "A Rényi order applies to cap: fixed_order only.",
    "sealed-follows-scores": "The price of a sealed search holds for independent candidates and complete runs.",
    "sealed-scores-protected": "A sealed search hides its number of runs, which released scores would show.",
    "mode-needs-private": "This mode exists to be charged less, and with private: false nothing is charged.",
    "runs-without-selection": "The law of the number of runs applies to accounting: selection only.",
    "run-law-unproved": "No price is proved for this law with a sampler that follows the scores.",
    "public-data-unused": "Public data are given, and the accounting does not use them.",
    "public-data-missing": "accounting: public needs a public data set.",
    "public-data-incomplete": "Your own public records need a name of their own, a path and a public size.",
    "public-data-private": "The public records are the private ones, and the search would read them uncharged.",
    "public-data-shape": "One model trains on public and private records, so both need the same inputs and classes.",
    "public-with-users": "The search averages records and the private run would average users, so its result would not "
    "carry over.",
    "tolerance-conflict": "The unimodal sampler and pruner share one tolerance.",
    "unimodal-conditional": "A trial without the parameter has no place on its curve. Fix the schedule, or remove the "
    "declaration.",
    "unimodal-denied": "The smoothing radius is declared not unimodal, and no other parameter is declared unimodal.",
    "unimodal-parameter-missing": "The unimodal sampler and pruner need a searched range with one maximum of the "
    "score.",
    "when-sure-sampler": "Only the unimodal sampler measures how sure the search is.",
    "when-sure-sealed": "Stopping or repeating by scores would show the hidden number of runs.",
    "replicate-with-runs": "Repetitions are compared over complete runs, and the option runs stops unlucky ones.",
    # plans
    "budget-too-small": "Not one trial (or not one run, or not the planned trials) fits the budget of the search. "
    "Raise the noise or ε, or plan fewer or shorter trials.",
    "validation-budget-too-small": "Not one protected score fits the budget of the validation records.",
    "plan-unreadable": "A stored plan lacks a value or has an unknown one. Restore plan.json from a copy.",
    "plan-has-no-mechanism": "Trials choose among several sample rates or noise multipliers, so there is not one.",
    # studies
    # the ledger and its accountant
    "ledger-busy": "Another process holds the ledger, or wrote it while it was read. End that process, or try again.",
    "ledger-damaged": (
        "The ledger is not what was written: a file was cut off, a page or an entry was changed, or tables "
        "are missing. Restore it from a backup that holds every entry; a ledger is never started afresh, "
        "because its spending would be forgotten."
    ),
    "ledger-disk-full": "The disk of the ledger is full. Nothing more is charged. Free space, then resume.",
    "ledger-driver-missing": (
        'A ledger in PostgreSQL needs the driver psycopg. Install it with pip install "dp-tuner[postgres]".'
    ),
    "ledger-encoding": (
        "The database of a ledger must be in UTF8, so that it holds every name. Create one with that encoding."
    ),
    "ledger-foreign": "The file is a database of another program, and is left alone. Name another file.",
    "ledger-format": "Another version of dp-tuner wrote this ledger. Nothing was changed. Open it with that version.",
    "ledger-not-durable": (
        "The server may lose committed transactions in a crash, so a charge would not be durable. Set fsync = "
        "on and use logged tables."
    ),
    "ledger-not-found": (
        "There is no ledger at this address. Check the address. A lost ledger is restored from a backup, "
        "never started afresh."
    ),
    "ledger-not-granted": "The database role lacks rights on the tables of the ledger. Its owner grants them.",
    "ledger-not-owner": "Only owners of the ledger set caps and shares. Let the owner of the data do it.",
    "ledger-not-readable": (
        "This user may not read the ledger, or its last entries must first be merged by a user with write access."
    ),
    "ledger-not-writable": "No ledger can be created in this folder. Name a folder that can be written.",
    "ledger-other-user": "A search belongs to the database role that opens it. Connect as that role.",
    "ledger-read-only": (
        "This user may only read the ledger, and nothing can be charged. Give the user the right to write, or "
        "name the primary server."
    ),
    "ledger-replaced": (
        "Another ledger was put in the place of the one that was in use. Put the original back; only it holds "
        "what was charged."
    ),
    "ledger-trigger-missing": (
        "Triggers that keep the ledger append-only, and check who writes, were dropped or disabled. Put them "
        "back, and compare the ledger with a backup."
    ),
    "ledger-unavailable": (
        "The ledger cannot be used just now: the server does not answer, or the transaction failed. Nothing "
        "more is charged. Follow the message, then resume."
    ),
    "ledger-url": (
        "The ledger must be an SQLite file (sqlite:///FILE) or a PostgreSQL database (postgresql://user@host/database)."
    ),
    "ledger-url-password": (
        "The ledger's URL is stored in every sweep and shown in MLflow, so it may not contain a password. Put "
        "the password into ~/.pgpass or PGPASSWORD."
    ),
    # privacy cards
    # executors and records
}

EXPLANATIONS: dict[str, str] = {**_PLATFORM, **trainables.errors.EXPLANATIONS, **search_spaces.errors.EXPLANATIONS}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


def explanation(code: str) -> str | None:
    """Return the explanation of a code; None when there is no such code."""
    return EXPLANATIONS.get(code.strip("[]"))
