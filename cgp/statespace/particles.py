"""Particle filters: the bootstrap filter, and the Rao-Blackwellised one of Kalman filters."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.forms import Form, SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import ArrayLike, check_whole, real_as, squared_modulus, stateless_seed
from cgp.linalg.batch_last import cholesky
from cgp.statespace.compiled import graph_of
from cgp.statespace.engines.filter_step import State, at_known, decorrelated, density
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of, system_of
from cgp.statespace.linearization.linearized_step import Stepper, StepSystem
from cgp.statespace.models.conditionally_linear import ConditionallyLinear
from cgp.statespace.models.linear_gaussian import check_uncorrelated
from cgp.statespace.models.model_base import kept_in
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


_Expectation = Callable[[tf.Tensor], tf.Tensor] | None
Function = Callable[[Any, tf.Tensor], tf.Tensor]
"""Transition or observation of particles, of the arguments of a step: `[B, N, n] -> [B, N, ·]`."""


class Matrices(NamedTuple):
    """The matrices of a linear model at each step, arranged as in `Drawn`."""

    F: tf.Tensor
    b: tf.Tensor
    H: tf.Tensor
    d: tf.Tensor


def drawn_from(series: Series) -> Drawn:
    """The noise of the model of a series, and its observations, their noise decorrelated."""
    noise = series.model

    R = series.of_steps(noise.R)
    observed = series.last(tf.cast(series.observed, noise.dtype.real_dtype), 2)
    eye = tf.eye(R.shape[1], dtype=noise.dtype)[None, ..., None]
    whitening, variances, z = decorrelated(eye, R, series.by_series(series.z), observed)
    return Drawn(
        tf.einsum("nb->bn", series.last(noise.initial_mean, 1)),
        tf.einsum("ijb->bij", series.last(noise.initial_chol, 2)),
        _by_step(series, noise.Q_factor),
        _batch_second(whitening),
        _batch_second(variances),
        tf.einsum("btm->tbm", z),
        _batch_second(observed),
    )


def functions_of(model: AnyModel) -> tuple[Function, Function]:
    """Transition and observation of a model; for a linear model they take its matrices."""
    if isinstance(model, NonlinearGaussian):
        return (
            lambda inputs, x: model.working("transition", inputs)(x),
            lambda inputs, x: model.working("observation", inputs)(x),
        )
    return (
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
    """The sum over time, `[...]`: its exponential is an unbiased estimate of the likelihood."""
    effective_sizes: tf.Tensor
    """`1 / Σ w²` after each observation, before particles are drawn again, real, `[..., T]`."""
    particles: tf.Tensor
    """The states of the particles after the last observation, `[..., N, n]`."""
    log_weights: tf.Tensor
    """Logarithms of the weights of the particles, which sum to one, real, `[..., N]`."""
    expectations: tf.Tensor | None
    """The means of the function asked for, `[..., T, k]`; None without one."""

    def marginals(self) -> Marginals:
        """The moments of the states after each observation, NumPy arrays `[..., T, n]`."""
        covariances = SecondMoments(self.filtered_covariances, self.filtered_pseudo_covariances)
        return covariance_marginals(self.filtered_means, covariances)


def _bootstrap(
    functions: tuple[Function, Function],
    join: Callable[[tf.Tensor], tf.Tensor],
    expectation: _Expectation,
    drawn: Drawn,
    arguments: Any,
    count: tf.Tensor,
    seed: tf.Tensor,
) -> Particles:
    """The particle filter of B series, whose functions have arguments `[T, B, …]` of each step.

    `join` makes states of working values. The moments are `[B, T, …]`; the last particles, as many
    as `count`, `[B, N, …]`.
    """
    steps, series = tf.shape(drawn.z)[0], tf.shape(drawn.z)[1]
    seeds = tf.random.experimental.stateless_split(seed, 3)

    def noise(factor: tf.Tensor, step_seed: tf.Tensor) -> tf.Tensor:
        shape = tf.stack([series, count, tf.shape(factor)[-1]])
        return each(factor, white(shape, step_seed, drawn.mean.dtype))

    def at_step(values: Any, t: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda a: at_known(a, t), values)

    def moved(t: tf.Tensor, particles: Sequence[tf.Tensor], step_seed: tf.Tensor) -> Any:
        following = functions[0](at_step(arguments, t - 1), particles[0])
        return (following + noise(at_known(drawn.Q_factor, t - 1), step_seed),)

    def weighed(t: tf.Tensor, particles: Sequence[tf.Tensor], log_weights: tf.Tensor) -> Any:
        measurement = Drawn(*drawn[:2], *at_step(drawn[2:], t))
        predicted = functions[1](at_step(arguments, t), particles[0])
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
    stacked = (tf.experimental.numpy.moveaxis(array.stack(), 0, 1) for array in arrays)
    moments = list(map(tf.stop_gradient, stacked))
    return particles, tf.stop_gradient(log_weights), moments


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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ConditionalParticles(SeriesResult):
    """Results of the particle filter of a `ConditionallyLinear` model."""

    filtered_means: tf.Tensor
    """`E[v[t] | z[:t+1]]`, `[..., T, n]`."""
    filtered_covariances: tf.Tensor
    """The covariance of v after each observation, `[..., T, n, n]`."""
    filtered_pseudo_covariances: tf.Tensor | None
    """`E[(v − m)(v − m)ᵀ]`, `[..., T, n, n]`; None if v is real."""
    nonlinear_means: tf.Tensor
    """`E[u[t] | z[:t+1]]`, `[..., T, k]`."""
    nonlinear_covariances: tf.Tensor
    """The covariance of u after each observation, `[..., T, k, k]`."""
    nonlinear_pseudo_covariances: tf.Tensor | None
    """`E[(u − m)(u − m)ᵀ]`, `[..., T, k, k]`; None if u is real."""
    log_likelihoods: tf.Tensor
    """`log p(z[t] | z[:t])` of the elements observed, real, `[..., T]`."""
    log_likelihood: tf.Tensor
    """The sum over time, `[...]`: its exponential is an unbiased estimate of the likelihood."""
    effective_sizes: tf.Tensor
    """`1 / Σ w²` after each observation, before particles are drawn again, real, `[..., T]`."""
    particles: tf.Tensor
    """u of the particles after the last observation, `[..., N, k]`."""
    means: tf.Tensor
    """The mean of v given the path of each particle, `[..., N, n]`."""
    chols: tf.Tensor
    """Factors of the covariance of v, `[..., N, n, n]`; of the composite if `linear` is one."""
    log_weights: tf.Tensor
    """Logarithms of the weights of the particles, which sum to one, real, `[..., N]`."""

    def marginals(self) -> Marginals:
        """The moments of the linear part v after each observation, NumPy arrays `[..., T, n]`."""
        covariances = SecondMoments(self.filtered_covariances, self.filtered_pseudo_covariances)
        return covariance_marginals(self.filtered_means, covariances)


class _Cloud(NamedTuple):
    """The particles u, and the moments of v of each."""

    u: tf.Tensor  # `[B, N, k]`
    mean: tf.Tensor  # The means of v, working values, `[B, N, n]`
    chol: tf.Tensor  # `[B, N, n, n]`

    def state(self) -> State:
        """The moments of v, batch last, `[…, B·N]`."""
        return State(_last(self.mean), _last(self.chol))

    def of_state(self, state: State) -> "_Cloud":
        """The particles with other moments of v."""
        mean, chol = (
            tf.reshape(tf.experimental.numpy.moveaxis(a, -1, 0), tf.shape(like))
            for a, like in zip(state, self[1:], strict=True)
        )
        return _Cloud(
            self.u,
            *(tf.ensure_shape(a, b.shape) for a, b in ((mean, self.mean), (chol, self.chol))),
        )


def _last(a: tf.Tensor) -> tf.Tensor:
    """`[B, N, …]` -> `[…, B·N]`."""
    flat = tf.reshape(a, tf.concat([[-1], tf.shape(a)[2:]], axis=0))
    flat = tf.ensure_shape(flat, [None, *a.shape[2:]])
    return tf.experimental.numpy.moveaxis(flat, 0, -1)


def _conditional(
    model: ConditionallyLinear, system: StepSystem, start: State, count: tf.Tensor, seed: tf.Tensor
) -> ConditionalParticles:
    steps, series = tf.shape(system.z)[0], tf.shape(system.z)[-1]
    form, linear_steps = model.linear.form, Stepper(None)
    seeds = tf.random.experimental.stateless_split(seed, 3)

    def noise(factor: tf.Tensor, step_seed: tf.Tensor) -> tf.Tensor:
        shape = tf.stack([series, count, tf.shape(factor)[-1]])
        return each(factor[None], white(shape, step_seed, model.initial_mean.dtype))

    def moved(t: tf.Tensor, particles: Sequence[tf.Tensor], step_seed: tf.Tensor) -> _Cloud:
        cloud = _Cloud(*particles)
        of_particles = _at_particles(model, system, t - 1, cloud)
        following, _ = linear_steps.predicted(of_particles, cloud.state())
        u = model.moved(cloud.u) + noise(model.Q.factor, step_seed)
        return cloud.of_state(following)._replace(u=u)

    def weighed(t: tf.Tensor, particles: Sequence[tf.Tensor], log_weights: tf.Tensor) -> Any:
        cloud = _Cloud(*particles)
        of_particles = _at_particles(model, system, t, cloud)
        after, likelihoods, _ = linear_steps.updated(of_particles, cloud.state())
        likelihoods = tf.reshape(likelihoods, tf.shape(log_weights))
        log_weights, total, size = normalized(log_weights + likelihoods)
        cloud, weights = cloud.of_state(after), tf.exp(log_weights)
        moments = [*_linear_moments(form, cloud, weights), *moments_of(cloud.u, weights)]
        return cloud, log_weights, [*moments, total, size]

    def of_particles(a: tf.Tensor) -> tf.Tensor:
        """`[…, B]` -> `[B, N, …]`."""
        return tf.repeat(tf.experimental.numpy.moveaxis(a, -1, 0)[:, None], count, axis=1)

    u = model.initial_mean + noise(model.initial_covariance.factor, seeds[0])
    first = _Cloud(u, *map(of_particles, start))
    particles, log_weights, moments = filtered_particles(first, steps, seeds[1:], moved, weighed)
    cloud = _Cloud(*map(tf.stop_gradient, particles))
    *moments, totals, sizes = moments
    means = form.join(cloud.mean)
    for at, like in ((2, means), (5, cloud.u)):
        if not like.dtype.is_complex:
            moments.insert(at, None)
    names = ("means", "covariances", "pseudo_covariances")
    return ConditionalParticles(
        **{f"filtered_{name}": a for name, a in zip(names, moments[:3], strict=True)},
        **{f"nonlinear_{name}": a for name, a in zip(names, moments[3:], strict=True)},
        log_likelihoods=totals,
        log_likelihood=tf.reduce_sum(totals, axis=-1),
        effective_sizes=sizes,
        particles=cloud.u,
        means=means,
        chols=cloud.chol,
        log_weights=log_weights,
    )


def _at_particles(
    model: ConditionallyLinear, system: StepSystem, t: tf.Tensor, cloud: _Cloud
) -> StepSystem:
    """The system of step t for each particle, `[…, B·N]`."""
    series, count = tf.unstack(tf.shape(cloud.u)[:2])

    def spread(a: tf.Tensor) -> tf.Tensor:
        a = at_known(a, t)
        wide = tf.broadcast_to(a, tf.concat([tf.shape(a)[:-1], [series]], axis=0))
        return tf.ensure_shape(tf.repeat(wide, count, axis=-1), [*a.shape[:-1], None])

    matrices = {
        name: _last(tf.broadcast_to(a, tf.concat([[series, count], tf.shape(a)[2:]], axis=0)))
        for name, a in model.matrices_at(cloud.u).items()
    }
    if "Q" in matrices:
        matrices["Q_factor"] = cholesky(matrices["Q"])
    return tf.nest.map_structure(spread, system)._replace(**matrices)


def _linear_moments(form: Form, cloud: _Cloud, weights: tf.Tensor) -> list[tf.Tensor]:
    """Mean, covariance and, of complex states, pseudo-covariance of v."""
    shares = real_as(weights, cloud.chol.dtype)[..., None, None]
    # The mean of covariances, and the covariance of means.
    covariances = tf.linalg.matmul(cloud.chol, cloud.chol, adjoint_b=True)
    within = form.moments(tf.reduce_sum(shares * covariances, axis=1))
    mean, *between = moments_of(form.join(cloud.mean), weights)
    moments = [mean, between[0] + within.k]
    if len(between) > 1:
        moments.append(between[1] + within.c_or_zeros())
    return moments


@as_it_stands
def particle_filter(
    model: AnyModel | ConditionallyLinear,
    z: ArrayLike,
    particles: int = 1000,
    seed: ArrayLike | None = None,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    expectation: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Particles | ConditionalParticles:
    """Runs the bootstrap particle filter, which linearises nothing.

    Particles move as the model does and are weighed by the density of each observation (Gordon,
    Salmond & Smith, IEE Proc. F 140, 1993). Where the effective sample size, `1 / Σ w²`, is below
    half of their number, they are drawn again by systematic resampling (Kitagawa, J. Comput. Graph.
    Stat. 5, 1996). As their number N grows the results tend to the true ones, with an error
    proportional to `1/√N`: a check of the filters of `NonlinearGaussian` models, and the remedy
    where a state has several likely values. Where observations are precise, or states are many,
    most particles have no weight: see `effective_sizes`.

    Of a `ConditionallyLinear` model only the nonlinear part is drawn; each particle has a Kalman
    filter of the rest, and is weighed by its likelihood (Chen & Liu, J. R. Stat. Soc. B 62, 2000).

    Args:
        model: A `NonlinearGaussian` or a `LinearGaussian`, whose R must not be singular; or a
            `ConditionallyLinear`.
        z: Observations, as for `filter`.
        particles: N, the number of particles of each series, at least 1.
        seed: One or two integers, for reproducible results; None for new ones at each call.
        missing: As for `filter`.
        inputs: As for `filter`.
        expectation: A function of states, `[..., n]` -> `[..., k]`, whose mean is wanted after each
            observation: the mean of `exp(iφ)` has a phase even where φ covers several turns, and
            its own mean has no meaning. Not for a `ConditionallyLinear`.

    Returns:
        `Particles`; `ConditionalParticles` for a `ConditionallyLinear`. Not differentiable.

    Raises:
        TypeError: As `filter`.
        ValueError: As `filter`; an invalid seed or number of particles; a singular R, under which
            observations have no density; eagerly, a step at which no particle has any weight, or
            at which a function is not finite.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> growth = statespace.NonlinearGaussian(  # the sign of the state is never seen
        ...     lambda x: 0.5 * x + 8.0 * tf.sin(x), lambda x: x**2 / 20.0,
        ...     Q=[[1.0]], R=[[0.1]], initial_mean=[0.0], initial_covariance=[[5.0]],
        ... )
        >>> states, z = statespace.sample(growth, 50, seed=1)
        >>> found = statespace.particle_filter(growth, z, particles=2000, seed=2)
        >>> found.filtered_means.shape, found.particles.shape
        (TensorShape([50, 1]), TensorShape([2000, 1]))
        >>> bool(found.log_likelihood > statespace.log_likelihood(growth, z))
        True
    """
    check_whole(particles, "particles")
    count = tf.constant(int(particles))
    if expectation is not None and not callable(expectation):
        raise TypeError(f"expectation must be a function, got {type(expectation).__name__}")
    if isinstance(model, ConditionallyLinear):
        series = Series(model.linear, z, missing, inputs)
        if expectation is not None:
            raise ValueError("expectation must be None for a ConditionallyLinear model")
        run: Callable[..., ConditionalParticles] = functools.partial(_conditional, model)
        if tf.executing_eagerly():
            run = model.kept(ConditionalParticles, functools.partial(graph_of, run))
        conditional = run(*system_of(series), count, stateless_seed(seed))
        conditional = conditional.map(series.from_series)
        _check_weights(conditional.log_likelihoods)
        return conditional
    series = Series(noise_of(model), z, missing, inputs)
    check_uncorrelated(series.model, "particle_filter")
    if series.model.initial == "diffuse":
        raise ValueError("no particles can be drawn of a diffuse initial state: give it moments")
    drawn = drawn_from(series)
    if tf.executing_eagerly():
        _check_density(drawn)
    loop = (_kept_graph if tf.executing_eagerly() else _loop)(model, expectation)
    arguments = arguments_of(model, series)
    particles_of_series = loop(drawn, arguments, count, stateless_seed(seed))
    _check_weights(particles_of_series.log_likelihoods)
    return particles_of_series.map(series.from_series)


def _loop(model: AnyModel, expectation: _Expectation) -> Callable[..., Particles]:
    return functools.partial(_bootstrap, functions_of(model), model.form.join, expectation)


def _kept_graph(model: AnyModel, expectation: _Expectation) -> Callable[..., Particles]:
    """The loop as a graph; it depends on the functions of the model alone."""

    def make() -> Callable[..., Particles]:
        return graph_of(_loop(model, expectation))

    if isinstance(model, NonlinearGaussian):
        return model.kept((particle_filter, expectation), make)
    if expectation is not None:
        return make()
    form = model.form.multiplicity  # the matrices of a linear model are arguments of the loop
    return kept_in(_of_linear, form, make)


_of_linear: dict[int, Callable[..., Particles]] = {}


def _check_density(drawn: Drawn) -> None:
    variances, observed = drawn.variances.numpy(), drawn.observed.numpy()
    if not ((variances > 0) | (observed == 0)).all():
        raise ValueError(
            "R must not be singular: particles are weighed by the density of an observation, and "
            "without noise there is none. Give R, or the combination of components in which it is "
            "singular, a variance above zero"
        )


def _check_weights(log_likelihoods: tf.Tensor) -> None:
    """Raises, eagerly, where no particle has a weight; `[..., T]`."""
    if not tf.executing_eagerly():
        return
    values = log_likelihoods.numpy()
    finite = np.isfinite(values)
    if finite.all():
        return
    step = int(np.argmin(finite, axis=-1)[~finite.all(axis=-1)].min())
    if (values[..., step] == -np.inf).any():
        raise ValueError(
            f"no particle has any weight at step {step}: the observation there is so far from all "
            "of them that its density is zero. Take more particles, or a wider R, Q or initial "
            "covariance"
        )
    raise ValueError(
        f"the observation or transition is not finite at step {step}, for a particle there: the "
        "functions of the model must be defined wherever its noise may lead"
    )
