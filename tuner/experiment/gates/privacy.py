"""Gates for δ, ε, the accountant, the adjacency and the noise."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces.domains import as_yaml
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate

__all__ = ["PRIVACY_GATES"]

_EPSILONS = (1e-6, 1e6)
_ACCOUNTANTS = {
    "gdp": "the GDP accountant returns values of ε that are too small, for example 0.271 instead of 0.347",
    "rdp": "RDP gives a larger ε than pld, and only `privacy.cap: fixed_order` uses RDP",
    "prv": "the PRV accountant needs 7 GB of memory for 1.1 million steps, and its rounding error has no known bound",
}


@gate("privacy.delta", "dataset", "privacy.unit")
def delta(draft: Draft) -> Iterator[GateFinding]:
    """Require δ below 1/n, where n is the public number of training records (or users)."""
    size, privacy = draft.public_size, draft.experiment.privacy
    if size is not None and not privacy.delta < 1 / size:
        whole, who = ("user", "users") if privacy.unit == "user" else ("record", "training records")
        rule = f"must be below 1/n = {1 / size:.3g}, where n = {size} is the public number of {who}"
        fix = f"With a delta of 1/n, publishing a random {whole} would be allowed. Write at most {size**-1.1:.1g}."
        yield GateFinding("delta-too-large", "privacy.delta", rule, fix)


@gate("privacy.epsilon", "dataset.validation")
def epsilons(draft: Draft) -> Iterator[GateFinding]:
    """Require every ε within the range of the accountants."""
    low, high = _EPSILONS
    given = {
        "privacy.epsilon": draft.experiment.privacy.epsilon,
        "dataset.validation.epsilon": draft.experiment.dataset.validation.epsilon,
    }
    for key, epsilon in given.items():
        if epsilon is not None and not low <= epsilon <= high:
            rule = f"must be from {low:g} to {high:g}"
            yield GateFinding("value-out-of-range", key, rule, "Write for example 8.", as_yaml(epsilon))


@gate("privacy.accountant")
def accountant(draft: Draft) -> Iterator[GateFinding]:
    """Require the accountant `pld`, which uses privacy loss distributions."""
    word = draft.experiment.privacy.accountant
    if word != "pld":
        why = _ACCOUNTANTS.get(word.lower().removesuffix("accountant").strip("_-. "))
        rule = f"must be pld{f', because {why}' if why else ''}"
        yield GateFinding("accountant-unsupported", "privacy.accountant", rule, "Remove the key, or write pld.")


@gate("privacy.adjacency")
def adjacency(draft: Draft) -> Iterator[GateFinding]:
    """Require add-or-remove-one adjacency: two neighbouring data sets differ by one added or removed record."""
    word = draft.experiment.privacy.adjacency
    if word != "add_or_remove_one":
        known = word in ("replace_one", "substitute", "zero_out")
        rule = f"{word} adjacency is not supported" if known else "must be add_or_remove_one"
        fix = "Remove the key, or write add_or_remove_one."
        yield GateFinding("adjacency-unsupported", "privacy.adjacency", rule, fix)


@gate("privacy.noise_multiplier", "privacy.private")
def noise(draft: Draft) -> Iterator[GateFinding]:
    """Refuse a private search without noise."""
    privacy = draft.experiment.privacy
    if privacy.private and privacy.noise_multiplier == 0:
        fix = "Write auto, or write `private: false` for a study without privacy."
        yield GateFinding("noise-zero", "privacy.noise_multiplier", "must be above 0, because privacy needs noise", fix)


@gate("privacy.noise_seed", "privacy.private")
def noise_seed(draft: Draft) -> Iterator[GateFinding]:
    """Refuse a noise seed in a private search."""
    privacy = draft.experiment.privacy
    if privacy.private and privacy.noise_seed is not None:
        rule = "a private search cannot have a noise seed, because anyone who knows the seed can compute the noise"
        fix = "Remove `noise_seed`. For a reproducible initialisation and search, set the public `seed` instead."
        yield GateFinding("noise-seed-private", "privacy.noise_seed", rule, fix)


PRIVACY_GATES: tuple[Gate, ...] = (delta, epsilons, accountant, adjacency, noise, noise_seed)
