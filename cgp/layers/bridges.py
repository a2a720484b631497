"""Bridges between complex layers and the real ones of Keras."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import complex_dtype
from cgp.training.layer_arguments import names_told


@keras.saving.register_keras_serializable(package="cgp.layers")
class RealImag(keras.layers.Layer):
    """The real parts of complex features, then their imaginary parts, as real features.

    It stands between complex values and a layer of Keras, such as `Dense`, which takes real ones.
    `ToComplex` leads back. Gradients pass through both.

    Args:
        name: A name.
        dtype: The dtype of the real features: "float32" for layers of Keras at their default, to
            which the values are rounded, or "float64".

    Input shape: complex, `[..., k]`.

    Output shape: real, `[..., 2 k]`.

    Raises:
        TypeError: Values that are not complex.
        ValueError: A single number; in eager mode values that float32 cannot hold.

    Example:
        >>> import numpy as np
        >>> from cgp.layers import RealImag
        >>> RealImag(dtype="float64")(np.array([[1.0 + 2.0j, 3.0 + 4.0j]])).numpy()
        array([[1., 3., 2., 4.]])
    """

    def __init__(self, name: str | None = None, dtype: str = "float32", **kwargs: Any):
        with names_told(type(self)):
            super().__init__(name=name, dtype=dtype, **kwargs)
        self.supports_masking = True
        _check_precision(self)

    def call(self, z: Any) -> tf.Tensor:
        """Converts complex features, `[..., k]`."""
        z = tf.convert_to_tensor(z)
        _check_complex(z.dtype.name, z.shape)
        parts = tf.concat([tf.math.real(z), tf.math.imag(z)], axis=-1)
        return _rounded(parts, self.compute_dtype)

    def compute_output_spec(self, z: Any) -> keras.KerasTensor:
        """The shape and dtype of the real features."""
        _check_complex(z.dtype, z.shape)
        size = None if z.shape[-1] is None else 2 * z.shape[-1]
        return keras.KerasTensor((*z.shape[:-1], size), self.compute_dtype)


@keras.saving.register_keras_serializable(package="cgp.layers")
class ToComplex(keras.layers.Layer):
    """Complex features from real ones: the first half real parts, the second imaginary parts.

    It undoes `RealImag`, and stands between a layer of Keras and complex ones.

    Args:
        name: A name.
        dtype: "float64" for complex128, the default of models, or "float32" for complex64.

    Input shape: real, `[..., 2 k]`.

    Output shape: complex, `[..., k]`.

    Raises:
        TypeError: Complex features.
        ValueError: An odd number of features, or none; in eager mode values out of range.

    Example:
        >>> import numpy as np
        >>> from cgp.layers import ToComplex
        >>> ToComplex()(np.array([[1.0, 3.0, 2.0, 4.0]])).numpy()
        array([[1.+2.j, 3.+4.j]])
    """

    def __init__(self, name: str | None = None, dtype: str = "float64", **kwargs: Any):
        with names_told(type(self)):
            super().__init__(name=name, dtype=dtype, autocast=False, **kwargs)
        self.supports_masking = True
        _check_precision(self)

    def call(self, parts: Any) -> tf.Tensor:
        """Converts real features, `[..., 2 k]`."""
        parts = tf.convert_to_tensor(parts)
        _check_halves(parts.dtype.name, parts.shape)
        return tf.complex(*tf.split(_rounded(parts, self.compute_dtype), 2, axis=-1))

    def compute_output_spec(self, parts: Any) -> keras.KerasTensor:
        """The shape and dtype of the complex features."""
        _check_halves(parts.dtype, parts.shape)
        size = parts.shape[-1]
        dtype = complex_dtype(self.compute_dtype).name
        return keras.KerasTensor((*parts.shape[:-1], None if size is None else size // 2), dtype)


def _rounded(parts: tf.Tensor, dtype: str) -> tf.Tensor:
    """Parts in another precision, or an error, eagerly, where it cannot hold the numbers."""
    rounded = tf.cast(parts, dtype)
    lost = tf.math.is_finite(parts) & ~tf.math.is_finite(rounded)
    if tf.executing_eagerly() and bool(tf.reduce_any(lost)):
        raise ValueError(
            f"a value of {np.max(np.abs(parts.numpy()[lost.numpy()])):.3g} is beyond {dtype}: "
            'scale it, or give the layer dtype="float64"'
        )
    return rounded


def _check_precision(layer: keras.layers.Layer) -> None:
    if layer.compute_dtype not in ("float32", "float64"):
        raise ValueError(
            f"dtype must be float32 or float64 (complex values follow), got {layer.compute_dtype!r}"
        )


def _check_complex(dtype: str, shape: Any) -> None:
    if "complex" not in dtype:
        raise TypeError(
            f"RealImag takes complex values, got {dtype}. Layers of Keras declare their own dtype "
            'for what they return: give one that returns complex values dtype="complex128"'
        )
    _check_features("RealImag", shape)


def _check_features(name: str, shape: Any) -> None:
    if len(shape) == 0:
        raise ValueError(f"{name} takes features, at least one axis of them, got one number")


def _check_halves(dtype: str, shape: Any) -> None:
    if "complex" in dtype:
        raise TypeError(f"ToComplex takes real and imaginary parts, real numbers, got {dtype}")
    if "float" not in dtype:
        raise TypeError(
            f"ToComplex takes real and imaginary parts, floating-point numbers, got {dtype}: "
            "convert them first, parts.astype(float)"
        )
    _check_features("ToComplex", shape)
    size = shape[-1]
    if size is not None and size % 2:
        raise ValueError(
            f"ToComplex takes as many real as imaginary parts, an even number, got {size} features"
        )
