"""What a model accepts as observations: missing elements, dtypes, errors."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import xarray as xr

from cgp.observations import as_observations

NAN = complex(np.nan, np.nan)
Z = np.array([1j, 2.0, 3.0 - 1j])
FROM_1 = np.array([False, True, True])

MISSING = {
    "NaN": (np.where(FROM_1, np.nan, Z), None),
    "NaN in one part": (np.array([1j, complex(0, np.nan), complex(np.nan, 0)]), None),
    "a mask": (np.ma.array([1j, np.inf, 5.0], mask=FROM_1), None),
    "a mask and NaN": (np.ma.array([1j, np.nan, 5.0], mask=[False, False, True]), None),
    "missing": (np.array([1j, np.inf, 5.0]), FROM_1),
    "missing, broadcast": (np.array([[1j, 5.0, 5.0]] * 2), FROM_1),
    "missing and a mask": (np.ma.array(Z, mask=[False, True, False]), [False, False, True]),
    "a tensor": (tf.constant([1j, np.inf, 5.0]), FROM_1),
    "a tensor and a tensor": (tf.constant([1j, np.nan, 5.0]), tf.constant(FROM_1)),
    "a list": ([1j, np.nan, float("nan")], None),
}


@pytest.mark.parametrize("name", MISSING)
def test_is_what_is_missing_nan_in_both_parts(name):
    z, missing = MISSING[name]
    before = np.array(z)
    result = as_observations(z, missing, "complex128")
    assert tf.is_tensor(result) == tf.is_tensor(z)
    result = np.asarray(result)
    expected = np.broadcast_to([1j, NAN, NAN], before.shape)
    np.testing.assert_array_equal(result.real, expected.real)
    np.testing.assert_array_equal(result.imag, expected.imag)
    np.testing.assert_array_equal(np.asarray(z), before)  # the caller's array is as it was


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "z", [np.nan, NAN, np.full(3, np.nan), np.float32([np.nan]), np.ma.masked, np.ma.masked_all(2)]
)
def test_is_a_series_of_nothing_of_any_dtype(z, dtype):
    result = as_observations(z, None, dtype)
    assert result.dtype == dtype
    assert result.shape == np.shape(z)
    assert np.isnan(result).all()
    assert np.isnan(result.imag).all() or not np.iscomplexobj(result)


def test_has_a_number_of_python_no_precision():
    for z in (0.1 + 0.2j, [0.1 + 0.2j], ((0.1 + 0.2j,),)):
        for dtype in ("complex64", "complex128"):
            result = as_observations(z, None, dtype)
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, np.asarray(z, dtype))
    for dtype in ("float32", "float64"):
        expected = np.array([0.1, 2], dtype)
        np.testing.assert_array_equal(as_observations([0.1, 2], None, dtype), expected)


def test_are_integers_real_observations():
    np.testing.assert_array_equal(as_observations(np.arange(3), None, "float32"), [0.0, 1.0, 2.0])


@pytest.mark.parametrize("tensor", [False, True])
def test_is_a_lower_precision_promoted_where_that_is_wanted(tensor):
    z = Z.astype(np.complex64)
    z = tf.constant(z) if tensor else z
    result = as_observations(z, None, "complex128", promote=True)
    assert result.dtype == "complex128"
    np.testing.assert_array_equal(result, Z)
    with pytest.raises(TypeError, match=r'complex64, .* complex128: promote it, z.astype\("compl'):
        as_observations(z, None, "complex128")


REFUSED = {
    "real": (Z.real, "complex128", TypeError, "y must be complex, got float64: values without"),
    "a real tensor": (tf.constant(Z.real), "complex128", TypeError, "y must be complex, got float"),
    "a real number": (1.0, "complex128", TypeError, "y must be complex, got float64"),
    "complex": (Z, "float64", TypeError, "y must be real, got complex128.*A complex signal has"),
    "too precise": (
        Z, "complex64", TypeError, r'complex128, but .* complex64: round it, y.astype\("complex64'),
    "too precise a real": (Z.real, "float32", TypeError, "y is float64.*float32: round it"),
    "too precise a scalar": (Z[0], "complex64", TypeError, "round it"),
    "too precise a tensor": (tf.constant(Z), "complex64", TypeError, "round it"),
    "bool": (np.array([True]), "complex128", TypeError, "y must be numbers, got bool"),
    "words": (["a"], "complex128", TypeError, "y must be numbers, got <U1"),
    "words in a tensor": (tf.constant(["a"]), "complex128", TypeError, "y must be numbers"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "float64", TypeError, "numbers, got datetime64"),
    "None": ([1j, None], "complex128", TypeError, "numbers, got object, .* is NaN, not None"),
    "ragged": ([[1j], [1j, 2j]], "complex128", ValueError, "y must be .* rows of one length"),
    "a ragged tensor": (
        tf.ragged.constant([[1.0], [1.0, 2.0]]), "float64", TypeError, "dense tensor, got a Rag"),
    "infinite": (np.array([1j, np.inf]), "complex128", ValueError, "y has infinite elements"),
    "infinite tensor": (tf.constant([1j, np.inf]), "complex128", ValueError, "infinite elements"),
    "beyond single precision": ([1e300], "float32", ValueError, "y has infinite elements"),
}  # fmt: skip
if np.dtype(np.longdouble).itemsize > 8:  # not so on every machine
    REFUSED |= {
        "clongdouble": (
            Z.astype(np.clongdouble), "complex128", TypeError,
            r'but the model is complex128: round it, y.astype\("complex128"\)$'),
        "longdouble": (np.longdouble([1, 2]), "float64", TypeError, "y is float.*64: round it"),
        "a list of longdouble": ([np.longdouble(1)], "float64", TypeError, "float64: round it"),
    }  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_is_what_does_not_fit_refused_by_name(name):
    z, dtype, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        as_observations(z, None, dtype, "y", promote=True)


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ([0, 1, 0], TypeError, "missing must be bool, True where missing, got int64"),
        (tf.constant([0, 1, 0]), TypeError, "missing must be bool, True where missing, got int32"),
        ([[True], [True, False]], ValueError, "missing must be a bool array"),
        ([True, False], ValueError, r"against z of shape \(3,\), got \(2,\)"),
        (np.zeros((2, 3), bool), ValueError, r"against z of shape \(3,\), got \(2, 3\)"),
    ],
)
def test_is_missing_that_does_not_fit_refused(missing, error, words):
    for z in (Z, tf.constant(Z)):
        with pytest.raises(error, match=words):
            as_observations(z, missing, "complex128")


def test_are_unknown_values_of_a_graph_checked_by_dtype_alone_and_differentiable():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.complex128)] * 1)
    def checked(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            result = as_observations(z, FROM_1, "complex128")
            total = tf.reduce_sum(tf.abs(tf.where(FROM_1, tf.zeros_like(result), result)) ** 2)
        return result, tape.gradient(total, z)

    result, gradient = checked(np.array([2j, np.inf, 0]))
    np.testing.assert_array_equal(result, np.array([2j, NAN, NAN]))
    np.testing.assert_allclose(gradient, [4j, 0, 0])


class Array:
    """An array of another library, which says its dtype only as an array of NumPy."""

    def __array__(self, dtype=None, copy=None):
        return Z


@pytest.mark.parametrize(
    "z", [Array(), list(Z), [1j, Z[0]], [Z, Z], [[tuple(Z)]], [tf.constant(Z[0])]]
)
def test_have_only_numbers_of_python_no_precision(z):
    with pytest.raises(TypeError, match="z is complex128, but the model is complex64: round it"):
        as_observations(z, None, "complex64")
    np.testing.assert_array_equal(as_observations(z, None, "complex128"), np.asarray(z))


# Of pandas and xarray

OF_OTHERS = {
    "Series": pd.Series([1j, np.nan, np.nan]),
    "Index": pd.Index([1j, np.nan, np.nan]),
    "DataFrame": pd.DataFrame({"re": [1j, np.nan], "im": [np.nan, 2.0]}),
    "objects": pd.Series([1j, None, pd.NA], dtype=object),
    "DataFrame of objects": pd.DataFrame({"a": [1j, pd.NA], "b": [None, 2.0]}, dtype=object),
    "DataArray": xr.DataArray([1j, np.nan, np.nan], dims="time"),
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_are_numbers_of_pandas_and_xarray_taken_and_what_is_missing_in_them(name):
    z = OF_OTHERS[name]
    before = z.copy(deep=True) if hasattr(z, "to_numpy") and name != "Index" else z.copy()
    result = as_observations(z, None, "complex128")
    if "DataFrame" in name:
        expected = np.array([[1j, NAN], [NAN, 2.0]])
    else:
        expected = np.array([1j, NAN, NAN])
    np.testing.assert_array_equal(result, expected)
    assert np.isnan(result.imag).sum() == 2
    assert z.equals(before)  # the caller's is as it was


@pytest.mark.parametrize("dtype", ["Float64", "Int64", "float64"])
def test_are_nullable_columns_real_observations(dtype):
    z = pd.Series([1, None, 3], dtype=dtype)
    np.testing.assert_array_equal(as_observations(z, None, "float64"), [1.0, np.nan, 3.0])
    with pytest.raises(TypeError, match="z must be complex, got float64: values without"):
        as_observations(z, None, "complex128")


def test_is_a_sample_that_pandas_calls_missing_missing():
    for dtype in ("complex128", "float64"):
        assert np.isnan(as_observations(pd.NA, None, dtype))
    result = as_observations(pd.Series(Z), pd.Series([True, False, True], dtype="boolean"), Z.dtype)
    np.testing.assert_array_equal(np.isnan(result), [True, False, True])


def test_keep_columns_of_objects_the_precision_of_their_numbers():
    single = pd.Series(list(Z.astype(np.complex64)), dtype=object)
    assert as_observations(single, None, "complex64").dtype == "complex64"
    with pytest.raises(TypeError, match="z is complex128, but the model is complex64: round it"):
        as_observations(pd.Series(Z, dtype=object), None, "complex64")


@pytest.mark.parametrize("values", [["a", 1j], [[1j], [1j, 2j]], [1j, pd.Timestamp(0)]])
def test_are_columns_of_other_objects_refused(values):
    with pytest.raises((TypeError, ValueError), match="z must be"):
        as_observations(pd.Series(values, dtype=object), None, "complex128")
