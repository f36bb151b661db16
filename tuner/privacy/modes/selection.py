"""Selection mode: a sealed search is charged as a whole, hides its number of runs and shows only its winner."""

from __future__ import annotations

from tuner.privacy.modes.base import KEY, Mode

__all__ = ["SELECTION"]

SELECTION = Mode(
    name="selection",
    runs_hidden=True,
    samplers=("random", "bounded"),
    pruners=("none",),
    guarantee="the winner: its configuration, its model and its score. Nothing else leaves the operator",
    label="the best of a hidden number of runs is charged as a whole (selection)",
    covers="all that leaves this search: the exported configuration, its model and its score, chosen among a hidden "
    "number of runs of which nothing else is shown",
    access="every step of every run, charged all together before the first",
    released="the exported configuration, its model and its score, and nothing else of the search",
    kept="every other run, its settings, scores and curves; how many runs there were; when they ran; checkpoint files, "
    f"raw logs, noise and records. They are for the operator only. {KEY}",
    extent="The numbers hold for the one run that leaves, and for its having been chosen: how many runs to make was "
    "drawn at random and in secret, they were independent, and only the best is shown. How many there were is shown "
    "nowhere: with the winner it would tell more of the records than is charged here.",
)
