"""The data of a Gaussian process in files and in exported functions."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.gp.data import Data, StoredData, as_data
from cgp.gp.measurements import WORDS, Measurements
from cgp.gp.noise import NoiseArguments


def saved_data(
    store: Mapping[str, npt.ArrayLike],
    real_dtype: str,
    groups: int | None = None,
    has_signal_power: bool = False,
    rows: int = 1,
) -> Data:
    """The data of a file, "x" `[X, N, D]`, "z" `[B, N, 2]` and "batch" `[r]`, checked.

    B is the product of the batch axes, times `rows`.

    Samples may have the noise "noise_variance" and "noise_group", `[V, N]`, "signal_power",
    `[B, N]`, if noise follows the signal, and the functional "derivative" and "width". A ValueError
    if arrays are missing, or are no data of any model.
    """
    try:
        x, z, batch = (np.asarray(store[name]) for name in ("x", "z", "batch"))
    except KeyError as error:
        raise ValueError(f"the file has no data of a Gaussian process: {error}") from None
    try:
        if (x.ndim, z.ndim, batch.ndim) != (3, 3, 1) or z.shape[2] != 2:
            raise ValueError("x must be [X, N, D], z [B, N, 2] and batch [r]")
        if len(z) and np.prod(batch) * rows != len(z):
            raise ValueError(f"z has {len(z)} series, but the batch axes are {batch.tolist()}")
        if len(x) not in (1, len(z) // rows):
            raise ValueError(f"x must have the inputs of 1 or of {len(z) // rows} series")
        axes, z = tf.constant(batch, tf.int32), tf.complex(z[..., 0], z[..., 1])
        if x.size == 0 and len(z) == 0:
            no_samples = StoredData(real_dtype, groups, has_signal_power).no_samples
            return Data(tf.constant(x), z, axes, no_samples)
        names = ("noise_variance", "noise_group")
        variance, group = (np.asarray(store[name]) if name in store else None for name in names)
        inputs = np.repeat(x, rows, axis=0) if len(x) > 1 else x[0]
        arguments = NoiseArguments(variance, group, groups)
        derivative, width = (
            np.asarray(store[name]) if name in store else None for name in ("derivative", "width")
        )
        words = None if derivative is None else np.where(derivative, *reversed(WORDS))
        measurements = Measurements(words, width)
        data = as_data(
            inputs,
            z,
            None,
            real_dtype,
            require_targets=False,
            noise=arguments,
            measurements=measurements,
        )
        if has_signal_power:
            power = np.asarray(store["signal_power"], real_dtype)
            if power.shape != z.shape or not np.all((power >= 0.0) & np.isfinite(power)):
                raise ValueError(f"signal_power must be {z.shape}, not negative and finite")
            noise = data.noise._replace(signal_power=tf.constant(power))
            data = data._replace(noise=noise)
    except KeyError as error:
        raise ValueError(
            f"the file has no data of noise that follows the signal: {error}"
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the data in the file, x of shape {x.shape} and z of shape {z.shape}, are damaged: "
            f"{error}"
        ) from None
    return data._replace(batch=axes, x=data.x[::rows])


def arrays_of(data: Data) -> dict[str, np.ndarray]:
    """Data as real arrays by name, which `saved_data` reads."""
    z = tf.stack([tf.math.real(data.z), tf.math.imag(data.z)], axis=-1)
    arrays = {"x": data.x, "batch": data.batch, "z": z}
    arrays |= {"noise_variance": data.noise.variance, "noise_group": data.noise.group}
    arrays |= {"signal_power": data.noise.signal_power}
    arrays |= {"derivative": data.functional.derivative, "width": data.functional.width}
    return {name: a.numpy() for name, a in arrays.items() if a is not None}


class HeldData:
    """Data as tensors for the variables of a SavedModel, with a fixed structure."""

    def __init__(self, data: Data):
        self._data = data._replace(batch=tf.constant(data.batch.numpy()))
        fields = (data.x, data.z, *data.noise, *data.functional)
        self.arrays = [a for a in fields if a is not None]

    def of(self, arrays: Sequence[tf.Tensor]) -> Data:
        """The data with other tensors in the place of `arrays`."""
        x, z, *fields = arrays
        tensors = iter(fields)
        noise = self._data.noise.map(lambda _: next(tensors))
        functional = self._data.functional.map(lambda _: next(tensors))
        return self._data._replace(x=x, z=z, noise=noise, functional=functional)
