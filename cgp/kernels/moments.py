"""Pairs (K, C) of covariance and pseudo-covariance, as `Kernel.moments` returns them."""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import as_complex

Pair = tuple[tf.Tensor, tf.Tensor | None]
"""Covariance, real or complex, and pseudo-covariance, or None when proper."""


def check(moments: Any, kernel: Any) -> Pair:
    """Returns moments that are what the flags of their kernel say.

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


def check_agreement(kernel: Any, x: tf.Tensor) -> None:
    """Raises, eagerly, where `moments` and `markov_form` of a kernel describe two processes.

    Args:
        kernel: A Markov kernel.
        x: Points `[..., 1]`, at least one; up to six of them are compared.

    Raises:
        ValueError: The covariances or pseudo-covariances differ by more than rounding.
    """
    form = kernel.markov_form()
    at = np.unique(x.numpy())
    if len(at) == 1:  # a lag as well, that of the fastest state
        rate = 1.0 if form.generator is None else np.max(np.abs(form.generator.A))
        at = np.append(at, at + (1.0 / rate if rate > 0 else 1.0))
    # The smallest and the largest, and some between.
    at = tf.constant(at[np.unique([1, *np.linspace(0, len(at) - 1, 5).astype(int)])])
    pairs = (
        check(kernel.moments(at[:, None, None], at[None, :, None]), kernel),
        form.moments(at[:, None], at[None, :]),
    )
    (k, c), (other_k, other_c) = ([np.asarray(0 if a is None else a) for a in p] for p in pairs)
    # Both compute phases and decays in their own way, whose rounding adds up over long lags.
    tolerance = np.finfo(other_k.dtype).eps ** (1 / 3) * np.max(np.abs(other_k))
    for name, a, b in (("covariance", k, other_k), ("pseudo-covariance", c, other_c)):
        a, b = np.broadcast_arrays(a, b)
        far = ~(np.abs(a - b) <= tolerance) & ~(np.isnan(a) & np.isnan(b))
        if far.any():
            i, j = np.argwhere(far)[0]
            raise ValueError(
                f"moments and markov_form of {kernel!r} are of two processes: the {name} between "
                f"x = {at[i]:g} and x = {at[j]:g} is {a[i, j]:g} by moments, {b[i, j]:g} by "
                "markov_form. Correct one of them, or leave out moments, which then follows from "
                "markov_form"
            )


def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The product of two tensors, each real or complex."""
    if a.dtype == b.dtype:
        return a * b
    real, other = (a, b) if b.dtype.is_complex else (b, a)
    return tf.complex(real * tf.math.real(other), real * tf.math.imag(other))


def add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum of two tensors, each real or complex."""
    return a + b if a.dtype == b.dtype else as_complex(a) + as_complex(b)
