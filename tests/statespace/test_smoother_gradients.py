"""Gradients of the smoother against central differences of the reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.likelihoods import StudentT
from cgp.statespace import smoothing
from cgp.statespace.series import Series
from tests.long_cases import long_except
from tests.reference import kalman
from tests.statespace.problems import Problem, improper_parts, problem, reference_augmented
from tests.statespace.test_gradients import (
    all_varying,
    arguments_of,
    assert_gradients,
    random_weights,
    singular,
    split,
)

CASES = {
    "holes": lambda: problem(2, 2, holes="own"),
    "real": lambda: problem(2, 2, holes="own", dtype="float64"),
    "varying": lambda: all_varying(problem(2, 3, holes="own", inputs=2)),
    "singular Q": lambda: singular(problem(2, 2, holes="own"), Q=1),
    "singular R": lambda: singular(problem(2, 2, holes="own"), R=1),
    "a batch that shares covariances": lambda: problem(2, 2, batch=3, holes="shared"),
    "a batch with holes": lambda: problem(2, 2, batch=3, holes="own", inputs=2),
    "a batch of varying models": lambda: problem(
        3, 2, batch=3, models=True, holes="own", varying="FQHR"
    ),
    "two steps": lambda: problem(2, 2, steps=2),
}


def tensor_score(values):
    """A number that depends on all elements of all values."""
    return sum(
        tf.math.real(tf.reduce_sum(np.conj(random_weights(a.shape, a.dtype.name, seed)) * a))
        for seed, a in enumerate(values)
    )


def array_score(values):
    return sum(
        np.sum(np.conj(random_weights(a.shape, a.dtype, seed)) * a).real
        for seed, a in enumerate(values)
    )


def score(arguments, parallel=False):
    """Of all that `smooth` finds; factors by their squares, which may be singular."""
    matrices, z, inputs = split(arguments)
    series = Series(statespace.LinearGaussian(**matrices), z, None, inputs)
    found = smoothing.moments(series, parallel)
    covariances, lags = series.of_each(found.covariances, 3), series.of_each(found.lags, 3)
    return tensor_score([found.means, covariances, lags[..., :-1, :, :]])


def reference_score(arguments):
    return array_score(Problem(*split(arguments)).expected(kalman.smooth))


def gradients_of(f, p):
    arguments = {name: tf.constant(a) for name, a in arguments_of(p).items()}
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = f(arguments)
    return tape.gradient(value, arguments)


@pytest.mark.parametrize("name", CASES)
def test_are_the_gradients_of_all_moments_those_of_the_reference(name):
    assert_gradients(score, reference_score, arguments_of(CASES[name]()))


SMALL = {  # which compile sooner
    "a few steps": lambda: problem(2, 1, steps=3),
    "one observed": lambda: all_varying(problem(2, 1, holes="own", inputs=1)),
}
PATHS = {
    "chunks": lambda p, without_core: without_core(gradients_of, score, p),
    "parallel": lambda p, _: gradients_of(lambda a: score(a, parallel=True), p),
    "graph": lambda p, _: gradients_of(tf.function(score, autograph=False), p),
}


@pytest.mark.parametrize(
    ("name", "path"),
    long_except(
        [
            *itertools.product(["varying", "a batch that shares covariances"], PATHS),
            ("a few steps", "parallel"),
            ("one observed", "chunks"),
        ],
        ("a few steps", "parallel"),
        ("one observed", "chunks"),
    ),
)
def test_are_they_the_same_by_each_path(name, path, without_core):
    p = (CASES | SMALL)[name]()
    found, other = gradients_of(score, p), PATHS[path](p, without_core)
    for key, gradient in found.items():
        np.testing.assert_allclose(other[key], gradient, rtol=1e-9, atol=1e-9, err_msg=key)


def test_are_gradients_of_what_the_smoother_returns_those_of_the_reference():
    """Factors are differentiated as those of their covariances, gains as they are."""

    def f(arguments):
        matrices, z, _ = split(arguments)
        found = statespace.smooth(statespace.LinearGaussian(**matrices), z)
        return tensor_score([found.smoothed_chols, found.gains])

    def expected(arguments):
        p = Problem(*split(arguments))
        found, model = p.expected(kalman.smooth), p.reference()
        later = np.linalg.inv(found.covariances[1:])
        gains = kalman.adjoint(later @ found.lag_one_covariances)
        assert len(gains) == len(model.F) - 1
        return array_score([np.linalg.cholesky(found.covariances), gains])

    p = problem(2, 2, holes="own")
    own = arguments_of(p, leave=["z", "initial_mean"])  # which no covariance depends on
    rest = {name: a for name, a in arguments_of(p).items() if name not in own}
    assert_gradients(lambda a: f(a | rest), lambda a: expected(a | rest), own)


def test_are_improper_gradients_those_of_the_augmented_reference():
    given, (covariances, parts) = problem(2, 1, holes="own"), improper_parts(2, 1)
    p = given.changed(**covariances)

    def f(arguments):
        matrices, z, _ = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        model = statespace.widely_linear(statespace.LinearGaussian(**matrices), **wide)
        found = statespace.smooth(model, z)
        return tensor_score(
            [found.smoothed_means, found.lag_one_covariances, found.lag_one_pseudo_covariances]
        )

    def expected(arguments):
        matrices, z, inputs = split(arguments)
        wide = {name: matrices.pop(name) for name in parts}
        reference = reference_augmented(Problem(matrices, z, inputs), wide)
        found = kalman.smooth(reference, np.concatenate([z, np.conj(z)], axis=-1))
        lags = found.lag_one_covariances
        return array_score([found.means[:, :2], lags[:, :2, :2], lags[:, :2, 2:]])

    assert_gradients(f, expected, arguments_of(p) | parts)


def test_has_one_step_the_gradient_of_the_filter():
    p = problem(2, 2, steps=1)
    arguments = {name: tf.constant(a) for name, a in arguments_of(p, leave=["F", "Q"]).items()}
    onward = {name: p.matrices[name] for name in "FQ"}
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        matrices, z, _ = split(arguments | onward)
        model = statespace.LinearGaussian(**matrices)
        smoothed = tensor_score(statespace.smooth(model, z).smoothed_means)
        filtered = tensor_score(statespace.filter(model, z).filtered_means)
    found, expected = (tape.gradient(y, arguments) for y in (smoothed, filtered))
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("in_graph", long_except([False, True], False))
def test_is_a_gradient_refused_where_the_gain_has_none(in_graph):
    """A state without noise, known at the start: a change of Q makes its gain jump."""
    p = singular(problem(2, 2), initial_covariance=0, Q=1)
    f, error = score, cgp.NotPositiveDefiniteError
    if in_graph:
        f, error = tf.function(score, autograph=False), tf.errors.InvalidArgumentError
    with pytest.raises(error, match="gradient of the smoother needs predicted covariances"):
        gradients_of(f, p)


def test_is_a_second_derivative_refused():
    p = problem(2, 2)
    F = tf.constant(p.matrices["F"])
    with tf.GradientTape() as outer:
        outer.watch(F)
        with tf.GradientTape() as tape:
            tape.watch(F)
            value = score(arguments_of(p) | {"F": F})
        gradient = tf.reduce_sum(tf.math.real(tape.gradient(value, F)))
    with pytest.raises(NotImplementedError, match="differentiable once"):
        outer.gradient(gradient, F)


@pytest.mark.parametrize(
    "what",
    long_except(["a likelihood", "a linearised model", "draws"], "draws"),
)
def test_is_a_gradient_refused_where_it_would_leave_a_part_out(what):
    """Where a model is linearised depends on factors, and so do draws: these have no gradient."""
    p = problem(1, 1)
    z, model = tf.constant(p.z), p.model()
    with tf.GradientTape() as tape:
        tape.watch(z)
        if what == "draws":
            found = statespace.posterior_sample(model, z, seed=1)
        elif what == "a likelihood":
            found = statespace.smooth(model, z, likelihood=StudentT(4.0)).smoothed_means
        else:
            model = statespace.NonlinearGaussian(
                *(lambda x: 0.9 * x, lambda x: x + 0.1 * x**2),
                *(model.Q, model.R, [0.0], [[1.0]]),
                jit_compile=False,
            )
            found = statespace.smooth(model, z, rule=statespace.Taylor()).smoothed_means
    with pytest.raises(NotImplementedError, match="differentiable"):
        tape.gradient(found, z)
