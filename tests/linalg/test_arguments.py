import numpy as np
import pytest
import tensorflow as tf

from cgp.linalg import cholesky, triangularize
from cgp.linalg.arguments import squared_modulus
from tests.linalg.problems import DTYPES, MODES, in_mode, random


@pytest.mark.parametrize("at", [0.0, 0.7])
@pytest.mark.parametrize("mode", MODES)
def test_has_the_squared_modulus_its_second_derivative_at_zero_too(mode, at):
    def second(t):
        with tf.GradientTape() as outer:
            outer.watch(t)
            with tf.GradientTape() as inner:
                inner.watch(t)
                value = squared_modulus(tf.complex(t, 2.0 * t))
            first = inner.gradient(value, t)
        return first, outer.gradient(first, t)

    first, curvature = in_mode(mode, second)(at)
    assert np.isclose(first, 10 * at, rtol=1e-14)
    assert np.isclose(curvature, 10, rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_squared_modulus_real(dtype):
    z = random(np.random.default_rng(0), (3,), dtype)
    found = squared_modulus(tf.constant(z))
    assert found.dtype == tf.as_dtype(dtype).real_dtype
    assert np.allclose(found, np.abs(z) ** 2, rtol=1e-6)


def test_are_finite_numbers_finite_whose_sum_or_modulus_is_not():
    a = np.diag([1e308, 1e308]) + 0j
    assert np.allclose(np.diag(cholesky(a)), np.sqrt(1e308))
    for bad in (np.nan, np.inf, 1j * np.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            cholesky(a + np.diag([bad, 0]))
        with pytest.raises(ValueError, match="NaN or infinite"):
            triangularize(a + np.diag([bad, 0]))


def test_is_one_matrix_of_a_batch_not_excused_by_another():
    batch = np.stack([1e14 * np.eye(2, dtype=complex), np.array([[1.0, 0.5j], [0.5j, 1.0]])])
    with pytest.raises(ValueError, match="not Hermitian"):
        cholesky(batch)
