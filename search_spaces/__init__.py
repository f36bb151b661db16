"""Description of search spaces: domains, parameters, schedules and methods. It contains no search algorithm."""

from __future__ import annotations

from search_spaces.domains import (
    Categorical,
    Domain,
    Fixed,
    Integer,
    LogUniform,
    Promoted,
    Scalar,
    Uniform,
    promoted_levels,
)
from search_spaces.errors import DomainError, SpaceError
from search_spaces.methods import METHODS, MINIMA
from search_spaces.parameter import Limits, Parameter, Words
from search_spaces.parsing import parse_declared, parse_domain, parse_space
from search_spaces.spaces import PARAMETERS, SearchSpace, default_space, method_parameters

__all__ = [
    "METHODS",
    "MINIMA",
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
    "Uniform",
    "Words",
    "default_space",
    "method_parameters",
    "parse_declared",
    "parse_domain",
    "parse_space",
    "promoted_levels",
]
