"""Scans in parallel over time, against the loops and against the textbook."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from tests.long_cases import long_except
from tests.reference import kalman
from tests.statespace import nonlinear_problems
from tests.statespace.problems import (
    Problem,
    assert_factors,
    assert_filtered,
    assert_smoothed,
    improper_parts,
    is_double,
    problem,
)
from tests.statespace.test_filter import BATCHES, SINGULAR
from tests.statespace.test_gradients import (
    arguments_of,
    assert_gradients,
    reference_likelihood,
    singular,
    split,
    weights,
)

FILTERED = (
    "predicted_means",
    "predicted_chols",
    "filtered_means",
    "filtered_chols",
    "innovations",
    "innovation_covariances",
    "log_likelihoods",
    "log_likelihood",
)
SMOOTHED = ("smoothed_means", "smoothed_chols", "lag_one_covariances", "gains")


def assert_equal(found, expected, names, tolerance):
    for name in names:
        a, b = (np.asarray(getattr(result, name)) for result in (found, expected))
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        scale = np.nanmax(np.abs(b), initial=1.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=name)
        if name.endswith("chols"):
            assert_factors(a)


def assert_as_the_loop(model, z, tolerance=None, **given):
    """All results of all verbs."""
    if tolerance is None:
        tolerance = 1e-10 if is_double(z.dtype) else 1e-4
    found, expected = (
        statespace.filter(model, z, parallel=parallel, **given) for parallel in (True, False)
    )
    assert_equal(found, expected, FILTERED, tolerance)
    likelihood = statespace.log_likelihood(model, z, parallel=True, **given)
    np.testing.assert_allclose(likelihood, expected.log_likelihood, rtol=tolerance)
    found, expected = (
        statespace.smooth(model, z, parallel=parallel, **given) for parallel in (True, False)
    )
    assert_equal(found, expected, SMOOTHED, tolerance)


def assert_problem_as_the_loop(p, **tolerance):
    assert_as_the_loop(p.model(), p.z, inputs=p.inputs, **tolerance)


@pytest.mark.parametrize(
    ("n", "m", "setting"),
    [
        pytest.param(1, 1, {"dtype": "float64"}, marks=pytest.mark.long),
        (2, 3, {"varying": "FQHRB"}),
        pytest.param(3, 2, {"dtype": "complex64"}, marks=pytest.mark.long),
        pytest.param(5, 1, {"dtype": "float64", "varying": "FQHRB"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_do_a_scan_and_a_loop_find_the_same(n, m, setting):
    assert_problem_as_the_loop(problem(n, m, holes="own", inputs=2, **setting))


def test_are_the_moments_those_of_the_textbook():
    p = problem(3, 2, varying="FQHRB", holes="own", inputs=1)
    found = statespace.filter(p.model(), p.z, inputs=p.inputs, parallel=True)
    assert_filtered(found, p.expected(kalman.filter), p.z)
    dense = p.expected(kalman.joint_log_likelihood)
    np.testing.assert_allclose(found.log_likelihood, dense, rtol=1e-10)
    found = statespace.smooth(p.model(), p.z, inputs=p.inputs, parallel=True)
    assert_smoothed(found, p.expected(kalman.conditional_smoothed))


@pytest.mark.parametrize("steps", long_except([1, 2, 3, 7, 8, 501], 1, 7))
def test_may_a_series_have_any_length(steps):
    p = problem(2, 2, steps=max(steps, 14), varying="FH", holes="own")
    varying = {name: p.matrices[name][:steps] for name in "FH"}
    assert_problem_as_the_loop(Problem(p.matrices | varying, p.z[:steps]))


@pytest.mark.parametrize("name", long_except(BATCHES, "a varying model each"))
def test_is_a_batch_that_of_the_loop(name):
    assert_problem_as_the_loop(problem(2, 2, batch=4, inputs=1, **BATCHES[name]))


@pytest.mark.long
def test_may_a_batch_have_several_axes_and_one_series_several_models():
    p = problem(2, 2, batch=4, holes="own")
    assert_as_the_loop(p.model(), p.z.reshape(2, 2, *p.z.shape[1:]))
    p = problem(2, 2, batch=4, models=True)
    assert_as_the_loop(p.model(), p.z[0])


@pytest.mark.parametrize("name", long_except(SINGULAR, "Q of rank one", "R of rank one"))
def test_may_a_matrix_be_singular(name):
    p = problem(3, 2, holes="own").changed(**SINGULAR[name](np.random.default_rng(3)))
    # Without noise the way back is by the inverse of F, which magnifies at each step.
    assert_problem_as_the_loop(p, tolerance=1e-7 if name == "no Q" else 1e-10)


@pytest.mark.parametrize(
    "start",
    ["diffuse", pytest.param(1e-12 * np.eye(2), marks=pytest.mark.long)],
    ids=["diffuse", "all but certain"],
)
def test_may_a_start_be_wide_or_narrow(start):
    p = problem(2, 2, holes="own").changed(initial_covariance=start)
    assert_problem_as_the_loop(p, tolerance=1e-5 if isinstance(start, str) else 1e-10)


@pytest.mark.long
def test_may_a_mode_that_grows_be_observed():
    p = problem(2, 2, steps=300).changed(F=np.diag([1.3, 0.9j]), R=np.diag([1e-6, 1e2]) + 0j)
    assert_problem_as_the_loop(p, tolerance=1e-8)


def test_may_a_model_be_widely_linear():
    p = problem(2, 2, holes="own", inputs=1)
    matrices, parts = improper_parts(2, 2, k=1)
    model = statespace.widely_linear(p.changed(**matrices).model(), **parts)
    assert_as_the_loop(model, p.z, inputs=p.inputs)


@pytest.mark.parametrize(
    "rule",
    long_except(
        [statespace.Taylor(), statespace.Iterated(statespace.Taylor(), 2)], statespace.Taylor()
    ),
    ids=str,
)
def test_may_a_model_be_linearised(rule):
    p = nonlinear_problems.carrier()
    # In long tests under XLA, as by default of a model.
    model = p.model(jit_compile=rule != statespace.Taylor())
    assert_as_the_loop(model, p.z, rule=rule)


# --- gradients ------------------------------------------------------------------------------------


GRADIENTS = {
    "holes": lambda: problem(2, 2, holes="own"),
    "real": lambda: problem(2, 1, holes="own", dtype="float64"),
    "varying": lambda: problem(2, 3, holes="own", inputs=2, varying="FQHRB"),
    "a batch with holes": lambda: problem(2, 2, batch=4, holes="own", inputs=1),
    "a batch with one pattern": lambda: problem(2, 2, batch=4, holes="shared"),
    "a batch of varying models": lambda: problem(
        2, 2, batch=3, models=True, holes="own", varying="FQHR"
    ),
    "known start and singular Q": lambda: singular(
        problem(2, 2, holes="own"), initial_covariance=0, Q=1
    ),
    "singular R": lambda: singular(problem(2, 2, holes="own"), R=1),
    "one step": lambda: problem(2, 2, steps=1),
}


def gradients(p, score, parallel):
    tensors = {name: tf.constant(value) for name, value in arguments_of(p).items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        matrices, z, inputs = split(tensors)
        y = score(statespace.LinearGaussian(**matrices), z, inputs, parallel)
    return tape.gradient(y, tensors, unconnected_gradients="zero")


def likelihood_score(model, z, inputs, parallel):
    value = statespace.log_likelihood(model, z, inputs=inputs, parallel=parallel)
    return tf.reduce_sum(value * weights(len(value) if value.shape.rank else 0))


def moments_score(model, z, inputs, parallel):
    """Of covariances too, which are differentiable where factors are not."""
    found = statespace.filter(model, z, inputs=inputs, parallel=parallel)
    rng, total = np.random.default_rng(4), tf.reduce_sum(found.log_likelihoods)
    for value in (found.predicted_means, found.filtered_means, found.innovation_covariances):
        weight = tf.cast(tf.constant(rng.normal(size=value.shape)), value.dtype)
        total += tf.reduce_sum(tf.math.real(weight * value))
    return total


SCORED_TWICE = ["varying", "a batch of varying models", "singular R", "one step"]
BY_SCORE = [
    *itertools.product(SCORED_TWICE, [likelihood_score, moments_score]),
    ("holes", likelihood_score),
    ("a batch with one pattern", likelihood_score),
    ("real", moments_score),
    ("a batch with holes", moments_score),
    ("known start and singular Q", moments_score),
]


@pytest.mark.parametrize(("name", "score"), long_except(BY_SCORE, *BY_SCORE[:8]))
def test_is_the_gradient_that_of_the_loop(name, score):
    p = GRADIENTS[name]()
    found, expected = (gradients(p, score, parallel) for parallel in (True, False))
    for key, value in expected.items():
        scale = max(1.0, np.abs(value).max())
        np.testing.assert_allclose(found[key], value, rtol=0, atol=1e-10 * scale, err_msg=key)


def test_is_the_gradient_that_of_the_reference():
    def value(arguments):
        matrices, z, inputs = split(arguments)
        return likelihood_score(statespace.LinearGaussian(**matrices), z, inputs, True)

    assert_gradients(value, reference_likelihood, arguments_of(problem(2, 2, holes="own")))


def test_is_there_no_second_derivative():
    p = problem(2, 2)
    z = tf.constant(p.z)
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = statespace.log_likelihood(p.model(), z, parallel=True)
        gradient = tf.math.real(tape.gradient(y, z))
    with pytest.raises(NotImplementedError, match="differentiable once"):
        outer.gradient(gradient, z)


# --- graphs, and what is refused ------------------------------------------------------------------


@pytest.mark.long
def test_is_it_the_same_in_a_graph_of_any_batch():
    shared, own = (problem(2, 1, steps=3, batch=3, holes=holes) for holes in ("shared", "own"))

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 1], shared.z.dtype)])
    def traced(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = statespace.log_likelihood(shared.model(), z, parallel=True)
        found = statespace.smooth(shared.model(), z, parallel=True)
        return value, tape.gradient(value, z), found.smoothed_means, found.smoothed_chols

    for p in (shared, own):
        z = tf.constant(p.z)
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = statespace.log_likelihood(shared.model(), z)
        loop = statespace.smooth(shared.model(), z)
        expected = (value, tape.gradient(value, z), loop.smoothed_means, loop.smoothed_chols)
        for a, b in zip(traced(z), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.long
def test_is_the_likelihood_the_same_in_a_graph():
    p = problem(1, 1, steps=2)
    found = tf.function(lambda z: statespace.log_likelihood(p.model(), z, parallel=True))(p.z)
    np.testing.assert_allclose(found, p.log_likelihood(), rtol=1e-12)


WITHOUT_NOISE = {
    "neither": {"Q": np.zeros((3, 3)), "R": np.zeros((2, 2))},
    "one of each": {"Q": np.diag([0.0, 1.0, 1.0]), "H": np.eye(2, 3), "R": np.diag([0.0, 1.0])},
}


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_is_what_tells_the_state_before_exactly_refused(name):
    p = problem(3, 2).changed(**WITHOUT_NOISE[name])
    for verb in (statespace.filter, statespace.log_likelihood, statespace.smooth):
        with pytest.raises(ValueError, match="without noise of what the process noise does not"):
            verb(p.model(), p.z, parallel=True)


@pytest.mark.long
def test_is_it_not_a_number_in_a_graph():
    p = problem(3, 2, steps=3).changed(**WITHOUT_NOISE["neither"])
    value = tf.function(lambda z: statespace.log_likelihood(p.model(), z, parallel=True))
    assert np.isnan(value(tf.constant(p.z)))


def test_does_a_missing_element_tell_nothing_of_the_state_before():
    p = problem(3, 2).changed(**WITHOUT_NOISE["one of each"])
    p.z[1:, 0] = np.nan  # the first step is an update of the prior
    assert_problem_as_the_loop(p)


def test_is_an_unknown_length_refused_in_a_graph():
    p = problem(2, 1)
    signature = [tf.TensorSpec([None, 1], p.z.dtype)]
    value = tf.function(
        lambda z: statespace.log_likelihood(p.model(), z, parallel=True),
        input_signature=signature,
    )
    with pytest.raises(ValueError, match="needs the length of the series"):
        value(tf.constant(p.z))
