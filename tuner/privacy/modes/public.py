"""Public mode: the search uses public records and costs nothing. Only one run on the private records is charged."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["PUBLIC"]

PUBLIC = Mode(
    name="public",
    searches_public=True,
    guarantee="the charged run. The search itself reads no private record",
    label="only one run on the private records is charged; the search used public records (public)",
    covers="the one run that was trained on these records: its settings, scores and curve, and the exported model. The "
    "run's configuration was searched on other records, which are declared public",
    access="every step of the one run; each step was charged before its batch was drawn",
    released="to everyone: the exported configuration, model and scores; to analysts also: the settings, scores and "
    "curve of the run",
    winner="ε of the only run that was trained on these records",
    winner_row="the only run that was trained on these records",
    extent="The claimed ε and δ are the cap of the one run on these records. The run's configuration was searched on "
    "other records, which the experiment file declares public. If they are public, that search costs nothing. {so_far}",
)
