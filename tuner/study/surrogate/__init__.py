"""Surrogate of a search, which carries what cheap trials and public proxies taught to the final setting.

This package imports neither Optuna nor torch.
"""

from tuner.study.surrogate.observations import PRIVATE, PUBLIC, Observation, Prior, Proposal
from tuner.study.surrogate.surrogate import Surrogate

__all__ = ["PRIVATE", "PUBLIC", "Observation", "Prior", "Proposal", "Surrogate"]
