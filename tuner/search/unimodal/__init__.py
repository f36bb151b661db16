"""What a search may conclude from scores that are unimodal in one parameter: pure numpy and scipy, no Optuna."""

from tuner.search.unimodal.axis import Axis
from tuner.search.unimodal.regression import UnimodalFit, project, unimodal_fit

__all__ = ["Axis", "UnimodalFit", "project", "unimodal_fit"]
