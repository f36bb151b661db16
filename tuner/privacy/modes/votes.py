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
    label="labels that teacher models voted for were charged before they were drawn; student models cost nothing "
    "(votes)",
    covers="the labels that the votes of teacher models gave to public inputs, drawn once, and everything that is "
    "computed from these labels: all searches on them, the models of all their trials, settings, scores and curves, "
    "and the exported model; the teacher models and their votes are not shown and not covered",
    access="one pass over the votes, which drew the labels; the labels were charged before the votes were read",
    released="to everyone: the labels, which inputs have a label, the exported configuration, model and scores; to "
    "analysts also: all trials of all searches on the labels",
    kept="the votes, any ε computed from the votes, the teacher models, raw logs, noise and records are for the "
    "operator only",
    winner="ε of the labels, which covers this student model and all others that were trained on the labels: the "
    "guarantee",
    winner_row="trained on the voted labels: covered by the guarantee of the labels",
    extent="The claimed ε and δ are those of one draw of labels, whatever the votes are. The whole draw was charged "
    "before any vote was read, and it was made once. The claim covers any number of trials and searches on the labels. "
    "They add no ε.",
)
"""PATE (Papernot et al. 2018), with one charged draw of labels for any number of students and searches."""
