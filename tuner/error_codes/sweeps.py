"""Explanations of the errors of commands, sweeps, exports and records, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "system-error": "The operating system refused to read or write a file. Either the file is missing, or this "
        "account has no access. Fix the cause and run the command again.",
        "disk-full": "The disk, or the quota of this account, is full, so a file could not be written. Charged steps "
        "stay charged. Free some space, then run the command again; a sweep continues with `tune resume`.",
        "prices-unreadable": "The file of measured prices of search, which is part of the program, is damaged. Install "
        "the program again.",
        "internal-error": "dp-tuner has a bug; your input is not the cause. Please report the command and the whole "
        "message. Charged steps stay charged.",
        "sweep-file-unreadable": "A file of the sweep is missing or damaged. Restore it from a copy.",
        "sweep-files-changed": "The files of the sweep contradict each other. Restore them from a copy.",
        "ledger-behind": "The ledger is older than the sweep, or another ledger: it lacks an entry that the sweep has "
        "seen, so it has forgotten charges. Restore the ledger with all its entries.",
        "ledger-mismatch": "The sweep's settings, plan or records differ from those of the search that the ledger "
        "charged, so the sweep's claim would not hold. Restore the files and the data from a copy, or start a new "
        "sweep.",
        "search-not-in-ledger": "The experiment's ledger does not know this sweep. Restore the ledger in which the "
        "sweep was charged. A sweep never continues in a new ledger.",
        "search-not-charged": "The sweep trained more steps than its ledger charged. Restore the sweep "
        "and the ledger from a copy.",
        "charged-run-differs": "This version of dp-tuner plans the charged run differently from the version that began "
        "the public search. Start a new search.",
        "public-search-empty": "No trial of the public search is complete, so there is no winner. Start a new search.",
        "sealed-search-failed": "The infrastructure failed in a sealed search, such as a disk or the ledger. A run "
        "that it cut off is made again from the same key. Fix the cause and resume the sweep. If the message does not "
        "name the cause, the operator's log does, because other messages could reveal the number of runs.",
        "checkpoint-unseen": "A machine reported a trained step, but the driver does not see its checkpoint in the "
        "sweep's folder. The search stopped before it spent more. Make `storage` a folder that every machine mounts at "
        "the same path, then resume.",
        "trial-lost": "The infrastructure failed in a trial, and the sweep stopped. Fix the cause, then resume.",
        "sealed-runs-missing": "The file with the hidden number of runs is missing. The number is never drawn again, "
        "because a second draw could depend on results. Restore the file from a copy.",
        "checkpoint-missing": "The model of the winning trial is missing. Restore the sweep's folder from a copy.",
        "checkpoint-unreadable": "The file with the winning model cannot be read. Restore it from a copy.",
        "first-trials-failed": "The first trials of the search all failed, so the search stopped before it spent more. "
        "See operator.log in the sweep's folder, fix the cause, then resume.",
        "ray-gone": "Ray's process on the driver's machine died, often for want of memory. Charged steps stay charged. "
        "Resume the sweep.",
        "loss-not-paid": "A worker was lost, and `resources.on_loss` is stop, so the sweep stopped before the steps "
        "since the trial's last checkpoint were charged again. `tune resume` continues the trial and pays for them.",
        "drill-failed": "The drill's sweep did not start, or did not end after its resume. It charged nothing of "
        "yours. The message has the sweep's own last line; `tune doctor` may name the cause.",
        "ray-failed": "Ray Tune stopped with an error of its own. Charged steps stay charged. Resume the sweep.",
        "spool-busy": "Another process is writing the records of this sweep. Wait until it ends, or stop it with `tune "
        "stop`.",
        "spool-damaged": "A stored record of the sweep does not match its checksum. All earlier records are intact. "
        "Restore the file, or delete the damaged line and run `tune sync` again.",
        "spool-unwritable": "A record could not be written to the disk, and the sweep does not continue without it. "
        "Free space or fix the disk, then resume. Records written earlier are not lost.",
        "records-not-found": "The folder has no records of a sweep. Give the folder of a started sweep.",
        "records-being-sent": "Another process is uploading this sweep's records to MLflow. Wait until it ends.",
        "tracking-unavailable": "MLflow does not accept the records. They stay on the disk. Start the MLflow server, "
        "then run `tune sync`.",
        "artifact-missing": "A recorded file was deleted before its upload to MLflow. The other records are uploaded.",
    },
    2: {
        "usage": "The command, an option or a value is unknown or missing. See `tune --help` or `tune COMMAND --help`.",
        "options-conflict": "Two of the options cannot be used together. Remove one of them.",
        "dataset-cap-invalid": "The cap of a data set is EPSILON or EPSILON,DELTA, and at least the claim of the "
        "search that starts. Write for example `--dataset-cap 3,1e-5`.",
        "dataset-cap-differs": "The data set has another cap. Leave out `--dataset-cap`. An owner changes the cap with "
        "`tune budget set`.",
        "dataset-cap-not-private": "A search without privacy is not charged, so a cap would not count it. Leave out "
        "`--dataset-cap`.",
        "unknown-code": "No error has this code. `tune explain` without a code lists all codes.",
        "folder-not-found": "The folder does not exist. `tune ls` lists the sweeps.",
        "output-unwritable": "The output folder cannot be written. Choose another folder or change its permissions.",
        "output-path-invalid": "The output path is an existing folder, or its parent folder is missing. Name another "
        "file.",
        "port-in-use": "Another program uses the port, or this account may not use it. Choose another port with "
        "`--port`.",
        "no-ray-experiment": "The folder has no records of Ray Tune. `tune show NAME` shows a sweep of dp-tuner.",
        "storage-unwritable": "The sweeps cannot be stored in the folder that `storage` names, because it cannot be "
        "created or written. Choose another folder or change its permissions.",
        "sweep-not-found": "The storage folder has no such sweep. `tune ls` lists all sweeps. `--storage` chooses "
        "another folder.",
        "sweep-running": "Another process is running this sweep. Two processes would train and charge the same trials "
        "twice. Wait for the other process to end, or stop it with `tune stop NAME`.",
        "sweep-incomplete": "dp-tuner was stopped while it created the sweep. Remove the sweep's folder and start "
        "again.",
        "sweep-not-finished": "The command needs a finished sweep. Wait, or resume it with `tune resume NAME`.",
        "sweep-not-private": "Only a private search can be exported, because every export has a privacy card. Run the "
        "search with `privacy.private: true`. For a search on public records, export its charged run.",
        "resume-changes-setting": "A resumed sweep keeps every setting that affects its claim or its scores. Only "
        "resources, tracking, paths and the number of trials may change. Start a new sweep for other settings.",
        "charged-run-missing": "The public search has not started its charged run. Resume the search first.",
        "public-records-shape": "The public records of `search.public` have other inputs or classes than the private "
        "records, so the same model cannot train on both. Choose another public data set.",
        "choice-made": "A public search chose its configuration before the charged run, so `--by` cannot choose "
        "another. Leave `--by` out.",
        "no-curve": "`--by curve` needs a unimodal search that is not sealed and whose scores do not contradict a "
        "single maximum. Leave `--by` out, or use `--by score`.",
        "no-complete-trial": "No trial of the sweep is complete, so there is no winner. Resume the sweep or start a "
        "new one.",
        "sealed-runs-hidden": "The guarantee of a sealed search covers the winner alone. Other runs, or their number, "
        "would reveal more than was charged, so only the winner can be shown.",
        "trial-not-found": "No trial of the sweep has this number or id. `tune show SWEEP` lists the trials.",
        "method-code-failed": "The code of your own method failed on made-up gradients. `before_clip` may use torch "
        "operations only, and may not ask for values, because it runs for all samples of a batch at once.",
        "model-code-failed": "The code of your own model failed on inputs of this shape. Fix the code, or use another "
        "data set.",
        "train-not-private": "`tune train` writes a privacy card. Use `tune run` for a study without privacy.",
        "train-not-single": "`tune train` trains one configuration: one trial, no searched parameter, accounting by "
        "composition. To search, use `tune run` and then `tune export`.",
        "tracking-uri-invalid": "MLflow cannot use the address in `tracking.uri`. Write a database such as "
        "sqlite:///runs/mlflow.db or a server such as http://HOST:5000.",
        "tracking-uri-password": "The tracking address is kept in the sweep, its reports and its exports, so it may "
        "not contain a password. Use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, ~/.pgpass or PGPASSWORD.",
        "tracking-store-not-found": "The file of the MLflow store does not exist. Run a search first, or give `--uri`.",
        "test-set-used": "A sweep may score only one trial on the test set. Choose the same trial as before.",
        "export-not-found": "The folder is not a complete export. Write one with `tune export NAME`.",
        "export-changed": "A file of the export is not the one that was exported, or its privacy card is not the one "
        "that the ledger recorded. Restore the folder from a copy, or export the trial again.",
        "export-unreadable": "A file of the export is damaged or belongs to another model. Export the model again.",
        "card-unreadable": "The file is not a privacy card. A card is the `privacy_card.json` of an export.",
        "split-changed": "The export's experiment file splits the records differently from its privacy card, so "
        "validation records may be training records. Restore the file from a copy.",
        "landscape-task": "A loss landscape is that of the cross-entropy. It needs a model with "
        "`task: classification`.",
        "split-invalid": "A loss landscape uses validation or test records. Losses of training records must stay "
        "private.",
        "public-data-unconfirmed": "A loss landscape shows exact losses of its records, without noise. Confirm with "
        "`--public-data` that the records are public, or name a public data set with `--dataset`.",
        "validation-protected": "The search protected its validation records with noise, and their exact losses would "
        "undo that. Use `--split test`.",
        "records-differ": "Models can be compared only on the same records. Choose exports with the same data set and "
        "split, or name a public data set with `--dataset`.",
        "training-records-shared": "The data set of `--dataset` contains records on which one of the models was "
        "trained. Choose another data set.",
        "input-shape-differs": "The data set of `--dataset` does not fit the model. Choose another data set.",
        "grid-points-invalid": "A grid has too few points. A grid search needs at least one point for each range. A "
        "line or plane of the loss landscape needs an odd number of points, at least 3, so that its centre shows the "
        "model itself.",
        "ray-method": "A trial in your own `tune.Tuner` pays step by step, so its method must train by private steps. "
        "Run the other methods with `tune run`.",
        "ray-unit": "`dp_trainable` protects single records. To protect users, run the search with `tune run`.",
        "ray-reports": "A trial cannot report more often than it takes steps. Lower `reports`.",
        "ray-full-runs": "`full_runs` is the number of whole trials that the cap pays for. Write a number of at least "
        "1.",
        "ray-search-incomplete": "A searcher on an Optuna study needs a space, the name of the score, and whether more "
        "of it is better. Set `param_space`, `metric` and `mode` of the Tuner.",
        "cluster-address": "`--address` is the HOST:PORT of a cluster's head, or auto. Ray Client (ray://) is not "
        "used, because the driver and the ledger must be on a machine of the cluster or next to it.",
        "cluster-unreachable": "No Ray cluster answers at the address of `--address`. Check the host, the port and the "
        "firewall.",
        "cluster-version": "The cluster runs another Ray or Python than this machine. Install the same versions on "
        "every machine.",
        "cluster-token": "The cluster asks for a token, and this account has none or another one. Copy the cluster's "
        "token to ~/.ray/auth_token with mode 0600.",
        "cluster-open": "The cluster asks for no token, so whoever reaches its ports can run programs on it and read "
        "checkpoints, which hold the key of the noise. Then no claim would hold against that person. Start Ray with "
        "RAY_AUTH_MODE=token on every machine.",
        "node-silent": "A machine of the cluster did not answer. Look at its log, or take it out of the cluster.",
        "node-version": "A machine has other versions of Python or of a library than the driver, so its trials would "
        "not be those of the plan. Install the same versions everywhere.",
        "node-code-missing": "A machine has no dp-tuner in the Python that runs Ray. Install the driver's wheel there.",
        "node-code-differs": "A machine has another version of dp-tuner than the driver. Install the same wheel "
        "everywhere, because the ledger is charged for what the driver's code plans.",
        "node-module": "A machine lacks the code of your own model or method, or has another version of it. Copy the "
        "driver's file there.",
        "node-import": "A module cannot be imported on a machine. The message has the cause. Install what it needs.",
        "node-data": "A machine lacks a file that the trials read, or has another version of it. Copy the driver's "
        "file there.",
        "node-gpu": "A machine has no GPU that torch can use, although Ray counts one. Install its driver, or start "
        "Ray there without GPUs.",
        "node-memory": "A machine has too little free memory for its trials. Run fewer trials at once.",
        "node-disk": "The storage has too little room for checkpoints. Free space.",
        "node-clock": "The clock of a machine differs from the driver's. Set the clocks by NTP.",
        "storage-not-shared": "A machine does not see the driver's files in `storage`, or the driver does not see the "
        "machine's. The trained models would be lost, after their whole budget was spent. Mount one folder at the same "
        "path on every machine, for one account.",
        "sweep-has-result": "`tune rm` removes sweeps that failed. A sweep that can be resumed or exported is removed "
        "only with --yes, because its budget is spent and stays spent.",
        "storage-url": "Checkpoints are locked, renamed and protected by their mode, and an object store can do "
        "none of this. Mount a shared file system on every machine, and give its path.",
        "workers-local": "`--local` runs in one process. Leave it out, so that Ray gives each trial its workers, or "
        "write `resources.workers_per_trial: 1`.",
        "resources-too-large": "One trial needs more CPUs or GPUs than this machine has. Lower `resources`, or name a "
        "cluster.",
        "tracking-experiment-deleted": "The MLflow experiment was deleted, and MLflow keeps its name reserved. Restore "
        "it with `mlflow experiments restore`, or choose another name in `tracking.experiment`.",
    },
    130: {
        "interrupted": "Ctrl-C, a signal or `tune stop` stopped the command. Charged steps stay charged. Continue an "
        "interrupted sweep with `tune resume NAME`.",
    },
}
