"""Explanations of the errors of the ledger, its accountant and privacy cards, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "ledger-busy": "Another process uses the ledger, or changed it during the read. End that process or try again.",
        "ledger-damaged": "The ledger was changed or cut off outside dp-tuner, or tables are missing. Restore it from "
        "a complete backup. A new ledger would forget what was spent, so none is created.",
        "ledger-disk-full": "The disk of the ledger is full. Nothing more is charged. Free space, then resume.",
        "ledger-encoding": "The database of a ledger must use UTF8. Create a database with that encoding.",
        "ledger-foreign": "The file is a database of another program, and was not changed. Name another file.",
        "ledger-format": "Another version of dp-tuner wrote this ledger. Nothing was changed. Use that version.",
        "ledger-not-durable": "The server may lose charges in a crash. Set fsync = on and use logged tables.",
        "ledger-not-found": "No ledger is at this address. Correct it, or restore a lost ledger from a backup.",
        "ledger-not-granted": "The database role has no rights on the ledger's tables. Ask the ledger's owner.",
        "ledger-not-owner": "Only owners of the ledger set caps and shares. Ask the owner of the data.",
        "ledger-not-readable": "This user may not read the ledger, or a writer must first merge its last entries.",
        "ledger-not-writable": "No ledger can be created in this folder. Name a writable folder.",
        "ledger-other-user": "A search belongs to the database role that opened it. Connect with that role.",
        "ledger-read-only": "This user may only read the ledger. Ask for write access, or name the primary server.",
        "ledger-replaced": "Another ledger replaced the one in use. Restore the original: only it has all charges.",
        "ledger-trigger-missing": "Triggers that keep the ledger append-only or check its writers were dropped or "
        "disabled. Restore them, and compare the ledger with a backup.",
        "ledger-unavailable": "The ledger's server or a transaction failed. Follow the message, then resume.",
        "mechanism-not-single": "The search allows several mechanisms, so there is no single one to return.",
        "mechanism-not-reserved": "A trial keeps the sample rate and noise multiplier that it reserved, and the ledger "
        "refuses steps of another mechanism. Start a new trial. If dp-tuner itself asked for the steps, report a bug.",
        "steps-not-leased": "A trial reports more steps than were charged, so the guarantee of its search does not "
        "hold. Please report this as a bug.",
        "trial-unknown": "The trial has no reservation in the ledger.",
        "trial-settled": "The trial returned its unused steps and can charge nothing more. Start a new one.",
        "search-not-open": "Only an open search can be charged. Resume it, or start a new one.",
        "search-not-found": "The ledger has no search with this name. Check the name and the URL of the ledger.",
        "search-name-taken": "The ledger already has a search with this name. Names are unique over all data sets.",
        "sealed-charged-whole": "A sealed search is charged once, when it begins. Single charges would show its runs.",
        "pool-unknown": "Scores can be charged only if the search was opened with a cap for its validation records.",
        "share-not-found": "The user has no share to revoke.",
        "ledger-chain-broken": "An entry does not follow from the one before it, so an entry was changed, removed or "
        "inserted. Restore the ledger from a complete backup.",
        "ledger-entry-unreadable": "An entry cannot be read. Upgrade dp-tuner if a newer version wrote it. Otherwise "
        "restore the ledger from a complete backup.",
        "ledger-entry-not-allowed": "An entry breaks the ledger's rules. Restore the ledger from a complete backup.",
        "ledger-price-too-low": "An entry's price is below the accountant's. Restore the ledger from a backup.",
        "ledger-claim-too-low": "A search may cost more than its entry claims. Restore the ledger from a backup.",
        "card-format": "Another version of dp-tuner wrote this card. Verify it with that version.",
        "card-own-words": "A value that only the operator knows, such as a score, does not have the required form.",
        "card-public-size": "The sample rate times the public size must be a whole batch. Here it is not, so the "
        "public size is not the one that was charged.",
        "card-run-not-charged": "A card is issued for a charged run, and the ledger has no charged steps for this one. "
        "Check the search, the trial and the ledger.",
        "card-search-unknown": "The ledger has no such search on this data set. Name the ledger of the card.",
        "card-text-changed": "A card is verified byte for byte, and this file was edited, reformatted or cut off. Use "
        "the file that `tune export` wrote.",
    },
    2: {
        "ledger-driver-missing": 'A PostgreSQL ledger needs psycopg. Run pip install "dp-tuner[postgres]".',
        "ledger-url": "A ledger is an SQLite file (sqlite:///FILE) or PostgreSQL (postgresql://user@host/database).",
        "ledger-url-password": "The ledger's URL is stored in every sweep and shown in MLflow, so it may not contain a "
        "password. Put the password into ~/.pgpass or PGPASSWORD.",
        "sample-rate-out-of-range": "A sample rate is the expected batch size divided by the public number of training "
        "records. Choose a batch size from 1 to that number.",
        "noise-out-of-range": "A noise multiplier is finite and above 0. `auto` calibrates the smallest that fits.",
        "epsilon-out-of-range": "ε is a finite number above 0. An accountant could turn NaN into ε = 0.",
        "delta-out-of-range": "δ is a number above 0 and below 1. It should be less than 1/n for n records.",
        "count-out-of-range": "Steps, scores and caps are whole numbers, and each has a minimum.",
        "order-out-of-range": "The accountant is tested for Rényi orders from 1.05 to 1024. Other orders are refused.",
        "filter-invalid": "The filter, which limits how a search may use the records, contradicts itself.",
        "filter-kind-unknown": "The ledger has a filter that this version does not know. Upgrade dp-tuner.",
        "filters-differ": "A sealed search hides its number of runs, so both of its filters charge it as a whole.",
        "menu-empty": "There are no planned steps to account for.",
        "too-many-steps": "The accountant's margin for rounding was measured up to a number of steps, and more are "
        "refused. Plan fewer trials or epochs, or larger batches.",
        "epsilon-too-large": "ε is so large that double precision cannot cut off the hidden number of runs.",
        "poisson-not-adaptive": "No proof covers a Poisson number of runs with a sampler that depends on scores. Use a "
        "geometric number, or random search.",
        "probability-out-of-range": "The law of the number of runs cannot be computed for this probability.",
        "run-law-unknown": "The number of runs of a sealed search follows one of the laws in the message.",
        "run-law-unbounded": "The number of runs may exceed a million. Write a smaller mean or a larger shape.",
        "run-law-without-gamma": "Only the truncated negative binomial laws have the parameter gamma.",
        "run-mean-out-of-range": "The mean number of runs is above 1; for the Poisson law above 0 and at most 10.",
        "run-shape-out-of-range": "Only negative_binomial has a shape: above -1, at most a million, not near 0.",
        "mechanism-not-named": "This search allows several mechanisms, so each trial must name its own.",
        "score-sampled": "A released score reads every validation record, so its sample rate is 1.",
        "validation-claim-too-large": "The claim of validation records may not exceed the claim of the search.",
        "ledger-name-invalid": "Names in the ledger have 1 to 200 printable characters.",
        "renyi-order-invalid": "The Rényi order must be above 1 and let the filter admit at least one step within ε "
        "and half of δ. `auto` chooses the order that admits the most.",
        "hash-invalid": "The ledger records a card by its SHA-256, 64 hexadecimal digits.",
        "not-plain-json": "Ledger and cards take plain JSON: text, whole numbers, finite floats, lists and mappings.",
        "no-ledger": "No ledger is at this address. The first private search or `tune budget set` creates one.",
        "card-contribution-bound": "A card has a bound on records per user if the search protects users, else none.",
        "card-not-found": "The file is not a privacy card. Give the exported privacy_card.json.",
        "card-not-private": "With `private: false` the noise was seeded, so nothing protects the records in the model. "
        "Run the search again with `private: true`.",
        "card-ledger-unknown": "The exported experiment.yaml, which names the ledger, is unreadable. Use `--ledger`.",
    },
    3: {
        "filter-exceeds-claim": "All that the filter allows must cost at most the search's ε. Allow less or raise ε.",
        "no-noise-fits": "Even with the largest noise the planned steps exceed ε. Raise ε, or plan fewer steps.",
        "no-order-fits": "At every order the conversion to (ε, δ) alone costs more than ε. Raise ε or δ.",
        "mechanism-not-allowed": "A trial may use only the mechanisms of its search's filter, which the claim covers.",
        "not-reserved": "A trial may lease only steps that it reserved. Repeated steps need a new reservation.",
        "cap-exceeded": "The leased, reserved and requested steps would exceed the search's cap. Nothing was charged.",
        "unit-differs": "Claims for records and claims for users do not add up, so all searches on a data set protect "
        "the same unit. Change `privacy.unit`, or keep the data under another name.",
        "cap-not-set": "Shares divide the cap of a data set. Set the cap first with `tune budget set`.",
        "cap-order-fixed": "The Rényi order of a cap is fixed before the first search. A later choice could depend on "
        "results, and the guarantee would not hold.",
        "dataset-cap-exceeded": "The claims of all searches on the data set together would exceed its cap. Lower "
        "`privacy.epsilon` or `delta`, or ask the owner for a larger cap.",
        "dataset-known-otherwise": "These records have a budget under another name. Use that name for the data set.",
        "no-share": "The data set's cap is divided among users, and this user has no share. Ask the owner for one.",
        "share-exceeded": "The searches of this user would exceed the user's share of the data set's cap.",
        "shares-exceed-cap": "The shares of all users together would exceed the cap of the data set.",
        "users-differ": "All searches on the same records must assign them to the same users, or no total covers all.",
    },
}
