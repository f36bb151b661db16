"""Text of ε and δ: no claim is shown smaller than it is charged, and the rounding of a sum is hidden."""

from __future__ import annotations

import math

import pytest

from tuner.privacy.ledger.amounts import amount, apart


@pytest.mark.parametrize("value", [1.00000000004, 2.3456789012345, 1 / 3, 1.2345678901e-5, 1e6 + 1e-4])
def test_a_claim_is_never_shown_smaller_than_it_is(value: float) -> None:
    assert float(amount(value)) >= value
    assert float(f"{value:.10g}") < value  # the control: ten digits alone are smaller


def test_a_rounding_error_of_a_sum_is_hidden() -> None:
    assert (amount(0.1 + 0.2), amount(3.0), amount(1e-5), amount(math.inf)) == ("0.3", "3", "1e-05", "inf")
    assert apart(math.nextafter(3.0, 4.0), 3.0) == ("3.0000000000000004", "3.0")
