"""Noise that follows the signal: its deviation is a fraction ρ of |f|, beside σ² of all samples.

    E|n|² = σ² + ρ² E|f|²

The power E|f|² at the samples is that of the posterior of the signal, which depends on the noise in
turn. Both are iterated until they agree; while hyperparameters are learned the power is constant,
and then it is renewed, until that changes no noise variance. These are generalised least squares
with estimated weights, and σ and ρ have the largest pseudo-likelihood (Carroll & Ruppert,
Transformation and Weighting in Regression, 1988, §2.3 and §3.2).
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.posterior import Posterior
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg.arguments import squared_modulus

_MOST_TURNS = 100  # of power and posterior


def with_power_of_data(data: Data) -> Data:
    """The data with `|z|²`, or zero where missing, for the power of the signal."""
    power = tf.where(data.present, squared_modulus(data.z), tf.zeros([], data.x.dtype))
    return data._replace(noise=data.noise._replace(signal_power=power))


def with_signal_power(
    process: SignalPlusNoise, data: Data, posterior: Callable[[Data], Posterior]
) -> Data:
    """The data with the power of the signal at the present hyperparameters, without gradient.

    `posterior` returns the signal at the samples of data that have a power. Where the iteration
    does not converge, a ValueError eagerly, and NaN in a graph.
    """
    series = data.z.shape[0]
    batch = tf.shape(data.z)[:1] if series is None else tf.constant([series])
    accuracy = tf.constant(1e-9 if data.x.dtype == tf.float64 else 1e-4, data.x.dtype)

    def with_power(power: tf.Tensor) -> Data:
        noise = data.noise._replace(signal_power=power)
        return data._replace(noise=noise, batch=batch)

    def turn(count: tf.Tensor, power: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        at_samples = posterior(with_power(power))
        following = squared_modulus(at_samples.mean()) + at_samples.variance()
        following = tf.reshape(following, tf.shape(power))
        variances = [process.noise_variances(with_power(a).noise) for a in (power, following)]
        change = tf.abs(tf.math.log(variances[1] / variances[0]))
        return count + 1, following, tf.reduce_max(change)

    def goes_on(count: tf.Tensor, _: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
        return (count < _MOST_TURNS) & (change > accuracy)

    start = with_power_of_data(data).noise.signal_power
    infinite = tf.constant(np.inf, accuracy.dtype)
    _, power, change = tf.while_loop(goes_on, turn, (tf.constant(0), start, infinite))
    failed = ~(change <= 100.0 * accuracy)  # rounding may keep it from the last digits
    if tf.executing_eagerly() and bool(failed):
        raise ValueError(
            f"no power of the signal agrees with its noise after {_MOST_TURNS} turns, the last of "
            f"which changed a noise variance by {float(change):.1%}: the hyperparameters may be "
            "far from the data"
        )
    power = tf.where(failed, tf.constant(np.nan, power.dtype), power)
    return with_power(tf.stop_gradient(power))._replace(batch=data.batch)
