"""Explanations of the errors of experiment files, plans and studies, by exit code."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[int, dict[str, str]] = {
    1: {
        "plan-unreadable": "A stored plan lacks a value or has an unknown one. Restore plan.json from a copy.",
        "plan-has-no-mechanism": "Trials have several sample rates or noise multipliers, so there is no single pair.",
        "plan-incomplete": "The plan in the sweep's folder lacks a required part. Restore plan.json from a copy.",
        "study-unreadable": "The journal of the sweep's trials is damaged and is never replaced by an empty one. "
        "Restore it from a copy, or start a new sweep. Charged steps stay charged.",
    },
    2: {
        "experiment-not-found": "The name is neither a local file nor a shipped experiment. `tune ls --shipped` lists "
        "the shipped ones; `tune init` writes a template.",
        "file-exists": "A file with this name exists. Choose another name, or overwrite it with `--force`.",
        "file-not-writable": "The file cannot be written. Check the folder and its permissions.",
        "file-not-sections": "The file has no sections. It needs `dataset:` and others at the left edge.",
        "yaml-invalid": "The text is not YAML. The mistake is at the line in the message or just before it.",
        "yaml-unsupported": "Anchors, aliases, tags, several documents and deep nesting are refused, because they hide "
        "the meaning of a file. Write every value at its own key.",
        "override-invalid": "An override has the form `--set path.to.key=value`; all keys but the last are sections.",
        "key-duplicate": "A section has the same key twice. Remove one.",
        "key-missing": "A required key is missing.",
        "key-unknown": "The section has no such key. The message names the nearest one.",
        "name-invalid": "An experiment and its folder share a name, so only the characters in the message may occur.",
        "value-wrong-type": "The value has the wrong type for its key, for example a word for a number.",
        "value-not-finite": "NaN and infinity are refused for every number, because no guarantee follows from them.",
        "value-empty": "The value is an empty word.",
        "value-out-of-range": "The value is outside the range in the message.",
        "value-not-allowed": "The value is not in the list in the message.",
        "rungs-invalid": "Rungs are a number of equally spaced reports, or rising fractions that end with 1.",
        "domain-outside-space": "This key takes one value. Write a domain to search under `search.space`.",
        "ledger-not-shared": "The file names one ledger and DP_TUNER_LEDGER another. The caps of one ledger do not "
        "apply in the other. Remove one of the two.",
        "ledger-variable-invalid": "DP_TUNER_LEDGER is not the address of a ledger.",
        "dataset-without-users": "The records do not name their users, so a guarantee for users is impossible.",
        "public-size-known": "The public size of a shipped data set is known. Leave the key out.",
        "records-per-user-unused": "The bound on records per user applies only with `privacy.unit: user`.",
        "scores-not-protected": "The budget and noise of scores apply to protected scores only. Leave the key out.",
        "validation-budget-too-large": "Protected scores cannot have a larger budget than the whole search.",
        "validation-empty": "Protected scores need at least one public validation record.",
        "metric-not-protectable": "Only accuracies can be protected, because one record can change a loss arbitrarily.",
        "batch-norm-refused": "BatchNorm mixes the records of a batch before clipping, so nothing bounds the influence "
        "of one record. Use group normalization or none.",
        "batches-not-poisson": "The accounting holds for Poisson samples. Shuffled or fixed-size batches have a weaker "
        "guarantee, and Poisson samples have no last batch.",
        "batch-size-realised": "The size of a batch is private, so sums are divided by the expected size.",
        "batch-size-too-large": "The batch is larger than the public number of records (or users). Lower it.",
        "clip-not-per-record": "Only clipping the gradient of each record bounds the influence of one record.",
        "statistics-not-charged": "Statistics of private records need a charge. Use public constants.",
        "workers-unsupported": "A trial has one worker in this version. Run more trials at once instead.",
        "delta-too-large": "A δ of 1/n would allow publishing one whole record. Write at most n^-1.1.",
        "accountant-unsupported": "The only accountant is `pld`, based on privacy loss distributions. For a filter at "
        "one Rényi order, write `privacy.cap: fixed_order`.",
        "adjacency-unsupported": "Adjacent data sets always differ by one added or removed record (or user).",
        "noise-zero": "Without noise there is no privacy. A study without noise needs `private: false`.",
        "noise-given-twice": "The noise multiplier is both in `privacy` and in `search.space`. Leave one out.",
        "option-unknown": "The sampler or pruner has no such option.",
        "option-missing": "The pruner needs an option that is not given.",
        "nothing-searched": "Several equal trials waste the budget. Search a parameter, or run one trial.",
        "metric-unknown": "No metric has this name.",
        "metric-not-validation": "A search may use validation scores only. The test set is scored once, at export, and "
        "scores on training records would leak them.",
        "metric-direction": "An accuracy is maximised and a loss is minimised.",
        "promotion-needs-rungs": "Each level of a promoted parameter needs a rung of its own. Raise `search.rungs`.",
        "priced-value-fixed": "A single value that affects the budget is a setting. Write it at the message's key.",
        "priced-with-public": "A public search ends with one private run, whose noise is calibrated for fixed "
        "settings. Parameters that affect the budget cannot be searched.",
        "priced-range-sealed": "The price of a sealed search needs finitely many configurations. Write a choice.",
        "cap-without-composition": "Caps apply to `accounting: composition` only.",
        "cap-needs-one-mechanism": "A cap on total steps holds for one sample rate and one noise multiplier.",
        "cap-needs-menu": "A coupon book has one quota for each value, so it cannot contain a range.",
        "cap-menu-too-large": "The accountant needs minutes to compose so many quotas. Write `cap: fixed_order`.",
        "order-without-cap": "A Rényi order applies to `cap: fixed_order` only.",
        "sealed-follows-scores": "The price of a sealed search holds for independent candidates and complete runs.",
        "sealed-scores-protected": "Released scores would show the number of runs, which a sealed search hides.",
        "mode-needs-private": "This accounting reduces the charge, and nothing is charged with `private: false`.",
        "runs-without-selection": "The law of the number of runs applies to `accounting: selection` only.",
        "run-law-unproved": "No price is proved for this law and a sampler that depends on scores.",
        "public-data-unused": "Public data are used only with `accounting: public`.",
        "public-data-missing": "`accounting: public` needs a public data set.",
        "public-data-incomplete": "Your own public records need a path, a public size and an unused name.",
        "public-data-private": "The public records are the private ones, which the search would read uncharged.",
        "public-data-shape": "One model trains on public and private records. Both need the same inputs and classes.",
        "public-with-users": "The public search averages records, and so must the private run. Write `unit: record`.",
        "tolerance-conflict": "The unimodal sampler and pruner share one tolerance.",
        "unimodal-conditional": "A unimodal parameter must be in every trial. Fix the schedule or remove `unimodal`.",
        "unimodal-denied": "The smoothing radius is declared not unimodal, and no other parameter is unimodal.",
        "when-sure-sampler": "Only the unimodal sampler can tell when the best configuration is known.",
        "when-sure-sealed": "Stopping or repeating because of scores would show the hidden number of runs.",
        "replicate-with-runs": "Repetitions need complete runs, and the pruner's option `runs` stops some early.",
        "grid-too-large": "The grid has too many points. Lower `points`, or search fewer parameters.",
        "grid-values-missing": "A grid search needs a search space with at least one value for each parameter.",
        "option-invalid": "The sampler or pruner refuses its options. docs/experiment.md lists the options.",
        "promotion-rungs": "Each level of a promoted parameter begins at its own rung, so a trial needs at least as "
        "many rungs as levels. Raise `search.rungs`, train longer, or write fewer levels.",
        "promotion-steps": "A level of a promoted parameter would last at most one step. Train longer.",
        "pruner-unknown": "No pruner has this name. docs/experiment.md lists the pruners.",
        "sampler-not-secret": "A sealed search needs secret draws. Use the sampler `random` or `bounded`.",
        "sampler-unknown": "No sampler has this name. docs/experiment.md lists the samplers.",
        "search-option-invalid": "Optuna refuses an option. docs/experiment.md lists the options.",
        "study-direction": "The stored study maximises its score and the experiment minimises it, or vice versa. Start "
        "a sweep with another name.",
        "study-settings-invalid": "The study's numbers of trials, steps and rungs contradict each other or its mode.",
        "unimodal-parameter-missing": "Unimodal search needs a searched range along which the score has one maximum. "
        "Add `unimodal: true` to one range, or search the smoothing radius.",
    },
    3: {
        "budget-too-small": "Not even one trial, or the planned runs or trials, fit the budget of the search. Raise "
        "the noise or ε, or plan fewer or shorter trials.",
        "validation-budget-too-small": "Not one protected score fits the budget of the validation records.",
    },
}
