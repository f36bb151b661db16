"""Explanations of the errors of experiment files, plans and studies, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "plan-unreadable": "The stored plan of the sweep lacks a value, or contains a value that dp-tuner does not "
        "know. Restore plan.json from a copy.",
        "plan-has-no-mechanism": "The trials use several sample rates or noise multipliers, but the command needs a "
        "single sample rate and a single noise multiplier.",
        "plan-incomplete": "The stored plan of the sweep lacks a required part. Restore plan.json from a copy.",
        "study-unreadable": "The file that records the sweep's trials is damaged. Restore it from a copy, or start a "
        "new sweep. dp-tuner never replaces the file by an empty one. Charged steps stay charged.",
    },
    2: {
        "release-searched": "A setting of the release must be one number. Each value would need a release of its own, "
        "and each release is charged like the first.",
        "start-with-release": "Any number of searches train on a release, and its entry in the ledger is made once. So "
        "the card of a later search could not name the public weights of that search. Remove `start` and `freeze`.",
        "release-method": "Methods that train on a release need `accounting: release`, and no other method has it.",
        "release-unused": "`privacy.release` and `privacy.votes` have no effect without the accounting of their name. "
        "Remove the key.",
        "votes-without": "`accounting: votes` needs a data set that teachers voted on, such as mnist_votes, and such a "
        "data set needs `accounting: votes`, because its inputs are public and only its votes are private.",
        "release-published": "The theorem of the input perturbation paper is false, so its noise guarantees nothing. "
        "Write `guarantee: rigorous`, or `private: false` for a study.",
        "release-noise": "The noise of a release follows from ε, δ, the clipping norm and the share of the labels.",
        "release-unit": "A release protects each row. A user may have several rows.",
        "release-scores": "Protected scores are charged one by one, but a search on a release charges nothing.",
        "release-blocks": "A release covers a whole table. Use another accounting for blocks.",
        "release-steps": "The setting belongs to private steps, which a training on a release does not have.",
        "audit-not-private": "An audit compares a lower bound of ε with a claim. A search with `private: false` claims "
        "nothing. Remove `private: false`.",
        "audit-too-few-canaries": "Each canary needs an entry of the input of its own. With few canaries, no number of "
        "right guesses would show anything. Audit the model on larger inputs.",
        "experiment-not-found": "No local file and no shipped experiment has this name. `tune ls --shipped` lists the "
        "shipped experiments. `tune init` writes a template.",
        "file-exists": "A file with this name exists. Choose another name, or overwrite it with `--force`.",
        "file-not-writable": "The file cannot be written. Check the folder and its permissions.",
        "file-not-sections": "The experiment file has no sections. Write section names such as `dataset:` without "
        "indentation, and the keys of each section indented below.",
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
        "auto-decides": "`accounting: auto` chooses between a committed run, fewer whole runs, a sealed search, a "
        "public proxy and no search, and plans the noise. A key that belongs to one of them contradicts it.",
        "commit-needs-composition": "A committed run follows trials whose scores are seen, so it needs `accounting: "
        "composition`. A sealed search hides its trials, and a public search already ends with one charged run.",
        "commit-with-full-runs": "`search.commit` and `search.full_runs` are two ways to plan one budget, and are not "
        "built together. Remove one of the two keys.",
        "commit-priced-searched": "With a committed run, all trials have one batch size, number of epochs and noise. "
        "The budget is one quota of steps for the trials and one for the committed run.",
        "commit-noise-given": "With a committed run, the noise of the trials and of the committed run is calibrated "
        "together, so that the share of the trials is the one in the file. Leave the noise at auto.",
        "commit-cap": "A committed run needs a coupon book, which is a quota of steps for each of the two noises.",
        "commit-share-too-small": "The trials would have so much noise that their scores would say nothing. Raise "
        "`search.commit.share`, or plan fewer trials.",
        "block-invalid": "`dataset.block` names blocks of a table of your own, whose file has the array "
        "`block_train`. A shipped data set has no blocks.",
        "block-of-users": "A user may have records in several blocks, so blocks bound nothing for a user. Use the "
        "whole table, or `unit: record`.",
        "ledger-not-shared": "The experiment file and DP_TUNER_LEDGER name different ledgers. The caps of one ledger "
        "do not limit searches in the other. Remove the key or the environment variable.",
        "ledger-variable-invalid": "The value of the environment variable DP_TUNER_LEDGER is not the address of a "
        "ledger.",
        "dataset-without-users": "The data set does not say which user each record belongs to, so a search on it "
        "cannot protect users. Write `privacy.unit: record`, or use a data set with users.",
        "public-size-known": "The public size of a shipped data set is already known. Remove the key.",
        "user-key-unused": "A user key is the owner's word on how own data are divided among users. It applies only to "
        "a file of your own with `privacy.unit: user`. Remove the key.",
        "records-per-user-unused": "The bound on records per user applies only with `privacy.unit: user`.",
        "scores-not-protected": "The key sets the budget or the noise of protected scores, but the scores are not "
        "protected. Remove the key, or write `protected: true`.",
        "validation-budget-too-large": "Protected scores cannot have a larger ε or δ than the whole search.",
        "validation-empty": "For protected scores, the public number of validation records must be at least 1.",
        "metric-not-protectable": "Only an accuracy can be protected: one record moves its count by at most 1. "
        "For other scores no bound is stated. Write validation_accuracy, or `protected: false`.",
        "batch-norm-refused": "BatchNorm mixes the records of a batch before clipping, so nothing bounds the influence "
        "of one record. Use group normalization, or no normalization.",
        "batches-not-poisson": "The accounting holds only if every batch is a Poisson sample. Shuffled or fixed-size "
        "batches have a weaker guarantee. Remove the key.",
        "batch-size-realised": "The actual size of a Poisson batch is private. Divide sums of gradients by the "
        "expected batch size instead.",
        "batch-size-too-large": "The batch is larger than the public number of records (or users). Lower the batch "
        "size.",
        "clip-not-per-record": "The gradient of each record must be clipped. No other clipping bounds the influence of "
        "one record.",
        "statistics-not-charged": "Statistics of private records would need a charge of their own, which dp-tuner does "
        "not support. Use public constants instead.",
        "workers-unsupported": "The workers of a trial share its batches, so a method without batches trains on one. "
        "To use more machines, run more trials at once.",
        "gpus-not-whole": "A trial with one worker uses a part of one GPU (0.25) or whole GPUs. Several workers of a "
        "trial need a GPU each. Ray gives nobody one and a half.",
        "delta-too-large": "With a δ of 1/n, publishing one whole record would count as private. Write a δ of at most "
        "n^-1.1, where n is the public number of records.",
        "accountant-unsupported": "The only accountant is `pld`, based on privacy loss distributions. For a privacy "
        "filter (cap) at one Rényi order, write `privacy.cap: fixed_order`.",
        "adjacency-unsupported": "The only supported adjacency is one added or removed record (or user).",
        "noise-zero": "Without noise there is no privacy. A study without noise needs `private: false`.",
        "noise-given-twice": "The noise multiplier is both in `privacy` and in `search.space`. Remove one of the two.",
        "option-unknown": "The sampler or pruner has no such option.",
        "option-missing": "The pruner lacks a required option. The message names the option.",
        "nothing-searched": "Several trials with the same configuration waste the budget. Give `search.space` a "
        "parameter with several values, or run one trial.",
        "metric-unknown": "No metric has this name.",
        "metric-not-validation": "A search may use validation scores only. The test set is scored once, at export. "
        "Scores on training records would reveal facts about them.",
        "metric-direction": "An accuracy or AUC must be maximised, and a loss or perplexity must be minimised.",
        "full-runs-above-trials": "`search.full_runs` is the number of whole runs of steps that all trials take "
        "together. Write at most `search.trials`, or auto.",
        "full-runs-needs-composition": "Only an open, private search charges steps rung by rung. Remove "
        "`search.full_runs`, or write `accounting: composition` and `private: true`.",
        "full-runs-too-small": "The planned steps must hold one whole run, and the first steps of every other trial. "
        "Raise `search.full_runs`, plan fewer trials, or let trials report earlier with `search.rungs`.",
        "promotion-needs-rungs": "Each level (value in the list `promote`) needs a rung of its own. Raise "
        "`search.rungs`.",
        "priced-value-fixed": "The search space gives a single value to a parameter that affects the budget. Write the "
        "value at the key that the message names.",
        "priced-with-public": "A public search ends with one private run, whose noise is calibrated in advance. "
        "Parameters that affect the budget therefore cannot be searched.",
        "priced-range-sealed": "The price of a sealed search can be computed for finitely many configurations only. "
        "Write a list of values instead of a range.",
        "cap-without-composition": "The key `privacy.cap` is used with `accounting: composition` only.",
        "cap-needs-one-mechanism": "A cap on total steps requires that all trials share one sample rate and one noise "
        "multiplier.",
        "cap-needs-menu": "A coupon book limits the steps of each pair of sample rate and noise multiplier. The "
        "searched values must therefore be a list, not a range.",
        "cap-menu-too-large": "A coupon book limits the steps of each pair of sample rate and noise multiplier. With "
        "so many pairs the accountant would need minutes. Write `cap: fixed_order`.",
        "order-without-cap": "A Rényi order can be given for `cap: fixed_order` only.",
        "sealed-follows-scores": "The price of a sealed search is proved only if its candidates are drawn "
        "independently and its runs are complete. Use the sampler `random` or `bounded`, and the pruner `none`.",
        "sealed-scores-protected": "Each protected score is released and charged separately, which would reveal the "
        "number of runs. A sealed search must hide that number.",
        "mode-needs-private": "With `private: false` nothing is charged, but the purpose of this accounting mode is to "
        "reduce a charge. Write `private: true`, or `accounting: composition`.",
        "runs-without-selection": "The distribution of the number of runs applies to `accounting: selection` only.",
        "run-law-unproved": "If the sampler depends on scores, no price is proved for this distribution of the number "
        "of runs. Use `geometric`, or the sampler `random`.",
        "public-data-unused": "A public data set is used with `accounting: public`, or as the proxy of an open search "
        "with the sampler `surrogate`. Remove `search.public`, or choose one of the two.",
        "public-trials-given-twice": "All trials of a search with `accounting: public` are on the public records, and "
        "`search.trials` is their number.",
        "public-data-missing": "`accounting: public` needs a public data set. Name it in `search.public`.",
        "public-data-incomplete": "To use your own public records, give a path, a public size, and a name that no "
        "other data set uses.",
        "public-data-private": "The public data set must differ from the private data set. Otherwise the search would "
        "read private records without a charge.",
        "public-data-shape": "The same model trains on the public and the private records, so both need the same "
        "inputs and classes.",
        "public-with-users": "The public search averages gradients over records, not over users, so the private run "
        "must do the same. Write `unit: record`.",
        "tolerance-conflict": "The unimodal sampler and the unimodal pruner must use the same tolerance.",
        "unimodal-conditional": "A unimodal parameter must occur in every trial. The named one occurs only with "
        "some schedules. Write a single schedule, or remove `unimodal`.",
        "unimodal-denied": "A unimodal sampler or pruner needs a unimodal parameter. According to the "
        "experiment file, the score is not unimodal in the smoothing radius. Add `unimodal: true` to another range.",
        "when-sure-sampler": "Only the unimodal sampler computes how sure the choice of the best configuration is. Use "
        "the unimodal sampler, or choose another value of `when_sure`.",
        "when-sure-sealed": "A sealed search must not stop early or repeat trials because of scores. Either would "
        "reveal its number of runs.",
        "grid-too-large": "The grid has too many points. Lower `points`, or search fewer parameters.",
        "sampler-space-missing": "The surrogate sampler needs the search space. In Python, pass `space` to "
        "`make_sampler`. A search from an experiment file always has one.",
        "grid-values-missing": "A grid search needs a search space with at least one value for each parameter.",
        "option-invalid": "The sampler or pruner refuses its options. The page of keys in the built site lists them.",
        "promotion-rungs": "A trial needs at least as many rungs as levels (values in the list `promote`). Raise "
        "`search.rungs`, train longer, or write fewer levels.",
        "promotion-steps": "A level (value in the list `promote`) would last at most one step. Train longer, or write "
        "fewer levels.",
        "pruner-unknown": "No pruner has this name. The page of keys in the built site lists the pruners.",
        "sampler-not-secret": "A sealed search needs candidates that nobody can predict. Use the sampler `random` or "
        "`bounded`.",
        "sampler-unknown": "No sampler has this name. The page of keys in the built site lists the samplers.",
        "search-option-invalid": "Optuna refuses an option. The page of keys in the built site lists all options.",
        "study-direction": "The stored study maximises its score but the experiment minimises it, or the reverse. "
        "Start a new sweep with another name.",
        "study-settings-invalid": "The numbers of trials, steps and rungs contradict each other, or the mode is not "
        "`max` or `min`.",
        "unimodal-parameter-missing": "Unimodal search needs a searched range along which the score has a single "
        "maximum. Add `unimodal: true` to one range, or search the smoothing radius.",
    },
    3: {
        "budget-too-small": "The search's budget is too small for a single trial, or for all planned trials or runs. "
        "Raise the noise or ε, or plan fewer or shorter trials.",
        "validation-budget-too-small": "The budget of the validation records is too small for one protected score.",
    },
}
