"""Factors and inverses by LAPACK, against the textbook and against the TensorFlow path."""

import ctypes

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native
from cgp.linalg import cholesky, inverse
from cgp.native.scipy_private import thread_function
from tests.linalg.problems import DTYPES, hard_chol, is_single, random, random_chol
from tests.long_cases import long_except
from tests.native.graphs import in_own_graph
from tests.reference import linalg as reference

pytestmark = pytest.mark.skipif(not native.has_lapack(), reason="no compiled core, or no LAPACK")

SIZES = long_except([0, 1, 2, 5, 33, 64, 97], 0, 5, 33)
FEW_DTYPES = long_except(DTYPES, "complex128", "float32")


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def covariance(n, dtype, batch=()):
    a = random(np.random.default_rng(n), (*batch, n, n + 3), dtype)
    return (a @ adjoint(a) / (n + 1) + np.eye(n)).astype(dtype)


def assert_close(found, wanted, tolerance):
    assert found.shape == wanted.shape
    assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_are_factor_and_inverse_those_of_the_textbook(dtype, n, batch):
    a = covariance(n, dtype, batch)
    chol = in_own_graph(cholesky)(a)
    result = in_own_graph(inverse)(chol).numpy()
    chol = chol.numpy()
    assert chol.dtype == result.dtype == dtype
    assert np.array_equal(chol, np.tril(chol))
    assert np.all(np.diagonal(chol, axis1=-2, axis2=-1).imag == 0)
    assert np.array_equal(result, adjoint(result))
    tolerance = 2e-6 if is_single(dtype) else 1e-14
    wide = a.astype("complex128")
    factors = [reference.cholesky(wide[index]) for index in np.ndindex(batch)]
    assert_close(chol, np.reshape(factors, a.shape), 10 * tolerance)
    assert_close(result, np.linalg.inv(wide), 10 * tolerance)


@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_is_nothing_above_the_diagonal_read(dtype):
    a = covariance(5, dtype)
    above = np.triu(np.full_like(a, np.nan), 1)
    chol = in_own_graph(cholesky)(a)
    assert np.array_equal(in_own_graph(cholesky)(np.tril(a) + above), chol)
    result = in_own_graph(inverse)(chol)
    assert np.array_equal(in_own_graph(inverse)(chol + above), result)


@pytest.fixture
def served(monkeypatch):
    """The names of the ops that have been called, or placed in a graph."""
    names, op = [], native.op
    monkeypatch.setattr(native, "op", lambda name: names.append(name) or op(name))
    return names


@pytest.mark.parametrize("operation", [cholesky, inverse])
@pytest.mark.parametrize("n", long_except([1, 64, 150, 300], 1, 150))
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_are_they_served_eagerly_and_as_tensorflow_does(dtype, n, operation, served, without_core):
    a = covariance(n, dtype, (2,) if n < 300 else ())
    given = a if operation is cholesky else np.linalg.cholesky(a)
    result = operation(given).numpy()
    assert len(served) == 1
    expected = without_core(lambda: operation(given)).numpy()
    assert len(served) == 1
    assert_close(result, expected, 1e-5 if is_single(dtype) else 1e-13)


@pytest.mark.parametrize("kind", ["spectrum", "rbf", "pivot"])
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_does_the_factor_of_a_hard_matrix_reproduce_it(dtype, kind):
    chol = hard_chol(kind, 80, dtype, np.random.default_rng(1))
    a = chol @ adjoint(chol)
    a = a + np.eye(80, dtype=dtype) * np.finfo(dtype).eps * 80 * np.max(np.abs(a))
    result = cholesky(a).numpy().astype("complex128")
    assert_close(result @ adjoint(result), a, 20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", long_except([0, 1, 6, 70], 6, 70))
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_are_gradients_those_of_tensorflow(dtype, n):
    rng = np.random.default_rng(n)
    chol = random_chol(rng, n, dtype, (2,))
    matrix = (chol @ adjoint(chol)).astype(dtype)
    weight = random(rng, chol.shape, dtype)

    def gradient(f):
        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(tf.math.real(np.conj(weight) * f(x)))
            return tape.gradient(value, x)

        return run

    tolerance = 2e-5 if is_single(dtype) else 1e-12
    for f, at in ((cholesky, matrix), (inverse, chol)):
        result = in_own_graph(gradient(f))(at)
        expected = tf.function(gradient(f), autograph=False)(tf.constant(at))
        assert_close(result.numpy(), expected.numpy(), tolerance)


def test_are_second_derivatives_those_of_tensorflow():
    rng = np.random.default_rng(3)
    chol, step = random_chol(rng, 5, "complex128"), random_chol(rng, 5, "complex128")

    def curvature(t):
        def value(t):
            factor = tf.cast(tf.exp(t), chol.dtype) * chol + tf.cast(t**2, chol.dtype) * step
            again = cholesky(tf.linalg.matmul(factor, factor, adjoint_b=True))
            return tf.math.real(tf.linalg.trace(inverse(again) @ step))

        with tf.GradientTape() as outer:
            outer.watch(t)
            with tf.GradientTape() as tape:
                tape.watch(t)
                y = value(t)
            first = tape.gradient(y, t)
        return outer.gradient(first, t)

    result = in_own_graph(curvature)(0.3)
    assert np.isclose(result, tf.function(curvature)(tf.constant(0.3)), rtol=1e-10)


def spoiled(element, dtype="complex128", n=70):
    a = covariance(n, dtype)
    if isinstance(element, complex | float):
        a[5, 3], a[3, 5] = element, np.conj(element)
    else:
        a[n // 2, n // 2] = -1.0
    return a


BAD = {
    "indefinite": lambda dtype: spoiled(None, dtype),
    "zero": lambda dtype: np.zeros((70, 70), dtype),
    "a batch with one": lambda dtype: np.stack([covariance(70, dtype), spoiled(None, dtype)]),
    "NaN": lambda dtype: spoiled(np.nan, dtype),
    "infinite": lambda dtype: spoiled(np.inf, dtype),
    "NaN in the corner": lambda dtype: np.diag([1.0] * 69 + [np.nan]).astype(dtype),
    "not Hermitian": lambda dtype: np.tril(covariance(70, dtype)),
    "not square": lambda dtype: covariance(70, dtype)[1:],
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_are_errors_those_of_tensorflow(dtype, bad, without_core):
    def error():
        with pytest.raises(Exception) as result:
            cholesky(BAD[bad](dtype))
        return result.value

    result, expected = error(), without_core(error)
    assert type(result) is type(expected)
    assert str(result) == str(expected)


@pytest.mark.parametrize("bad", list(BAD)[:-2])
@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_does_a_graph_fail_as_it_does_in_tensorflow(dtype, bad):
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive definite"):
        in_own_graph(cholesky)(BAD[bad](dtype))


@pytest.mark.parametrize("dtype", FEW_DTYPES)
def test_has_a_singular_factor_no_inverse(dtype):
    singular = np.diag([1.0, 0.0, 2.0]).astype(dtype)
    result = in_own_graph(inverse)(np.stack([np.eye(3, dtype=dtype), singular]))
    assert np.array_equal(result[0], np.eye(3))
    assert np.all(np.isnan(result[1]))


def test_are_graphs_of_others_without_compiled_ops():
    def operations(f):
        graph = tf.function(f).get_concrete_function(tf.TensorSpec([None, None], tf.float64)).graph
        return {operation.type for operation in graph.get_operations()}

    def owned(a):
        with native.own_graph():
            return inverse(cholesky(a))

    assert operations(owned) >= {"CgpCholeskyFactor", "CgpCholeskyInverse"}
    assert not [name for name in operations(lambda a: inverse(cholesky(a))) if "Cgp" in name]


def test_is_a_lapack_with_other_functions_done_without(monkeypatch, served):
    from scipy.linalg import cython_blas, cython_lapack

    with monkeypatch.context() as patch:
        patch.setattr(cython_blas, "__pyx_capi__", {"ztrsm": cython_blas.__pyx_capi__["zgemm"]})
        assert not native.has_lapack.__wrapped__()
    other = dict(cython_lapack.__pyx_capi__, zpotri=cython_lapack.__pyx_capi__["zpotrs"])
    monkeypatch.setattr(cython_lapack, "__pyx_capi__", other)
    assert not native.has_lapack.__wrapped__()
    monkeypatch.setattr(cython_lapack, "__pyx_capi__", {})
    assert not native.has_lapack.__wrapped__()
    monkeypatch.setattr(native, "has_lapack", lambda: False)
    a = covariance(70, "complex128")
    assert_close(cholesky(a).numpy(), np.linalg.cholesky(a), 1e-13)
    assert not served


def test_does_training_factorise_and_invert_by_lapack(served):
    x = np.linspace(0.0, 3.0, 12)
    gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, np.exp(1j * x), epochs=1, verbose=0)
    assert set(served) == {"cgp_cholesky_factor", "cgp_cholesky_inverse"}


def test_has_openblas_as_many_threads_afterwards_as_before():
    from scipy.linalg import cython_lapack

    blas = ctypes.CDLL(cython_lapack.__file__)
    if thread_function(blas, "set") is None:
        pytest.skip("SciPy has another BLAS")
    get, put = (
        ctypes.CFUNCTYPE(kind, *given)(thread_function(blas, verb))
        for verb, kind, given in (("get", ctypes.c_int, ()), ("set", None, (ctypes.c_int,)))
    )
    before, a = get(), covariance(300, "complex128", (4,))
    try:
        for count in (2, 1):
            put(count)
            inverse(cholesky(a))
            assert get() == count
    finally:
        put(before)
