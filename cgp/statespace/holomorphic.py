"""A check that functions of complex states have complex derivatives."""

import numpy as np
import tensorflow as tf

from cgp.statespace.linearization.affine import Function

# A function counts as holomorphic where its derivative by the conjugate is below this part of all.
_PART = 1e-3
_POINTS, _REACHES = 16, (0.03, 1.0, 3.0)  # in standard deviations of the initial state


def check_holomorphic(function: Function, name: str, mean: tf.Tensor, chol: tf.Tensor) -> None:
    """Compares changes of a function along directions with those along i times them, eagerly.

    A function that is holomorphic around the initial state alone, as one that saturates, is found
    by points further away; one that is not only further still is not.

    Args:
        function: Of states, `[B, K, n]`.
        name: What errors call it.
        mean: The initial mean, `[..., n]`.
        chol: The factor of the initial covariance, `[..., n, n]`.

    Raises:
        TypeError: The function is not holomorphic.
    """
    if not tf.executing_eagerly():
        return
    rng, n = np.random.default_rng(0), mean.shape[-1]
    centre = np.asarray(mean).reshape(-1, n)[0]
    size = np.abs(np.asarray(chol)).max() + 1e-3 * np.abs(centre).max() + 1e-9
    for reach in _REACHES:
        first, second = (rng.normal(size=(_POINTS, n, 2)).view(complex)[..., 0] for _ in range(2))
        points, step = centre + first * size * reach, second * size * reach * 1e-3

        def change(a: np.ndarray, points: np.ndarray = points) -> np.ndarray:
            values = function(
                tf.constant(np.concatenate([points + a, points - a])[None], mean.dtype)
            )
            up, down = np.split(values.numpy()[0], 2)
            return up - down

        along, turned = change(step), change(1j * step) / 1j
        known = np.isfinite(along) & np.isfinite(turned)  # far away they may overflow
        gap, whole = (np.abs(np.where(known, a, 0.0)).max() for a in (along - turned, along))
        if gap > _PART * whole:
            raise TypeError(
                f"{name} is not holomorphic: its change along a direction and along i times it are "
                "not i times the same. Leave holomorphic=False"
            )
