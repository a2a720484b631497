"""Residuals of data from their mean and trend, which tell the scales of signal and noise.

Of a tone of 1 on an offset of 1e5, `E|z|²` is 1e10, and says nothing of the tone or its noise. The
values that hyperparameters are initialised with, and the weak prior of the noise, follow from the
residuals when offsets are subtracted, and with them all that the mean and an integrated walk can
describe.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.data_scales import DataScales
from cgp.linalg.arguments import as_complex, squared_modulus

_ROUNDING = 16.0  # units in the last place of z, below which nothing but rounding is left


def inputs_and_series(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[N, D]` and series `[B, N]`; the first alone of series with inputs of their own."""
    x, z = np.asarray(data.x, float), np.asarray(data.z, complex)
    return x[0], z if len(x) == 1 else z[:1]


def residuals_of_mean(gp: Any, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[N, D]`, and the residuals `[B, N]` of the series from the nearest mean."""
    x, z = inputs_and_series(data)
    return x, z if gp.mean is None else z - gp.mean.nearest(x, z)


def scales_of(gp: Any, data: Data) -> DataScales:
    """The scales of the residuals of data from the mean and the trend of the kernel."""
    x, z = residuals_of_mean(gp, data)
    degree = gp.kernel.trend_degree
    if degree is None:
        return DataScales(x, z)
    columns = np.concatenate([np.ones((len(x), 1)), _slopes(x, degree)], axis=-1)
    slow = np.zeros((columns.shape[1], *z.shape), complex)
    for number, series in enumerate(z):
        present = ~np.isnan(series)
        coefficients = np.linalg.lstsq(
            columns[present].astype(complex), series[present], rcond=None
        )[0]
        slow[:, number] = columns.T * coefficients[:, None]
    powers = [float(np.mean(np.abs(component) ** 2)) for component in slow]
    return DataScales(x, z - slow.sum(axis=0), powers)


def _slopes(x: np.ndarray, degree: int) -> np.ndarray:
    """The slope of a trend over inputs `[N, D]`, `[N, 1]`; `[N, 0]` where it has none."""
    if not degree or x.shape[1] != 1 or not np.ptp(x) > 0:
        return np.zeros((len(x), 0))
    return (x - x.mean()) / np.ptp(x)


def residual_power(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The mean square of the residuals from offsets, the mean, and a trend of the kernel.

    For a mean that is a sum of functions times coefficients it depends on the data alone; another
    mean is subtracted at its present hyperparameters. For data that are constant to rounding it is
    the mean square of the data.
    """
    squares = squared_modulus(_where_present(data, data.z))
    count = tf.reduce_sum(data.counts)
    power = tf.reduce_sum(squares) / count
    if process.likelihood is not None:  # of data that are not the signal plus noise
        return power
    residual = tf.reduce_sum(squared_modulus(_residuals(process, data))) / count
    rounding = _ROUNDING * np.finfo(power.dtype.as_numpy_dtype).eps
    return tf.where(residual > rounding**2 * power, residual, power)


def _residuals(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The least-squares residuals of each series, zero where missing, `[B, N]`."""
    mean, z = process.mean, data.z
    functions = None if mean is None else mean.functions(data.x)
    basis = None if mean is None else mean.basis(data.x)
    if functions is None:  # its hyperparameters are no coefficients
        z = z - process.plus_function(tf.zeros_like(z), data.x)
    keep = tf.cast(data.keep, z.dtype)[..., None]  # [G, N, 1]
    y = data.columns(_where_present(data, z))
    offsets = tf.reduce_sum(y, axis=-2, keepdims=True) / tf.reduce_sum(keep, axis=-2, keepdims=True)
    columns = [c for c in (functions, basis) if c is not None]
    if process.kernel.trend_degree:
        columns.append(as_complex(data.x))
    if not columns:
        return data.vectors((y - offsets) * keep)
    a = tf.concat([tf.ones_like(columns[0][..., :1]), *columns], axis=-1)
    a = a * keep
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(a), axis=-2, keepdims=True))
    a /= tf.cast(tf.where(largest > 0.0, largest, tf.ones_like(largest)), a.dtype)
    # Where they are best the derivative by the coefficients is zero.
    fitted = tf.linalg.lstsq(tf.stop_gradient(a), tf.stop_gradient(y), fast=False)
    return data.vectors((y - a @ tf.stop_gradient(fitted)) * keep)


def _where_present(data: Data, z: tf.Tensor) -> tf.Tensor:
    return tf.where(data.present, z, tf.zeros_like(z))
