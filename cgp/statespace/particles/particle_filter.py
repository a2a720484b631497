"""The bootstrap particle filter; the Rao-Blackwellised one, a Kalman filter for each particle."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.checks import stateless_seed
from cgp.distributions.forms import Form, SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import ArrayLike, check_whole, real_as
from cgp.linalg.batch_last import cholesky
from cgp.statespace.compiled import graph_of
from cgp.statespace.engines.filter_step import State, at_known
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of, system_of
from cgp.statespace.linearization.linearized_step import Stepper, StepSystem
from cgp.statespace.models.conditionally_linear import ConditionallyLinear
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian, white
from cgp.statespace.particles.particle_recursion import (
    Drawn,
    Particles,
    arguments_of,
    drawn_from,
    each,
    filtered_particles,
    functions_of,
    moments_of,
    normalized,
    run,
)
from cgp.statespace.results import SeriesResult, covariance_marginals
from cgp.statespace.series import Series


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
    """Their sum, `[...]`: its exponential is an unbiased estimate of the likelihood."""
    effective_sizes: tf.Tensor
    """`1 / Σ w²` after each observation, before particles are drawn again, real, `[..., T]`."""
    particles: tf.Tensor
    """u of the particles after the last observation, `[..., N, k]`."""
    means: tf.Tensor
    """The mean of v given the path of each particle, `[..., N, n]`."""
    chols: tf.Tensor
    """Factors of its covariance, `[..., N, n, n]`; of the real composite if `linear` is one."""
    log_weights: tf.Tensor
    """Logarithms of the weights of the particles, which sum to one, real, `[..., N]`."""

    def marginals(self) -> Marginals:
        """The moments of the linear part v after each observation, NumPy arrays `[..., T, n]`."""
        covariances = SecondMoments(self.filtered_covariances, self.filtered_pseudo_covariances)
        return covariance_marginals(self.filtered_means, covariances)


def conditional_particles(
    model: ConditionallyLinear, series: Series, count: tf.Tensor, seed: tf.Tensor
) -> ConditionalParticles:
    """The particle filter of a series of the linear part of a model."""
    system, start = system_of(series)

    def run(*arguments: Any) -> ConditionalParticles:
        return _run(model, *arguments)

    loop: Callable[..., ConditionalParticles] = run
    if tf.executing_eagerly():
        loop = model.kept(conditional_particles, lambda: graph_of(run))
    return loop(system, start, count, seed).map(series.from_series)


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


def _run(
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
            observation: that of `exp(iφ)` has a phase where that of a phase of several turns has
            none. Not of a `ConditionallyLinear`.

    Returns:
        `Particles`; `ConditionalParticles` of a `ConditionallyLinear`. Not differentiable.

    Raises:
        TypeError: As `filter`.
        ValueError: As `filter`; an invalid seed or number of particles; a singular R, under which
            observations have no density; eagerly, a step at which no particle has any weight, or
            at which a function is not finite.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> growth = statespace.NonlinearGaussian(  # the sign of the state is never seen
        ...     lambda x: 0.5 * x + 8.0 * tf.sin(x),
        ...     lambda x: x**2 / 20.0,
        ...     Q=[[1.0]],
        ...     R=[[0.1]],
        ...     initial_mean=[0.0],
        ...     initial_covariance=[[5.0]],
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
        conditional = conditional_particles(model, series, count, stateless_seed(seed))
        _check_weights(conditional.log_likelihoods)
        return conditional
    series = Series(noise_of(model), z, missing, inputs)
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


_Expectation = Callable[[tf.Tensor], tf.Tensor] | None


def _loop(model: AnyModel, expectation: _Expectation) -> Callable[..., Particles]:
    return functools.partial(run, functions_of(model), model.form.join, expectation)


def _kept_graph(model: AnyModel, expectation: _Expectation) -> Callable[..., Particles]:
    """The loop as a graph; it depends on the functions of the model alone."""

    def make() -> Callable[..., Particles]:
        return graph_of(_loop(model, expectation))

    if isinstance(model, NonlinearGaussian):
        return model.kept((particle_filter, expectation), make)
    if expectation is not None:
        return make()
    form = model.form.multiplicity  # the matrices of a linear model are arguments of the loop
    if form not in _of_linear:
        _of_linear[form] = make()
    return _of_linear[form]


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
