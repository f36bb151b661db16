"""Composition mode: every step of every trial is charged, and all trials may be shown."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["COMPOSITION"]

COMPOSITION = Mode(
    name="composition",
    caps=("total_steps", "coupon_book", "fixed_order"),
    guarantee="everything that the search shows",
    label="every step of every trial is charged (composition)",
    covers="everything that this search shows: the models of all trials, their settings, scores and curves, the choice "
    "of the winner and the exported model",
    access="every step of every trial; each step was charged before its batch was drawn",
    released="to everyone: the exported configuration, model and scores; to analysts also: all trials with their "
    "settings, scores and curves",
    extent="The claimed ε and δ are the cap of the whole search. The cap was set before the search began. For all "
    "trials together, the cap allows {most}. {so_far}",
)
