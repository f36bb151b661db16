"""Objective perturbation: it has the parameters of output perturbation."""

from search_spaces.methods import output_perturbation
from search_spaces.parameter import Parameter

PARAMETERS: tuple[Parameter, ...] = output_perturbation.PARAMETERS
