import numpy as np
import pytest
import tensorflow as tf

from cgp.linalg import inverse
from cgp.linalg.cholesky import triangular_inverse
from tests.linalg.problems import DTYPES, MODES, in_mode, is_single, random_chol
from tests.long_cases import long_except


@pytest.mark.parametrize("n", long_except([1, 5, 127, 129, 300, 517], 5, 129))
@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_inverse_that_of_the_matrix(dtype, n):
    chol = random_chol(np.random.default_rng(n), n, dtype, (2,) if n < 300 else ())
    triangle = chol.astype(complex)
    a = triangle @ np.conj(np.swapaxes(triangle, -1, -2))
    tolerance = (1e-5 if is_single(dtype) else 1e-13) * np.linalg.cond(triangle).max() ** 2
    for result, of in ((inverse(chol), a), (triangular_inverse(tf.constant(chol)), triangle)):
        assert result.dtype == dtype
        expected = np.linalg.inv(of)
        assert np.linalg.norm(result.numpy() - expected) <= tolerance * np.linalg.norm(expected)
    lower = triangular_inverse(tf.constant(chol)).numpy()
    assert np.array_equal(lower, np.tril(lower))


@pytest.mark.parametrize("n", long_except([0, 5, 300], 5))
@pytest.mark.parametrize("dtype", long_except(["complex128", "float64"], "float64"))
def test_is_a_size_unknown_when_traced_taken(dtype, n):
    chol = random_chol(np.random.default_rng(1), n, dtype)
    traced = tf.function(inverse, input_signature=[tf.TensorSpec([None, None], dtype)])
    a = chol @ np.conj(np.swapaxes(chol, -1, -2))
    assert np.allclose(traced(chol) @ a, np.eye(n), atol=1e-10)


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_the_gradient_of_the_inverse_agree_with_the_formula(mode):
    rng = np.random.default_rng(2)
    chol = random_chol(rng, 140, "complex128")

    def slope(t):  # of trace A⁻¹ where A = e^{2t} L Lᴴ
        with tf.GradientTape() as tape:
            tape.watch(t)
            value = tf.math.real(tf.linalg.trace(inverse(tf.cast(tf.exp(t), chol.dtype) * chol)))
        return value, tape.gradient(value, t)

    value, gradient = in_mode(mode, slope)(0.1)
    assert np.isclose(gradient, -2 * value, rtol=1e-12)


@pytest.mark.parametrize(
    ("chol", "error", "message"),
    [
        (np.ones((2, 3)), ValueError, r"chol must be square.*\(2, 3\)"),
        (np.eye(2, dtype=int), TypeError, "chol must be float32.* got int64"),
    ],
)
def test_is_bad_input_refused(chol, error, message):
    with pytest.raises(error, match=message):
        inverse(chol)
