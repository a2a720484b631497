import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.linalg import (
    cholesky,
    cholesky_append,
    cholesky_condition,
    cholesky_remove,
    cholesky_update,
    from_composite,
    inverse,
    join_parts,
    log_det,
    semidefinite_factor,
    solve,
    stack_parts,
    stored_cholesky,
    to_composite,
    triangularize,
)
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
    result = squared_modulus(tf.constant(z))
    assert result.dtype == tf.as_dtype(dtype).real_dtype
    assert np.allclose(result, np.abs(z) ** 2, rtol=1e-6)


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


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("a", cholesky),
        ("a", semidefinite_factor),
        ("a", triangularize),
        ("chol", log_det),
        ("chol", inverse),
        ("chol", lambda x: solve(x, EYE)),
        ("b", lambda x: solve(EYE, x)),
        ("chol", lambda x: stored_cholesky(x, EYE)),
        ("update_vector", lambda x: cholesky_update(EYE, x[0])),
        ("multiplier", lambda x: cholesky_update(EYE, EYE[0], x[0, :1])),
        ("h", lambda x: cholesky_condition(EYE, x[0], 1.0)),
        ("cross", lambda x: cholesky_append(EYE, x[0], 9.0)),
        ("size", lambda x: cholesky_append(EYE, EYE[0], 9.0, size=x[0, :1])),
        ("index", lambda x: cholesky_remove(EYE, x[0, :1])),
        ("covariance", lambda x: to_composite(x, EYE + 0j)),
        ("composite", from_composite),
        ("z", stack_parts),
        ("parts", lambda x: join_parts(x[0])),
        ("scale", lambda x: semidefinite_factor(np.zeros((2, 2)), x[0, :1])),
        ("loc", lambda x: cgp.ComplexNormal(x[0], EYE)),
        ("chol", lambda x: cgp.ComplexNormal(EYE[0] + 0j, x)),
        ("covariance", lambda x: cgp.ComplexNormal.from_covariance(EYE[0] + 0j, x)),
        ("value", lambda x: cgp.ComplexNormal(EYE[0] + 0j, EYE + 0j).log_prob(x[0])),
    ],
)
def test_is_every_argument_that_is_no_array_of_numbers_refused_by_name(name, call):
    with pytest.raises(TypeError, match=f"^{name} is longdouble, .* round it to float64"):
        call(EYE.astype(np.longdouble))
    with pytest.raises(TypeError, match=f"^{name} is clongdouble, .* round it to complex128"):
        call(EYE.astype(np.clongdouble))
    with pytest.raises(TypeError, match=f"^{name} must be numbers, got .* object"):
        call(EYE.astype(object))
    with pytest.raises(TypeError, match=f"^{name} must be numbers, got text"):
        call(EYE.astype(str))
    with pytest.raises(ValueError, match=f"^{name} has masked elements"):
        call(np.ma.array(EYE, mask=True))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("a", lambda ragged: cholesky(ragged)),
        ("a", lambda ragged: cholesky([tf.constant(row) for row in ragged])),
        ("update_vector", lambda ragged: cholesky_update(EYE, ragged)),
        ("multiplier", lambda ragged: cholesky_update(EYE, EYE[0], ragged)),
        ("index", lambda ragged: cholesky_remove(EYE, ragged)),
    ],
)
def test_are_rows_of_different_lengths_refused_by_name(name, call):
    with pytest.raises(ValueError, match=f"^{name} must be an array, .* rows of different lengths"):
        call([[1.0, 2.0], [3.0]])


def test_are_masked_elements_refused_wherever_they_are():
    for masked in (np.ma.array(EYE, mask=EYE == 1), [[1.0, 0.0], [0.0, np.ma.masked]]):
        with pytest.raises(ValueError, match=r"^a has masked elements"):
            cholesky(masked)
    row = np.ma.array([1.0, 0.0], mask=[True, False])
    with pytest.raises(ValueError, match=r"^a has masked elements"):
        cholesky([row, row])
    assert np.array_equal(cholesky(np.ma.array(EYE)), EYE)


def test_are_numbers_of_python_double_or_of_the_precision_of_the_other_argument():
    assert cholesky([[4.0, 0.0], [0.0, 1.0]]).dtype == tf.float64
    assert cholesky([[4, 0], [0, 1]]).dtype == tf.float64
    assert cholesky([[4, 2j], [-2j, 5]]).dtype == tf.complex128
    assert join_parts([1, 2]).dtype == tf.complex128
    a = [[1.1]]  # which float32 does not hold
    assert float(cholesky(a)[0, 0]) == np.sqrt(1.1)
    for dtype in DTYPES:
        eye, numbers = EYE.astype(dtype), [0, 0.5j] if np.dtype(dtype).kind == "c" else [0, 0.5]
        for new in (
            cholesky_update(eye, numbers),
            cholesky_condition(eye, numbers, 1).chol,
            cholesky_append(eye, numbers, 9),
            solve(eye, [numbers, numbers]),
        ):
            assert new.dtype == dtype
    normal = cgp.ComplexNormal(EYE[0].astype("complex64"), [[1.0, 0j], [0j, 1.0]])
    assert normal.log_prob([1j, 2]).dtype == tf.float32
    # What has a precision keeps it.
    with pytest.raises(TypeError, match="update_vector must have the dtype of chol"):
        cholesky_update(EYE.astype("float32"), EYE[0])
    with pytest.raises(TypeError, match="got int64"):
        cholesky(np.eye(2, dtype=np.int64))


def test_does_the_gradient_reach_the_tensors_of_a_list():
    x = tf.Variable(2.0, dtype=tf.float64)
    with tf.GradientTape() as tape:
        value = log_det([[x, 0.0], [0.0, 1.0]])
    assert float(tape.gradient(value, x)) == 1.0


@pytest.mark.parametrize(
    ("may_be_singular", "call"),
    [
        (False, log_det),
        (False, inverse),
        (False, lambda chol: solve(chol, EYE + 0j)),
        (False, lambda chol: cholesky_update(chol, EYE[0] + 0j)),
        (False, lambda chol: cholesky_update(chol, EYE[0] + 0j, -0.1)),
        (False, lambda chol: cholesky_append(chol, EYE[0] + 0j, 9.0)),
        (True, lambda chol: stored_cholesky(chol, np.stack([EYE + 0j] * 2))),
        (True, lambda chol: cholesky_condition(chol, EYE[0] + 0j, 1.0)),
        (True, lambda chol: cholesky_remove(chol, 1)),
        (True, lambda chol: cgp.ComplexNormal(EYE[0] + 0j, chol)),
    ],
)
def test_is_a_factor_refused_whose_diagonal_is_not_that_of_one(call, may_be_singular):
    for element in (-1.0, 1.0 + 0.5j, 0.0):
        chol = np.stack([EYE + 0j, np.diag([1.0, element])])
        if element == 0 and may_be_singular:
            call(chol)
            continue
        with pytest.raises(cgp.NotPositiveDefiniteError) as caught:
            call(chol)
        expected = "not negative" if may_be_singular else "positive"
        assert str(caught.value) == (
            "chol must be a Cholesky factor, lower triangular with a real diagonal that is "
            f"{expected}, but its diagonal has the element {np.complex128(element)}"
        )


def test_may_the_diagonal_of_a_factor_have_rounding_in_its_imaginary_part():
    for dtype in ("complex128", "complex64"):
        eps = np.finfo(dtype).eps
        chol = np.diag([1.0, 2.0 + 10j * eps]).astype(dtype)
        assert np.isclose(log_det(chol), np.log(4.0))
        with pytest.raises(cgp.NotPositiveDefiniteError, match="a real diagonal"):
            log_det(np.diag([1.0, 2.0 + 1e4j * eps]).astype(dtype))
