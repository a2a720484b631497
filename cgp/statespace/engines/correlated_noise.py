"""A transition whose noise is not correlated with the observation noise, in place of one that is.

With `S = E[w vᴴ]` and the gain `K = S R⁻¹` the noise `w − K v` is not correlated with v. As
`v = z − H x`, the transition `x' = F x + w` is

    x' = (F − K H) x + K z + (w − K v),   with noise of covariance Q − K Sᴴ

(Anderson & Moore, *Optimal Filtering*, 1979, §5.5). R and S are those of the components observed:
where nothing is observed K is zero, and the transition as it was.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import real_as
from cgp.linalg.batch_last import inverse_or_zero
from cgp.statespace.engines.filter_step import decorrelated


class Transition(NamedTuple):
    """x' = F x + b + w, with w of covariance `Q = G Gᴴ`; axes as of a `KalmanSystem`."""

    F: tf.Tensor
    Q: tf.Tensor
    Q_factor: tf.Tensor  # G; without gradient
    b: tf.Tensor


def conditional_transition(
    transition: Transition,
    joint: tf.Tensor,
    joint_factor: tf.Tensor,
    R: tf.Tensor,
    h: tf.Tensor,
    r: tf.Tensor,
    z: tf.Tensor,
    observed: tf.Tensor,
) -> Transition:
    """The transition of the state given the observation z of the step that it leads from.

    Args:
        transition: F, Q and b as they are without the observation.
        joint: The covariance `[[R, Sᴴ], [S, Q]]` of v and w, `[m + n, m + n]`, or with axes of time
            and batch, `[T, m + n, m + n, B]`.
        joint_factor: A factor of it, with the same axes.
        R: The covariance of v, `[m, m]` or `[T, m, m, B]`.
        h: The observation matrix as `decorrelated` returns it.
        r: The variances, likewise.
        z: The observations, likewise.
        observed: As for `decorrelated`.

    Returns:
        The transition, each array with all axes, T and B being 1 where nothing varies.
    """
    F, Q, _, b = transition
    m, n = z.shape[-1], h.shape[1 if h.shape.rank == 2 else 2]
    # With `R = U D Uᴴ` the components of `U⁻¹ v` are not correlated with each other: each has a
    # gain of its own, its covariance with w over its variance, and none where that is zero.
    joint, joint_factor = _with_axes(joint), _with_axes(joint_factor)
    rows = tf.concat([joint[:, :m, m:], joint_factor[:, :m]], axis=2)
    rows, _, _ = decorrelated(rows, R, tf.zeros_like(z), observed)
    crosses, roots = rows[:, :, :n], rows[:, :, n:]  # of `U⁻¹ Sᴴ`, and of `U⁻¹ v`
    r, observed = (a[None, :, None] if a.shape.rank == 1 else a for a in (r, observed))
    weights = real_as(observed * inverse_or_zero(r), F.dtype)
    gains = tf.math.conj(crosses) * weights[:, :, None]

    def removed(a: tf.Tensor) -> tf.Tensor:
        """`K` times rows of the components, `[T, m, k, B]`."""
        return tf.add_n([gains[:, j, :, None] * a[:, j, None] for j in range(m)])

    series = moveaxis(z, 0, -1)[:, :, None]
    return Transition(
        _with_axes(F) - removed(_with_axes(h)),
        _with_axes(Q) - removed(crosses),
        tf.stop_gradient(joint_factor[:, m:] - removed(roots)),
        (b[None, :, None] if b.shape.rank == 1 else b) + removed(series)[:, :, 0],
    )


class CorrelatedNoise(NamedTuple):
    """The arrays of a step, for `transition_after`, which is `conditional_transition` by NumPy."""

    F: np.ndarray  # Transition, `[..., n, n]`
    H: np.ndarray  # Observation matrix, `[..., m, n]`
    R: np.ndarray  # Covariance of the observation noise, regular, `[..., m, m]`
    S: np.ndarray  # Covariance of process and observation noise, `[..., n, m]`
    observation_root: np.ndarray  # The rows of a factor of both noises, `[..., m, m + n]`
    process_root: np.ndarray  # `[..., n, m + n]`

    def transition_after(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """The transition of the state given the observation of the step that it leads from.

        Args:
            z: Working values, `[..., m]`, NaN where missing.

        Returns:
            `F − K H`, a factor `Q_factor` of `Q − K Sᴴ`, and K z, the `drift`, batch axes first.
        """
        observed = ~np.isnan(z)
        R, S = self.R, self.S
        if not observed.all():
            observed_pairs = observed[..., None] & observed[..., None, :]
            R = np.where(observed_pairs, R, np.eye(z.shape[-1], dtype=R.dtype))
            S = np.where(observed[..., None, :], S, 0.0)
            z = np.where(observed, z, 0.0)
        # K R = S, and R is Hermitian: R Kᴴ = Sᴴ.
        K = np.conj(np.swapaxes(np.linalg.solve(R, np.conj(np.swapaxes(S, -1, -2))), -1, -2))
        return {
            "F": self.F - K @ self.H,
            "Q_factor": self.process_root - K @ self.observation_root,
            "drift": (K @ z[..., None])[..., 0],
        }


def _with_axes(a: tf.Tensor) -> tf.Tensor:
    """A matrix `[rows, columns]`, or `[T, rows, columns, B]`, with axes of time and batch."""
    return a[None, ..., None] if a.shape.rank == 2 else a
