"""Explanations of the errors of the ledger, its accountant and privacy cards, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "release-charged": "A release is charged once, when its search is opened. This search is not for a release, "
        "or was charged already. Please report this as a bug.",
        "release-stored": "The checksum of a release is recorded once, after the charge, because a release is drawn "
        "once. Start a new search, which draws and charges a new release.",
        "release-missing": "The stored release on which the sweep trains is missing, or its checksum is not the one in "
        "the ledger. Restore the file from a copy. A new sweep draws a new release and is charged for it.",
        "release-unwritable": "The release was drawn but could not be written. It stays charged. Fix the disk. The "
        "next search draws and charges another release.",
        "ledger-busy": "Another process is using the ledger, or changed it while dp-tuner was reading it. End that "
        "process or try again.",
        "ledger-damaged": "A program other than dp-tuner changed or truncated the ledger, or tables are missing. "
        "Restore the ledger from a complete backup. A new ledger would forget what was spent, so none is created.",
        "ledger-division-damaged": "The ledger's list that assigns the records of a data set to users was changed or "
        "removed. Restore the ledger from a complete backup. Until then, no search that protects users can start on "
        "this data set.",
        "ledger-disk-full": "The disk of the ledger is full. Nothing more is charged. Free space, then resume.",
        "ledger-encoding": "The database of a ledger must use UTF8. Create a database with that encoding.",
        "block-not-charged": "A search was about to charge steps, but the ledger lacks the search's claim for one of "
        "its blocks. Nothing was charged. Please report this as a bug.",
        "block-mirror": "This is not the name of a search, but of the ledger's entry for one block of a search. One "
        "block cannot be charged alone. Use the name of the search.",
        "ledger-entry-refused": "The database refused an entry that does not continue the ledger's chain, or whose "
        "body is not JSON. Nothing was written. Write to a ledger with dp-tuner only.",
        "ledger-foreign": "The file is a database of another program. dp-tuner did not change it. Choose another file.",
        "ledger-format": "Another version of dp-tuner wrote this ledger. The ledger was not changed. Use that version.",
        "ledger-key": "The key that makes checksums of records unguessable is missing, or belongs to another ledger. "
        "Restore the file of the key. Or get the key from the operator who made the ledger, and name its file in "
        "DP_TUNER_LEDGER_KEY.",
        "ledger-not-durable": "The server of the ledger may lose charges in a crash. Set `fsync = on` and use logged "
        "tables.",
        "ledger-not-found": "No ledger exists at this address. Correct the address, or restore a lost ledger from a "
        "backup.",
        "ledger-not-granted": "The database role has no rights on the ledger's tables. Ask the ledger's owner.",
        "ledger-not-origin": "The experiment file was exported from another ledger, or from a later state of this "
        "ledger. The ledger in use may lack charges of these records. Restore the original ledger, or correct `ledger` "
        "in the file.",
        "ledger-not-owner": "Only owners of the ledger may set caps and shares. Ask the owner of the data.",
        "ledger-not-readable": "This account cannot read the ledger. Ask for read access. If the last entries are "
        "still in the `-wal` file next to the ledger, an account with write access must first open the ledger once.",
        "ledger-not-writable": "No ledger can be created in this folder. Name a writable folder.",
        "ledger-other-user": "Only the user who started a search (an account or a database role) can add entries "
        "about it to the ledger. Continue as that user, or start a search of your own.",
        "ledger-read-only": "This user may only read the ledger. Ask for write access, or use the URL of the primary "
        "server.",
        "ledger-replaced": "Another ledger is now at the address of the ledger in use. Restore the original "
        "ledger. Only the original has all charges.",
        "ledger-trigger-missing": "Database triggers were dropped or disabled. Triggers keep the ledger append-only "
        "and check who writes an entry. Restore the triggers, and compare the ledger with a backup.",
        "ledger-unavailable": "The ledger's server cannot be reached, or a transaction failed. Do what the message "
        "says, then resume.",
        "mechanism-not-single": "The trials of this search can use several pairs of sample rate and noise multiplier, "
        "but the command needs one pair. Name one of the pairs.",
        "mechanism-not-reserved": "A trial can train only with the sample rate and noise multiplier that it "
        "reserved. Start a new trial to use other values. If dp-tuner itself changed the values, please report a bug.",
        "steps-not-leased": "A trial reports more steps than were charged, so the guarantee of its search does not "
        "hold. Please report this as a bug.",
        "trial-unknown": "This trial cannot be ended in the ledger, because it has never reserved steps there. Check "
        "the id of the trial.",
        "rung-not-finished": "A trial can reserve the steps of its next rung only after it has taken all its reserved "
        "steps. Please report this as a bug.",
        "trial-settled": "The trial has ended and its unused steps were freed, so nothing more can be charged for it. "
        "Start a new trial.",
        "search-not-open": "The search is closed or was charged already, so nothing can be charged for it now. Resume "
        "the search, or start a new one.",
        "search-not-found": "The ledger has no search with this name. Check the name and the URL of the ledger.",
        "search-name-taken": "The ledger already has a search with this name. Names must be unique across data sets.",
        "sealed-charged-whole": "A sealed search or a release is charged once, as a whole. In a sealed search, "
        "charges of single runs would reveal their number.",
        "pool-unknown": "Protected scores can be charged only if the search was opened with a cap for its validation "
        "records.",
        "ledger-chain-broken": "An entry of the ledger does not follow from the entry before it. An entry was changed, "
        "removed or inserted. Restore the ledger from a complete backup.",
        "ledger-entry-unreadable": "An entry of the ledger cannot be read. Upgrade dp-tuner if a newer version wrote "
        "the entry. Otherwise restore the ledger from a complete backup.",
        "ledger-entry-not-allowed": "An entry breaks a rule of the ledger. Restore the ledger from a complete backup.",
        "ledger-price-too-low": "An entry records a lower privacy cost than the accountant computes. Restore the "
        "ledger from a backup.",
        "ledger-claim-too-low": "The cap of a search allows steps that cost more than the (ε, δ) that the search "
        "claims. Restore the ledger from a backup.",
        "card-format": "Another version of dp-tuner wrote this card. Verify it with that version.",
        "card-own-words": "A value on the card that is not in the ledger, for example a score, does not have the "
        "required form. Correct the value. The message says which form is required.",
        "card-public-size": "The charged sample rate times the card's public size must be a whole number, the "
        "expected batch size. For this card it is not, so the card and the charged search have different public "
        "sizes. Give the size from which the sample rate was computed.",
        "card-run-not-charged": "A card is issued for a charged run, but the ledger has no charged steps of this run. "
        "Check the search, the trial and the ledger.",
        "card-block-missing": "The card of a search on blocks must state the total of each block, because the search "
        "is charged to each. Give the states of all its blocks after the first charge.",
        "card-search-unknown": "The ledger has no search with the name and the data set of this card. Give the ledger "
        "in which the search was charged.",
        "card-text-changed": "A card is verified byte for byte, but this file was edited, reformatted or cut off. Use "
        "the file that `tune export` wrote.",
    },
    2: {
        "cap-below-committed": "The claims of the existing searches on the data set already exceed the new cap, so no "
        "new search could start. These claims remain. Add --yes to set the cap anyway.",
        "share-not-found": "The user has no share to revoke. Check the names of the user and of the data set.",
        "release-invalid": "A number of the release is not allowed, or no noise gives the requested ε. Correct "
        "`privacy.release`, `privacy.epsilon` or `privacy.delta`.",
        "votes-invalid": "A number in `privacy.votes` is not allowed, or no noise gives the requested ε. Correct "
        "`privacy.votes`, `privacy.epsilon` or `privacy.delta`.",
        "division-missing": "A search that protects users must say which records belong to which user: by (record, "
        "user) pairs, or by a user key. A reopened search must give the same pairs or the same key as before.",
        "ledger-driver-missing": 'A PostgreSQL ledger needs psycopg. Run pip install "dp-tuner[postgres]".',
        "ledger-url": "The address of a ledger must be that of an SQLite file (sqlite:///FILE) or a PostgreSQL "
        "database (postgresql://user@host/database).",
        "ledger-folder-unwritable": "A new ledger cannot be created in this folder. Name a folder that you may write.",
        "ledger-folder-missing": "The path of a ledger must be in a folder that exists. A mistyped path would "
        "otherwise start a new ledger, which does not have the earlier searches.",
        "ledger-url-password": "The ledger's URL is stored in every sweep and shown in MLflow, so it must not contain "
        "a password. Put the password into ~/.pgpass or PGPASSWORD.",
        "sample-rate-out-of-range": "A sample rate is the expected batch size divided by the public number of training "
        "records. Choose a batch size of at least 1 and at most that number.",
        "noise-out-of-range": "A noise multiplier must be finite and above 0. `auto` chooses the smallest one that "
        "fits the budget.",
        "epsilon-out-of-range": "ε must be a finite number above 0.",
        "delta-out-of-range": "δ must be above 0 and below 1. It should be less than 1/n for n records.",
        "count-out-of-range": "The value must be a whole number. It must not be below the minimum in the message.",
        "order-out-of-range": "The accountant is tested for Rényi orders from 1.05 to 1024. Other orders are refused.",
        "filter-invalid": "A number of a privacy filter (the cap on the private steps of a search) is not allowed. "
        "The message says what is allowed.",
        "filter-kind-unknown": "The ledger contains a kind of privacy filter (cap) that this version does not know. "
        "Upgrade dp-tuner.",
        "filters-differ": "Both caps of a sealed search, for training steps and for validation scores, must be of the "
        "kind sealed. With another kind, the ledger's charges would reveal the number of runs.",
        "menu-empty": "No step or run is planned, so no privacy cost can be computed. Plan at least one step or run.",
        "too-many-steps": "The accountant accepts only a limited number of steps, because its rounding error was not "
        "measured for more. Plan fewer trials or epochs, or larger batches.",
        "epsilon-too-large": "The ε of a sealed search must not exceed the limit in the message, because double "
        "precision is too coarse for larger values.",
        "poisson-not-adaptive": "If the sampler depends on scores, no proof covers a Poisson number of runs. Use a "
        "geometric distribution, or the sampler `random`.",
        "probability-out-of-range": "The probability is outside the range for which the number of runs can be "
        "computed. The message shows the range.",
        "run-law-unknown": "The distribution of the number of runs is unknown. The message lists the known "
        "distributions.",
        "run-law-unbounded": "The number of runs could exceed a million. Write a smaller mean or a larger shape.",
        "run-law-without-gamma": "Only truncated negative binomial distributions have the parameter gamma. Use the "
        "mean instead.",
        "run-mean-out-of-range": "The mean number of runs is outside the allowed range. For the Poisson distribution "
        "it must be above 0 and at most 10. For all other distributions it must be above 1.",
        "run-shape-out-of-range": "Only `negative_binomial` has a shape that can be chosen. The shape must be above -1 "
        "and at most a million. It must also be exactly 0 or at least 1e-9 away from 0.",
        "mechanism-not-named": "This search allows several pairs of sample rate and noise multiplier, so each trial "
        "must name its own pair.",
        "score-sampled": "A protected score is computed from all validation records, so its sample rate must be 1.",
        "validation-claim-too-large": "The ε and δ of validation records must be at most those of the whole search.",
        "ledger-name-invalid": "A name in the ledger must have 1 to 200 printable characters. Only a block of your "
        "own table may have a `/` in its name: TABLE/BLOCK.",
        "renyi-order-invalid": "The Rényi order must be above 1. With this order, ε and half of δ must allow at least "
        "one step. `auto` chooses the order that allows the most steps.",
        "hash-invalid": "A card is identified in the ledger by its SHA-256 hash, which has 64 hexadecimal digits.",
        "not-plain-json": "Ledgers and cards may contain plain JSON only: text, whole numbers, finite floats, lists "
        "and mappings.",
        "no-ledger": "No ledger exists at this address. The first private search or `tune budget set` creates one.",
        "card-contribution-bound": "The card of a search that protects users must state a bound on records per user. "
        "Any other card must not state one.",
        "card-not-found": "The file is not a privacy card. Give the exported privacy_card.json.",
        "card-not-private": "With `private: false` the noise comes from a known seed, so it does not protect the "
        "records. Run the search again with `private: true`.",
        "card-ledger-unknown": "The exported experiment.yaml, which names the ledger of the card, cannot be read. Give "
        "the ledger's URL with `--ledger`.",
    },
    3: {
        "filter-exceeds-claim": "The cap on the steps allows a larger ε than the search claims. Allow fewer steps, or "
        "raise ε.",
        "no-noise-fits": "Even with the largest noise the planned steps exceed ε. Raise ε, or plan fewer steps.",
        "no-order-fits": "ε and δ are too small for a Rényi filter (cap) of any order. Even for a tiny divergence, "
        "the conversion to (ε, δ) costs more than ε. Raise ε or δ.",
        "mechanism-not-allowed": "A trial may use only the sample rates and noise multipliers that the cap of its "
        "search allows. The search's claim covers no other values.",
        "not-reserved": "Only steps that a trial has reserved can be charged. To repeat steps, the trial must reserve "
        "them again.",
        "cap-exceeded": "The charged, reserved and newly requested steps together exceed the cap of the search. "
        "Nothing was charged.",
        "unit-differs": "All searches on a data set must protect the same unit, because claims for records and claims "
        "for users cannot be added. Change `privacy.unit`.",
        "cap-not-set": "Shares are parts of a data set's cap, and this data set has no cap. Set the cap first with "
        "`tune budget set`.",
        "cap-order-fixed": "The Rényi order of a cap is fixed before the first search. A later choice could depend on "
        "results, and then the guarantee would not hold. Keep the order.",
        "dataset-cap-exceeded": "The claims of all searches on the data set together would exceed its cap. Lower "
        "`privacy.epsilon` or `privacy.delta`, or ask the owner for a larger cap.",
        "records-not-admitted": "The ledger does not allow these records for this use. Either it holds them as "
        "private, or the owner has not entered them. The message does not say which, because that would reveal "
        "something about records. The owner can enter a public file with `tune budget public`, and a new private data "
        "set with `tune budget set`. `tune run --void-total REASON` runs the search anyway, but voids the guarantee "
        "for all searches together.",
        "records-known-private": "Records or names that the ledger holds as private cannot be entered as public.",
        "blocks-differ": "A table is searched either as a whole or by blocks, so that each record has only one total. "
        "Search the table in the same way as before.",
        "no-share": "The data set's cap is divided among users, and this user has no share. Ask the owner for a share.",
        "share-exceeded": "The searches of this user would exceed the user's share of the data set's cap. Lower "
        "`privacy.epsilon` or `privacy.delta`, or ask the owner for a larger share.",
        "shares-exceed-cap": "The shares of all users together would exceed the cap of the data set. Grant less, "
        "lower another share, or raise the cap.",
        "users-differ": "In an earlier search, a record of this file belongs to another user. Claims for each user "
        "add up only if all searches on a data set divide its records among the same users. Use the same user column, "
        "with the same names. If several people have equal records, and some of these people leave or join, no column "
        "can do this. Then declare `dataset.user_key` from the first search on. The message does not name the record, "
        "because it is private.",
        "user-key-differs": "The first search on a data set decides how its records are divided among users: by the "
        "(record, user) pairs in its file, or by a declared `dataset.user_key`. Later searches must write the same "
        "key, or no key if the first has none.",
    },
}
