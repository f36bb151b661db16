"""The privacy budget: the accountant, the accounting modes, the ledger of all charges, and the privacy card.

Nothing here imports Ray, Optuna, MLflow or torch. dp_accounting is imported only when ε is computed.
"""

from __future__ import annotations
