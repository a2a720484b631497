"""What is measured of a signal in noise, where that is not the signal plus Gaussian noise."""

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.magnitude import Magnitude
from cgp.likelihoods.one_bit import OneBit
from cgp.likelihoods.student_t import StudentT
from cgp.likelihoods.von_mises import VonMises

__all__ = ["Likelihood", "Magnitude", "OneBit", "StudentT", "VonMises"]
