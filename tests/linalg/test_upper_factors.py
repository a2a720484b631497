"""An upper factor, SciPy's and MATLAB's by default, is never taken for a lower one."""

import inspect

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import cgp
from cgp import linalg, statespace
from cgp.linalg.arguments import is_lower_triangular

A = np.array([[4.0, 1.0 + 1.0j], [1.0 - 1.0j, 3.0]])
V = np.array([1.0, 1.0j])
LOWER = np.linalg.cholesky(A)
UPPER = scipy.linalg.cholesky(A)
MEAN = np.zeros(2, complex)


def model():
    return statespace.LinearGaussian(0.5 * np.eye(2) + 0j, np.eye(2), [[1.0, 0.0]], [[1.0]])


def process():
    return cgp.RecursiveGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1, capacity=2)


def bank_state(chol):
    size = chol.shape[-1]
    return np.int32(2), np.zeros((size, 1)), np.zeros(size, complex), np.zeros(size), chol


DOORS = {
    "cholesky_update": lambda chol: linalg.cholesky_update(chol, V),
    "cholesky_condition": lambda chol: linalg.cholesky_condition(chol, V, 0.5).chol,
    "cholesky_append": lambda chol: linalg.cholesky_append(chol, V, 9.0),
    "cholesky_append, buffer": lambda chol: linalg.cholesky_append(
        scipy.linalg.block_diag(chol, 1.0), np.append(V, 0.0), 9.0, size=2
    ),
    "cholesky_remove": lambda chol: linalg.cholesky_remove(chol, 0),
    "cholesky_remove, buffer": lambda chol: linalg.cholesky_remove(
        scipy.linalg.block_diag(chol, 1.0), 0, size=2
    ),
    "solve": lambda chol: linalg.solve(chol, V[:, None]),
    "inverse": linalg.inverse,
    "log_det": linalg.log_det,
    "stored_cholesky": lambda chol: linalg.stored_cholesky(chol, A),
    "ComplexNormal": lambda chol: cgp.ComplexNormal(MEAN, chol).covariance(),
    "statespace.step": lambda chol: statespace.step(model(), (MEAN, chol), 1j)[0].chol,
    "KalmanFilter.set_state": lambda chol: cgp.KalmanFilter(model()).set_state(MEAN, chol),
    "Bank.set_state": lambda chol: cgp.Bank(cgp.KalmanFilter(model())).set_state(
        ["a"], (MEAN, chol)
    ),
    "Bank.set_state, windows": lambda chol: cgp.Bank(process()).set_state(["a"], bank_state(chol)),
}


def test_is_there_a_door_for_every_function_of_a_factor():
    takes = {
        name
        for name in linalg.__all__
        if callable(getattr(linalg, name))
        and not isinstance(getattr(linalg, name), type)
        and "chol" in inspect.signature(getattr(linalg, name)).parameters
    }
    assert takes <= set(DOORS)


@pytest.mark.parametrize("door", DOORS)
def test_is_an_upper_factor_refused_and_its_adjoint_taken(door):
    with pytest.raises(ValueError, match=r"upper triangular, as scipy.*np\.conj\(chol\)\.T"):
        DOORS[door](UPPER)
    expected, result = DOORS[door](LOWER), DOORS[door](np.conj(UPPER).T)
    if expected is not None:
        np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("door", DOORS)
def test_is_a_covariance_in_place_of_its_factor_refused(door):
    with pytest.raises(ValueError, match=r"is Hermitian.*cgp\.linalg\.cholesky\(a\)"):
        DOORS[door](A)
    DOORS[door](linalg.cholesky(A))


@pytest.mark.parametrize("lower", [False, True])
def test_is_the_other_triangle_of_cho_factor_refused(lower):
    a = A + 0.5 * np.diag([0.0, 1.0])
    factor = scipy.linalg.cho_factor(a, lower=lower)[0]
    factor[(0, 1) if lower else (1, 0)] = 7.0  # SciPy leaves there what it likes
    with pytest.raises(ValueError, match=r"both sides of its diagonal.*np\.tril\(chol\)"):
        linalg.solve(factor, V[:, None])
    if lower:
        result = linalg.solve(np.tril(factor), V[:, None])
        np.testing.assert_allclose(result[:, 0], np.linalg.solve(a, V), rtol=1e-13)


def test_does_the_remedy_for_a_batch_work():
    with pytest.raises(ValueError, match=r"np\.conj\(np\.swapaxes\(chol, -1, -2\)\)"):
        linalg.cholesky_update(np.stack([UPPER, 2 * UPPER]), V)
    result = linalg.cholesky_update(np.conj(np.swapaxes(np.stack([UPPER, 2 * UPPER]), -1, -2)), V)
    for scale, new in zip((1.0, 2.0), result.numpy(), strict=True):
        expected = scale**2 * A + np.outer(V, V.conj())
        np.testing.assert_allclose(new @ new.conj().T, expected, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 127, 128, 129, 300])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_is_every_element_above_the_diagonal_looked_at(n, dtype):
    a = np.tril(np.ones((2, n, n), dtype))
    assert is_lower_triangular(a)
    assert is_lower_triangular(np.conj(a) - 0 * np.triu(a, 1))  # with zeros of either sign
    places = np.stack(np.triu_indices(n, 1), axis=-1)
    for i, j in places[:: max(1, len(places) // 500)]:
        for value in (1e-30, np.nan):
            a[1, i, j] = value
            assert not is_lower_triangular(a)
            a[1, i, j] = 0.0


def test_is_what_these_functions_return_known_to_be_lower():
    chol = tf.constant(LOWER)
    for new in (
        linalg.cholesky(A),
        linalg.cholesky_update(chol, V),
        linalg.cholesky_condition(chol, V, 0.5).chol,
        linalg.cholesky_append(chol, V, 9.0),
        linalg.cholesky_remove(chol, 0),
    ):
        assert "_cgp_is_lower_triangular" in vars(new)
        np.testing.assert_array_equal(np.triu(new, 1), 0.0 * np.asarray(new))
    assert "_cgp_is_lower_triangular" not in vars(tf.transpose(linalg.cholesky(A)))
