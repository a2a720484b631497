"""What kernels do with pairs (K, C) as `Kernel.moments` gives them: K may be real, C absent."""

import tensorflow as tf

from cgp.linalg.composite import as_complex

Pair = tuple[tf.Tensor, tf.Tensor | None]
"""Covariance, real or complex, and pseudo-covariance, or None when proper."""


def check(moments, kernel) -> Pair:
    """The moments, if they are what the flags of the kernel say.

    Raises:
        TypeError: They are not.
    """
    if not (isinstance(moments, tuple) and len(moments) == 2):
        raise TypeError(
            f"moments of {kernel!r} must return (covariance, pseudo-covariance or None)"
        )
    k, c = moments
    if kernel.is_proper and c is not None:
        raise TypeError(
            f"moments of {kernel!r} returns a pseudo-covariance, but is_proper is True: its class "
            "must say is_proper = False"
        )
    if not kernel.is_proper and c is None:
        raise TypeError(
            f"moments of {kernel!r} returns no pseudo-covariance, but is_proper is False: return "
            "zeros, or say is_proper = True"
        )
    if kernel.is_real and k.dtype.is_complex:
        raise TypeError(
            f"moments of {kernel!r} returns a complex covariance, but is_real is True: its class "
            "must say is_real = False"
        )
    return k, c


def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The product of two tensors, either of them real or complex."""
    if a.dtype == b.dtype:
        return a * b
    real, other = (a, b) if b.dtype.is_complex else (b, a)
    return tf.complex(real * tf.math.real(other), real * tf.math.imag(other))


def add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum of two tensors, either of them real or complex."""
    return a + b if a.dtype == b.dtype else as_complex(a) + as_complex(b)
