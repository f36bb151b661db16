"""Composition mode: every step of every trial is charged, and all trials may be shown."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["COMPOSITION"]

COMPOSITION = Mode(
    name="composition",
    caps=("total_steps", "coupon_book", "fixed_order"),
    guarantee="everything the search shows",
    label="every step of every trial is charged (composition)",
    covers="everything that this search shows: the models of all trials, their settings, scores and curves, the choice "
    "among them and the exported model",
    access="every step of every trial, charged before its batch was drawn",
    released="the exported configuration, model and scores; and to analysts all trials with their settings, scores and "
    "curves",
    extent="The numbers are the cap of the whole search, set before it began: for all trials together, {most}, and not "
    "for one trial. {so_far}",
)
