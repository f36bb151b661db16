"""Faults of voted labels: too small a distance or noise, a limit that is not kept, votes that are not checked."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="votes-one-count",
        breaks="the noise of an answer covers one count that moves, and not the two that a vote moves",
        file="tuner/privacy/accountant/voted_labels.py",
        old="        return sqrt(self.queries / self.threshold_noise**2 + 2 * self.answers / self.answer_noise**2)\n",
        new="        return sqrt(self.queries / self.threshold_noise**2 + self.answers / self.answer_noise**2)\n",
        test="tests/privacy/accountant/test_voted_labels.py"
        "::test_one_binary_answer_at_a_tie_needs_the_distance_of_two_counts",
    ),
    Fault(
        name="votes-tests-free",
        breaks="the tests of the threshold are not charged",
        file="tuner/privacy/accountant/voted_labels.py",
        old="        return sqrt(self.queries / self.threshold_noise**2 + 2 * self.answers / self.answer_noise**2)\n",
        new="        return sqrt(2 * self.answers / self.answer_noise**2)\n",
        test="tests/privacy/modes/test_modes.py::test_every_filter_has_a_phrase_on_the_card_and_a_second_opinion",
    ),
    Fault(
        name="votes-no-limit",
        breaks="more queries are answered than were charged",
        file="trainables/release/votes.py",
        old="    within = passed & (passed.cumsum(0) <= voting.answers)\n",
        new="    within = passed\n",
        test="tests/trainables/audit/test_voted.py::test_a_sound_draw_is_below_its_claim",
    ),
    Fault(
        name="votes-little-noise",
        breaks="the answers have less noise than was charged",
        file="trainables/release/votes.py",
        old="    told = add_noise(flat, standard_deviation=voting.answer_noise, ",
        new="    told = add_noise(flat, standard_deviation=voting.answer_noise / 10, ",
        test="tests/trainables/audit/test_voted.py::test_a_sound_draw_is_below_its_claim",
    ),
    Fault(
        name="votes-not-counted",
        breaks="a teacher may have more than one vote on an input",
        file="trainables/data/votes.py",
        old="    if not counts or not bool((votes.sum(1) == teachers).all()):\n",
        new="    if not counts:\n",
        test="tests/trainables/release/test_votes.py"
        "::test_a_file_in_which_a_teacher_has_another_number_of_votes_is_refused",
    ),
    Fault(
        name="votes-given-too-likely",
        breaks="the divergence given the votes is below that of a neighbour",
        file="tuner/privacy/accountant/given_votes.py",
        old="    losing = log_ndtr(-(ordered[:, -1:] - ordered[:, :-1]) / (sqrt(2) * noise))\n",
        new="    losing = log_ndtr(-(ordered[:, -1:] - ordered[:, :-1]) / noise)\n",
        test="tests/privacy/accountant/test_voted_labels.py"
        "::test_no_neighbour_is_further_than_the_divergence_given_the_votes",
    ),
)
