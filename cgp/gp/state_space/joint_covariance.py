"""The joint covariance of smoothed states at several points."""

import numpy as np
import tensorflow as tf


def joint_covariance(
    H: tf.Tensor, chols: tf.Tensor, gains: tf.Tensor, places: tf.Tensor
) -> tf.Tensor:
    """The working covariance of `H x[t]` at some places t, given all observations.

    The covariance of a state with any later one is its gain times that of the next with it
    (`Smoothed.gains`), which gives one row for each point, from the last to the first. Eager, in
    O(T + M²).

    Args:
        H: `[k, n]`, k being 2 of a real composite.
        chols: Factors of the smoothed states, `[B, T, n, n]`.
        gains: `[B, T-1, n, n]`.
        places: `[B, M]`, in any order.

    Returns:
        `[B, kM, kM]`; of a composite all real parts come first.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("the joint covariance of a StateSpaceGP is computed outside of graphs")
    H, chols, gains, places = (np.asarray(a) for a in (H, chols, gains, places))
    return tf.stack([_covariance(H, *one) for one in zip(chols, gains, places, strict=True)])


def _covariance(
    H: np.ndarray, chols: np.ndarray, gains: np.ndarray, places: np.ndarray
) -> np.ndarray:
    (k, n), count = H.shape, len(places)
    order = np.argsort(places, kind="stable")
    places = places[order]
    roots = chols[places]
    own = roots @ (roots.conj().swapaxes(-1, -2) @ H.conj().T)  # of each state with its own value
    blocks = np.zeros([count, k, count, k], H.dtype)
    with_later = np.zeros([n, 0], H.dtype)
    for i in reversed(range(count)):
        if i + 1 < count:
            between = np.eye(n, dtype=H.dtype)
            for t in range(places[i], places[i + 1]):
                between = between @ gains[t]
            with_later = between @ with_later
        with_later = np.concatenate([own[i], with_later], axis=-1)
        row = (H @ with_later).reshape(k, count - i, k)
        blocks[i, :, i:] = row
        blocks[i:, :, i] = row.conj().transpose(1, 2, 0)
    at = np.empty_like(order)
    at[order] = np.arange(count)
    blocks = blocks[at][:, :, at]
    return blocks.transpose(1, 0, 3, 2).reshape(k * count, k * count)
