"""The compiled Kalman filter gives what that of TensorFlow gives, which these take as known."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import native, statespace
from cgp.statespace.engines import differentiable_filter, native_engine
from cgp.statespace.engines.backward_pass import DIFFERENTIABLE
from cgp.statespace.series import Series
from tests.linalg.problems import random
from tests.long_cases import long_except
from tests.statespace.problems import Problem, assert_same, is_double, problem

pytestmark = pytest.mark.skipif(native.core().ops is None, reason=native.core().reason)

DTYPES = ["complex128", "complex64", "float64", "float32"]
EVERY = "FQHR"


@pytest.fixture(autouse=True)
def results(monkeypatch):
    """What the ops returned, None where they refused, in the order of the calls."""
    found = []

    def note(name):
        function = getattr(native_engine, name)

        def noted(*arguments):
            found.append(function(*arguments))
            return found[-1]

        monkeypatch.setattr(native_engine, name, noted)

    note("_run")
    note("_pullback")
    return found


def arranged(given):
    return Series(given.model(), given.z, inputs=given.inputs).arranged()


def inputs_of(arranged):
    return [getattr(arranged, name) for name in (*DIFFERENTIABLE, "mean", "covariance")]


def likelihood_and_gradients(arranged, by_moments=False):
    """By the moments: the same programs serve both as a reference, and compile once."""
    inputs = inputs_of(arranged)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        if by_moments:
            found = differentiable_filter.moments(arranged)
            value = tf.reduce_sum(found.log_likelihoods, axis=-1)
        else:
            value = differentiable_filter.log_likelihood(arranged)
        # A different weight for each series.
        total = tf.reduce_sum(
            value * np.arange(1.0, value.shape[0] + 1).astype(value.numpy().dtype)
        )
    return value, tape.gradient(total, inputs)


def moments_and_gradients(arranged):
    inputs = inputs_of(arranged)
    rng = np.random.default_rng(5)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = differentiable_filter.moments(arranged)
        total = sum(
            tf.reduce_sum(tf.math.real(random(rng, value.shape, value.dtype.name) * value))
            for value in found[:5]
        )
    return found, tape.gradient(total, inputs)


def assert_equivalent(given, results, without_core, moments=True):
    series = arranged(given)
    dtype = series.F.dtype.as_numpy_dtype
    for function in (likelihood_and_gradients, *[moments_and_gradients] * moments):
        value, gradients = function(series)
        assert len(results) == 2
        assert None not in results
        by_moments = [True] * (function is likelihood_and_gradients)
        expected, expected_gradients = without_core(function, series, *by_moments)
        assert len(results) == 2
        results.clear()
        values = (value, expected) if isinstance(value, tuple) else ([value], [expected])
        assert_same(*values, dtype, 1e-13)
        assert_same(gradients, expected_gradients, dtype, 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 4, 9, 17])  # unrolled up to 4; 3 and 5 are below
def test_one_series(n, results, without_core):
    given = problem(n, 1 + n % 3, "complex128")
    assert_equivalent(given, results, without_core, moments=n < 3)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 5])
def test_one_series_of_every_dtype(n, dtype, results, without_core):
    moments = n == 3 and dtype in ("complex128", "float32")
    assert_equivalent(problem(n, 1, dtype), results, without_core, moments)


@pytest.mark.parametrize(
    ("dtype", "batch"),
    long_except([("complex128", 5), *((dtype, 21) for dtype in DTYPES)], ("complex128", 21)),
)
def test_series_that_share_covariances(dtype, batch, results, without_core):
    given = problem(3, 2, dtype, batch=batch, holes="shared", inputs=1)
    assert_equivalent(given, results, without_core, moments=is_double(dtype))


@pytest.mark.parametrize(
    ("m", "models", "varying", "dtype"),
    [
        (*kind, dtype)
        if dtype == "complex128" and kind[1]
        else pytest.param(*kind, dtype, marks=pytest.mark.long)
        for kind in [(1, False, ""), (2, True, EVERY)]
        for dtype in DTYPES
    ],
)
def test_series_with_covariances_of_their_own(m, models, varying, dtype, results, without_core):
    kinds = {"varying": varying, "models": models, "holes": "own", "inputs": 2}
    given = problem(3, m, dtype, batch=19, **kinds)
    assert_equivalent(given, results, without_core, moments=is_double(dtype))


@pytest.mark.long
@pytest.mark.parametrize(
    ("varying", "batch"),
    [("F", None), ("QR", None), ("H", 5), ("FQHRB", None), ("FQHRB", 5)],
)
def test_matrices_that_vary(varying, batch, results, without_core):
    kinds = {"batch": batch, "varying": varying, "holes": "shared", "inputs": 1}
    given = problem(3, 3, "complex128", **kinds)
    assert_equivalent(given, results, without_core, moments=batch is None)


@pytest.mark.long
def test_one_step(results, without_core):
    assert_equivalent(problem(2, 2, steps=1, batch=3), results, without_core)


@pytest.mark.long
@pytest.mark.parametrize("name", ["Q", "R", "initial_covariance"])
def test_singular_covariances(name, results, without_core):
    given = problem(3, 2)
    given = given.changed(**{name: np.zeros_like(given.matrices[name])})
    assert_equivalent(given, results, without_core)


@pytest.mark.parametrize("columns", long_except([1, 5], 1))
def test_noise_of_low_rank_and_of_more_columns_than_states(columns, results, without_core):
    factor = random(np.random.default_rng(3), (3, columns), "complex128")
    series = arranged(problem(3, 1))._replace(
        Q_factor=tf.constant(factor), Q=tf.constant(factor @ factor.conj().T)
    )
    found = likelihood_and_gradients(series)
    expected = without_core(likelihood_and_gradients, series)
    assert None not in results[:2]
    assert_same([found[0], *found[1]], [expected[0], *expected[1]], "complex128", 1e-12)


@pytest.mark.parametrize("z", [[1.0, 1.0], [1.0, 2.0]])
def test_observations_that_are_certain(z, without_core):
    """They agree, or the likelihood is zero."""
    model = statespace.LinearGaussian([[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.0], [[1.0]])
    value = statespace.log_likelihood(model, z)
    assert value == without_core(statespace.log_likelihood, model, z)
    assert np.isfinite(value) == (z[0] == z[1])


def test_single_precision_where_a_covariance_form_fails(without_core):
    model = statespace.LinearGaussian(
        *(np.array(a, "complex64") for a in ([[1, 0.1], [0, 1]], np.zeros((2, 2)), [[1, 0]])),
        np.array([[1e-12]], "complex64"),
        initial_covariance=1e6 * np.eye(2, dtype="complex64"),
    )
    z = np.zeros(30, "complex64")
    value = statespace.log_likelihood(model, z)
    expected = without_core(statespace.log_likelihood, model, z)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    double = model.replace(F=np.asarray(model.F, "complex128"))
    np.testing.assert_allclose(value, statespace.log_likelihood(double, z), rtol=5e-3)


@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("holes", ["shared", ""])  # without any, covariances settle
def test_is_single_precision_computed_in_double(batch, holes, results):
    given = problem(3, 2, "complex64", batch=batch, steps=300, holes=holes)
    model, z = given.model(), given.z
    names = ("F", "Q", "H", "R", "initial_mean", "initial_covariance")
    matrices = {name: np.complex128(getattr(model, name)) for name in names}
    for name in ("Q", "R", "initial_covariance"):  # Hermitian to single precision
        matrices[name] = (matrices[name] + np.conj(np.swapaxes(matrices[name], -1, -2))) / 2
    exact = model.replace(**matrices)
    value = statespace.log_likelihood(model, z).numpy()
    assert value.dtype == np.float32
    expected = statespace.log_likelihood(exact, np.complex128(z)).numpy()
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert len(results) == 2
    moments, of_double = statespace.filter(model, z), statespace.filter(exact, np.complex128(z))
    for name in ("filtered_means", "filtered_chols"):
        a, b = (getattr(found, name).numpy() for found in (moments, of_double))
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * np.abs(b).max())


@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_are_gradients_of_single_precision_those_of_double(dtype, results):
    series = arranged(problem(3, 1, dtype))
    exact = arranged(problem(3, 1, "complex128" if dtype == "complex64" else "float64"))
    for function in (likelihood_and_gradients, moments_and_gradients):
        for a, b in zip(*(function(given)[1] for given in (series, exact)), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * (1 + np.abs(b).max()))
    assert len(results) == 8
    assert None not in results


@pytest.mark.parametrize("batch", [None, 5])
def test_is_a_certain_prediction_met_to_the_rounding_of_what_came(batch, results):
    """Of single precision, though it is computed in double."""
    F = np.array([[np.exp(0.3j)]], np.complex64)
    zero, start = np.zeros((1, 1), np.complex64), np.array([0.7 + 0.2j], np.complex64)
    model = statespace.LinearGaussian(
        F, zero, np.ones((1, 1), np.complex64), zero, start, initial_covariance=zero
    )
    z = np.exp(0.3j * np.arange(40)) * (0.7 + 0.2j)
    z = z.astype(np.complex64)[:, None]
    z = z if batch is None else np.stack([z] * batch)
    np.testing.assert_array_equal(statespace.log_likelihood(model, z), 0.0)
    assert len(results) == 1


def walk(F):
    """Nothing of its state is seen."""
    return statespace.LinearGaussian(F, [[1.0]], [[0.0]], [[1.0]], [0.0], [[1.0]])


def test_is_an_overflow_reported_as_without_the_core(without_core):
    model = walk([[1e3]])
    for function in (statespace.log_likelihood, statespace.filter):
        messages = []
        for call in (lambda f, *a: f(*a), without_core):
            with pytest.raises(ValueError, match="overflows at step") as caught:
                call(function, model, np.ones(200))
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_is_an_overflow_of_single_precision_reported_though_double_holds_it(without_core):
    single = [np.array(a, np.float32) for a in ([[1e3]], [[1.0]], [[0.0]], [[1.0]], [0.0], [[1.0]])]
    model = statespace.LinearGaussian(*single)
    messages = []
    for call in (lambda f, *a: f(*a), without_core):
        with pytest.raises(ValueError, match="overflows at step") as caught:
            call(statespace.filter, model, np.ones(20, np.float32))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("function", [statespace.filter, statespace.smooth])
def test_is_an_overflow_of_a_mean_of_single_precision_reported(function, without_core):
    arrays = [np.array(a, np.float32) for a in ([[0.9]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])]
    model = statespace.LinearGaussian(*arrays, B=np.array([[1.0]], np.float32))
    z, inputs = np.full((5, 1), np.nan, np.float32), np.full((5, 1), 3e38, np.float32)
    for call in (lambda f, *a: f(*a), without_core):
        with pytest.raises(ValueError, match="the mean of the state overflows at step 2"):
            call(lambda: function(model, z, inputs=inputs))


def test_a_graph_takes_the_other_path(results):
    given = problem(2, 1)
    model = given.model()
    eager = statespace.log_likelihood(model, given.z)
    traced = tf.function(statespace.log_likelihood)(model, tf.constant(given.z))
    assert len(results) == 1
    assert results[0] is not None
    np.testing.assert_allclose(traced, eager, rtol=1e-13)


@pytest.mark.parametrize("holes", ["shared", "own"])
@pytest.mark.parametrize(("m", "by_moments"), [(1, False), (1, True), (2, False)])
def test_a_graph_of_a_training_step_takes_the_ops(holes, m, by_moments, results):
    """Whether series share their covariances is known when it runs."""
    model = problem(2, m, inputs=1, batch=3).model()

    def value(F, z, u):
        if by_moments:
            return statespace.filter(model.replace(F=F), z, inputs=u).log_likelihood
        return statespace.log_likelihood(model.replace(F=F), z, inputs=u)

    def value_and_gradients(F, z, u):
        with native.own_graph(), tf.GradientTape() as tape:
            tape.watch([F, z])
            found = value(F, z, u)
        return found, *tape.gradient(found, [F, z])

    def shape(*own):
        return tf.TensorSpec(own, tf.complex128)

    unknown = [shape(2, 2), shape(None, None, m), shape(None, None, 1)]
    traced = tf.function(value_and_gradients, input_signature=unknown, autograph=False)
    traced.get_concrete_function()
    # Once for series that share covariances, once for others; where noise is correlated, what is
    # missing makes their matrices differ, and they share nothing.
    assert len(results) == (4 if m == 1 else 2)
    results.clear()
    for steps, batch in ((14, 3), (9, 1), (5, 4)):
        given = problem(2, m, inputs=1, batch=batch, steps=steps, holes=holes)
        arguments = tuple(map(tf.constant, (given.matrices["F"], given.z, given.inputs)))
        expected = value_and_gradients(*arguments)
        assert_same(traced(*arguments), expected, "complex128", 1e-12)
    assert len(results) == 6
    assert None not in results


def test_a_function_traced_in_a_training_step_takes_the_other_path(results):
    """It may be compiled by XLA, and is kept."""
    model, z = problem(2, 1).model(), tf.constant(problem(2, 1).z)

    def value(z):
        return statespace.log_likelihood(model, z)

    inner = tf.function(value, jit_compile=True, autograph=False)

    @tf.function(autograph=False)
    def step(z, twice):
        with native.own_graph():
            return inner(z) + tf.cond(twice, lambda: value(z), lambda: tf.zeros([], tf.float64))

    expected = 2.0 * value(z)
    results.clear()
    np.testing.assert_allclose(step(z, tf.constant(True)), expected, rtol=1e-12)
    assert len(results) == 1  # in the branch, which is a part of the graph


def test_what_is_not_finite_in_a_graph_is_found_as_it_is():
    def chols(F, is_own):
        with native.own_graph(is_own):
            return statespace.filter(walk(F), np.ones(200)).predicted_chols

    finite = []
    for is_own in (True, False):
        found = tf.function(chols, autograph=False)(tf.constant([[1e3]], tf.float64), is_own)
        finite.append(np.isfinite(found))
    assert 0 < finite[0].sum() < 200
    np.testing.assert_array_equal(*finite)


def test_is_a_second_derivative_an_error(results):
    given = problem(2, 1)
    F = tf.constant(given.matrices["F"])
    with tf.GradientTape() as outer:
        outer.watch(F)
        with tf.GradientTape() as inner:
            inner.watch(F)
            value = statespace.log_likelihood(given.model().replace(F=F), given.z)
        gradient = inner.gradient(value, F)
    assert None not in results
    with pytest.raises(NotImplementedError, match="differentiable once"):
        outer.gradient(gradient, F)


@pytest.mark.parametrize(
    ("n", "batch"), long_except([(2, None), (2, 9), (5, None), (5, 9)], (2, 9))
)
def test_covariances_that_have_settled(batch, n, results, without_core):
    """They are not computed again, and nothing shows it."""
    given = problem(n, 1, batch=batch, steps=700)
    series = arranged(given)
    found = likelihood_and_gradients(series)
    assert None not in results
    expected = without_core(likelihood_and_gradients, series)
    assert_same([found[0]], [expected[0]], "complex128", 1e-13)
    assert_same(found[1], expected[1], "complex128", 1e-11)


@pytest.mark.parametrize(
    ("radius", "size"),
    [
        (0.3, {"n": 2, "m": 1, "batch": 9, "steps": 700}),  # as above, compiled once
        *(
            pytest.param(radius, {"n": 3, "m": 2, "steps": 900}, marks=pytest.mark.long)
            for radius in (0.3, 0.98, 0.9999, 1.0)
        ),
    ],
    ids=str,
)
def test_gradients_where_the_past_is_forgotten_fast_slowly_or_never(
    radius, size, results, without_core
):
    """By the sum of all settled steps at once, or by one step after the other."""
    given = problem(**size)
    F = given.matrices["F"] * (radius / 0.9)
    given = given.changed(F=F, Q=1e-6 * given.matrices["Q"], H=0.1 * given.matrices["H"])
    series = arranged(given)
    found = likelihood_and_gradients(series)
    assert None not in results
    expected = without_core(likelihood_and_gradients, series)
    assert_same(found[1], expected[1], "complex128", 1e-11)


@pytest.mark.parametrize("link", long_except([1e-9, 1e-5, 1.0], 1e-5))
@pytest.mark.parametrize("n", long_except([2, 3], 3))
def test_gradients_along_a_delay_line_in_any_units(n, link, results, without_core):
    """Powers of its transition are small at once, or zero, and reach each element all the same."""
    units = link ** -np.arange(n)
    size = np.diag(units**2)
    matrices = {
        "F": np.diag(np.full(n - 1, link), 1),
        "Q": size,
        "H": np.eye(1, n),
        "R": np.eye(1),
        "initial_mean": np.zeros(n),
        "initial_covariance": size,
    }
    series = arranged(Problem(matrices, np.sin(np.arange(600.0))[:, None]))
    found = likelihood_and_gradients(series)[1][1].numpy()
    assert None not in results
    expected = without_core(likelihood_and_gradients, series)[1][1].numpy()
    # Each element in its own units.
    scale = units[:, None] * units
    np.testing.assert_allclose(found * scale, expected * scale, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_gradients_of_settled_covariances_of_each_series(results, without_core):
    series = arranged(problem(2, 2, batch=9, models=True, steps=700))
    found = likelihood_and_gradients(series)
    assert None not in results
    expected = without_core(likelihood_and_gradients, series)
    assert_same(found[1], expected[1], "complex128", 1e-11)


def test_do_covariances_that_change_slowly_not_count_as_settled(without_core):
    walk = statespace.LinearGaussian([[1.0]], [[1e-14]], [[1.0]], [[1.0]], [0.0], [[1e-7]])
    z = np.random.default_rng(4).normal(size=5000)
    value, expected = (
        call(statespace.log_likelihood, walk, z) for call in (lambda f, *a: f(*a), without_core)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("batch", [None, 40])
def test_many_steps_on_threads(batch, results, without_core):
    given = problem(4, 1, batch=batch, steps=300, holes="own" if batch else "")
    series = arranged(given)
    found = likelihood_and_gradients(series)
    again = likelihood_and_gradients(series)
    assert None not in results
    for a, b in zip([found[0], *found[1]], [again[0], *again[1]], strict=True):
        np.testing.assert_array_equal(a, b)
    expected = without_core(likelihood_and_gradients, series)
    assert_same([found[0], *found[1]], [expected[0], *expected[1]], "complex128", 1e-11)


def test_is_a_start_whose_factor_is_not_triangular_left_to_tensorflow(results, without_core):
    series = arranged(problem(2, 1))
    root = np.linalg.cholesky(series.covariance)[::-1, ::-1]  # upper triangular
    covariance = root @ root.conj().swapaxes(0, 1)
    series = series._replace(covariance=tf.constant(covariance), chol=tf.constant(root))
    value = differentiable_filter.log_likelihood(series)
    assert results == [None]
    np.testing.assert_allclose(
        value, without_core(differentiable_filter.log_likelihood, series), rtol=1e-13
    )
