"""Release mode: one noisy copy of the records is charged and drawn once. All trials train on it at no cost."""

from __future__ import annotations

from tuner.privacy.modes.base import Mode

__all__ = ["RELEASE"]

RELEASE = Mode(
    name="release",
    on_release=True,
    guarantee="the release, and everything that is computed from it",
    label="one noisy copy of the records was charged before it was drawn; trials on this copy cost nothing (release)",
    covers="one noisy copy of the records, which was drawn once, and everything that is computed from it: all searches "
    "on it, the models of all their trials, settings, scores and curves, and the exported model",
    access="one pass over the records, which drew the release; the release was charged before it was drawn",
    released="to everyone: the release itself, the exported configuration, model and scores; to analysts also: all "
    "trials of all searches on the release",
    kept="raw logs, noise and records are for the operator only",
    winner="ε of the release, which covers this model and all others that were trained on the release: the guarantee",
    winner_row="trained on the release: covered by the guarantee of the release",
    extent="The claimed ε and δ are those of one release (a noisy copy) of the records. The whole release was charged "
    "before it was drawn, and it was drawn once. The claim covers any number of trials and searches on the release. "
    "They add no ε.",
)
"""Input perturbation, with one charged release for any number of trials and searches."""
