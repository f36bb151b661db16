"""Ranking of the complete trials by the beliefs along several parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.study.unimodal.inference.beliefs import Beliefs

__all__ = ["believed_best", "ranking"]


def ranking(beliefs: Sequence[Beliefs]) -> tuple[int, ...]:
    """Return the numbers of the complete trials by the sum of their ranks along each parameter; ties by number."""
    orders = [believed.ranked() for believed in beliefs]
    every = {number for order in orders for number in order}
    return tuple(sorted(every, key=lambda number: (sum(_rank(order, number) for order in orders), number)))


def believed_best(beliefs: Sequence[Beliefs]) -> tuple[int, float] | None:
    """Return the trial believed to be the best, and a lower bound on the probability that it is near the best.

    Returns:
        Its number, and one minus the sum over the parameters of the probability that it is not near the best; None
        before a trial is complete.
    """
    ranked = ranking(beliefs)
    if not ranked:
        return None
    missed = 0.0
    for believed in beliefs:
        standing = next((each for each in believed.seen.trials if each.trial == ranked[0]), None)
        missed += 1.0 if standing is None else 1.0 - believed.near_trial(standing)
    return ranked[0], max(0.0, 1.0 - missed)


def _rank(order: tuple[int, ...], number: int) -> int:
    return order.index(number) if number in order else len(order)
