"""Public mode: the search uses public records and costs nothing. Only one run on the private records is charged."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["PUBLIC"]

PUBLIC = Mode(
    name="public",
    searches_public=True,
    guarantee="the charged run. The search reads no private record",
    label="the one run on these records is charged; it was searched on public ones (public)",
    covers="the one run that was trained on them: its settings, scores and curve and the exported model; what it was "
    "trained with was searched on other records, which are declared public",
    access="every step of the one run, charged before its batch was drawn",
    released="the exported configuration, model and scores; and to analysts its settings, scores and curve",
    winner="the one run that was trained on the records of the data set",
    winner_row="the steps that were charged to it",
    extent="The numbers are the cap of the one run on these records. What it was trained with was searched on other "
    "records, which are declared public; that is taken on trust, and costs nothing if it is true. {so_far}",
)
