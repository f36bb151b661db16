"""Votes mode: labels that teachers voted for are charged and drawn once. All students train on them at no cost."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["VOTES"]

VOTES = Mode(
    name="votes",
    on_release=True,
    record="training record of a teacher",
    inputs="public inputs",
    guarantee="the voted labels, and everything that is computed from them",
    label="labels that teachers voted for were charged before they were drawn; students cost nothing (votes)",
    covers="the labels that the teachers' votes gave to public inputs, which were drawn once, and everything that is "
    "computed from them: all searches on them, the models of all their trials, settings, scores and curves, and the "
    "exported model; the teachers' own models and votes are not shown and not covered",
    access="one pass over the votes, which drew the labels; it was charged before the votes were read",
    released="to everyone: the labels and which inputs have one, the exported configuration, model and scores; to "
    "analysts also: all trials of all searches on the labels",
    kept="the votes, an ε computed from them, the teachers, raw logs, noise and records are for the operator only",
    winner="ε of the labels, which covers this student and all others that were trained on them: the guarantee",
    winner_row="trained on the voted labels: covered by their guarantee",
    extent="The numbers are those of one draw of labels, whatever the votes are. It was charged whole before a vote "
    "was read, and was drawn once. Any number of trials and of searches on the labels are covered and add nothing.",
)
"""PATE (Papernot et al. 2018), with one charged draw of labels for any number of students and searches."""
