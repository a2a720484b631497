"""The state-space model of a Markov kernel at equal steps."""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.widely_linear import widely_linear


def from_kernel(
    kernel: Any, spacing: float, noise_variance: ArrayLike = 0.0, *, start: float = 0.0
) -> LinearGaussian:
    """The model of a process of a Markov kernel, observed in noise at x = start + spacing · t.

    A resonance, a drift or a fading channel that a kernel describes becomes F, Q, H and R: for
    `cgp.KalmanFilter`, which learns its matrices from there, for inputs, smoothers and forecasts
    (Särkkä & Solin, *Applied Stochastic Differential Equations*, 2019, ch. 12). An improper kernel
    makes a widely linear model, a kernel of P outputs one of P observations. The state is that of
    `kernel.markov_form()`.

    Args:
        kernel: A Markov kernel of `cgp.kernels`, over one dimension, that moves in the same way at
            every step.
        spacing: The step of x, positive; in the unit of the lengthscales of the kernel.
        noise_variance: `E|v|²` of the observations, circular; one number, or `[P]`.
        start: The first x, which matters to walks, which begin somewhere.

    Returns:
        A `LinearGaussian`; differentiable by the hyperparameters of the kernel.

    Raises:
        TypeError: Not a kernel; noise that is not real.
        ValueError: A kernel that is not Markov, or whose hyperparameters were left out; one whose
            matrices differ from step to step; a spacing that is not positive; noise that is
            negative, or of another number of outputs.

    Example:
        >>> import cgp
        >>> from cgp.kernels import Matern12, Rotation
        >>> model = cgp.statespace.from_kernel(Matern12(2.0, 10.0) * Rotation(0.25), spacing=1.0)
        >>> model.F.numpy().round(3), model.Q.numpy().real.round(3)
        (array([[0.+0.905j]]), array([[0.363]]))
    """
    if not hasattr(kernel, "markov_form"):
        raise TypeError(f"kernel must be one of cgp.kernels, got {kernel!r}")
    left_out = [parameter.name for parameter in kernel.left_out()]
    if left_out:
        raise ValueError(f"{', '.join(left_out)} of {kernel!r} left out: give values, or fit first")
    if not (np.ndim(spacing) == 0 and 0.0 < spacing < np.inf):
        raise ValueError(f"spacing must be a positive number, got {spacing!r}")
    form = kernel.markov_form()
    real = form.h.dtype.real_dtype
    x, step = tf.constant(start, real), tf.constant(spacing, real)
    F, Q = form.discretize(x, step)
    if not form.is_stationary and tf.executing_eagerly():
        matrices_later = form.discretize(x + 7.0 * step, step)
        if not all(
            np.allclose(a, b, rtol=1e-6, atol=0.0)
            for a, b in zip((F, Q), matrices_later, strict=True)
        ):
            raise ValueError(
                f"F and Q of {kernel!r} differ along x: give a LinearGaussian those of each step"
            )
    H = form.h if form.h.shape.rank == 2 else form.h[None]
    R = _diagonal(noise_variance, H.shape[0], form.h.dtype)
    model = LinearGaussian(F, Q, H, R, initial_covariance=form.covariance(x))
    if form.h_conj is None:
        return model
    return widely_linear(model, H_conj=tf.reshape(form.h_conj, H.shape))


def _diagonal(variance: ArrayLike, outputs: int, dtype: tf.DType) -> tf.Tensor:
    """The covariance of the noise of P observations, `[P, P]`, from one variance or `[P]`."""
    numbers = as_numbers(variance, "noise_variance")
    if tf.as_dtype(numbers.dtype).is_complex:
        raise TypeError(f"noise_variance must be real, got {numbers.dtype}")
    variance = tf.cast(tf.convert_to_tensor(numbers), dtype.real_dtype)
    if variance.shape.rank > 1 or variance.shape.num_elements() not in (1, outputs):
        raise ValueError(
            f"noise_variance must be a number, or [{outputs}] of as many outputs, got shape "
            f"{variance.shape}"
        )
    if tf.executing_eagerly() and not np.all(np.isfinite(variance) & (variance.numpy() >= 0.0)):
        raise ValueError(f"noise_variance must be finite and not negative, got {variance.numpy()}")
    return tf.linalg.diag(tf.cast(tf.broadcast_to(variance, [outputs]), dtype))
