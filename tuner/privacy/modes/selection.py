"""Selection mode: a sealed search is charged as a whole, hides its number of runs and shows only its winner."""

from __future__ import annotations

from tuner.privacy.modes.base import KEY, Mode

__all__ = ["SELECTION"]

SELECTION = Mode(
    name="selection",
    runs_hidden=True,
    samplers=("random", "bounded"),
    pruners=("none",),
    guarantee="the winner: its configuration, its model and its score. Only the operator sees anything else",
    label="the whole search, a hidden number of runs, is charged at once; only its best run is released (selection)",
    covers="everything that this search releases: the configuration, the model and the score of the best of a hidden "
    "number of runs",
    access="every step of every run; the whole search was charged before its first run",
    released="the exported configuration, its model and its score, and nothing else from the search",
    kept="the settings, scores and curves of every other run; the number of runs; the times of the runs; checkpoint "
    f"files, raw logs, noise and records. All of these are for the operator only. {KEY}",
    extent="The claimed ε and δ cover the released run and its selection as the best run. The number of runs was drawn "
    "at random and is secret, and only the best run is released. If the number of runs were shown together with the "
    "winner, both would reveal more about the records than was charged.",
)
