"""The bootstrap particle filter as a loop over time, and its functions, noise and observations."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import real_as, squared_modulus
from cgp.statespace.engines.filter_step import at_known, density
from cgp.statespace.engines.kalman_system import decorrelated
from cgp.statespace.linearization.linearized_model import AnyModel
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian, white
from cgp.statespace.results import SeriesResult, covariance_marginals
from cgp.statespace.series import Series


class Drawn(NamedTuple):
    """Noise and observations; time is the first axis, of 1 where nothing varies, then the batch."""

    mean: tf.Tensor  # The mean of the initial state, `[B, n]`; B is 1 where all series share it
    chol: tf.Tensor  # `[B, n, n]`
    Q_factor: tf.Tensor  # `[T, B, n, q]`
    whitening: tf.Tensor  # U⁻¹ with `R = U D Uᴴ` of the elements observed, `[T, B, m, m]`
    variances: tf.Tensor  # The diagonal of D, real, `[T, B, m]`
    z: tf.Tensor  # `U⁻¹ z`, `[T, B, m]`
    observed: tf.Tensor  # Real, `[T, B, m]`: 1, or 0 where missing


class Functions(NamedTuple):
    """Transition and observation of particles, `(arguments of a step, [B, N, n]) -> [B, N, ·]`."""

    transition: Callable[[Any, tf.Tensor], tf.Tensor]
    observation: Callable[[Any, tf.Tensor], tf.Tensor]


class Matrices(NamedTuple):
    """The matrices of a linear model at each step, arranged as in `Drawn`."""

    F: tf.Tensor
    b: tf.Tensor
    H: tf.Tensor
    d: tf.Tensor


def drawn_from(series: Series) -> Drawn:
    """The noise of the model of a series, and its observations, their noise decorrelated."""
    noise = series.model

    def first(a: tf.Tensor) -> tf.Tensor:
        return tf.experimental.numpy.moveaxis(a, -1, 0)

    R = series.of_steps(noise.R)
    observed = series.last(tf.cast(series.observed, noise.dtype.real_dtype), 2)
    eye = tf.eye(R.shape[1], dtype=noise.dtype)[None, ..., None]
    whitening, variances, z = decorrelated(eye, R, series.by_series(series.z), observed)
    return Drawn(
        first(series.last(noise.initial_mean, 1)),
        first(series.last(noise.initial_chol, 2)),
        _by_step(series, noise.Q_factor),
        _batch_second(whitening),
        _batch_second(variances),
        tf.einsum("btm->tbm", z),
        _batch_second(observed),
    )


def functions_of(model: AnyModel) -> Functions:
    """The functions of a model; those of a linear one take its matrices."""
    if isinstance(model, NonlinearGaussian):
        return Functions(
            lambda inputs, x: model.working("transition", inputs)(x),
            lambda inputs, x: model.working("observation", inputs)(x),
        )
    return Functions(
        lambda matrices, x: each(matrices.F, x) + matrices.b[:, None],
        lambda matrices, x: each(matrices.H, x) + matrices.d[:, None],
    )


def arguments_of(model: AnyModel, series: Series) -> Any:
    """The arguments of the functions of a model: known inputs, `[T, B, k]`, or `Matrices`."""
    inputs = series.inputs
    if isinstance(model, NonlinearGaussian):
        if inputs is None:
            return tf.zeros([1, 1, 0], model.dtype)
        return tf.einsum("btk->tbk", series.by_series(inputs))

    def offset(a: tf.Tensor | None, size: int) -> tf.Tensor:
        if a is None:
            return tf.zeros([1, 1, size], model.dtype)
        return _batch_second(series.last(a, 2))

    rows, columns = model.H.shape[-2:]
    return Matrices(
        _by_step(series, model.F),
        offset(series.drift, columns),
        _by_step(series, model.H),
        offset(model.d, rows),
    )


def _by_step(series: Series, a: tf.Tensor) -> tf.Tensor:
    """A matrix of the model, `[T, B, rows, columns]`."""
    return _batch_second(series.of_steps(a))


def _batch_second(a: tf.Tensor) -> tf.Tensor:
    """`[T, …, B]` -> `[T, B, …]`."""
    return tf.experimental.numpy.moveaxis(a, -1, 1)


def each(matrix: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """A matrix `[B or 1, rows, n]` times each particle, `[B, N, n]`."""
    columns = tf.einsum("bij->bji", matrix)  # particles are rows: no conjugation is meant
    return tf.linalg.matmul(x, columns)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Particles(SeriesResult):
    """Results of the particle filter: moments after each observation, and the last particles."""

    filtered_means: tf.Tensor
    """`E[x[t] | z[:t+1]]`, `[..., T, n]`."""
    filtered_covariances: tf.Tensor
    """The covariance of the state after each observation, `[..., T, n, n]`."""
    filtered_pseudo_covariances: tf.Tensor | None
    """`E[(x − m)(x − m)ᵀ]`, `[..., T, n, n]`; None if the states are real."""
    log_likelihoods: tf.Tensor
    """`log p(z[t] | z[:t])` of the elements observed, real, `[..., T]`."""
    log_likelihood: tf.Tensor
    """Their sum, `[...]`: its exponential is an unbiased estimate of the likelihood."""
    effective_sizes: tf.Tensor
    """`1 / Σ w²` after each observation, before particles are drawn again, real, `[..., T]`."""
    particles: tf.Tensor
    """The states of the particles after the last observation, `[..., N, n]`."""
    log_weights: tf.Tensor
    """Logarithms of their weights, which sum to one, real, `[..., N]`."""
    expectations: tf.Tensor | None
    """The means of the function asked for, `[..., T, k]`; None without one."""

    def marginals(self) -> Marginals:
        """The moments of the states after each observation, NumPy arrays `[..., T, n]`."""
        covariances = SecondMoments(self.filtered_covariances, self.filtered_pseudo_covariances)
        return covariance_marginals(self.filtered_means, covariances)


def run(
    functions: Functions,
    join: Callable[[tf.Tensor], tf.Tensor],
    expectation: Callable[[tf.Tensor], tf.Tensor] | None,
    drawn: Drawn,
    arguments: Any,
    count: tf.Tensor,
    seed: tf.Tensor,
) -> Particles:
    """The particle filter of a series, or of B of them.

    Args:
        functions: The functions of the model.
        join: Makes states of working values.
        expectation: A function of states whose mean is wanted, or None.
        drawn: Noise and observations.
        arguments: The arguments of the functions at each step, `[T, B, …]`.
        count: N, the number of particles.
        seed: Two integers.

    Returns:
        The moments of each series, `[B, T, …]`; the particles of the last step, `[B, N, …]`.
    """
    steps, series = tf.shape(drawn.z)[0], tf.shape(drawn.z)[1]
    seeds = tf.random.experimental.stateless_split(seed, 3)

    def noise(factor: tf.Tensor, step_seed: tf.Tensor) -> tf.Tensor:
        shape = tf.stack([series, count, tf.shape(factor)[-1]])
        return each(factor, white(shape, step_seed, drawn.mean.dtype))

    def at_step(values: Any, t: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda a: at_known(a, t), values)

    def moved(t: tf.Tensor, particles: Sequence[tf.Tensor], step_seed: tf.Tensor) -> Any:
        following = functions.transition(at_step(arguments, t - 1), particles[0])
        return (following + noise(at_known(drawn.Q_factor, t - 1), step_seed),)

    def weighed(t: tf.Tensor, particles: Sequence[tf.Tensor], log_weights: tf.Tensor) -> Any:
        measurement = Drawn(*drawn[:2], *at_step(drawn[2:], t))
        predicted = functions.observation(at_step(arguments, t), particles[0])
        log_weights, total, size = normalized(log_weights + _log_density(measurement, predicted))
        states, weights = join(particles[0]), tf.exp(log_weights)
        expectations = [] if expectation is None else [_expected(expectation, states, weights)]
        return particles, log_weights, [*expectations, *moments_of(states, weights), total, size]

    start = drawn.mean[:, None] + noise(drawn.chol, seeds[0])
    (x,), log_weights, moments = filtered_particles((start,), steps, seeds[1:], moved, weighed)
    expectations = None if expectation is None else moments.pop(0)
    mean, *covariances, totals, sizes = moments
    pseudo = covariances[1] if len(covariances) > 1 else None
    return Particles(
        filtered_means=mean,
        filtered_covariances=covariances[0],
        filtered_pseudo_covariances=pseudo,
        log_likelihoods=totals,
        log_likelihood=tf.reduce_sum(totals, axis=-1),
        effective_sizes=sizes,
        particles=tf.stop_gradient(join(x)),
        log_weights=log_weights,
        expectations=expectations,
    )


def filtered_particles(
    start: Sequence[tf.Tensor],
    steps: tf.Tensor,
    seeds: tf.Tensor,
    moved: Callable[..., Sequence[tf.Tensor]],
    weighed: Callable[..., tuple[Sequence[tf.Tensor], tf.Tensor, list[tf.Tensor]]],
) -> tuple[Sequence[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """The loop in which particles are weighed, drawn again where few count, and moved.

    Args:
        start: Arrays of the particles before the first observation, `[B, N, …]`.
        steps: T, the number of observations.
        seeds: Two integers for movements, and two for particles that are drawn again.
        moved: Returns the particles at step t by those at step t − 1 and a seed.
        weighed: Returns the particles and their log weights after the observation of step t, by
            those before it, and moments, `[B, …]`, the last of which are the effective sizes.

    Returns:
        The particles after the last observation; their log weights, `[B, N]`; and the moments,
        `[B, T, …]`. Gradients do not flow to the latter.
    """
    series, count = tf.unstack(tf.shape(start[0])[:2])
    equal = _equal_weights(series, count, start[0].dtype.real_dtype)

    def shaped(particles: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        return tuple(tf.ensure_shape(a, b.shape) for a, b in zip(particles, start, strict=True))

    def step(
        t: tf.Tensor, particles: Any, log_weights: tf.Tensor, size: tf.Tensor, arrays: Any
    ) -> Any:
        step_seed = tf.random.experimental.stateless_fold_in(seeds[1], t)
        particles, log_weights = _drawn_again(list(particles), log_weights, size, step_seed)
        step_seed = tf.random.experimental.stateless_fold_in(seeds[0], t)
        particles = shaped(moved(t, shaped(particles), step_seed))
        particles, log_weights, moments = weighed(t, particles, log_weights)
        log_weights = tf.ensure_shape(log_weights, equal.shape)
        size = tf.ensure_shape(moments[-1], equal.shape[:1])
        arrays = [array.write(t, a) for array, a in zip(arrays, moments, strict=True)]
        return t + 1, shaped(particles), log_weights, size, arrays

    particles, log_weights, moments = weighed(tf.constant(0), start, equal)
    arrays = [tf.TensorArray(a.dtype, steps, element_shape=a.shape).write(0, a) for a in moments]
    size = tf.ensure_shape(moments[-1], equal.shape[:1])
    log_weights = tf.ensure_shape(log_weights, equal.shape)
    loop = (tf.constant(1), shaped(particles), log_weights, size, arrays)
    _, particles, log_weights, _, arrays = tf.while_loop(lambda t, *_: t < steps, step, loop)
    # A tape that watches variables of the model must not see the loop.
    moments = [tf.stop_gradient(_batch_first(array.stack())) for array in arrays]
    return particles, tf.stop_gradient(log_weights), moments


def _batch_first(a: tf.Tensor) -> tf.Tensor:
    """`[T, B, …]` -> `[B, T, …]`."""
    return tf.experimental.numpy.moveaxis(a, 0, 1)


def _log_density(measurement: Drawn, predicted: tf.Tensor) -> tf.Tensor:
    """`log p(z | x)` of the elements observed, for each particle, real, `[B, N]`."""
    scale, constant = density(predicted.dtype)
    deviations = measurement.z[:, None] - each(measurement.whitening, predicted)
    is_observed = measurement.observed > 0
    variances = tf.where(is_observed, measurement.variances, tf.ones_like(measurement.variances))
    distances = squared_modulus(deviations) * (measurement.observed / variances)[:, None]
    normalizer = tf.reduce_sum(measurement.observed * (tf.math.log(variances) + constant), axis=-1)
    return -scale * (tf.reduce_sum(distances, axis=-1) + normalizer[:, None])


def _expected(
    expectation: Callable[[tf.Tensor], tf.Tensor], states: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    values = tf.convert_to_tensor(expectation(states))
    if values.shape.rank != 3 or values.shape[-1] is None:
        raise ValueError(
            f"expectation must return [..., k] for states [..., {states.shape[-1]}], but for shape "
            f"{states.shape} it returned shape {values.shape}"
        )
    return mean_of(values, weights)


def mean_of(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The mean of weighted values, `[B, N, k]` -> `[B, k]`."""
    return tf.reduce_sum(real_as(weights, values.dtype)[..., None] * values, axis=1)


def moments_of(states: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
    """Mean, covariance and, of complex states, pseudo-covariance of weighted particles."""
    weights = real_as(weights, states.dtype)[..., None]
    mean = tf.reduce_sum(weights * states, axis=1)
    deviations = states - mean[:, None]
    weighted = weights * deviations
    moments = [mean, tf.einsum("bki,bkj->bij", weighted, tf.math.conj(deviations))]
    if states.dtype.is_complex:
        moments.append(tf.einsum("bki,bkj->bij", weighted, deviations))
    return moments


def _equal_weights(series: tf.Tensor, count: tf.Tensor, real: tf.DType) -> tf.Tensor:
    """Logarithms of `1/N`, `[B, N]`."""
    return tf.fill([series, count], -tf.math.log(tf.cast(count, real)))


def normalized(log_weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Weights that sum to one, the logarithm of their sum before, and the effective size."""
    total = tf.reduce_logsumexp(log_weights, axis=-1, keepdims=True)
    log_weights -= total
    return log_weights, total[:, 0], 1.0 / tf.reduce_sum(tf.exp(2.0 * log_weights), axis=-1)


def _drawn_again(
    values: list[tf.Tensor], log_weights: tf.Tensor, size: tf.Tensor, seed: tf.Tensor
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Draws particles again for each series whose effective size is below half of their number."""
    series, count = tf.unstack(tf.shape(log_weights))
    few = (size < 0.5 * tf.cast(count, size.dtype))[:, None]

    def again() -> tuple[list[tf.Tensor], tf.Tensor]:
        offset = 1.0 - tf.random.stateless_uniform([series, 1], seed, dtype=tf.float64)
        ancestors = systematic_ancestors(tf.exp(log_weights), offset)
        ancestors = tf.where(few, ancestors, tf.range(count)[None])
        equal = _equal_weights(series, count, log_weights.dtype)
        drawn = [tf.gather(a, ancestors, axis=1, batch_dims=1) for a in values]
        return drawn, tf.where(few, equal, log_weights)

    return tf.cond(tf.reduce_any(few), again, lambda: (values, log_weights))


def systematic_ancestors(weights: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """The particles that are drawn again, by systematic resampling: ascending indices, `[..., N]`.

    A particle of weight w is drawn `⌊N w⌋` or `⌈N w⌉` times, N w times on average (Kitagawa,
    J. Comput. Graph. Stat. 5, 1996). Weights need not sum to one; the offset, `[..., 1]`, is above
    0 and at most 1.
    """
    count = tf.shape(weights)[-1]
    sums = tf.cumsum(tf.cast(weights, tf.float64), axis=-1)  # a long sum, whatever the precision
    levels = tf.cast(tf.range(count), tf.float64) + tf.cast(offset, tf.float64)
    levels *= sums[..., -1:] / tf.cast(count, tf.float64)
    # The last level may round to above the total; weights may be NaN, which is refused later.
    indices = tf.searchsorted(sums, tf.minimum(levels, sums[..., -1:]), side="left")
    return tf.minimum(indices, count - 1)
