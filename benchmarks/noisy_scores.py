"""Rules that choose among noisy scores, compared on simulated searches. It reads no records and takes a minute.

    python -m benchmarks.noisy_scores

Each trial of a simulated search has true accuracies at its rungs, the error of a sample of validation records (partly
shared by the trials), and the noise of a protected score at each rung. The table shows, in points: how far the chosen
trial is from the best one (regret), by the last score and by the rule of the product; and by how much the winner's
score is above its true accuracy, before and after the correction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainables.score_error import ScoreError
from tuner.study.noisy_scores import combined_scores, expected_score, tied

__all__ = ["Result", "compare"]

_RECORDS = 5000  # validation records
_SHARED = 0.7  # part of the variance of the records' sampling error that all trials share
_WOBBLE = 0.4  # points by which the noise of training moves a trial
_SLOW = 0.5  # how much the remaining rise at a rung depends on the first parameter


@dataclass(frozen=True)
class Result:
    """Means over searches, in points, of one paired comparison."""

    regret_by_last: float
    regret_by_rule: float
    gain: float  # first minus second
    gain_error: float  # standard error of the gain
    bias: float  # of the winner's last score
    bias_corrected: float  # of its expected score; the same as `bias` without noise


def _search(
    generator: np.random.Generator, trials: int, noise: float, *, spread: float, rise: float, rungs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return true and released accuracies in points, both of shape (trials, rungs)."""
    places = generator.normal(size=(trials, 2))
    best = 90 - np.minimum(spread * np.sum(places**2, axis=1) / 2, 40)
    slow = np.exp(_SLOW * places[:, :1]) * (1 + 0.3 * generator.normal(size=(trials, 1)))
    left = 1 - np.arange(1, rungs + 1) / rungs
    wobble = _WOBBLE * np.sqrt(0.5) * (generator.normal(size=(trials, 1)) + generator.normal(size=(trials, rungs)))
    true = best[:, None] - rise * left * slow + wobble
    sampled = 100 * np.sqrt(np.clip(true / 100 * (1 - true / 100), 0.001, None) / _RECORDS)
    own = np.sqrt(0.7) * generator.normal(size=(trials, 1)) + np.sqrt(0.3) * generator.normal(size=true.shape)
    drawn = np.sqrt(_SHARED) * generator.normal() + np.sqrt(1 - _SHARED) * own
    return true, true + sampled * drawn + noise * generator.normal(size=true.shape)


def compare(
    trials: int, noise: float, *, searches: int, spread: float = 1.5, rise: float = 4.0, rungs: int = 5, seed: int = 0
) -> Result:
    """Compare the rules on simulated searches.

    Args:
        trials: number of complete trials of a search.
        noise: standard deviation of the noise of a score, in points; 0 for scores without noise.
        searches: number of simulated searches.
        spread: how fast the accuracy falls away from the best configuration, in points.
        rise: points that a typical trial gains during its training.
        rungs: number of scores of a trial.
        seed: seed of the simulation.
    """
    generator = np.random.default_rng(seed)
    error = ScoreError(_RECORDS, noise / 100)
    rows = []
    for _ in range(searches):
        true, released = _search(generator, trials, noise, spread=spread, rise=rise, rungs=rungs)
        last = {number: float(curve[-1]) / 100 for number, curve in enumerate(released)}
        top = max(last, key=last.__getitem__)
        combined = combined_scores({number: list(curve / 100) for number, curve in enumerate(released)}, error.noise)
        chosen = max((top, *tied(last, top, error)), key=combined.__getitem__)
        expected = last[chosen] if noise == 0 else expected_score(list(last.values()), last[chosen], error.noise)
        final = true[:, -1]
        rows.append(
            (
                final.max() - final[top],
                final.max() - final[chosen],
                final[chosen] - final[top],
                100 * last[chosen] - final[chosen],
                100 * expected - final[chosen],
            )
        )
    by_last, by_rule, gain, bias, corrected = np.array(rows).T
    return Result(
        regret_by_last=float(by_last.mean()),
        regret_by_rule=float(by_rule.mean()),
        gain=float(gain.mean()),
        gain_error=float(gain.std(ddof=1) / np.sqrt(searches)),
        bias=float(bias.mean()),
        bias_corrected=float(corrected.mean()),
    )


def _cases() -> Iterator[tuple[int, float, float]]:
    for rise in (4.0, 10.0):
        for trials in (4, 12, 40):
            for noise in (0.0, 0.3, 1.0, 3.0):
                yield trials, noise, rise


def main() -> None:
    """Print the table, and one JSON object with its figures."""
    print("trials  noise  rise  regret by last score  by the rule  gain ± error    bias  corrected")
    found = {}
    for trials, noise, rise in _cases():
        result = compare(trials, noise, searches=500, rise=rise)
        found[f"{trials} trials, noise {noise:g}, rise {rise:g}"] = vars(result)
        print(
            f"{trials:6d}  {noise:5.1f}  {rise:4.0f}  {result.regret_by_last:20.3f}  {result.regret_by_rule:11.3f}  "
            f"{result.gain:+.3f} ± {result.gain_error:.3f}  {result.bias:+6.2f}  {result.bias_corrected:+9.2f}"
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
