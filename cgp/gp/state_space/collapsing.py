"""Outputs as series of one signal: of one source one series of known noise, of none P series.

Where every output is a gain times one signal u, `z_p = a_p u + n_p` with independent circular noise
of variances r_p, the values at one place tell of u what one observation tells (Jungbacker &
Koopman, Econometrics Journal 18, 2015, with adjoints for transposes):

    y = s Σ_p conj(a_p) z_p / r_p,   1/s = Σ_p |a_p|² / r_p,

of noise variance s. The rest of the density of z does not depend on u,

    log p(z | u) = log CN(y; u, s) + log(π s) − Σ_p [log(π r_p) + |z_p − a_p y|² / r_p],

sums being over the outputs that are observed. So P outputs are filtered at the cost of one.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from cgp.gp import line
from cgp.gp.data import Data, as_line
from cgp.gp.noise import SampleNoise
from cgp.gp.outputs import by_outputs, series_of_outputs
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space import native_likelihood
from cgp.gp.state_space.discretization import ordered_series
from cgp.gp.state_space.output_series import in_rows
from cgp.kernels.base import Kernel
from cgp.kernels.outputs import Coregionalized, Outputs
from cgp.linalg.arguments import as_complex, is_nan, nan, squared_modulus
from cgp.statespace import filtering

_SAMPLES_PER_CUBED_STATE = 1.0  # up to as many a line costs less than a filter
_LARGEST_CONDITION_NUMBER = 1e9  # above, a line search ends in the rounding of a Toeplitz gradient


class Collapsed(NamedTuple):
    """Series of one signal in place of several outputs, and the rest of their density."""

    process: SignalPlusNoise
    """The process of one signal."""
    data: Data
    """Its observations, `[B, N]`, or `[B P, N]`, with the noise of each."""
    correction: tf.Tensor
    """What the log likelihood of the outputs has beside that of the series, real, `[B]`."""

    def log_likelihood(self, parallel: bool) -> tf.Tensor:
        """The log likelihood of the outputs, `[B]`; `parallel` as for the series."""
        of_series = log_likelihood(self.process, self.data, parallel)
        of_data = tf.reshape(of_series, [tf.shape(self.correction)[0], -1])
        return tf.reduce_sum(of_data, axis=1) + self.correction


def on_line_if_short(data: Data, process: SignalPlusNoise, kernel: Kernel) -> Data:
    """Data of a Markov process, on a line if its covariance costs less than a filter of n states.

    That is O(N²) beside O(N n³). Kernels of Matérn terms have a compiled filter, which is faster.
    """
    if not process.is_toeplitz or kernel.markov_terms() is not None:
        return data
    states = kernel.markov_form().h.shape[-1]
    return as_line(data) if data.z.shape[-1] <= _SAMPLES_PER_CUBED_STATE * states**3 else data


def log_likelihood(process: SignalPlusNoise, data: Data, parallel: bool) -> tf.Tensor:
    """The log likelihood of each series, `[B]`: on a line, by a compiled op, or by a filter."""
    if data.on_line is not None:
        column = line.first_column(process, data)
        condition_number = line.condition_number(column, process.learned_noise_variance())
        return tf.cond(
            condition_number < _LARGEST_CONDITION_NUMBER,
            lambda: line.log_likelihood(process, data, column),
            lambda: log_likelihood(process, data._replace(line=None), parallel),
        )
    native = None if parallel else native_likelihood.log_likelihood(process, data)
    if native is not None:
        return native
    series = ordered_series(process, data)
    return filtering.log_likelihood(series.model, series.z, parallel=parallel)


def collapsed(process: SignalPlusNoise, data: Data) -> Collapsed | None:
    """The series of one signal of data, as `cgp.gp.data` makes them; None where there are none.

    The kernel is a `Coregionalized` of rank 1, samples are of the value, and the noise is circular;
    or it is `Outputs` of the same kernel everywhere.
    """
    kernel = process.kernel
    if isinstance(kernel, Outputs) and all(part is kernel.parts[0] for part in kernel.parts):
        return _separate(process, data, kernel)
    is_one = isinstance(kernel, Coregionalized) and kernel.rank == 1
    if not is_one or process.noise_circularity is not None or not data.is_of_values:
        return None
    return _of_source(process, data, kernel)


def _separate(process: SignalPlusNoise, data: Data, kernel: Outputs) -> Collapsed:
    """Independent outputs of one kernel: P series of one process."""
    outputs, function = kernel.outputs, process.sample_mean(data)
    z = data.z if function is None else data.z - function
    x, of_series = series_of_outputs(data.x, z, outputs)
    # Every row keeps the group of its output, as series of one signal do not tell it.
    series = in_rows(data._replace(z=z), outputs, noise_is_by_output=False)
    series = series._replace(x=x, batch=tf.shape(of_series)[:1])
    nothing = tf.zeros(tf.shape(z)[:1], z.dtype.real_dtype)
    return Collapsed(process.of_terms(kernel.parts[0]), series, nothing)


def _of_source(process: SignalPlusNoise, data: Data, kernel: Coregionalized) -> Collapsed:
    """Outputs of one source: one series."""
    outputs, gains = kernel.outputs, kernel.mixing.value[:, 0]
    noise = data.noise._replace(group=None) if process.noise_is_by_output else data.noise
    r = process.noise_variances(noise.map(lambda a: by_outputs(a, outputs)))
    r += tf.zeros([outputs], r.dtype)  # `[P]`, or `[1 or B, N, P]`
    function = process.sample_mean(data)
    z = by_outputs(data.z if function is None else data.z - function, outputs)
    present = tf.cast(~is_nan(z), r.dtype)
    z = tf.where(is_nan(z), tf.zeros_like(z), z)
    precision = _sums(present, squared_modulus(gains) / r)
    is_observed = precision > 0.0
    s = 1.0 / tf.where(is_observed, precision, tf.ones_like(precision))
    y = as_complex(s) * _sums(z, tf.math.conj(gains) / as_complex(r))
    # Not from the difference of |z|² and |y|², which loses digits where there is little noise.
    squares = present * squared_modulus(z - gains * y[..., None])
    log_pi = math.log(math.pi)
    of_outputs = _sums(squares, 1.0 / r) + _sums(present, tf.math.log(r) + log_pi)
    of_source = tf.where(is_observed, tf.math.log(s) + log_pi, tf.zeros_like(s))
    y = tf.where(is_observed, y, nan(y.dtype))
    of_samples = SampleNoise(total_variance=s)
    series = Data(data.x[:, ::outputs, :-1], y, data.batch, of_samples)
    correction = tf.reduce_sum(of_source - of_outputs, axis=1)
    return Collapsed(process.of_terms(kernel.kernel), series, correction)


def _sums(a: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Weighted sums over outputs, `[B, N, P]` -> `[B, N]`; the weights are `[P]` or broadcast."""
    if weights.shape.rank == 1:
        return tf.linalg.matvec(a, weights)
    return tf.reduce_sum(a * weights, axis=-1)
