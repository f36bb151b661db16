"""Gates for the accounting modes. They check settings of sealed searches and of searches on public data."""

from __future__ import annotations

from collections.abc import Iterator

from trainables.data import DATASETS, public_train_size
from trainables.errors import DatasetError
from tuner.errors import InputError
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.sections import AUTO, RecordsSection
from tuner.experiment.wording import nearest
from tuner.privacy.accountant.run_laws import LAWS, RunLaw
from tuner.privacy.modes import COMPOSITION, MODES, PUBLIC, SELECTION
from tuner.study.names import canonical_pruner, canonical_sampler

__all__ = ["MODE_GATES"]

_RUNS = ("privacy.runs", "privacy.accounting", "search.trials")


@gate("privacy.accounting")
def accounting(draft: Draft) -> Iterator[GateFinding]:
    """Require a known accounting mode."""
    word = draft.experiment.privacy.accounting
    known = (*MODES, AUTO)
    if word not in known:
        rule = f"must be one of {', '.join(known)}"
        yield GateFinding("value-not-allowed", "privacy.accounting", rule, nearest(word, known))


@gate(
    *("privacy.accounting", "privacy.private", "search.sampler", "search.pruner", "dataset.validation"),
    "resources.concurrent_trials",
)
def sealed_search(draft: Draft) -> Iterator[GateFinding]:
    """Require that a sealed search is private and has independent candidates and complete runs."""
    experiment = draft.experiment
    if draft.mode is not SELECTION:
        return
    search = experiment.search
    sampler, pruner = canonical_sampler(search.sampler.name), canonical_pruner(search.pruner.name)
    if sampler is not None and sampler not in SELECTION.samplers:
        how = "goes through a list" if sampler == "grid" else "depends on the scores"
        rule = f"a sealed search needs independently drawn configurations, but the sampler {search.sampler.name} {how}"
        fix = "Write random or bounded. The bounded sampler makes limited use of scores; `tune plan` shows its price."
        yield GateFinding("sealed-follows-scores", "search.sampler", rule, fix, search.sampler.name)
    if sampler == "bounded" and experiment.resources.concurrent_trials > 1:
        rule = "a sealed search with the bounded sampler runs one trial at a time, so that a resume repeats its draws"
        fix = "Write 1, or `sampler: random`, whose draws do not depend on scores."
        yield GateFinding("sealed-follows-scores", "resources.concurrent_trials", rule, fix)
    if pruner is not None and pruner not in SELECTION.pruners:
        rule = (
            "a sealed search needs independent runs, but this pruner compares the scores of different runs"
            if pruner != "threshold"
            else "a sealed search does not support a pruner that stops a run because of its score"
        )
        yield GateFinding("sealed-follows-scores", "search.pruner", rule, "Write none.", search.pruner.name)
    if experiment.dataset.validation.protected:
        rule = "a sealed search cannot have protected scores, because their number would reveal the number of runs"
        fix = "Write `protected: false` (then the guarantee does not cover the scores) or `accounting: composition`."
        yield GateFinding("sealed-scores-protected", "dataset.validation.protected", rule, fix)
    if not experiment.privacy.private:
        rule = "a sealed search must be private"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true, or `accounting: composition`.")


@gate(*_RUNS, "search.sampler")
def runs(draft: Draft) -> Iterator[GateFinding]:
    """Check the distribution of the number of runs. The accountant must be able to price it."""
    privacy, search = draft.experiment.privacy, draft.experiment.search
    law = privacy.runs.law
    if draft.mode is not SELECTION:
        if not draft.experiment.is_auto and privacy.runs != type(privacy.runs)():
            rule = f"`privacy.runs` needs `accounting: selection`, but the accounting is {privacy.accounting}"
            fix = "Remove the key, or write `accounting: selection`."
            yield GateFinding("runs-without-selection", "privacy.runs", rule, fix)
        return
    if law not in LAWS:
        yield GateFinding(
            "value-not-allowed", "privacy.runs.law", f"must be one of {', '.join(LAWS)}", nearest(law, LAWS)
        )
        return
    if law == "poisson" and canonical_sampler(search.sampler.name) == "bounded":
        rule = "poisson cannot be combined with the bounded sampler, because no ε is proved for this combination"
        yield GateFinding("run-law-unproved", "privacy.runs.law", rule, "Write geometric, or `sampler: random`.")
        return
    try:
        RunLaw(name=law, mean=float(search.trials), shape=privacy.runs.shape)
    except InputError as error:
        rule, _, fix = error.message.partition(". ")
        yield GateFinding(error.code, "privacy.runs", rule, fix, f"{law} with a mean of {search.trials} trials")


@gate(*_RUNS)
def runs_at_most(draft: Draft) -> Iterator[GateFinding]:
    """Require that the maximum number of runs is at least the mean number of runs."""
    at_most, trials = draft.experiment.privacy.runs.at_most, draft.experiment.search.trials
    if at_most != "auto" and at_most < trials:
        rule = f"must be at least the mean number of runs, `search.trials = {trials}`"
        yield GateFinding("value-out-of-range", "privacy.runs.at_most", rule, "Write auto, or raise the number.")


_PUBLIC = ("search.public", "search.sampler", "privacy.accounting", "privacy.private", "privacy.unit")


@gate(*_PUBLIC, "trainable.batch_size", "dataset")
def public(draft: Draft) -> Iterator[GateFinding]:
    """Require public data and a private run for `accounting: public`, and for public data a search that uses them."""
    privacy, declared = draft.experiment.privacy, draft.experiment.search.public
    if draft.experiment.is_auto:  # a search on them is one of the candidates
        if declared is not None:
            yield from _public_records(draft, declared)
        return
    if draft.mode is not PUBLIC:
        if declared is None:
            return
        sampler = draft.experiment.search.sampler.name
        if draft.mode is not COMPOSITION or canonical_sampler(sampler) != "surrogate":
            rule = (
                "public data need `accounting: public`, or `accounting: composition` with `sampler: surrogate`, but "
                f"the accounting is {privacy.accounting} and the sampler is {sampler}"
            )
            fix = "Write `accounting: public` or `sampler: surrogate`, or remove the key."
            yield GateFinding("public-data-unused", "search.public", rule, fix, declared.name)
            return
    elif declared is None:
        rule = "`accounting: public` needs a public data set to search on"
        fix = "Write for example `search.public: {name: fashion_mnist}`. This key declares that the records are public."
        yield GateFinding("public-data-missing", "search.public", rule, fix, "nothing")
        return
    elif declared.trials is not None:
        rule = "with `accounting: public`, all trials run on the public records, and `search.trials` is their number"
        fix = "Remove the key, and write `search.trials`."
        yield GateFinding("public-trials-given-twice", "search.public.trials", rule, fix, str(declared.trials))
    if not privacy.private:
        rule = "a search with public data must be private, because its last part trains on private records"
        yield GateFinding("mode-needs-private", "privacy.private", rule, "Write true, or `accounting: composition`.")
    if privacy.unit == "user":
        rule = "a search with public data cannot protect users, because trials on public data average over records"
        yield GateFinding("public-with-users", "privacy.unit", rule, "Write `unit: record`, or another accounting.")
    yield from _public_records(draft, declared)


def _public_records(draft: Draft, public: RecordsSection) -> Iterator[GateFinding]:
    private, key = draft.experiment.dataset, "search.public.name"
    if public.path is None and public.name not in DATASETS:
        fix = (
            nearest(public.name, DATASETS) + " Your own data need `search.public.path` and `search.public.public_size`."
        )
        yield GateFinding("dataset-unknown", key, "unknown data set", fix)
        return
    if public.path is not None and (public.name in DATASETS or public.public_size is None):
        rule = "your own public records need a path, a public_size and a name that no shipped data set has"
        yield GateFinding(
            "public-data-incomplete", "search.public", rule, "Write `{name: …, path: …, public_size: …}`."
        )
        return
    owners = [DATASETS[name].budget_owner or name if name in DATASETS else name for name in (public.name, private.name)]
    if owners[0] == owners[1] or (public.path is not None and public.path == private.path):
        rule = f"the public records must not be the private records of {private.name}"
        yield GateFinding("public-data-private", key, rule, "Name a data set that anyone may see.")
        return
    shapes = [
        (DATASETS[name].input_shape, DATASETS[name].classes) if name in DATASETS else None
        for name in (public.name, private.name)
    ]
    if None not in shapes and shapes[0] != shapes[1]:
        rule = "the public and the private records must have the same input shape and number of classes"
        each = zip(("public", "private"), filter(None, shapes), strict=True)
        found = " and ".join(f"{shape} in {classes} classes ({whose})" for whose, (shape, classes) in each)
        fix = "The same model trains on both. Use a public data set of the same shape."
        yield GateFinding("public-data-shape", key, rule, fix, found)
        return
    try:
        size = public_train_size(draft.experiment.public_request())
    except DatasetError:
        return
    if draft.experiment.trainable.batch_size > size:
        rule = f"must be at most {size}, the number of training records of the public data set {public.name}"
        yield GateFinding("batch-size-too-large", "trainable.batch_size", rule, "Lower the batch size.")


MODE_GATES: tuple[Gate, ...] = (accounting, sealed_search, runs, runs_at_most, public)
