"""Samples of several outputs as points, whose last coordinate is the number of the output."""

from typing import Any

import tensorflow as tf

from cgp.axes import as_code, remedy


def points_of_outputs(x: tf.Tensor, outputs: int) -> tf.Tensor:
    """The points of all P outputs at `[..., N, D]`, side by side, `[..., N P, D + 1]`."""
    count = tf.shape(x)[-2]
    places = tf.repeat(x, outputs, axis=-2)
    numbers = tf.tile(tf.range(outputs, dtype=x.dtype), [count])[:, None]
    numbers = tf.broadcast_to(numbers, tf.concat([tf.shape(places)[:-1], [1]], axis=0))
    return tf.concat([places, numbers], axis=-1)


def by_outputs(a: tf.Tensor, outputs: int | None) -> tf.Tensor:
    """Values at such points, `[..., N P]`, as `[..., N, P]`; as they are where there are none."""
    if outputs is None:
        return a
    return tf.reshape(a, tf.concat([tf.shape(a)[:-1], [-1, outputs]], axis=0))


def side_by_side(a: tf.Tensor) -> tf.Tensor:
    """Values `[..., N, P]` as those at points, `[..., N P]`: the inverse of `by_outputs`."""
    return tf.reshape(a, tf.concat([tf.shape(a)[:-2], [-1]], axis=0))


def rows_of_outputs(a: tf.Tensor, outputs: int) -> tf.Tensor:
    """Values at such points, `[B, N P]`, as a row for each output, `[B P, N]`."""
    rows = tf.linalg.matrix_transpose(by_outputs(a, outputs))  # rearranged, not conjugated
    return tf.reshape(rows, [-1, tf.shape(rows)[-1]])


def series_of_outputs(x: tf.Tensor, z: tf.Tensor, outputs: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[X, N P, D + 1]` and values `[B, N P]` as those of B P series, one for each output.

    Returns:
        `[X, N, D]`, or `[B P, N, D]` where series have points of their own, and `[B P, N]`.
    """
    x = x[:, ::outputs, :-1]
    x = x if x.shape[0] == 1 else tf.repeat(x, outputs, axis=0)
    return x, rows_of_outputs(z, outputs)


def check_columns(
    x: tf.TensorShape, z: tf.TensorShape, outputs: int, x_given: Any = None, z_given: Any = None
) -> None:
    """Raises a ValueError unless targets `[..., N, P]` have a column for each output.

    The remedy names the targets as they were given.
    """

    def fits(shape: tuple[int, ...]) -> bool:
        return len(shape) > 1 and shape[-1] == outputs and shape[-2] == x[-2]

    if z.rank is not None and z.rank > 1 and z[-1] == outputs and z[-2] == x[-2]:
        return
    raise ValueError(
        f"z must be [..., N, {outputs}], a column for each output of the kernel and a row for each "
        f"of the {x[-2]} points of x, got shape {z}"
        + remedy(as_code("z", z_given), z, fits, samples=-2)
    )
