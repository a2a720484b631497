"""What all smoothers need of each step: its gain, and the factor of what the gain leaves."""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import divide, matmul, triangularize


class Steps(NamedTuple):
    """The parts of each step that a smoother needs."""

    F: tf.Tensor
    """F, Q_factor and b are those of `Arranged`; for loops, of `System`."""
    Q_factor: tf.Tensor
    b: tf.Tensor
    means: tf.Tensor
    """Filtered, `[B, T, n]`; for loops, `[T, n, B]`."""
    chols: tf.Tensor
    """`[T, n, n, B]`."""


def smoother_gains(steps: Steps) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """J and Y of each step, and the mean predicted for the next, for all steps at once."""
    F, G, chols = (tf.einsum("tijb->ijtb", a) for a in (steps.F, steps.Q_factor, steps.chols))
    spread = matmul(F, chols)
    noise = G + tf.zeros_like(spread[:, :1])
    upper = tf.concat([spread, noise], axis=1)
    lower = tf.concat([chols + tf.zeros_like(spread), tf.zeros_like(noise)], axis=1)
    both = triangularize(tf.concat([upper, lower], axis=0))
    n = chols.shape[0]
    gains = divide(both[n:, :n], both[:n, :n])
    columns = zip(tf.unstack(steps.F, axis=2), tf.split(steps.means, n, axis=1), strict=True)
    predicted = sum(column * mean for column, mean in columns) + steps.b
    return *(tf.einsum("ijtb->tijb", a) for a in (gains, both[n:, n:])), predicted
