"""Predictions of a Markov process in linear time: by smoothing, and forecasts by filtering."""

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.outputs import by_outputs, side_by_side
from cgp.gp.posterior import Posterior, of_signal
from cgp.gp.signal_plus_noise import SignalPlusNoise, states_of
from cgp.gp.state_space.discretization import (
    DiscretizedProcess,
    StateAt,
    StoredState,
    ordered_series,
)
from cgp.gp.state_space.output_series import points_of
from cgp.kernels.base import Kernel
from cgp.linalg import semidefinite_factor
from cgp.linalg.gradients import without_gradient
from cgp.statespace.filtering import filter as filter_series
from cgp.statespace.models.nonlinear_gaussian import white
from cgp.statespace.sampling import posterior_sample
from cgp.statespace.series import Series
from cgp.statespace.smoothing import moments


def smoothed(
    process: SignalPlusNoise,
    data: Data,
    x: tf.Tensor,
    noise: SampleNoise | None,
    start: StateAt | StoredState | None = None,
    part: Kernel | None = None,
    *,
    parallel: bool = False,
) -> Posterior:
    """The posterior at new points, `[1, M, 1]` or `[B, M, 1]`: between, before and beyond the data.

    `noise` is the noise of observations at the points, None for the signal; the series continues
    from `start`, None for the prior; `part`, a term of the kernel or a sum, is predicted alone.
    """
    series = ordered_series(process, data, x, start)
    state_series = Series(series.model, series.z)
    states = moments(state_series, parallel)
    all_covariances, chols, gains = (
        state_series.of_each(a, 3) for a in (states.covariances, states.chols, states.gains)
    )
    H, form = series.H, process.form
    if part is not None:
        of_part = np.tile(states_of(process.kernel, part), form.multiplicity)
        H = H * tf.constant(of_part, H.dtype)
    process = process.of_terms(part)
    means = tf.gather(states.means, series.new, batch_dims=1)
    covariances = tf.gather(all_covariances, series.new, batch_dims=1)
    mean = side_by_side(form.join(tf.linalg.matvec(H, means)))
    rows = tf.linalg.matmul(H, tf.gather(chols, series.new, batch_dims=1))
    marginal = tf.linalg.matmul(rows, rows, adjoint_b=True)  # never negative; without gradient
    change = tf.linalg.matmul(H, tf.linalg.matmul(covariances, H, adjoint_b=True))
    marginal = tf.stop_gradient(marginal) + change - tf.stop_gradient(change)
    marginal = form.moments(marginal)
    marginal = marginal.map(lambda a: data.unpacked(side_by_side(tf.linalg.diag_part(a))))

    def joint() -> tf.Tensor:
        covariance = joint_covariance(H, chols, gains[:, :-1], series.new, form.multiplicity)
        message = "the joint covariance of a StateSpaceGP is not differentiable: that of ExactGP is"
        [covariance] = without_gradient([covariance], [H, all_covariances, gains], message)
        return data.unpacked(covariance)

    mean = data.unpacked(process.plus_function(mean, points_of(process, x)))

    def scale() -> tf.Tensor:
        return tf.reduce_sum(tf.math.real(marginal.k), axis=-1)

    return of_signal(process, mean, marginal, joint, scale, noise)


def joint_covariance(
    H: tf.Tensor, chols: tf.Tensor, gains: tf.Tensor, places: tf.Tensor, multiplicity: int
) -> tf.Tensor:
    """The working covariance of `H x[t]` at some places t, `[B, M]`, given all observations.

    The covariance of a state with a later state is its gain (`Smoothed.gains`) times the covariance
    of the next state with the later one, which gives one row for each point, from the last to the
    first. Eager, in O(T + M²). H is `[k, n]`, the result `[B, kM, kM]`; k is the number of outputs,
    twice that for a real composite, of multiplicity 2, with all real parts first. The outputs of a
    point are beside each other.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("the joint covariance of a StateSpaceGP is computed outside of graphs")
    H, chols, gains, places = (np.asarray(a) for a in (H, chols, gains, places))
    arrays = zip(chols, gains, places, strict=True)
    return tf.stack([_covariance(H, *of_series, multiplicity) for of_series in arrays])


def _covariance(
    H: np.ndarray, chols: np.ndarray, gains: np.ndarray, places: np.ndarray, multiplicity: int
) -> np.ndarray:
    (k, n), count = H.shape, len(places)
    order = np.argsort(places, kind="stable")
    places = places[order]
    roots = chols[places]
    with_same = roots @ (roots.conj().swapaxes(-1, -2) @ H.conj().T)  # of x[t] with H x[t]
    blocks = np.zeros([count, k, count, k], H.dtype)
    with_later = np.zeros([n, 0], H.dtype)
    for i in reversed(range(count)):
        if i + 1 < count:
            between = np.eye(n, dtype=H.dtype)
            for t in range(places[i], places[i + 1]):
                between = between @ gains[t]
            with_later = between @ with_later
        with_later = np.concatenate([with_same[i], with_later], axis=-1)
        row = (H @ with_later).reshape(k, count - i, k)
        blocks[i, :, i:] = row
        blocks[i:, :, i] = row.conj().transpose(1, 2, 0)
    at = np.empty_like(order)
    at[order] = np.arange(count)
    sides = (count, multiplicity, k // multiplicity)
    blocks = blocks[at][:, :, at].reshape(*sides, *sides)
    return blocks.transpose(1, 0, 2, 4, 3, 5).reshape(k * count, k * count)


def drawn(
    process: SignalPlusNoise,
    data: Data,
    x: tf.Tensor,
    start: StateAt | StoredState | None,
    count: int,
    seed: tf.Tensor,
    noise: SampleNoise | None,
) -> tf.Tensor:
    """Draws from the posterior at new points, complex, `[count, B, M]`; as for `smoothed`."""
    series, form = ordered_series(process, data, x, start), process.form
    of_states, of_noise = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    states = posterior_sample(series.model, series.z, (count,), seed=of_states)
    new = tf.broadcast_to(series.new, [count, *series.new.shape])
    states = form.split(tf.gather(states, new, batch_dims=2))
    draws = tf.linalg.matvec(series.H, states)
    signal = process.plus_function(side_by_side(form.join(draws)), points_of(process, x))
    if noise is None:
        return signal
    certain = SecondMoments(tf.zeros_like(signal), None)
    noise = process.following(noise, signal, certain).map(lambda a: by_outputs(a, process.outputs))
    factor = semidefinite_factor(DiscretizedProcess(process).noise(noise))
    errors = tf.linalg.matvec(factor, white(tf.shape(draws), of_noise, draws.dtype))
    return signal + side_by_side(form.join(errors))


def forecasts(
    process: SignalPlusNoise,
    data: Data,
    horizons: tf.Tensor,
    noise: SampleNoise | None,
    parallel: bool = False,
) -> dict[str, np.ndarray]:
    """Forecasts at horizons `[H]` beyond every sample of N, given the samples up to it.

    `noise` is the noise of the observations forecast, None for the signal. Returns "mean",
    "variance" and "pseudo_variance", `[..., N, H]`, or `[..., N, H, P]` of P outputs.
    """
    x = data.x[..., 0]
    order = tf.argsort(x, axis=-1, stable=True)
    series, form, outputs = ordered_series(process, data), process.form, process.outputs
    H, filtered = series.H, filter_series(series.model, series.z, parallel=parallel)
    discretized = DiscretizedProcess(process)
    places = tf.gather(x, order, batch_dims=1)[..., None]
    steps = horizons + tf.zeros_like(places)
    if discretized.is_stationary:  # one transition for each horizon
        F, Q, _ = discretized.discretize(tf.zeros_like(horizons), horizons)
    else:
        F, Q, _ = discretized.discretize(places + tf.zeros_like(steps), steps)
    rows = tf.linalg.matmul(H, F)  # [..., H, m, n]
    means = form.split(filtered.filtered_means)[..., None, :]
    mean = form.join(tf.linalg.matvec(rows, means))
    mean = mean[..., 0] if outputs is None else mean
    spread = tf.linalg.matmul(rows, filtered.filtered_chols[..., None, :, :])
    covariance = tf.linalg.matmul(spread, spread, adjoint_b=True)
    covariance += tf.linalg.matmul(tf.linalg.matmul(H, Q), H, adjoint_b=True)
    marginal = form.moments(covariance).map(tf.linalg.diag_part)
    if outputs is None:
        marginal = marginal.map(lambda a: a[..., 0])
    shape = tf.shape(mean)
    ahead = tf.reshape(places + steps, [tf.shape(places)[0], -1, 1])
    mean = tf.reshape(mean, [shape[0], -1])
    mean = process.plus_function(mean, points_of(process, ahead))
    mean = tf.reshape(mean, shape)
    if noise is not None:
        noise = noise.map(lambda a: by_outputs(a, outputs))
        marginal = process.with_noise(marginal, process.following(noise, mean, marginal))
    in_data_order = tf.broadcast_to(tf.argsort(order, axis=-1), [shape[0], shape[1]])
    variance = tf.math.real(marginal.k) + tf.zeros(shape, horizons.dtype)
    pseudo_variance = marginal.c_or_zeros() + tf.zeros(shape, mean.dtype)
    moments = Marginals(mean, variance, pseudo_variance)
    moments = moments.map(lambda a: tf.gather(a, in_data_order, batch_dims=1))
    return moments.map(lambda a: data.unpacked(a).numpy())._asdict()
