"""A step of a process, as the bank takes it: `ProcessCell.step` with the batch axis last."""

import tensorflow as tf

from cgp.gp.data import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import DiscretizedProcess, StateAt
from cgp.linalg.arguments import is_nan
from cgp.linalg.batch_last import matmul, matvec
from cgp.statespace.engines.decorrelation import decorrelated
from cgp.statespace.engines.filter_step import BatchLastMarginals, State, marginals_of, update


def advance(
    process: SignalPlusNoise,
    state: State,
    last: tf.Tensor,
    x: tf.Tensor,
    z: tf.Tensor,
    *noise: tf.Tensor,
) -> tuple[State, BatchLastMarginals, BatchLastMarginals]:
    """Predicts from the last place to x, and updates with observations there.

    Args:
        process: Kernel, mean and noise.
        state: The moments at the last place, batch last.
        last: The last place, a number, or `[B]` where each series has its own.
        x: The place of the observations, in the same form.
        z: Observations, complex, `[B]`; NaN where missing.
        *noise: The known part of their noise and, of a model with groups, their groups, each `[B]`.

    Returns:
        The state at x; the moments of the observations before, and of the signal after.
    """
    markov, form = DiscretizedProcess(process), process.form
    start = StateAt(last, *(tf.experimental.numpy.moveaxis(a, -1, 0) for a in state))
    before = markov.predict(start, x)
    H = markov.emission()[..., None]
    R = tf.experimental.numpy.moveaxis(markov.noise(SampleNoise(*noise)), 0, -1)
    places = tf.reshape(x, [-1, 1, 1])
    function = process.plus_function(tf.zeros_like(z)[:, None], places)[:, 0]
    absent = is_nan(z)
    value = form.split(tf.where(absent, tf.zeros_like(z), z - function)[:, None])
    seen = tf.cast(~absent, value.dtype.real_dtype) + tf.zeros_like(tf.math.real(R[:, 0]))
    h, r, value = decorrelated(H[None], R[None], value[:, None], seen[None])
    after, _, _ = update(
        before, h[0], r[0], tf.experimental.numpy.moveaxis(value[:, 0], 0, -1), seen
    )

    def signal(state: State, noise: tf.Tensor | None) -> BatchLastMarginals:
        found = marginals_of(form, matvec(H, state.mean), matmul(H, state.chol), noise)
        return found._replace(mean=found.mean + function)

    return after, signal(before, R), signal(after, None)
