"""What a state says of a sample before its target is seen."""

from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import SecondMoments


class OneStepPrediction(NamedTuple):
    """A sample predicted; moments and means are `[B]`."""

    cross: tf.Tensor
    """Working covariance with the points, `[B, n, m]`."""
    white: tf.Tensor
    """w = L⁻¹ cross."""
    mean: tf.Tensor
    """Complex."""
    prior: SecondMoments
    """Of the signal, before any data."""
    signal: SecondMoments
    """Of the signal, given the points."""
    observed: SecondMoments
    """Of the observation, given the points."""
    rounding: tf.Tensor
    """What variances of the signal are not known better than, real."""
    pivot: tf.Tensor
    """√S, the factor of the working covariance of the observation, rounding added, `[B, m, m]`."""
