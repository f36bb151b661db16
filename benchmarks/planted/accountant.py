"""Faults in the accountant: each makes a claim too small, or accepts a mechanism that has no claim."""

from __future__ import annotations

from benchmarks.planted.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="optimistic-discretisation",
        breaks="losses are rounded down on the grid, so ε is a lower bound",
        file="tuner/privacy/accountant/loss_distribution.py",
        old="return GridMasses(grid, lowest, np.maximum(",
        new="return GridMasses(grid, lowest - 1, np.maximum(",
        test="tests/privacy/accountant/test_pld.py::test_full_batch_is_the_analytic_gaussian",
    ),
    Fault(
        name="rounding-margin-too-small",
        breaks="δ does not cover the rounding of the convolution",
        file="tuner/privacy/accountant/pld.py",
        old="_ROUNDING, _ROUNDING_ONCE = 5e-15, 1e-13",
        new="_ROUNDING, _ROUNDING_ONCE = 5e-17, 1e-15",
        test="tests/privacy/accountant/test_pld.py::test_rounding_margin_is_twice_what_an_80_bit_fft_shows",
    ),
    Fault(
        name="missing-mass-forgotten",
        breaks="the mass that a rounded step lacks is not taken out of δ",
        file="tuner/privacy/accountant/pld.py",
        old="return max(0.0, *(1 - ",
        new="return 0.0 * max(0.0, *(1 - ",
        test="tests/privacy/accountant/test_pld.py::test_the_mass_that_a_rounded_step_lacks_is_taken_from_delta",
    ),
    Fault(
        name="end-of-the-noise-is-free",
        breaks="δ does not cover a record that moves the noise beyond its end",
        file="tuner/privacy/accountant/pld.py",
        old="+ mechanism.sample_rate * beyond(mechanism.noise_multiplier)",
        new="+ 0 * beyond(mechanism.noise_multiplier)",
        test="tests/privacy/accountant/test_pld.py::test_nothing_is_claimed_where_a_record_is_seen_beyond_the_end_of_the_"
        "noise",
    ),
    Fault(
        name="hopeless-costs-nothing",
        breaks="ε is 0 instead of infinite if no grid can be used",
        file="tuner/privacy/accountant/pld.py",
        old="EPSILON_FLOOR) if sure > delta / 2 else inf",
        new="EPSILON_FLOOR) if sure > delta / 2 else 0.0",
        test="tests/privacy/accountant/test_pld.py::test_hopeless_is_infinite_not_small",
    ),
    Fault(
        name="nan-noise-accepted",
        breaks="the accountant takes NaN as a noise multiplier, for which libraries answer ε = 0",
        file="tuner/privacy/accountant/mechanism.py",
        old="isfinite(self.noise_multiplier) and self.noise_multiplier > 0\n",
        new="not self.noise_multiplier <= 0\n",
        test="tests/privacy/accountant/test_pld.py::test_a_number_out_of_range_is_refused",
    ),
    Fault(
        name="renyi-term-forgotten",
        breaks="the first term of the Rényi divergence of a sampled step is left out",
        file="tuner/privacy/accountant/rdp.py",
        old="i = np.arange(2, order + 1, dtype=float)",
        new="i = np.arange(3, order + 1, dtype=float)",
        test="tests/privacy/accountant/test_rdp.py::test_is_an_upper_bound_within_two_parts_in_a_billion",
    ),
    Fault(
        name="filter-larger-than-its-claim",
        breaks="a filter at one order holds more divergence than its (ε, δ) allows",
        file="tuner/privacy/accountant/filters/fixed_order.py",
        old="(log(delta) + log(order)) / (order - 1))\n        allowed",
        new="log(order) / (order - 1))\n        allowed",
        test="tests/privacy/accountant/test_filters.py::test_a_filter_claims_at_most_what_it_was_made_for",
    ),
    Fault(
        name="odometer-forgets-one-side",
        breaks="a record that trained in one search and validated in another is counted once",
        file="tuner/privacy/ledger/odometer.py",
        old='if len(splits) == 1 and splits != {"null"}:',
        new="if splits:",
        test="tests/privacy/ledger/test_odometer.py::test_sides_add_up_where_the_searches_split_otherwise",
    ),
)
