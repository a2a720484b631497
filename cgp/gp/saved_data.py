"""The data of a Gaussian process in files."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.gp.data import Data, StoredData, as_data
from cgp.gp.given_noise import GivenNoise


def saved_data(
    store: Mapping[str, npt.ArrayLike], real_dtype: str, groups: int | None = None
) -> Data:
    """The data of a file, "x" `[X, N, D]`, "z" `[B, N, 2]` and "batch" `[r]`, checked.

    The noise of samples, if it is particular, is "noise_variance" and "noise_group", `[V, N]`.

    Args:
        store: Arrays by name.
        real_dtype: "float64" or "float32".
        groups: The number of groups of noise of the model; None for none.

    Raises:
        ValueError: They are not there, or are no data of any model.
    """
    try:
        x, z, batch = (np.asarray(store[name]) for name in ("x", "z", "batch"))
    except KeyError as error:
        raise ValueError(f"the file has no data of a Gaussian process: {error}") from None
    try:
        if (x.ndim, z.ndim, batch.ndim) != (3, 3, 1) or z.shape[2] != 2:
            raise ValueError("x must be [X, N, D], z [B, N, 2] and batch [r]")
        if len(z) and np.prod(batch) != len(z):
            raise ValueError(f"z has {len(z)} series, but the batch axes are {batch.tolist()}")
        if len(x) not in (1, len(z)):
            raise ValueError(f"x must have the inputs of 1 or of {len(z)} series")
        axes, z = tf.constant(batch, tf.int32), tf.complex(z[..., 0], z[..., 1])
        if x.size == 0 and len(z) == 0:
            return Data(tf.constant(x), z, axes, StoredData(real_dtype, groups).no_samples)
        variance, group = (np.asarray(store[k]) if k in store else None for k in _SAVED_NOISE)
        noise, inputs = GivenNoise(variance, group, groups), x if len(x) > 1 else x[0]
        data = as_data(inputs, z, None, real_dtype, require_targets=False, noise=noise)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the data in the file, x of shape {x.shape} and z of shape {z.shape}, are damaged: "
            f"{error}"
        ) from None
    return data._replace(batch=axes)


_SAVED_NOISE = ("noise_variance", "noise_group")


def arrays_of(data: Data) -> dict[str, np.ndarray]:
    """Data as real arrays by name, which `saved_data` reads."""
    found = {"x": data.x.numpy(), "batch": data.batch.numpy()}
    found["z"] = tf.stack([tf.math.real(data.z), tf.math.imag(data.z)], axis=-1).numpy()
    parts = zip(_SAVED_NOISE, data.noise, strict=True)
    return found | {name: part.numpy() for name, part in parts if part is not None}
