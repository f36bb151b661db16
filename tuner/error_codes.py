"""Explanations of all error codes, for `tune explain` and the documentation."""

from __future__ import annotations

import difflib
from typing import Any

import search_spaces.errors
import trainables.errors
from tuner.errors import InputError

__all__ = ["EXIT_CODES", "EXPLANATIONS", "code_list", "explain"]

_FAMILIES = {1: "failed", 2: "bad input", 3: "refused by the budget", 130: "interrupted, resumable"}

_PLATFORM: dict[str, str] = {
    # commands and sweeps
    "usage": "The command line has an unknown command or option, or a missing or malformed value. `tune COMMAND "
    "--help` lists what a command accepts.",
    "options-conflict": "Two options exclude each other. Leave one of them out.",
    "unknown-code": "No error has this code. `tune explain` without a code lists all codes.",
    "system-error": "The operating system refused to read or write a file: it is missing, not readable or "
    "writable for this account, or the disk is full. Fix the cause and run the command again.",
    "internal-error": "The program contradicts itself; your input is not the cause. Please report the command and "
    "the whole message. What was charged stays charged.",
    "interrupted": "The command was stopped by Ctrl-C, by a signal or by `tune stop`. Charged steps stay charged; "
    "an interrupted sweep continues with `tune resume NAME`.",
    "folder-not-found": "The folder given to a command does not exist. `tune ls` lists the sweeps.",
    "output-unwritable": "The program cannot write to the output folder. Choose another folder or change its "
    "permissions.",
    "port-in-use": "The port is used by another program or not allowed for this account. Choose another one with "
    "`--port`.",
    "no-ray-experiment": "The folder has no records that Ray Tune can read. Sweeps of this program are shown by "
    "`tune show NAME`.",
    "storage-unwritable": "The folder of `storage`, in which sweeps are kept, cannot be created or written. "
    "Choose another folder or change its permissions.",
    "sweep-not-found": "No sweep has this name or id in the storage folder. `tune ls` lists the sweeps; "
    "`--storage` chooses another folder.",
    "sweep-incomplete": "The program stopped while it created the sweep's folder. Nothing was charged: remove the "
    "folder and run the experiment again.",
    "sweep-running": "Another process is running this sweep, and two would train and charge the same trials "
    "twice. Wait for it to end, or stop it with `tune stop NAME`.",
    "sweep-not-finished": "The command needs a sweep that has ended. Let it end, or resume it with `tune resume NAME`.",
    "sweep-not-private": "Only a search that trained privately on the private records can be exported, because an "
    "export has a privacy card. Run the search with `privacy.private: true`, or export the charged run of a public "
    "search.",
    "sweep-file-unreadable": "A file of the sweep is missing, damaged or not JSON. Restore it from a copy; the "
    "ledger keeps what was charged.",
    "sweep-files-changed": "The files of a sweep contradict each other, so one of them was changed after the "
    "sweep started. Restore them from a copy.",
    "ledger-mismatch": "The settings, the plan or the records of a sweep are not those that its ledger was "
    "charged for, so the claim would not hold for them. Restore the files and the data from a copy, or start a new "
    "sweep.",
    "search-not-in-ledger": "The ledger named in the experiment does not know this sweep. Restore the ledger that "
    "the sweep was charged in; a sweep never continues in a new ledger.",
    "search-not-charged": "The sweep has trained more steps than its ledger has charged. The sweep's folder or "
    "the ledger was changed: restore both from a copy.",
    "resume-changes-setting": "A resumed sweep keeps everything that its privacy claim and its scores depend on. "
    "Only the number of trials, resources, tracking and paths may change; for other settings start a new sweep.",
    "charged-run-missing": "The public search has not started its charged run on the private records. Resume the "
    "search first.",
    "charged-run-differs": "This version of the program plans another charged run than the one that was "
    "announced. Start a new search.",
    "public-records-shape": "The public records of `search.public` have other inputs or classes than the private "
    "records, so no configuration can be carried over. Choose another public data set.",
    "public-records-private": "`search.public` names the private records themselves. A search on them would be "
    "charged nowhere: choose a data set that everyone may see.",
    "public-search-empty": "No trial of the public search is complete, so there is no configuration to train on the "
    "private records. Start a new search.",
    "choice-made": "A public search chooses its configuration before the charged run starts, so an export cannot "
    "choose again. Leave `--by` out.",
    "no-curve": "`--by curve` needs a unimodal search that is not sealed and whose assumption of a single maximum "
    "was not rejected. Leave `--by` out, or use `--by score`.",
    "no-complete-trial": "No trial of the sweep is complete, so there is no winner. Resume the sweep or start a "
    "new one.",
    "sealed-search-failed": "A run of a sealed search failed. The cause is only in the operator's log, because an "
    "error message could reveal how many runs there were; fix it and resume the sweep.",
    "sealed-runs-missing": "The file with the number of runs of a sealed search is missing. It is never drawn "
    "again, because a second draw could depend on what was seen: restore it from a copy.",
    "checkpoint-missing": "The model of the winning trial is missing. Restore the sweep's folder from a copy.",
    "checkpoint-unreadable": "The file with the winning model cannot be read. Restore it from a copy.",
    "model-code-failed": "The code of your own model failed on inputs of the data set's shape. Fix the model, or "
    "use the data set that it was written for.",
    "train-not-private": "`tune train` writes a model with a privacy card, so the experiment must be private. Use "
    "`tune run` for a study without privacy.",
    "train-not-single": "`tune train` trains one configuration: one trial, no searched parameter, accounting by "
    "composition. Use `tune run` to search, then `tune export`.",
    "tracking-uri-invalid": "MLflow can never answer at this address of `tracking.uri`. Write a database such as "
    "sqlite:///runs/mlflow.db or a server such as http://HOST:5000.",
    "tracking-store-not-found": "The file of the MLflow store does not exist. Run a search first, or give `--uri`.",
    "test-set-used": "The test set is scored once a sweep. Scoring a second trial would be a search over the test "
    "set: choose the same trial as before.",
    "export-not-found": "The folder was not written by `tune export`, or files of it are missing. Write it with "
    "`tune export NAME`.",
    "export-unreadable": "A file of the export cannot be read or belongs to another model or data set. Export the "
    "model again.",
    "card-unreadable": "The file is not a privacy card. A card is the `privacy_card.json` in a folder of `tune "
    "export`.",
    "split-changed": "The experiment file of an export splits the records in another way than its privacy card "
    "says. Then its validation records may be training records: restore the file from a copy.",
    "split-invalid": "The loss landscape is computed on the validation or the test records. The training records "
    "are never used: their exact losses would undo the protection by noise.",
    "public-data-unconfirmed": "The loss landscape is an exact function of the records it is computed on, without "
    "noise. Confirm with `--public-data` that they are public, or name a public data set with `--dataset`.",
    "validation-protected": "The guarantee of this model covers its validation records too, so their exact losses "
    "must not be shown. Use `--split test`.",
    "records-differ": "Models are only compared on the same records. Choose exports of one data set and one "
    "split, or name a public data set with `--dataset`.",
    "training-records-shared": "The data set of `--dataset` shares records with the training data of a model. "
    "Choose another one.",
    "input-shape-differs": "The data set of `--dataset` has inputs or classes that the model was not built for. "
    "Choose another one.",
    "grid-points-invalid": "A line or plane of the loss landscape needs an odd number of points, at least 3, so "
    "that the model itself is one of them.",
    "output-path-invalid": (
        "The file to write is a folder, or its folder does not exist. Name a file in a folder that exists."
    ),
    "sealed-runs-hidden": (
        "The guarantee of a sealed search covers the winner alone. Any other run, even the number of runs, would "
        "reveal more about the records than was charged, so only the winner is shown."
    ),
    "trial-not-found": (
        "The sweep has no trial of this number or id. `tune show SWEEP` lists its trials; numbers of candidates that "
        "never started are missing."
    ),
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
    "option-unknown": "The sampler or pruner has no such option.",
    "option-missing": "The pruner needs an option that is not given.",
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
    "when-sure-sampler": "Only the unimodal sampler measures how sure the search is.",
    "when-sure-sealed": "Stopping or repeating by scores would show the hidden number of runs.",
    "replicate-with-runs": "Repetitions are compared over complete runs, and the option runs stops unlucky ones.",
    # plans
    "budget-too-small": "Not one trial (or not one run, or not the planned trials) fits the budget of the search. "
    "Raise the noise or ε, or plan fewer or shorter trials.",
    "validation-budget-too-small": "Not one protected score fits the budget of the validation records.",
    "plan-unreadable": "A stored plan lacks a value or has an unknown one. Restore plan.json from a copy.",
    "plan-has-no-mechanism": "Trials choose among several sample rates or noise multipliers, so there is not one.",
    "plan-incomplete": (
        "The plan in the sweep's folder lacks a part that every plan of its mode has, so the file was changed. Restore "
        "it from a backup."
    ),
    # studies
    "grid-too-large": "The grid of a grid search has too many points. Give `points` a smaller number, or search fewer "
    "parameters.",
    "grid-values-missing": "A grid search needs a search space, and at least one value for each parameter of it.",
    "option-invalid": "The sampler or the pruner has no such option, needs one that is missing, or refuses its value. "
    "docs/experiment.md lists the options.",
    "promotion-rungs": "Each level of a promoted parameter begins at its own rung, so a trial needs at least as many "
    "rungs as levels. Raise `search.rungs`, train for more steps, or write fewer levels.",
    "promotion-steps": "In the shortest trial a level of a promoted parameter would last for one step or less and be "
    "lost to rounding. Train for more epochs, or write fewer levels.",
    "pruner-unknown": "No pruner has this name. docs/experiment.md lists the pruners.",
    "sampler-not-secret": "A sealed search draws every value from the operating system, and only the samplers `random` "
    "and `bounded` can do this.",
    "sampler-unknown": "No sampler has this name. docs/experiment.md lists the samplers.",
    "search-option-invalid": "Optuna refuses an option of the sampler or the pruner. The message has Optuna's own "
    "words; docs/experiment.md lists the options.",
    "study-direction": "The stored study maximizes its score and the experiment minimizes it, or the other way round. "
    "The trials of both cannot be compared. Start a sweep with another name.",
    "study-settings-invalid": "The numbers of trials, steps and rungs of a study contradict each other, or its mode.",
    "study-unreadable": "The journal with the trials of a sweep is damaged. It is never replaced by an empty one. "
    "Restore it from a copy, or start a new sweep; what was charged stays charged.",
    "unimodal-parameter-missing": "Unimodal search needs a searched number along which the score has one top. "
    "Write `unimodal: true` at the range of one, or search the smoothing radius.",
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
    "sample-rate-out-of-range": "A sample rate is the expected batch size over the public number of training records, "
    "above 0 and at most 1. Choose a batch size between 1 and that number.",
    "noise-out-of-range": "A private step needs noise: its multiplier is finite and above 0. Write a positive number, "
    "or `auto` to have it calibrated.",
    "epsilon-out-of-range": "ε is a finite number above 0. NaN and infinity are refused, because an accountant that is "
    "fed NaN may answer ε = 0.",
    "delta-out-of-range": "δ is a number above 0 and below 1. It should be less than 1/n for n records.",
    "count-out-of-range": "Steps, scores and caps are whole numbers with a minimum; floats and booleans are refused.",
    "order-out-of-range": "A Rényi order is checked against a reference only from 1.05 to 1024, so others are refused.",
    "filter-invalid": "A filter limits what a search may do to the records, and this one contradicts itself.",
    "filter-kind-unknown": "The ledger holds a filter that this version does not know. Upgrade dp-tuner.",
    "filter-exceeds-claim": "Everything that the filter of a search allows must cost at most the ε that the search "
    "claims. Allow less, or raise ε.",
    "filters-differ": "A sealed search hides its number of runs, so both of its pools are charged as a whole.",
    "menu-empty": "The accountant was asked about planned steps, and there are none.",
    "no-noise-fits": "Even with the largest noise multiplier the planned steps cost more than ε. Raise ε, or plan "
    "fewer trials or epochs.",
    "no-order-fits": "At every Rényi order the conversion to (ε, δ) alone costs more than ε. Raise ε or δ.",
    "too-many-steps": "The margin for rounding in the accountant was measured up to a number of steps; more are "
    "refused. Plan fewer trials or epochs, or larger batches.",
    "epsilon-too-large": "At so large an ε double precision cannot tell where to cut off the hidden number of runs.",
    "poisson-not-adaptive": "There is no proof of privacy for a poisson number of runs with a sampler that learns. Use "
    "a geometric number, or random search.",
    "probability-out-of-range": "A probability is out of the range in which the law of the number of runs is computed.",
    "run-law-unknown": "The number of runs of a sealed search follows one of the laws for which there is a proof.",
    "run-law-unbounded": "With this mean and shape the number of runs may exceed a million. Write a smaller mean or a "
    "larger shape.",
    "run-law-without-gamma": "Only the truncated negative binomial laws have the parameter gamma.",
    "run-mean-out-of-range": "The mean number of runs is above 1, and for a poisson number above 0 and at most 10.",
    "run-shape-out-of-range": "Only negative_binomial takes a shape: above -1, at most a million, and not too close to "
    "0.",
    "mechanism-not-allowed": "Trials may use only the mechanisms that the filter of their search allows, because only "
    "those were accounted for when it was opened.",
    "mechanism-not-named": "This search allows several mechanisms, so each trial must name its own.",
    "mechanism-not-reserved": "A trial keeps the sample rate and noise multiplier that it reserved: a step of another "
    "mechanism was not paid for, so the ledger refuses it. Start a new trial; if dp-tuner itself asked, report a bug.",
    "not-reserved": "A trial may lease only what it reserved. Repeated steps are reserved again.",
    "steps-not-leased": "A trial reports more steps than it was charged, so the guarantee of its search does not hold. "
    "Please report this as a bug.",
    "cap-exceeded": "The budget of the search is reached: what is asked for and what is leased and reserved already "
    "exceed its cap. Nothing was charged.",
    "trial-unknown": "The ledger knows a trial from its first reservation on.",
    "trial-settled": "A settled trial has returned what it did not use, and can charge nothing more. Start a new one.",
    "search-not-open": "Only an open search can be charged. Resume it, or start a new one.",
    "search-not-found": "The ledger has no search of this name. Check the name and the URL of the ledger.",
    "search-name-taken": "Each search has its own name in the ledger, over all data sets.",
    "sealed-charged-whole": "A sealed search is charged as a whole when it begins, because single charges would show "
    "how many runs there are.",
    "pool-unknown": "Scores are charged only where the search was opened with a cap for its validation records.",
    "score-sampled": "A released score reads every validation record, so its sample rate is 1.",
    "validation-claim-too-large": "The claim of a search covers its validation records, so it is at least as large as "
    "their own.",
    "unit-unknown": "The guarantee protects each record or each user.",
    "unit-differs": "Claims for records and claims for users do not add up, so all searches on a data set protect the "
    "same unit. Change privacy.unit, or keep the data under another name.",
    "cap-not-set": "Shares divide the cap of a data set, which must be set first with `tune budget set`.",
    "cap-order-fixed": "The Rényi order of a cap is chosen before the first search. A later choice could depend on "
    "results, and the guarantee would not hold.",
    "dataset-cap-exceeded": "The searches on a data set commit their claims, and together they would exceed the cap of "
    "its owner. Lower privacy.epsilon or delta, or ask the owner for a larger cap.",
    "dataset-known-otherwise": "The same records have a budget under another name. Two names would spend two budgets.",
    "no-share": "The cap of this data set is divided among its users, and this user has no share. Ask the owner "
    "for one.",
    "share-exceeded": "This user's searches would exceed the user's share of the data set's cap.",
    "shares-exceed-cap": "The shares of all users together must fit the cap of the data set.",
    "ledger-name-invalid": "Names in the ledger have 1 to 200 printable characters.",
    "ledger-chain-broken": "An entry does not follow from the one before it: it was changed, left out or put in. "
    "Restore the ledger from a backup that holds every entry.",
    "ledger-entry-unreadable": "An entry cannot be read. Restore the ledger from a backup that holds every entry, or "
    "upgrade dp-tuner if a newer version wrote it.",
    "ledger-entry-not-allowed": "An entry says something that the rules of the ledger do not allow, so it was forged "
    "or damaged. Restore the ledger from a backup that holds every entry.",
    "ledger-price-too-low": "An entry noted a lower price than the accountant computes now. Restore the ledger from a "
    "backup.",
    "ledger-claim-too-low": "A search may cost more than it claims, so its entry was forged or damaged. Restore the "
    "ledger from a backup.",
    "renyi-order-invalid": (
        "The order of the Rényi filter must be a number above 1 at which the filter admits at least one step within ε "
        "and half of δ. `auto` chooses the order that admits the most."
    ),
    "users-differ": "All searches on the same records divide them among the same users; otherwise no total covers "
    "both.",
    "share-not-found": "Only a share that was granted can be revoked.",
    "hash-invalid": "A card is recorded in the ledger by its SHA-256, 64 hexadecimal digits.",
    "not-plain-json": "The ledger and cards hold plain JSON: strings, whole numbers, finite floats, lists and mappings "
    "with string keys.",
    "mechanism-not-single": "The search allows several mechanisms, so it has not one to read.",
    "no-ledger": "There is no ledger to show or to divide at this address. The first private search creates one, or "
    "`tune budget set`.",
    # privacy cards
    "card-contribution-bound": (
        "A card that protects users names how many records of one user a step may use; a card that protects records "
        "has no such bound."
    ),
    "card-format": "Another version of dp-tuner wrote this card. Verify it with that version.",
    "card-not-found": "The file is not a privacy card. Give the exported privacy_card.json.",
    "card-not-private": (
        "The noise of a run with private: false was seeded, so nothing protects the records in its model. Run it "
        "again with private: true."
    ),
    "card-own-words": (
        "Some values of a card are known to the operator alone, such as scores and versions. Each has a form, and "
        "this one does not fit it."
    ),
    "card-public-size": (
        "The charged sample rate is the batch size divided by the public size. The card's public size and rate give "
        "no whole batch, so one of them is not what the search was charged with."
    ),
    "card-run-not-charged": (
        "A card is issued for one charged run. The ledger has no charged steps for it, so the search, the trial or "
        "the ledger is another one."
    ),
    "card-search-unknown": "The ledger has no such search on this data set. Name the ledger of the card.",
    "card-text-changed": (
        "A card is verified byte for byte. This file is not what tune export wrote: it was edited, reformatted or "
        "cut off."
    ),
    "card-ledger-unknown": (
        "The exported experiment.yaml names the ledger of the card and cannot be read. Name the ledger with --ledger."
    ),
    # executors and records
    "first-trials-failed": (
        "The first trials of the search all failed, so the search stopped instead of spending more. The tracebacks "
        "are in operator.log in the sweep's folder. Fix the cause, then resume."
    ),
    "resources-too-large": (
        "One trial asks for more CPUs or GPUs than this machine has. Ask for less under `resources`, or name a cluster "
        "with --address."
    ),
    "ray-failed": "Ray Tune stopped with an error of its own. What was charged stays charged. Resume the sweep.",
    "spool-busy": (
        "A sweep's records have one writer, and another process writes them now. Wait for that sweep to end, or stop "
        "it with `tune stop`."
    ),
    "spool-damaged": (
        "A record of the sweep was changed on disk, so its checksum does not hold. The records before it are safe. "
        "Restore the file, or delete the damaged line and run `tune sync` again."
    ),
    "spool-unwritable": (
        "Every record of a sweep must be on the disk before the sweep continues, and the disk refused one. Free space "
        "or fix the disk, then resume; nothing recorded is lost."
    ),
    "records-not-found": "The folder holds no records of a sweep. Give the folder of a sweep that was started.",
    "records-being-sent": (
        "Another process is sending the records of this sweep to MLflow. Let it finish; nothing is lost."
    ),
    "tracking-unavailable": (
        "MLflow cannot be reached or does not accept records now. They wait on the disk. Start the tracking server, "
        "then run `tune sync`."
    ),
    "tracking-experiment-deleted": (
        "The MLflow experiment was deleted, and MLflow keeps its name. Restore it with `mlflow experiments restore`, "
        "or choose another name in `tracking.experiment`."
    ),
    "artifact-missing": (
        "A file that was recorded as an artifact was deleted before it was sent to MLflow. The other records are sent."
    ),
}

EXPLANATIONS: dict[str, str] = {**_PLATFORM, **trainables.errors.EXPLANATIONS, **search_spaces.errors.EXPLANATIONS}
"""Code → what it means, why it is an error, and what to do, in one to three sentences."""


EXIT_CODES: dict[str, int] = {
    "system-error": 1,
    "internal-error": 1,
    "interrupted": 130,
    "sweep-running": 1,
    "sweep-file-unreadable": 1,
    "sweep-files-changed": 1,
    "ledger-mismatch": 1,
    "search-not-in-ledger": 1,
    "search-not-charged": 1,
    "charged-run-differs": 1,
    "public-search-empty": 1,
    "sealed-search-failed": 1,
    "sealed-runs-missing": 1,
    "checkpoint-missing": 1,
    "checkpoint-unreadable": 1,
    "budget-too-small": 3,
    "validation-budget-too-small": 3,
    "plan-unreadable": 1,
    "plan-has-no-mechanism": 1,
    "plan-incomplete": 1,
    "study-unreadable": 1,
    "ledger-busy": 1,
    "ledger-damaged": 1,
    "ledger-disk-full": 1,
    "ledger-encoding": 1,
    "ledger-foreign": 1,
    "ledger-format": 1,
    "ledger-not-durable": 1,
    "ledger-not-found": 1,
    "ledger-not-granted": 1,
    "ledger-not-owner": 1,
    "ledger-not-readable": 1,
    "ledger-not-writable": 1,
    "ledger-other-user": 1,
    "ledger-read-only": 1,
    "ledger-replaced": 1,
    "ledger-trigger-missing": 1,
    "ledger-unavailable": 1,
    "filter-exceeds-claim": 3,
    "no-noise-fits": 3,
    "no-order-fits": 3,
    "mechanism-not-allowed": 3,
    "mechanism-not-reserved": 1,
    "not-reserved": 3,
    "steps-not-leased": 1,
    "cap-exceeded": 3,
    "trial-unknown": 1,
    "trial-settled": 1,
    "search-not-open": 1,
    "search-not-found": 1,
    "search-name-taken": 1,
    "sealed-charged-whole": 1,
    "pool-unknown": 1,
    "unit-differs": 3,
    "cap-not-set": 3,
    "cap-order-fixed": 3,
    "dataset-cap-exceeded": 3,
    "dataset-known-otherwise": 3,
    "no-share": 3,
    "share-exceeded": 3,
    "shares-exceed-cap": 3,
    "users-differ": 3,
    "share-not-found": 1,
    "mechanism-not-single": 1,
    "card-format": 1,
    "card-own-words": 1,
    "card-public-size": 1,
    "card-run-not-charged": 1,
    "card-search-unknown": 1,
    "first-trials-failed": 1,
    "ray-failed": 1,
    "spool-busy": 1,
    "spool-damaged": 1,
    "spool-unwritable": 1,
    "records-not-found": 1,
    "records-being-sent": 1,
    "tracking-unavailable": 1,
}
"""Exit code of the errors with this code, where it is not 2 (bad input)."""


def explain(code: str) -> dict[str, Any]:
    """Return a code's explanation, exit code and family.

    Args:
        code: as it is at the end of an error message, with or without the brackets.

    Raises:
        InputError: there is no such code; the message names the nearest one.
    """
    code = code.strip("[] ")
    if code not in EXPLANATIONS:
        near = difflib.get_close_matches(code, EXPLANATIONS, n=1, cutoff=0.0)[0]
        raise InputError("unknown-code", f"No error has the code {code!r}. The nearest one is {near!r}.")
    exit_code = EXIT_CODES.get(code, InputError.exit_code)
    return {"code": code, "exit_code": exit_code, "family": _FAMILIES[exit_code], "explanation": EXPLANATIONS[code]}


def code_list() -> dict[str, str]:
    """Return all codes, each with the first sentence of its explanation."""
    return {code: EXPLANATIONS[code].partition(". ")[0].rstrip(".") + "." for code in sorted(EXPLANATIONS)}
