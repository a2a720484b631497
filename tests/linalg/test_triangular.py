import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp.linalg import cholesky, triangularize
from tests.linalg.problems import DTYPES, MODES, in_mode, is_single, random
from tests.long_cases import long_except
from tests.reference import linalg as reference


@pytest.mark.parametrize(
    "shape",
    [
        shape if shape in ((1, 4), (2, 3, 4, 6)) else pytest.param(shape, marks=pytest.mark.long)
        for shape in [(1, 1), (1, 4), (3, 3), (3, 7), (40, 41), (2, 3, 4, 6)]
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_the_product_kept(mode, dtype, shape):
    a = random(np.random.default_rng(0), shape, dtype)
    chol = in_mode(mode, triangularize)(a).numpy()
    assert chol.shape == (*shape[:-1], shape[-2])
    assert chol.dtype == dtype
    diagonal = np.diagonal(chol, axis1=-2, axis2=-1)
    assert np.array_equal(chol, np.tril(chol))
    assert np.all(diagonal.imag == 0)
    assert np.all(diagonal.real > 0)
    expected = reference.covariance_of(a)
    gap = np.linalg.norm((reference.covariance_of(chol) - expected).astype(complex))
    tolerance = 2e-6 if is_single(dtype) else 4e-15
    assert gap <= tolerance * np.linalg.norm(expected.astype(complex))


def test_is_a_small_row_kept_that_the_covariance_would_lose():
    # The second row differs from the first by 1e-9, whose square is below the rounding of a aᴴ.
    a = np.array([[1.0, 1j, 0.0], [1.0, 1j, 1e-9]])
    assert np.allclose(triangularize(a)[1, 1], 1e-9, rtol=1e-6)


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_a_matrix_of_lower_rank_taken(mode):
    a = np.array([[1.0, 2j, 0, 1], [2.0, 4j, 0, 2], [0, 0, 0, 0]])
    chol = in_mode(mode, triangularize)(a).numpy()
    assert np.allclose(chol @ chol.conj().T, a @ a.conj().T, atol=1e-14)
    assert np.all(np.diag(chol).real >= 0)


@pytest.mark.parametrize(
    "shape",
    [
        shape if shape in ((4, 7), (2, 3, 5)) else pytest.param(shape, marks=pytest.mark.long)
        for shape in [(1, 1), (1, 3), (3, 3), (4, 7), (2, 3, 5)]
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", long_except(["complex128", "float64"], "complex128"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_the_gradient_agree_with_central_differences(mode, dtype, shape):
    rng = np.random.default_rng(1)
    a, step = random(rng, shape, dtype), random(rng, shape, dtype)
    weight = random(rng, (*shape[:-1], shape[-2]), dtype)

    def loss(a):
        return tf.reduce_sum(tf.math.real(np.conj(weight) * triangularize(a)))

    def gradient(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            value = loss(a)
        return tape.gradient(value, a)

    result = in_mode(mode, gradient)(a).numpy()
    expected = reference.directional_derivative(lambda x: loss(x).numpy(), a, step, 1e-4)
    assert np.isclose(np.sum((result.conj() * step).real), expected, rtol=1e-8)


@pytest.mark.parametrize("graph", long_except([False, True], False))
def test_may_the_gradient_be_differentiated_again(graph):
    rng = np.random.default_rng(2)
    a, b, weight = (random(rng, (3, 5), "complex128") for _ in range(3))

    def slope(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            chol = triangularize(a + tf.cast(t, tf.complex128) * b)
            value = tf.reduce_sum(tf.abs(chol * weight[:, :3]) ** 2)
        return tape.gradient(value, t)

    f, t = tf.function(slope) if graph else slope, tf.constant(0.3, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(t)
        first = f(t)
    expected = reference.directional_derivative(
        lambda s: slope(tf.constant(s, tf.float64)).numpy(), 0.3, 1.0, 1e-4
    )
    assert np.isclose(tape.gradient(first, t), expected, rtol=1e-8)


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_is_it_the_cholesky_factor_and_blind_to_a_unitary_on_the_right(seed, n, extra):
    rng = np.random.default_rng(seed)
    a = random(rng, (n, n + extra), "complex128") + np.eye(n, n + extra) * 4
    chol = triangularize(a)
    assert np.allclose(chol, cholesky(a @ a.conj().T), atol=1e-9)
    unitary = np.linalg.qr(random(rng, (n + extra, n + extra), "complex128"))[0]
    assert np.allclose(chol, triangularize(a @ unitary), atol=1e-11)


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (np.ones((3, 2)), ValueError, r"m >= n, got shape \(3, 2\)"),
        (np.ones(3), ValueError, "must be a matrix"),
        (np.ones((2, 2), int), TypeError, "int64"),
        (np.full((2, 2), np.nan), ValueError, "NaN"),
        (np.full((2, 2), np.inf * 1j), ValueError, "infinite"),
    ],
)
def test_is_bad_input_refused(a, error, message):
    with pytest.raises(error, match=message):
        triangularize(a)
