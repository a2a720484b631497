"""The gain of the smoother at each step, and the factor of the covariance that it leaves."""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import divide, matmul, triangularize


class Steps(NamedTuple):
    """The transition of each step, as in `System`, and the filtered moments before it."""

    F: tf.Tensor
    Q_factor: tf.Tensor
    b: tf.Tensor
    means: tf.Tensor
    """`[T, n, B]`."""
    chols: tf.Tensor
    """`[T, n, n, B]`."""


def smoother_gains(steps: Steps) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """J and Y of each step, and the mean predicted for the next, for all steps at once."""
    F, G, chols = (tf.einsum("tijb->ijtb", a) for a in (steps.F, steps.Q_factor, steps.chols))
    spread = matmul(F, chols)
    noise = G + tf.zeros_like(spread[:, :1])
    upper = tf.concat([spread, noise], axis=1)
    lower = tf.concat([chols + tf.zeros_like(spread), tf.zeros_like(noise)], axis=1)
    joint = triangularize(tf.concat([upper, lower], axis=0))
    n = chols.shape[0]
    gains = divide(joint[n:, :n], joint[:n, :n])
    columns = zip(tf.unstack(steps.F, axis=2), tf.split(steps.means, n, axis=1), strict=True)
    predicted = sum(column * mean for column, mean in columns) + steps.b
    return *(tf.einsum("ijtb->tijb", a) for a in (gains, joint[n:, n:])), predicted
