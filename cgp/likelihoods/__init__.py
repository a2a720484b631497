"""Likelihoods of observations that are not the signal plus Gaussian noise."""

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.one_bit import OneBit
from cgp.likelihoods.polar import Magnitude, VonMises
from cgp.likelihoods.student_t import StudentT

__all__ = ["Likelihood", "Magnitude", "OneBit", "StudentT", "VonMises"]
