"""Toeplitz matrices against SciPy's dense ones, by the core and by TensorFlow."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import tensorflow as tf

import cgp
from cgp.linalg import toeplitz
from cgp.linalg.cholesky import nan_where_indefinite

N = 60
LAGS = 0.1 * np.arange(N)


def column(name, noise=1e-3):
    turned = {
        "smooth": np.exp(-0.5 * LAGS**2) * np.exp(0.6j * np.pi * LAGS),
        "fading": scipy.special.j0(2.0 * np.pi * LAGS) + 0j,
        "Markov": np.exp(-(1 + 2j) * LAGS),
        "white": (LAGS == 0) + 0j,
        # Reflections vanish before they come back.
        "echo": (LAGS == 0) + 0.4j * (np.arange(N) == 40) * np.exp(1j),
    }[name]
    return turned + noise * (LAGS == 0)


COLUMNS = pytest.mark.parametrize("name", ["smooth", "fading", "Markov", "white", "echo"])
PATHS = pytest.mark.parametrize("path", [lambda f: f, tf.function], ids=["eager", "graph"])


def vectors(count=3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, N)) + 1j * rng.normal(size=(count, N))


def close(found, wanted, tolerance=1e-10):
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@PATHS
@COLUMNS
def test_is_the_factor_that_of_the_dense_matrix(name, path):
    t, b = column(name), vectors()
    K = scipy.linalg.toeplitz(t)
    L = np.linalg.cholesky(K)
    factor = path(toeplitz.factorize)(tf.constant(t), tf.constant(b @ L.T))
    assert factor.log_det.numpy() == pytest.approx(np.linalg.slogdet(K)[1], abs=1e-9)
    close(factor.white, b)
    close(factor.inverse_column, np.linalg.inv(K)[:, 0])


@PATHS
@COLUMNS
def test_is_the_inverse_that_of_its_first_column(name, path):
    t, b = column(name), vectors()
    P = np.linalg.inv(scipy.linalg.toeplitz(t))
    g, rows = tf.constant(P[:, 0]), np.array([0, 7, 8, N - 1], np.int32)
    block = P[np.ix_(rows, rows)]
    close(path(toeplitz.inverse_block)(g, tf.constant(rows)), block)
    L = np.linalg.cholesky(block)
    white = path(toeplitz.white_inverse_rows)(g, tf.constant(rows), tf.constant(L))
    close(white, np.linalg.solve(L, P[rows]))
    close(path(toeplitz.inverse_times)(g, tf.constant(b)), b @ P.T)
    sums = [np.trace(P, -d) for d in range(N)]
    close(path(toeplitz.diagonal_sums)(g), np.array(sums))
    no_rows, no_factor = tf.zeros([0], tf.int32), tf.zeros([0, 0], g.dtype)
    assert toeplitz.inverse_block(g, no_rows).shape == (0, 0)
    assert toeplitz.white_inverse_rows(g, no_rows, no_factor).shape == (0, N)


def test_are_products_and_correlations_those_of_their_sums():
    t, (a, b) = column("smooth"), vectors(2)
    close(toeplitz.times(t, vectors()), vectors() @ scipy.linalg.toeplitz(t).T, 1e-14)
    sums = [np.sum(a[d:] * np.conj(b[: N - d])) for d in range(N)]
    close(toeplitz.correlation(a, b), np.array(sums), 1e-14)


def test_is_a_series_settled_to_rounding_the_same():
    # An autoregression of order one, from whose third column on the predictor stays as it is.
    t = 0.9 ** np.arange(3000) * np.exp(0.3j * np.arange(3000)) / 0.19
    z = np.exp(1j * np.arange(3000.0) ** 2)[None]
    factor = toeplitz.factorize(t, z)
    assert float(factor.log_det) == pytest.approx(-np.log(0.19), abs=1e-9)
    innovations = z[0, 1:] - 0.9 * np.exp(0.3j) * z[0, :-1]
    close(factor.white[0, 1:], innovations, 1e-12)


@pytest.mark.parametrize("t", [[1.0, 1.2j], [0.0, 0.0], [-1.0, 0.0], [1.0, np.nan]])
def test_is_a_matrix_that_is_no_covariance_told(t):
    t, b = np.array(t, complex), np.ones((1, 2), complex)
    with pytest.raises(cgp.NotPositiveDefiniteError, match="regular line"):
        toeplitz.factorize(t, b)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(toeplitz.factorize)(tf.constant(t), tf.constant(b))
    with nan_where_indefinite():
        factor = toeplitz.factorize(t, b)
    assert np.isnan(factor.log_det)
    assert np.isnan(factor.white).all()


def test_has_the_factor_no_silent_gradient():
    t, b = tf.constant(column("smooth")), tf.constant(vectors())
    with tf.GradientTape() as tape:
        tape.watch(t)
        white = toeplitz.factorize(t, b).white
    with pytest.raises(LookupError, match="no gradient"):
        tape.gradient(white, t)
