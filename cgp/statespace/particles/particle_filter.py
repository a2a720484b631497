"""The bootstrap particle filter."""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.linalg.arguments import ArrayLike, check_whole, stateless_seed
from cgp.statespace.compiled import graph_of
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of
from cgp.statespace.models.conditionally_linear import ConditionallyLinear
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.particles.conditional_particles import (
    ConditionalParticles,
    conditional_particles,
)
from cgp.statespace.particles.particle_recursion import (
    Drawn,
    Particles,
    arguments_of,
    drawn_from,
    functions_of,
    run,
)
from cgp.statespace.series import Series


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
