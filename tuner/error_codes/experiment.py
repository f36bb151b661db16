"""Explanations of the errors of experiment files, plans and studies, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "plan-unreadable": "The stored plan of the sweep lacks a value, or contains a value that dp-tuner does not "
        "know. Restore plan.json from a copy.",
        "plan-has-no-mechanism": "The command needs one sample rate and one noise multiplier, but the experiment file "
        "searches several. Write one number for each searched value that the message names.",
        "plan-incomplete": "The stored plan of the sweep lacks a required part. Restore plan.json from a copy.",
        "study-unreadable": "The file that records the sweep's trials is damaged. Restore it from a copy, or start a "
        "new sweep. dp-tuner never replaces the file by an empty one. Charged steps stay charged.",
    },
    2: {
        "release-searched": "A setting of the release must be one number. Each value would need its own release, and "
        "every release is charged. To compare values, run one search for each.",
        "extrapolation-unused": "`extrapolation` moves the average of the weights further, away from its older half. "
        "With `ema_decay: 0`, the last weights are scored and exported, and there is no average. Remove one of the two "
        "keys.",
        "start-with-release": "A search on a release cannot start from public weights. Several searches can use one "
        "release, but the ledger entry of the release is written once. It cannot name the weights of later searches. "
        "Remove `start` and `freeze`.",
        "release-method": "The method and `privacy.accounting` do not fit. `input_perturbation` needs `accounting: "
        "release`, and `pate` needs `accounting: votes`. All other methods need another accounting.",
        "release-unused": "`privacy.release` needs `accounting: release`, and `privacy.votes` needs `accounting: "
        "votes`. Remove the key, or write that accounting.",
        "votes-without": "`accounting: votes` needs a data set with votes of teachers, such as mnist_votes. A data "
        "set with votes needs `accounting: votes`, because its inputs are public and only its votes are private.",
        "release-published": "The theorem of the input perturbation paper is false, so the published noise guarantees "
        "nothing. Write `guarantee: rigorous`, or `private: false` for a study.",
        "release-noise": "`privacy.noise_multiplier` has no effect with `accounting: release` or `votes`. The noise "
        "follows from ε, δ and the settings of the release or the votes. Remove the key.",
        "release-unit": "A release protects one record, but a user may have several records. Write `unit: record`, or "
        "another accounting.",
        "release-scores": "A search on a release costs nothing, but protected scores would be charged one by one. "
        "Write `protected: false`. The guarantee then does not cover the scores.",
        "release-blocks": "A release must cover a whole table, not single blocks. Remove `dataset.block`, or use "
        "another accounting.",
        "release-steps": "This setting belongs to private steps, which a training on a release does not have. Remove "
        "or change the setting as the message says.",
        "audit-not-private": "An audit compares a lower bound of ε with a claim. A search with `private: false` claims "
        "nothing. Remove `private: false`.",
        "audit-too-few-canaries": "An audit with too few canaries shows nothing, even if all guesses are right. A "
        "canary is a record that the audit adds at random. Each made-up canary needs its own coordinate of the input, "
        "so small inputs allow few of them. Do what the message says.",
        "experiment-not-found": "No local file and no shipped experiment has this name. `tune ls --shipped` lists the "
        "shipped experiments. `tune init` writes a template.",
        "file-exists": "A file with this name exists. Choose another name, or overwrite it with `--force`.",
        "file-not-writable": "The file cannot be written. Check the folder and its permissions.",
        "file-not-sections": "The experiment file has no sections. Write section names such as `dataset:` without "
        "indentation, and indent the keys of each section below its name.",
        "yaml-invalid": "The text is not YAML. The mistake is at the line in the message or just before it.",
        "yaml-unsupported": "Anchors, aliases, tags, several documents and deep nesting are refused, because they hide "
        "the meaning of a file. Write every value at its own key.",
        "override-invalid": "An override must have the form `--set path.to.key=value`. Every key before the last must "
        "name a section.",
        "key-duplicate": "A section contains the same key twice. Remove one of the two.",
        "key-missing": "A required key is missing. Add the key that the message names.",
        "key-unknown": "The section has no such key. The message names the most similar key.",
        "name-invalid": "The name of an experiment is also the name of its folder. Use only the characters that the "
        "message lists.",
        "value-wrong-type": "The value has the wrong type for its key, for example a word instead of a number.",
        "value-not-finite": "Every number must be finite. No guarantee follows from NaN or infinity.",
        "value-empty": "The value is an empty text. Write a value or remove the key.",
        "value-out-of-range": "The value is outside the allowed range. The message shows the range.",
        "value-not-allowed": "The value is not allowed. The message lists the allowed values.",
        "rungs-invalid": "Rungs are the steps at which a trial reports its score. Write the number of equally spaced "
        "rungs, or a list of increasing fractions of the trial's steps. The last fraction must be 1.",
        "domain-outside-space": "This key takes a single value. To search over a range or several values, write them "
        "under `search.space`.",
        "auto-decides": "`accounting: auto` decides this key itself. Remove the key, or write the accounting to which "
        "the key belongs.",
        "commit-needs-composition": "`search.commit` chooses the configuration of the committed run from visible "
        "scores, so it needs `accounting: composition`. A sealed search hides its scores, and a public search already "
        "ends with one charged run.",
        "commit-with-full-runs": "`search.commit` and `search.full_runs` are two ways to divide the budget, and "
        "cannot be combined. Remove one of the two keys.",
        "commit-priced-searched": "With a committed run, all trials must have the same batch size, number of epochs "
        "and noise. The budget has one quota of steps for the trials, and one for the committed run. Give each of "
        "these parameters one value.",
        "commit-noise-given": "`search.commit` gives the trials a share of the budget, and the committed run the rest. "
        "dp-tuner computes the noise from these shares, so the file cannot set it. Write `noise_multiplier: auto`, "
        "or remove the key.",
        "commit-cap": "The trials and the committed run have different noise, so a committed run needs `cap: "
        "coupon_book`, a quota of steps for each noise. Write `privacy.cap: auto`.",
        "commit-share-too-small": "The trials would have so much noise that their scores would say nothing. Raise "
        "`search.commit.share`, or plan fewer trials.",
        "block-invalid": "`dataset.block` must name blocks of a table of your own. The array `block_train` of the "
        "table's file names the block of each record. A shipped data set has no blocks.",
        "block-of-users": "A user may have records in several blocks, so the budget of one block does not bound what "
        "is spent on a user. Use the whole table, or `unit: record`.",
        "ledger-not-shared": "The experiment file and the environment variable DP_TUNER_LEDGER name different "
        "ledgers. The caps of one ledger do not limit searches in the other. Remove the key `ledger` or the "
        "environment variable.",
        "ledger-variable-invalid": "The value of the environment variable DP_TUNER_LEDGER is not the address of a "
        "ledger. Write sqlite:///FILE or postgresql://user@host/database.",
        "dataset-without-users": "The data set does not say which user each record belongs to, so a search on it "
        "cannot protect users. Write `privacy.unit: record`, or use a data set with users.",
        "public-size-known": "For a shipped data set, dp-tuner already knows the public size and the number of users. "
        "Remove the key.",
        "user-key-unused": "`dataset.user_key` declares how your own data are divided among users. It applies only to "
        "a file of your own with `privacy.unit: user`. Remove the key.",
        "records-per-user-unused": "`dataset.records_per_user` applies only with `privacy.unit: user`. Remove the "
        "key, or write this unit.",
        "scores-not-protected": "This key sets the budget or the noise of protected scores, but the scores are not "
        "protected. Remove the key, or write `protected: true`.",
        "validation-budget-too-large": "The ε and δ of protected scores must be at most those of the whole search. "
        "Lower them, or raise those of the search.",
        "validation-empty": "For protected scores, the public number of validation records must be at least 1. Raise "
        "`dataset.validation.fraction`.",
        "metric-not-protectable": "Only an accuracy can be protected, because one record moves the number of right "
        "answers by at most 1. dp-tuner has no such bound for other scores. Write validation_accuracy, or `protected: "
        "false`.",
        "batch-norm-refused": "BatchNorm mixes the records of a batch before clipping, so nothing bounds the influence "
        "of one record. Use group normalization, or no normalization.",
        "batches-not-poisson": "The accounting holds only if every batch is a Poisson sample. Shuffled or fixed-size "
        "batches have a weaker guarantee. Remove the key.",
        "batch-size-realised": "The actual size of a Poisson batch is private. dp-tuner divides sums of gradients by "
        "the expected batch size instead. Remove the key.",
        "batch-size-too-large": "The batch is larger than the public number of records (or users). Lower the batch "
        "size.",
        "clip-not-per-record": "The gradient of each record must be clipped. No other clipping bounds the influence "
        "of one record. Remove the key, and set `max_grad_norm`.",
        "statistics-not-charged": "Statistics of private records would need a charge of their own, which dp-tuner does "
        "not support. Use public constants instead.",
        "workers-unsupported": "The workers of a trial share its batches, but this method has no batches. Write "
        "`resources.workers_per_trial: 1`. To use more machines, run more trials at once.",
        "gpus-not-whole": "A trial with one worker can use a part of one GPU, such as 0.25, or a whole number of "
        "GPUs. With several workers, each worker needs a whole number of GPUs. Change `resources.gpus_per_trial`.",
        "delta-too-large": "With a δ of 1/n, an algorithm that publishes one whole record would count as private. "
        "Write a δ of at most n^-1.1, where n is the public number of records.",
        "accountant-unsupported": "The only accountant is `pld`, which is based on privacy loss distributions. To "
        "limit the budget at one Rényi order instead, write `privacy.cap: fixed_order`.",
        "adjacency-unsupported": "The only supported adjacency is to add or remove one record (or one user).",
        "noise-zero": "Without noise there is no privacy. A study without noise needs `private: false`.",
        "noise-given-twice": "The noise multiplier is both in `privacy` and in `search.space`. Remove one of the two.",
        "option-unknown": "The sampler or pruner has no such option. Correct or remove the option.",
        "option-missing": "The pruner lacks a required option. The message names the option.",
        "nothing-searched": "Several trials with the same configuration waste the budget. Give `search.space` a "
        "parameter with several values, or run one trial.",
        "metric-unknown": "No metric has this name. Check the spelling.",
        "metric-not-validation": "A search may use validation scores only. The test set is scored once, at export. "
        "Scores on training records would reveal facts about these records.",
        "metric-direction": "An accuracy or AUC must be maximised, and a loss or perplexity must be minimised.",
        "full-runs-above-trials": "`search.full_runs` gives the total number of steps of all trials, counted in whole "
        "runs. Write at most `search.trials`, or auto.",
        "full-runs-needs-composition": "Only a private search with `accounting: composition` charges each trial rung "
        "by rung, which `search.full_runs` needs. Remove the key, or write `accounting: composition` and `private: "
        "true`.",
        "full-runs-too-small": "The planned steps must be enough for one whole run and for the first rung of every "
        "other trial. Raise `search.full_runs`, plan fewer trials, or let trials report earlier with `search.rungs`.",
        "promotion-needs-rungs": "Each value in the list `promote` needs its own rung, a step at which the trial "
        "reports its score. Raise `search.rungs`, or write fewer values.",
        "priced-value-fixed": "`search.space` gives a single value to a parameter on which ε depends. Write the value "
        "at the key that the message names instead.",
        "priced-with-public": "With `search.public`, the private run is planned before the public search ends. So a "
        "parameter on which ε depends cannot be searched. Write one number at the key that the message names.",
        "priced-range-sealed": "dp-tuner can compute the price of a sealed search for a list of values, but not for a "
        "range. Write a list of values: `choice: [...]`.",
        "cap-without-composition": "`privacy.cap` can be used only with `accounting: composition`. Remove the key.",
        "cap-needs-one-mechanism": "`cap: total_steps` needs the same sample rate and noise multiplier in all trials. "
        "Write auto, coupon_book or fixed_order.",
        "cap-needs-menu": "`cap: coupon_book` limits the steps of each pair of sample rate and noise multiplier. So "
        "the searched values must be a list, not a range. Write a `choice` of values, or `cap: fixed_order`.",
        "cap-menu-too-large": "`cap: coupon_book` limits the steps of each pair of sample rate and noise multiplier. "
        "With so many pairs, the accountant would need minutes. Write `cap: fixed_order`.",
        "order-without-cap": "`privacy.order` can be used only with `cap: fixed_order`. Write this cap, or remove the "
        "key.",
        "sealed-follows-scores": "The price of a sealed search is proved only if its configurations are drawn "
        "independently and its runs are complete. Use the sampler `random` or `bounded`, and the pruner `none`.",
        "sealed-scores-protected": "Each protected score is released and charged separately. This would reveal the "
        "number of runs, which a sealed search must hide. Write `protected: false`, or `accounting: composition`.",
        "mode-needs-private": "This accounting is for private searches, but with `private: false` nothing is charged. "
        "Write `private: true`, or `accounting: composition`.",
        "runs-without-selection": "`privacy.runs` can be used only with `accounting: selection`. Remove the key, or "
        "write this accounting.",
        "run-law-unproved": "With a sampler that depends on scores, no price is proved for this distribution of the "
        "number of runs. Use `geometric`, or the sampler `random`.",
        "public-data-unused": "`search.public` needs `accounting: public`, or `accounting: composition` with the "
        "sampler `surrogate`. Write one of these, or remove `search.public`.",
        "public-trials-given-twice": "With `accounting: public`, all trials train on the public records, and "
        "`search.trials` is their number. Remove `search.public.trials`.",
        "public-data-missing": "`accounting: public` needs a public data set. Name it in `search.public`.",
        "public-data-incomplete": "Your own public records need a path, a public size, and a name that no shipped "
        "data set has.",
        "public-data-private": "The public data set must differ from the private data set. Otherwise the search would "
        "read private records without a charge.",
        "public-data-shape": "The same model trains on the public and the private records, so both need the same "
        "inputs and classes.",
        "public-with-users": "The public search averages gradients over records, not over users, so the private run "
        "must do the same. Write `unit: record`.",
        "tolerance-conflict": "The unimodal sampler and the unimodal pruner must use the same tolerance. Remove one "
        "of the two tolerances.",
        "unimodal-conditional": "A unimodal parameter must occur in every trial, but this one occurs only with some "
        "schedules or optimizers. Search with one of these alone, or remove `unimodal`.",
        "unimodal-denied": "A unimodal sampler or pruner needs a unimodal parameter, by default the smoothing radius. "
        "But the experiment file says `unimodal: false` for the smoothing radius. Write `unimodal: true` for another "
        "range.",
        "when-sure-sampler": "Only the unimodal sampler computes the probability that a trial is near the best one, "
        "which `when_sure` needs. Write `sampler: unimodal`, or `when_sure: go_on`.",
        "when-sure-sealed": "A sealed search must not stop early or repeat trials because of scores, which would "
        "reveal its number of runs. Write `when_sure: go_on`.",
        "grid-too-large": "The grid has too many points. Lower `points`, or search fewer parameters.",
        "sampler-space-missing": "The surrogate sampler needs the search space. In Python, pass `space` to "
        "`make_sampler`. A search from an experiment file always has a search space.",
        "grid-values-missing": "A grid search needs a search space with at least one value for each parameter.",
        "option-invalid": "An option of the sampler or pruner has a value that is not allowed. The page of keys, "
        "which `make docs` builds, lists the options.",
        "promotion-rungs": "A trial needs at least one rung (a step at which it reports its score) for each value in "
        "the list `promote`. Raise `search.rungs`, train longer, or write fewer values.",
        "promotion-steps": "A value in the list `promote` would last for at most one step. Train longer, or write "
        "fewer values.",
        "pruner-unknown": "No pruner has this name. The page of keys, which `make docs` builds, lists the pruners.",
        "sampler-not-secret": "A sealed search needs configurations that nobody can predict. Use the sampler `random` "
        "or `bounded`.",
        "sampler-unknown": "No sampler has this name. The page of keys, which `make docs` builds, lists the samplers.",
        "search-option-invalid": "Optuna refuses an option. The page of keys, which `make docs` builds, lists all "
        "options.",
        "study-direction": "The stored study maximises its score but the experiment minimises it, or the reverse. "
        "Start a new sweep with another name.",
        "study-settings-invalid": "The numbers of trials, steps and rungs contradict each other, or the mode is not "
        "`max` or `min`. Correct the setting that the message names.",
        "unimodal-parameter-missing": "Unimodal search needs a searched range along which the score has a single "
        "maximum. Add `unimodal: true` to one range, or search the smoothing radius.",
    },
    3: {
        "budget-too-small": "The budget of the search is too small for a single trial, or for all planned trials or "
        "runs. Raise the noise or ε, or plan fewer or shorter trials.",
        "validation-budget-too-small": "The budget of the validation records is too small for one protected score. "
        "Raise `dataset.validation.noise`, or write auto.",
    },
}
