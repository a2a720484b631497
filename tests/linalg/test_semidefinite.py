import numpy as np
import pytest
import tensorflow as tf

from cgp.linalg import NotPositiveDefiniteError, cholesky, semidefinite_factor
from cgp.linalg.semidefinite import lower_triangular
from tests.linalg.problems import DTYPES, random
from tests.long_cases import long_except
from tests.reference import complex_normal as reference

N = 4


def complex_vector(rng, *shape):
    return random(rng, shape, complex)


def smooth(n, turn, dtype):
    """A squared-exponential covariance at points far too near each other, rotating if complex."""
    x = np.linspace(0.0, 1.0, n)
    gap = x[:, None] - x
    k = np.exp(-(gap**2) / 2)
    return (k * np.exp(1j * turn * gap)).astype(dtype) if turn else k.astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "graph"),
    long_except(
        [(dtype, graph) for dtype in DTYPES for graph in (False, True)],
        *[("complex128", False), ("float32", False)],
    ),
)
def test_a_matrix_singular_to_rounding_has_a_factor(dtype, graph):
    a = smooth(50, 3.0 if "complex" in dtype else 0.0, dtype)
    a = np.stack([a, np.eye(50, dtype=dtype)])  # one that needs the detour, one that does not
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(a)
    chol = (tf.function(semidefinite_factor) if graph else semidefinite_factor)(a).numpy()
    eps = np.finfo(a.real.dtype).eps
    np.testing.assert_allclose(chol @ np.swapaxes(chol.conj(), -1, -2), a, atol=10 * eps * 50)
    np.testing.assert_array_equal(np.triu(chol, 1), np.zeros_like(chol))
    diagonal = np.diagonal(chol, axis1=-2, axis2=-1)
    assert np.all(diagonal.real >= 0)
    assert np.all(diagonal.imag == 0)
    assert np.any(diagonal[0] == 0)
    np.testing.assert_array_equal(chol[1], np.eye(50))


def test_a_definite_matrix_has_its_cholesky_factor_and_gradient():
    k, _ = reference.random_pair(N, np.random.default_rng(18))
    weights = complex_vector(np.random.default_rng(19), N, N)
    results = []
    for factor in (semidefinite_factor, tf.function(semidefinite_factor), cholesky):
        a = tf.constant(k)
        with tf.GradientTape() as tape:
            tape.watch(a)
            chol = factor(a)
            y = tf.reduce_sum(tf.math.real(weights * chol))
        results.append((chol, tape.gradient(y, a)))
    for chol, gradient in results[:2]:
        np.testing.assert_allclose(chol, results[2][0], rtol=1e-12)
        np.testing.assert_allclose(gradient, results[2][1], atol=1e-12)


def test_the_factor_of_a_singular_matrix_has_no_gradient_and_says_so():
    a = tf.constant(np.stack([np.ones([3, 3]), np.eye(3)]).astype(complex))
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = tf.reduce_sum(tf.math.real(semidefinite_factor(a)))
    gradient = tape.gradient(y, a).numpy()
    assert np.all(np.isnan(gradient[0]))
    np.testing.assert_allclose(gradient[1], np.diag([0.5, 0.5, 0.5]), atol=1.0)
    assert np.all(np.isfinite(gradient[1]))


def test_a_matrix_indefinite_beyond_rounding_has_no_factor():
    a = smooth(20, 3.0, complex) - 1e-9 * np.eye(20)
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue is -1e-09"):
        semidefinite_factor(a)
    with pytest.raises(tf.errors.InvalidArgumentError, match="indefinite beyond rounding"):
        tf.function(semidefinite_factor)(a)
    assert np.all(np.isnan(tf.function(semidefinite_factor, jit_compile=True)(a)))


def test_rounding_may_be_relative_to_a_scale_that_cancelled():
    # A difference of two numbers near 1: 1e-10 remains, with errors of 1e-15.
    a = 1e-10 * smooth(20, 3.0, complex) - 1e-15 * np.eye(20)
    with pytest.raises(NotPositiveDefiniteError):
        semidefinite_factor(a)
    chol = semidefinite_factor(a, scale=20.0).numpy()
    np.testing.assert_allclose(chol @ chol.conj().T, a, atol=2e-13)


def test_a_root_of_low_rank_becomes_triangular():
    root = complex_vector(np.random.default_rng(20), 5, 5)
    root[:, 2:] = 0.0
    root[3] = 0.0
    chol = lower_triangular(tf.constant(root)).numpy()
    np.testing.assert_allclose(chol @ chol.conj().T, root @ root.conj().T, atol=1e-14)
    np.testing.assert_array_equal(np.triu(chol, 1), np.zeros([5, 5]))
    np.testing.assert_array_equal(np.diag(chol)[2:], np.zeros(3))
    assert np.all(np.diag(chol)[:2].real > 0)
    assert np.all(np.diag(chol).imag == 0)
