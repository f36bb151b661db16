"""Words for the sections and the fields of a privacy card."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CODES", "LABELS", "TITLES"]

TITLES: Mapping[str, str] = {
    "claim": "The claim in full",
    "setting": "Who holds the records",
    "released": "What is shown",
    "kept_from_analysts": "What is kept from analysts",
    "data_accesses": "Every access to the records",
    "training_cap": "The cap for records that train",
    "validation_cap": "The cap for records that validate",
    "public_search": "What was searched on public records",
    "validation": "Validation records",
    "scores": "Scores of the exported model",
    "exported_files": "The exported files",
    "spent": "Spent so far",
    "winner": "The exported trial by itself",
    "dataset_budget": "The budget of the data set",
    "configuration": "Configuration",
    "records": "Training records",
    "randomness": "Randomness",
    "assumptions": "Assumptions, and what each rests on",
    "not_proved": "Not proved",
    "ledger": "Where it stands in the ledger",
    "versions": "Versions",
    "schema": "Format of the card",
}
"""Headings of the sections, in the order of the page; what is not named here comes after them."""

_CAP: Mapping[str, str] = {
    "label": "what it is",
    "protects": "what it protects",
    "epsilon": "ε, the cap",
    "delta": "δ",
    "mechanism": "mechanism",
    "noise": "standard deviation of the noise of a score, in right answers",
    "filter": "what may be done (rates, noise in units of the clipping norm, steps)",
    "epsilon_at_cap": "ε of all that may be done",
    "discretisation_error": "how far that may lie above the true ε, by the accountant's grid (estimate)",
    "joint": "both caps together",
    "curve": "the same at other δ",
}

LABELS: Mapping[str, Mapping[str, str]] = {
    "claim": {
        "search": "search",
        "dataset": "data set",
        "epsilon": "ε, the cap",
        "delta": "δ",
        "model_and_tuning": "the model and its tuning together",
        "tuning_alone": "the tuning",
        "model_alone": "the model, as if it had not been tuned",
        "unit": "unit of protection",
        "adjacency": "data sets that must look alike",
        "covers": "what the guarantee covers",
        "views": "who is covered by it when they look (analysts see what is shown, the operator everything)",
        "mode": "how trials are charged",
        "law_of_the_number_of_runs": "hidden random number of trials (a way to pay less)",
        "accounting": "how ε is computed",
    },
    "data_accesses": {
        "this_search": "this search",
        "scores": "scores",
        "earlier_searches": "earlier searches",
        "later_searches": "later searches",
        "label": "note",
    },
    "training_cap": _CAP,
    "validation_cap": _CAP,
    "public_search": {
        "label": "what it rests on",
        "dataset": "data set, declared public",
        "path": "file",
        "sweep": "search",
        "trials": "trials",
        "sampler": "sampler",
        "pruner": "pruner",
        "declared_by": "declared public by",
        "epsilon": "ε that it cost",
    },
    "validation": {
        "source": "where they come from",
        "split": "how they were set apart",
        "key": "the split",
        "protected": "protected by noise",
        "guarantee": "guarantee",
    },
    "scores": {"guarantee": "guarantee", "label": "note"},
    "spent": {
        "label": "what it is",
        "leased_steps": "steps charged",
        "trials": "trials",
        "mechanisms": "of which kinds",
        "epsilon_spent": "ε of these steps",
        "released_scores": "scores released",
        "epsilon_spent_on_validation": "ε of these scores",
    },
    "winner": {
        "label": "what it is",
        "trial": "trial",
        "sample_rate": "sample rate (chance of each unit to be in a batch)",
        "noise_multiplier": "noise multiplier (standard deviation of the noise, in units of the clipping norm)",
        "steps": "steps charged to it",
        "single_run_epsilon": "ε of these steps",
        "at_delta": "at δ",
    },
    "dataset_budget": {
        "dataset": "data set",
        "rule": "rule by which searches add up",
        "cap": "cap that its owner has set",
        "committed_epsilon": "ε committed",
        "committed_delta": "δ committed",
        "within_cap": "within the cap",
        "user": "who ran this search",
        "share": "share of that user",
        "committed_by_user": "committed by that user",
        "label": "what committed and spent mean",
        "validation_splits": "validation splits used",
        "epsilon_spent": "ε spent by all searches",
        "odometer_delta": "at δ",
        "other_searches": "other searches",
    },
    "configuration": {
        "method": "training method",
        "model": "model",
        "batch_size_expected": "expected batch size",
        "max_grad_norm": "clipping norm C (the most that one unit can move a sum of gradients)",
        "parameters": "hyper-parameters of the exported trial",
        "sampler": "sampler (chooses what to try)",
        "pruner": "pruner (ends trials early)",
    },
    "records": {
        "public_size": "number of units that the accounting uses",
        "public_size_is_public": "that number is public",
        "records_per_user": "records of one user that a step may use (contribution bound)",
        "preprocessing": "preprocessing",
    },
    "randomness": {
        "generator": "generator of noise and batches",
        "seeded": "started from a known seed",
        "floating_point_attack": "attack on the rounding of the noise",
        "timing_side_channel": "attack on step times",
    },
    "ledger": {
        "head_seq": "number of the ledger's last entry for the data set when the card was made",
        "head_hash": "hash of that entry",
        "label": "what it tells",
    },
}
"""Words for the fields, in the order of the page; a field that is not named here follows under its own name."""

CODES: Mapping[str, str] = {
    "add_or_remove_one": "those that differ by one record, added or removed (add_or_remove_one)",
    "add_or_remove_one_user": "those that differ by one user with all records, added or removed "
    "(add_or_remove_one_user)",
    "composition": "every step of every trial is charged (composition)",
    "selection": "the best of a hidden number of runs is charged as a whole (selection)",
    "public": "the one run on these records is charged; it was searched on public ones (public)",
}
"""Values that are codes, in words."""
