"""Functions of states, and a check that those of complex states have complex derivatives."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

Function = Callable[[tf.Tensor], tf.Tensor]
"""A function of working states, `[B, K, n]` -> `[B, K, m]`: K points for each member of a batch."""

_POINTS, _REACHES = 8, (0.0, 0.03, 1.0, 3.0)  # in standard deviations of the initial state
# The derivative by the conjugate counts as zero below this part of that of the component.
_PARTS = {tf.complex128: 1e-7, tf.complex64: 1e-3}


def check_holomorphic(
    function_of: Callable[[tf.Tensor], Function],
    name: str,
    mean: tf.Tensor,
    covariance: tf.Tensor,
    inputs: int,
) -> None:
    """Compares the derivatives of a function by states and by their conjugates, eagerly.

    The check is local: a function that has no complex derivative only far from the initial state,
    or at other inputs than a few random ones, passes it.

    Args:
        function_of: The function of states `[B, K, n]`, of inputs `[B, k]`.
        name: What errors call it.
        mean: The initial mean, `[..., n]`.
        covariance: Its covariance, `[..., n, n]`.
        inputs: k.

    Raises:
        TypeError: The function is not holomorphic.
    """
    if not tf.executing_eagerly():
        return
    rng, n = np.random.default_rng(0), mean.shape[-1]
    centre = np.asarray(mean).reshape(-1, n)[0]
    variance = np.diagonal(np.asarray(covariance), axis1=-2, axis2=-1).real.reshape(-1, n)[0]
    size = np.sqrt(variance) + 1e-3 * np.abs(centre) + 1e-9
    count = _POINTS * len(_REACHES)
    reach = np.repeat(_REACHES, _POINTS)[:, None]
    points = centre + rng.normal(size=(count, n, 2)).view(complex)[..., 0] * size * reach
    drives = rng.normal(size=(count, inputs, 2)).view(complex)[..., 0]
    function = function_of(tf.constant(drives, mean.dtype))
    by_state, by_conjugate = _derivatives(function, tf.constant(points, mean.dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        gap, whole = (np.sum(np.abs(a) * size, axis=-1) for a in (by_conjugate, by_state))
        # Far from the mean a function may overflow.
        wrong = np.isfinite(gap + whole) & (gap > _PARTS[mean.dtype] * (gap + whole))
    if wrong.any():
        raise TypeError(
            f"{name} is not holomorphic: component {int(np.argwhere(wrong)[0, 1])} depends on the "
            "conjugate of the state, as moduli, real parts and conjugates do. Leave "
            "holomorphic=False"
        )


def _derivatives(function: Function, points: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Wirtinger's ∂f/∂x and ∂f/∂x̄ at points `[P, n]`, each `[P, m, n]`.

    TensorFlow's gradient of a real number is twice its derivative by the conjugate.
    """
    m = function(points[:, None]).shape[-1]
    copies = points[:, None] + tf.zeros([m, 1], points.dtype)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(copies)
        components = tf.linalg.diag_part(function(copies))
        real_and_imaginary = (tf.math.real(components), tf.math.imag(components))
    by_real, by_imaginary = (
        tape.gradient(component, copies, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy()
        for component in real_and_imaginary
    )
    by_state = 0.5 * (np.conj(by_real) + 1j * np.conj(by_imaginary))
    return by_state, 0.5 * (by_real + 1j * by_imaginary)
