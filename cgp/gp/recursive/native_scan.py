"""The window recursion over a block of samples by one compiled op.

A block needs covariances only between points known before it starts, in the window and in the
block. The kernel is evaluated once for all of them, in a graph, and the op runs the recursion of
`WindowRecursion.scan` without it.
"""

import tensorflow as tf

from cgp import native
from cgp.distributions import Marginals, Step
from cgp.distributions.forms import SecondMoments
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.linalg.arguments import is_nan, nan


def serves(recursion: WindowRecursion) -> bool:
    """Whether the op can run a recursion: it knows its policy, and there is no GPU."""
    return recursion.policy.is_compiled and native.serves_graphs()


def scan(
    recursion: WindowRecursion,
    window: Window,
    x: tf.Tensor,
    z: tf.Tensor,
    noise: SampleNoise = COMMON_NOISE,
) -> tuple[Window, Step]:
    """`WindowRecursion.scan`; a `Step` of `[B, T]`."""
    process, form = recursion.process, recursion.process.form
    noise = noise.map(lambda a: tf.broadcast_to(a, tf.shape(z)))
    points = tf.concat([window.x, x], axis=1)
    cross = process.in_data_order(form.covariance(process.kernel.moments_matrix(points, x)))
    prior = process.marginal(x)
    of_noise = process.with_noise(SecondMoments(tf.zeros_like(z), None), noise)
    function = process.plus_function(tf.zeros_like(z), x)
    residual = tf.where(is_nan(z), nan(z.dtype), z - function)
    values = native.op("cgp_window_scan")(
        size=window.size,
        age=window.age,
        chol=window.chol,
        y=recursion.targets(window)[..., 0],
        cross=cross,
        k=tf.math.real(prior.k),
        c=prior.c_or_zeros(),
        jitter=recursion.jitter(prior, noise),
        observed=_observed_variances(recursion, window, x, noise),
        z=form.split(residual[..., None]),
        noise_k=tf.math.real(of_noise.k),
        noise_c=of_noise.c_or_zeros() + tf.zeros_like(z),
        forgetting=tf.constant(recursion.forgetting, x.dtype),
    )
    size, age, chol, point, mean, filtered_mean, *moments = values
    mean, filtered_mean = (function + form.join(a)[..., 0] for a in (mean, filtered_mean))
    signal, filtered = SecondMoments(*moments[:2]), SecondMoments(*moments[2:])
    observed = process.with_noise(SecondMoments(tf.cast(signal.k, z.dtype), signal.c), noise)
    step = Step(
        Marginals(mean, tf.math.real(observed.k), observed.c_or_zeros()),
        tf.where(is_nan(z), nan(z.dtype), z - mean),
        Marginals(filtered_mean, filtered.k, filtered.c_or_zeros()),
    )
    after = Window(
        size=size,
        x=_gathered(points, point),
        z=_gathered(tf.concat([window.z, z], axis=1), point),
        age=age,
        chol=chol,
        noise=tuple(
            _gathered(
                tf.concat([held, tf.zeros_like(z, held.dtype) if a is None else a], axis=1), point
            )
            for held, a in zip(window.noise, noise, strict=False)
        ),
    )
    # The op does not tell its shapes.
    after = tf.nest.map_structure(lambda a, b: tf.ensure_shape(a, b.shape), after, window)
    return after, tf.nest.map_structure(lambda a: tf.ensure_shape(a, z.shape), step)


def _observed_variances(
    recursion: WindowRecursion, window: Window, x: tf.Tensor, noise: SampleNoise
) -> tf.Tensor:
    """The prior variances of observations, held and of samples; zero, not used, if none forgets."""
    held = SampleNoise(*window.noise)
    pairs = []
    for points, of_points in ((window.x, held), (x, noise)):
        if recursion.forgetting == 1.0:
            pairs.append(tf.zeros_like(points[..., 0]))
        else:
            prior = recursion.process.marginal(points)
            pairs.append(tf.math.real(recursion.process.with_noise(prior, of_points).k))
    return tf.concat(pairs, axis=1)


def _gathered(values: tf.Tensor, point: tf.Tensor) -> tf.Tensor:
    """The values `[B, N, ...]` of points `[B, C]`; zero where there is none, -1."""
    gathered = tf.gather(values, tf.maximum(point, 0), batch_dims=1)
    in_use = tf.reshape(point >= 0, tf.concat([tf.shape(point), [1] * (values.shape.rank - 2)], 0))
    return tf.where(in_use, gathered, tf.zeros_like(gathered))
