"""Bodies of filters, as the ledger has them."""

from __future__ import annotations

from typing import Any

RATE = 256 / 50_000
TOTAL = {"kind": "total_steps", "sample_rate": RATE, "noise_multiplier": 1.1, "step_cap": 7006}
BOOK = {
    "kind": "coupon_book",
    "coupons": [
        {"sample_rate": 0.01, "noise_multiplier": 1.2, "steps": 900},
        {"sample_rate": 0.02, "noise_multiplier": 1.5, "steps": 400},
    ],
}


def sealed(
    name: str = "geometric", mean: float = 30.0, *, shape: float | None = None, **changes: object
) -> dict[str, Any]:
    runs = [{"sample_rate": RATE, "noise_multiplier": 1.1, "steps": 7006}]
    law = {"name": name, "mean": mean, "shape": shape}
    return {"kind": "sealed", "law": law, "at_most": 10_000, "runs": runs, "ratio": [1.0, 1.0], **changes}
