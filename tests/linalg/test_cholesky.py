import pickle

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.linalg import cholesky, log_det, solve, stored_cholesky
from tests.linalg.problems import DTYPES, MODES, in_mode, is_single, random, random_chol
from tests.long_cases import long_except
from tests.reference import linalg as reference


def covariance(rng, n, dtype, batch=()):
    a = random(rng, (*batch, n, n + 3), dtype)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(n)).astype(dtype)


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("n", long_except([1, 2, 20], 20))
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_the_factor_that_of_the_textbook(mode, dtype, n, batch):
    a = covariance(np.random.default_rng(n), n, dtype, batch)
    chol = in_mode(mode, cholesky)(a).numpy()
    assert chol.dtype == dtype
    assert np.array_equal(chol, np.tril(chol))
    expected = [reference.cholesky(one) for one in a.reshape(-1, n, n)]
    expected = np.reshape(np.array(expected), a.shape).astype(complex)
    assert np.allclose(chol, expected, atol=1e-5 if is_single(dtype) else 1e-13)


def test_is_the_error_named_as_users_find_it():
    assert f"{cgp.NotPositiveDefiniteError}" == "<class 'cgp.NotPositiveDefiniteError'>"
    assert pickle.loads(pickle.dumps(cgp.NotPositiveDefiniteError("no"))).args == ("no",)


INDEFINITE = [
    np.diag([1.0, -1.0, 2.0]),
    np.array([[1.0, 2.0], [2.0, 1.0]]),
    np.zeros((2, 2)),
    np.ones((2, 2)),
    np.stack([np.eye(2), -np.eye(2)]),
]


@pytest.mark.parametrize("a", INDEFINITE, ids=range(len(INDEFINITE)))
@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
def test_is_an_indefinite_matrix_refused_in_every_mode(dtype, a):
    a = a.astype(dtype)
    with pytest.raises(cgp.NotPositiveDefiniteError, match="not positive definite"):
        cholesky(a)
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_mode("graph", cholesky)(a)
    bad = in_mode("xla", cholesky)(a).numpy().reshape(-1, *a.shape[-2:])[-1]
    assert np.all(np.isnan(bad))


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_is_nan_refused_in_every_mode(dtype):
    a = np.eye(3, dtype=dtype)
    a[1, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        cholesky(a)
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_mode("graph", cholesky)(a)
    assert np.all(np.isnan(in_mode("xla", cholesky)(a)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cholesky(np.eye(2, dtype=int)), TypeError, "a must be .* got int64"),
        (lambda: cholesky(np.ones((2, 3))), ValueError, r"square.* \(2, 3\)"),
        (lambda: cholesky(np.ones(3)), ValueError, "must be a matrix"),
        (lambda: cholesky(np.array([[2.0, 1j], [1j, 2.0]])), ValueError, "not Hermitian"),
        (lambda: cholesky(np.diag([2.0, 2.0 + 1j])), ValueError, "not Hermitian"),
        (lambda: cholesky(np.array([[2.0, 1.0], [0.0, 2.0]])), ValueError, "not Hermitian"),
        (lambda: solve(np.eye(2), np.eye(2) + 0j), TypeError, "float64 but b is complex128"),
        (lambda: solve(np.eye(2), np.ones((3, 1))), ValueError, r"b must be \[..., 2, k\]"),
        (lambda: solve(np.eye(2), np.ones(2)), ValueError, "b must be a matrix"),
        (lambda: solve(np.eye(2), np.ones(2)), ValueError, r"\[\.\.\., n, k\]"),
        (
            lambda: solve(np.stack([np.eye(2)] * 3), np.ones((4, 2, 1))),
            ValueError,
            r"batch axes .* chol \(3, 2, 2\), b \(4, 2, 1\)",
        ),
        (lambda: log_det(np.ones((2, 3))), ValueError, "square"),
        (lambda: stored_cholesky(np.eye(2), np.eye(2) + 0j), TypeError, "complex128"),
        (lambda: stored_cholesky(np.eye(2), np.eye(3)), ValueError, r"\(3, 3\)"),
    ],
)
def test_is_bad_input_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_solve_invert_the_matrix(mode, dtype):
    rng = np.random.default_rng(3)
    chol, b = random_chol(rng, 5, dtype, (2, 1)), random(rng, (3, 5, 2), dtype)
    x = in_mode(mode, solve)(chol, b)
    assert x.shape == (2, 3, 5, 2)
    product = chol @ np.conj(np.swapaxes(chol, -1, -2)) @ x.numpy()
    assert np.allclose(
        product, np.broadcast_to(b, x.shape), atol=2e-5 if is_single(dtype) else 1e-13
    )


@pytest.mark.parametrize("dtype", long_except(DTYPES, "complex128", "float32"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_is_the_log_determinant_real_and_right(mode, dtype):
    a = covariance(np.random.default_rng(4), 6, dtype, (2,))
    value = in_mode(mode, lambda a: log_det(cholesky(a)))(a)
    assert value.dtype == tf.as_dtype(dtype).real_dtype
    expected = np.linalg.slogdet(a.astype(complex))[1]
    assert np.allclose(value, expected, rtol=1e-5 if is_single(dtype) else 1e-13)


def hermitian(rng, n, dtype):
    step = random(rng, (n, n), dtype)
    return step + step.conj().T


def gradient_of(loss, mode, *args):
    def run(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            value = loss(*args)
        return tape.gradient(value, args)

    return [g.numpy() for g in in_mode(mode, run)(*args)]


@pytest.mark.parametrize("dtype", long_except(["complex128", "float64"], "complex128"))
@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_does_the_gradient_of_factor_and_stored_factor_agree_with_central_differences(mode, dtype):
    rng = np.random.default_rng(5)
    n = 5
    a, step, weight = (
        covariance(rng, n, dtype),
        hermitian(rng, n, dtype),
        random(rng, (n, n), dtype),
    )
    chol = np.linalg.cholesky(a)

    def loss(a, factor=cholesky):
        return tf.reduce_sum(tf.math.real(np.conj(weight) * factor(a)))

    expected = reference.directional_derivative(lambda x: loss(x).numpy(), a, step, 1e-4)
    for factor in (cholesky, lambda a: stored_cholesky(chol, a)):
        (result,) = gradient_of(lambda a, f=factor: loss(a, f), mode, a)
        assert np.isclose(np.sum((result.conj() * step).real), expected, rtol=1e-9)
    # What stands above the diagonal of a factor is constant: its weight changes nothing.
    low = np.tril(weight)
    (lower,) = gradient_of(
        lambda a: tf.reduce_sum(tf.math.real(np.conj(low) * stored_cholesky(chol, a))), mode, a
    )
    assert np.allclose(lower, result, rtol=1e-12)
    assert np.allclose(result, result.conj().T, rtol=1e-12)


def test_does_a_stored_factor_keep_its_value_and_its_gradient_from_the_store():
    rng = np.random.default_rng(6)
    a = covariance(rng, 4, "complex128", (2,))
    chol = tf.Variable(np.linalg.cholesky(a))
    with tf.GradientTape() as tape:
        x = tf.constant(a)
        tape.watch(x)
        y = stored_cholesky(chol, x)
        value = tf.reduce_sum(log_det(y))
    assert np.array_equal(y, chol)
    by_a, by_chol = tape.gradient(value, [x, chol])
    assert by_chol is None
    assert np.allclose(by_a, np.linalg.inv(a), rtol=1e-12)  # ∂ log|A| = ⟨A⁻¹, dA⟩


@pytest.mark.parametrize("graph", long_except([False, True], False))
def test_may_the_stored_factor_be_differentiated_twice(graph):
    rng = np.random.default_rng(7)
    a, b = covariance(rng, 4, "complex128"), covariance(rng, 4, "complex128")
    store = tf.constant(np.linalg.cholesky(a + 0.1 * b))

    def slope(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            value = log_det(stored_cholesky(store, a + tf.cast(t, tf.complex128) * b))
        return tape.gradient(value, t)

    f, t = tf.function(slope) if graph else slope, tf.constant(0.1, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(t)
        first = f(t)
    ratio = np.linalg.solve(a + 0.1 * b, b)
    assert np.isclose(first, np.trace(ratio).real, rtol=1e-12)
    assert np.isclose(tape.gradient(first, t), -np.trace(ratio @ ratio).real, rtol=1e-12)


@pytest.mark.parametrize("mode", long_except(MODES, "eager", "graph"))
def test_do_the_gradients_of_solve_agree_with_central_differences(mode):
    rng = np.random.default_rng(8)
    chol, b = random_chol(rng, 4, "complex128", (2, 1)), random(rng, (3, 4, 2), "complex128")
    weight = random(rng, (2, 3, 4, 2), "complex128")
    steps = np.tril(random(rng, chol.shape, "complex128")), random(rng, b.shape, "complex128")

    def loss(chol, b):
        return tf.reduce_sum(tf.math.real(np.conj(weight) * solve(chol, b)))

    result = gradient_of(loss, mode, chol, b)
    for i, functional in enumerate([lambda x: loss(x, b), lambda x: loss(chol, x)]):
        # Beside the point the diagonal is complex, which only eager execution refuses.
        f = in_mode("graph", functional)
        expected = reference.directional_derivative(
            lambda x, f=f: f(x).numpy(), (chol, b)[i], steps[i], 1e-4
        )
        assert result[i].shape == (chol, b)[i].shape
        assert np.isclose(np.sum((result[i].conj() * steps[i]).real), expected, rtol=1e-8)
