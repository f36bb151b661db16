"""Explanations of the errors of commands, sweeps, exports and records, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "system-error": "The operating system refused to read or write a file. Either the file is missing, or this "
        "account has no access. Fix the cause and run the command again.",
        "disk-full": "The disk, or the quota of this account, is full, so a file could not be written. Charged steps "
        "stay charged. Free some space, then run the command again. To continue a sweep, use `tune resume`.",
        "prices-unreadable": "The file with the measured costs of searches, which is part of dp-tuner, is damaged. "
        "Install dp-tuner again.",
        "internal-error": "dp-tuner has a bug. Your input is not the cause. Please report the command and the whole "
        "message. Charged steps stay charged.",
        "sweep-file-unreadable": "A file of the sweep is missing or damaged. Restore it from a copy.",
        "sweep-files-changed": "The files of the sweep contradict each other. Restore them from a copy.",
        "ledger-behind": "The ledger lacks an entry that the sweep has seen, so it is an older copy or another "
        "ledger. Such a ledger does not have all charges. Restore the ledger with all its entries.",
        "ledger-mismatch": "The sweep's settings, plan or records differ from those for which the ledger was charged. "
        "The sweep's claim would not hold. Restore the files and the data from a copy, or start a new sweep.",
        "search-not-in-ledger": "The ledger of the experiment does not contain this sweep. Restore the ledger in "
        "which the sweep was charged. A sweep never continues in a new ledger.",
        "search-not-charged": "The ledger does not have charges for all steps that the sweep trained. Restore the "
        "sweep and the ledger from a copy.",
        "charged-run-differs": "This version of dp-tuner plans the charged run differently from the version with "
        "which the public search began. Start a new search.",
        "public-search-empty": "No trial of the public search is complete, so there is no winner. Start a new search.",
        "sealed-search-failed": "A sealed search failed, for example because of a disk or the ledger. An interrupted "
        "run is repeated with the same random numbers. Fix the cause and resume the sweep. If the message does not "
        "name the cause, see the operator's log. Only a few causes are shown, because other messages could reveal the "
        "number of runs.",
        "checkpoint-unseen": "A machine reported a trained step, but its checkpoint is not in the sweep's folder on "
        "the driver's machine. The search stopped before more was charged. Make `storage` a folder that every machine "
        "mounts at the same path, then resume.",
        "trial-lost": "The machine, a disk, a worker or the ledger failed during a trial, and the sweep stopped. Fix "
        "the cause, then resume.",
        "sealed-runs-missing": "The file with the hidden number of runs is missing. The number is never drawn again, "
        "because a second draw could depend on results. Restore the file from a copy.",
        "checkpoint-missing": "The checkpoint of the winner, or of the trial from which the committed run starts, is "
        "missing. Restore the sweep's folder from a copy.",
        "checkpoint-unreadable": "The file with the winning model cannot be read. Restore it from a copy.",
        "first-trials-failed": "The first trials of the search all failed, so the search stopped before more was "
        "charged. See operator.log in the sweep's folder, fix the cause, then resume. Another setting, such as a lower "
        "learning rate, needs a new search, which is charged in addition.",
        "all-trials-failed": "Every trial of the search failed. All charges remain. Fix the cause. Then start a new "
        "search, which is charged in addition, or resume this one with more trials.",
        "ray-gone": "Ray's process on the driver's machine died, often because the memory was full. Charged steps "
        "stay charged. Resume the sweep.",
        "loss-not-paid": "A worker was lost, and the sweep stopped, because `resources.on_loss` is stop. The trial "
        "must repeat its steps since the last checkpoint. `tune resume` continues the trial and charges these steps "
        "again.",
        "drill-failed": "The sweep of `tune doctor --drill` did not start, or did not end after it was resumed. It "
        "used a ledger of its own, so nothing was charged to yours. The message has the last line of the sweep's "
        "output. `tune doctor` may name the cause.",
        "ray-failed": "Ray Tune stopped with an error of its own. Charged steps stay charged. Resume the sweep.",
        "spool-busy": "Another process is writing the records of this sweep for MLflow. Wait until it ends, or stop "
        "it with `tune stop`.",
        "spool-damaged": "A record of the sweep for MLflow does not match its checksum. All earlier records are "
        "intact. Restore the file, or delete the damaged line and run `tune sync` again.",
        "spool-unwritable": "A record for MLflow could not be written to the disk, and the sweep does not continue "
        "without it. Free space or fix the disk, then resume. Records written earlier are not lost.",
        "records-not-found": "The folder has no records of a sweep for MLflow. Give the folder of a sweep that has "
        "started.",
        "records-being-sent": "Another process is uploading the records of this sweep to MLflow. Wait until it ends.",
        "tracking-unavailable": "MLflow does not accept the records of the sweep. They remain on the disk. Start the "
        "MLflow server, then run `tune sync`.",
        "tracking-store-busy": "Another process has locked the file of MLflow's database. The records remain on the "
        "disk. Try again later.",
        "tracking-store-unusable": "MLflow cannot open the file of its database. It may be damaged, another "
        "program's, or on a full disk. Move it away, then send the records with `tune sync NAME --uri sqlite:///FILE`.",
        "artifact-missing": "A file of the sweep was deleted before its upload to MLflow. The other records are "
        "uploaded.",
    },
    2: {
        "usage": "The command, an option or a value is unknown or missing. See `tune --help` or `tune COMMAND --help`.",
        "options-conflict": "Two of the options cannot be used together. Remove one of them.",
        "dataset-cap-invalid": "`--dataset-cap` must have the form EPSILON or EPSILON,DELTA, for example "
        "`--dataset-cap 3,1e-5`. The cap must be at least the claim of the search that starts.",
        "dataset-cap-differs": "The data set already has another cap. Leave out `--dataset-cap`. An owner of the "
        "ledger can change the cap with `tune budget set`.",
        "dataset-cap-not-private": "A search without privacy is not charged, so it does not count against a cap. "
        "Leave out `--dataset-cap`.",
        "unknown-code": "No error has this code. `tune explain` without a code lists all codes.",
        "folder-not-found": "The folder does not exist. `tune ls` lists the sweeps.",
        "output-taken": "The output folder has files of another search, or of your own, that the export would replace. "
        "`tune train` needs a folder without any export. Choose another folder with `--out`, or remove these files.",
        "output-unwritable": "The output folder cannot be written. Choose another folder or change its permissions.",
        "output-path-invalid": "The output path is an existing folder or a file that is no page, or its parent folder "
        "is missing or cannot be written. Name another file.",
        "port-in-use": "Another program uses the port, or this account may not use it. Choose another port with "
        "`--port`.",
        "no-ray-experiment": "The folder has no records of Ray Tune. `tune show NAME` shows a sweep of dp-tuner.",
        "storage-unwritable": "The folder in `storage` cannot be created or written. Choose another folder or change "
        "its permissions.",
        "sweep-not-found": "The storage folder has no such sweep. `tune ls` lists all sweeps. `--storage` chooses "
        "another folder.",
        "sweep-running": "Another process is running this sweep. Two processes would train and charge the same trials "
        "twice. Wait for the other process to end, or stop it with `tune stop NAME`.",
        "sweep-incomplete": "dp-tuner was stopped while it created the sweep. Remove the sweep's folder and start "
        "again.",
        "sweep-not-finished": "The command needs a finished sweep. Wait until the sweep ends, or resume it with `tune "
        "resume NAME`.",
        "sweep-not-private": "Only a private search can be exported, because every export has a privacy card. Run the "
        "search with `privacy.private: true`. For a search on public records, export its charged run.",
        "resume-changes-setting": "A resumed sweep keeps every setting that affects its claim or its scores. Only "
        "resources, tracking and paths may change, and in most searches the number of trials. Start a new sweep for "
        "other settings.",
        "charged-run-missing": "The public search has not started its charged run. Resume the search first.",
        "public-records-shape": "The public records of `search.public` have other inputs or classes than the private "
        "records, so the same model cannot train on both. Choose another public data set.",
        "choice-made": "A public search chose its configuration before the charged run, so `--by` cannot choose "
        "another. Leave `--by` out.",
        "no-curve": "`--by curve` needs a unimodal search. It cannot be used if the search is sealed, or if its "
        "scores contradict a single maximum. Leave `--by` out, or use `--by score`.",
        "no-complete-trial": "The sweep has no complete trial, or its committed run is not complete, so there is no "
        "winner. Resume the sweep or start a new one.",
        "sealed-runs-hidden": "The guarantee of a sealed search covers only the winner. Other runs, or their number, "
        "would reveal more than was charged, so they cannot be shown.",
        "trial-not-found": "No trial of the sweep has this number or id. `tune show SWEEP` lists the trials.",
        "method-code-failed": "The code of your own method failed on made-up gradients. `before_clip` runs for all "
        "samples of a batch at once. So it must use torch operations only, and must not read a value out of a tensor, "
        "for example with `.item()`.",
        "model-code-failed": "The code of your own model failed on inputs of this shape. Fix the code, or use another "
        "data set.",
        "train-not-private": "`tune train` writes a privacy card, so it needs `private: true`. For a study without "
        "privacy, use `tune run`.",
        "train-not-single": "`tune train` trains one configuration: one trial, no searched parameter, and "
        "`accounting: composition`. To search, use `tune run` and then `tune export`.",
        "tracking-uri-invalid": "MLflow cannot use the address in `tracking.uri`. Write a database such as "
        "sqlite:///runs/mlflow.db or a server such as http://HOST:5000.",
        "tracking-uri-password": "The tracking address is stored in the sweep, its reports and its exports, so it must "
        "not contain a password. Use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, ~/.pgpass or PGPASSWORD.",
        "tracking-store-not-found": "The file of the MLflow store does not exist. Run a search first, or give `--uri`.",
        "test-set-used": "In a sweep, only one trial may be scored on the test set. Choose the same trial as before.",
        "export-not-found": "The folder is not a complete export. Write one with `tune export NAME`.",
        "export-changed": "A file of the export was changed, or its privacy card is not the one that the ledger "
        "recorded. Restore the folder from a copy, or export the trial again.",
        "export-unreadable": "A file of the export is damaged or belongs to another model. Export the model again.",
        "card-unreadable": "The file is not a privacy card. A card is the `privacy_card.json` of an export.",
        "split-changed": "The experiment file of the export and its privacy card split the records differently. So the "
        "model may have been trained on some of the validation records. Restore the file from a copy.",
        "landscape-task": "`tune landscape` measures the cross-entropy, so it needs a model with `task: "
        "classification`.",
        "split-invalid": "A loss landscape uses validation or test records. Losses of training records must stay "
        "private.",
        "public-data-unconfirmed": "A loss landscape shows exact losses of its records, without noise. Confirm with "
        "`--public-data` that the records are public. `--dataset` names another data set.",
        "validation-protected": "Noise protects the validation records of this search, and their exact losses would "
        "undo this protection. Use `--split test`.",
        "records-differ": "Models can be compared only on the same records. Choose exports with the same data set and "
        "split, or name a public data set with `--dataset`.",
        "training-records-shared": "The data set of `--dataset` contains records on which one of the models was "
        "trained. Choose another data set.",
        "input-shape-differs": "The data set of `--dataset` has other inputs or classes than the model. Choose "
        "another data set.",
        "grid-points-invalid": "A grid has too few points. A grid search needs at least one point for each range. A "
        "line or plane of the loss landscape needs an odd number of points, at least 3, so that its centre shows the "
        "model itself.",
        "ray-method": "A trial in your own `tune.Tuner` is charged step by step, so its method must train by private "
        "steps. Run the other methods with `tune run`.",
        "ray-unit": "`dp_trainable` protects single records. To protect users, run the search with `tune run`.",
        "ray-dataset": "The data set is the name of a shipped one, or a request for your own file. Write one of these.",
        "ray-seed": "The seed of the initialisation is a number of 32 bits. Write an integer from 0 to 2**32 - 1.",
        "ray-searcher": "An argument of `StudySearch`, or of the Tuner, does not fit the searcher. Do what the message "
        "says.",
        "ray-reports": "A trial cannot report more often than it takes steps. Lower `reports`.",
        "ray-full-runs": "`full_runs` is the number of whole trials that the cap pays for. Write a number of at least "
        "1.",
        "ray-search-incomplete": "The searcher needs the search space, the name of the score, and whether to maximise "
        "or minimise it. Set `param_space` of the Tuner, and `metric` and `mode` of its TuneConfig.",
        "cluster-address": "`--address` must be HOST:PORT of a cluster's head, or auto. Ray Client (ray://) cannot be "
        "used. Run the command on a machine that can reach the head's port, or with `ray job submit`.",
        "cluster-unreachable": "No Ray cluster answers at the address of `--address`. Check the host, the port and the "
        "firewall.",
        "cluster-version": "The cluster runs another version of Ray or Python than this machine. Install the same "
        "versions on every machine.",
        "cluster-token": "The cluster asks for a token, but this account has none or another one. Copy the cluster's "
        "token to ~/.ray/auth_token with mode 0600.",
        "cluster-open": "The cluster asks for no token. So everyone who reaches its ports can run programs on it and "
        "read checkpoints, which hold the key of the noise. No claim would hold against these people. Start Ray with "
        "RAY_AUTH_MODE=token on every machine.",
        "node-silent": "A machine of the cluster did not answer. Look at its log, or remove it from the cluster.",
        "node-version": "A machine has other versions of Python or of a library than the driver, so its trials would "
        "differ from the plan. Install the same versions everywhere.",
        "node-code-missing": "The Python that runs Ray on a machine has no dp-tuner. Install the same wheel there as "
        "on the driver's machine.",
        "node-code-differs": "A machine has another version of dp-tuner than the driver. The ledger is charged for "
        "the steps that the driver's version plans. Install the same wheel everywhere.",
        "node-module": "A machine lacks the code of your own model or method, or has another version of it. Copy the "
        "driver's file there.",
        "node-import": "A module cannot be imported on a machine. The message has the cause. Install what the module "
        "needs.",
        "node-data": "A machine lacks a file that the trials read, or has another version of it. Copy the driver's "
        "file there.",
        "node-gpu": "Ray counts a GPU on a machine, but torch cannot use it. Install the driver of the GPU, or start "
        "Ray there without GPUs.",
        "node-gpu-differs": "A sealed search repeats a run that was cut off with the same random numbers, and only the "
        "same kind of GPU repeats it exactly. Use machines with one kind of GPU.",
        "node-memory": "A machine has too little free memory for its trials. Lower `resources.concurrent_trials`.",
        "node-disk": "The disk of `storage` has too little free space for checkpoints. Free space.",
        "node-clock": "The clock of a machine differs from the driver's. Synchronise the clocks with NTP.",
        "storage-not-shared": "A machine does not see the driver's files in `storage`, or the driver does not see the "
        "machine's. The whole budget would be spent, and the trained models lost. Mount one folder at the same path "
        "on every machine, for the same account.",
        "sweep-has-result": "This sweep can still be resumed or exported, so `tune rm` removes it only with `--yes`. "
        "Its spent budget stays spent.",
        "storage-url": "`storage` must be a folder, not a URL. dp-tuner locks, renames and protects the files of a "
        "sweep, which an object store cannot do. Mount a shared file system on every machine, and give its path.",
        "job-copy": "`storage`, the ledger or MLflow's file is in Ray's copy of the working directory of a job. Ray "
        "deletes this copy, and with it the trained models or the account of the spent budget. Give absolute paths of "
        "a folder that remains.",
        "workers-local": "`--local` runs every trial in one process, so no trial can have several workers. Leave "
        "`--local` out, or write `resources.workers_per_trial: 1`.",
        "code-hidden": "The current folder has a module with the name of one of our packages. Ray's workers would "
        "import it instead of the installed package. Start the search in another folder.",
        "resources-too-large": "One trial needs more CPUs or GPUs than this machine has. Lower the value in "
        "`resources`, or name a cluster with `--address`.",
        "tracking-experiment-deleted": "The MLflow experiment was deleted, and MLflow keeps its name reserved. Restore "
        "it with `mlflow experiments restore`, or choose another name in `tracking.experiment`.",
    },
    130: {
        "interrupted": "Ctrl-C, a signal or `tune stop` stopped the command. Charged steps stay charged. Continue an "
        "interrupted sweep with `tune resume NAME`.",
    },
}
