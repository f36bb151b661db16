"""The privacy budget: what one step costs, what a search may spend, the ledger that says what was spent, and the card.

Nothing here imports Ray, Optuna, MLflow or torch, and nothing here imports dp_accounting before a number is asked for.
"""

from __future__ import annotations
