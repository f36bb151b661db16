"""What can be searched, and nothing of how: domains, parameters, schedules, the spaces of each method."""

from __future__ import annotations

from search_spaces.domains import (
    Categorical,
    Domain,
    Fixed,
    Integer,
    LogUniform,
    Promoted,
    Scalar,
    Suggest,
    Uniform,
    parse_declared,
    parse_domain,
    promoted_levels,
)
from search_spaces.errors import DomainError, SpaceError, SpaceProblem
from search_spaces.methods import METHODS
from search_spaces.parameter import Limits, Parameter, Words
from search_spaces.parsing import parse_space
from search_spaces.spaces import PARAMETERS, SearchSpace, default_space, parameters_of

__all__ = [
    "METHODS",
    "PARAMETERS",
    "Categorical",
    "Domain",
    "DomainError",
    "Fixed",
    "Integer",
    "Limits",
    "LogUniform",
    "Parameter",
    "Promoted",
    "Scalar",
    "SearchSpace",
    "SpaceError",
    "SpaceProblem",
    "Suggest",
    "Uniform",
    "Words",
    "default_space",
    "parameters_of",
    "parse_declared",
    "parse_domain",
    "parse_space",
    "promoted_levels",
]
