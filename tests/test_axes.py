"""Axes that do not fit are refused, and the remedy leads to what was meant; short series warn."""

import re

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.axes import remedy
from cgp.kernels import Matern32
from cgp.layers import GPInterpolator
from cgp.observations import warn_of_short_series
from tests.long_cases import long_except

T, B = 20, 3
X = np.arange(float(T))
Z = np.exp(0.3j * np.arange(B)[:, None] + 0.2j * X)  # three series of twenty


def kernel():
    return Matern32(variance=1.0, lengthscale=2.0)


def gp():
    return cgp.ExactGP(kernel(), 0.1)


def tracker():
    return cgp.RecursiveGP(kernel(), 0.1, capacity=T)


def model(components=1):
    eye = np.eye(components)
    return statespace.LinearGaussian(0.9j * eye, 0.1 * eye, eye, 0.1 * eye)


def remedies(call, *arguments):
    """The codes of the remedies of what a call raises."""
    with pytest.raises(ValueError, match=r"must be|are both") as caught:
        call(*arguments)
    return [text.split(", ", 1)[1] for text in re.split("; |: ", str(caught.value))[1:]]


def of_filter(z, components=1):
    return statespace.log_likelihood(model(components), z).numpy()


PLANES = np.stack([Z, 2 * Z])  # [2, 3, 20]
OF_FILTER = {
    "time first": (Z.T, Z[..., None], "z.T[..., None]"),
    "without an axis of components": (Z, Z[..., None], "z[..., None]"),
    "one series as a row": (Z[:1], Z[0][:, None], "z.T"),
    "time first of planes": (
        np.moveaxis(PLANES, -1, 0), PLANES[..., None], "np.moveaxis(z, 0, -1)[..., None]"),
    "time between": (
        np.moveaxis(PLANES, -1, 1), PLANES[..., None], "np.moveaxis(z, 1, -1)[..., None]"),
    "a list": (Z.T.tolist(), Z[..., None], "np.array(z).T[..., None]"),
    "a tensor": (tf.constant(Z.T), Z[..., None], "np.array(z).T[..., None]"),
    "a table": (pd.DataFrame(Z.T), Z[..., None], "z.to_numpy().T[..., None]"),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_FILTER)
def test_does_the_first_remedy_of_a_filter_have_few_series_of_many_samples(case):
    z, meant, code = OF_FILTER[case]
    first, *_ = remedies(of_filter, z)
    assert first == code
    np.testing.assert_array_equal(of_filter(eval(first, {"np": np, "z": z})), of_filter(meant))


def test_is_the_other_reading_of_a_filter_named_too():
    assert remedies(of_filter, Z.T) == ["z.T[..., None]", "z[..., None]"]
    with pytest.raises(ValueError, match=r"of 3 series of 20 samples, .*of 20 series of 3 samples"):
        of_filter(Z.T)


def test_are_components_that_come_first_moved_to_the_end():
    z = Z[:2]
    (code,) = remedies(lambda z: of_filter(z, 2), z)
    assert code == "z.T"
    (code,) = remedies(lambda z: of_filter(z, 2), np.moveaxis(PLANES, 0, -2))  # [3, 2, 20]
    assert code == "np.moveaxis(z, 1, -1)"


def test_has_a_shape_that_no_order_of_axes_mends_no_remedy():
    assert remedies(lambda z: of_filter(z, 2), Z) == []
    assert remedy("z", (None, 3), lambda shape: True) == ""


@pytest.mark.parametrize("call", ["fit", "process"])
def test_have_the_methods_of_a_filter_the_same_remedies(call):
    kf = cgp.KalmanFilter(model(), "Q")
    kf.compile()
    assert remedies(getattr(kf, call), Z.T)[0] == "z.T[..., None]"


def test_is_a_sample_of_each_stream_given_an_axis_of_components():
    kf = cgp.KalmanFilter(model())
    with pytest.raises(ValueError, match=r"z must be .*: rearranged, z\[\.\.\., None\], of 3 str"):
        kf.step(Z[:, 0])
    kf.step(Z[:, 0][..., None])
    with pytest.raises(ValueError, match=r"got shape \(20, 3\)$"):  # a block: no sample of streams
        kf.step(Z.T)


OF_PROCESS = {
    "a column": (X, Z[0][:, None], X, Z[0], "z[:, 0]"),
    "columns of both": (X[:, None], Z[0][:, None], X, Z[0], "z[:, 0]"),
    "time first": (X, Z.T, X, Z, "z.T"),
    "a table": (X, pd.DataFrame(Z.T), X, Z, "z.to_numpy().T"),
    "planes": (X, np.moveaxis(PLANES, -1, 0), X, PLANES, "np.moveaxis(z, 0, -1)"),
    "planes and an axis more": (X, PLANES[..., None], X, PLANES, "z[..., 0]"),
    "time first, inputs of each": (
        np.tile(X[:, None], (B, 1, 1)), Z.T, np.tile(X[:, None], (B, 1, 1)), Z, "z.T"),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_PROCESS)
def test_does_the_remedy_of_a_process_lead_to_what_was_meant(case):
    x, z, x_meant, z_meant, code = OF_PROCESS[case]
    (result,) = remedies(gp().condition, x, z)
    assert result == code
    likelihood = gp().log_marginal_likelihood
    rearranged = likelihood(x, eval(result, {"np": np, "z": z}))
    np.testing.assert_allclose(rearranged, likelihood(x_meant, z_meant))


@pytest.mark.parametrize("x", [X[None], np.stack([X, X**2])], ids=["one row", "dimensions first"])
def test_are_inputs_turned_where_points_come_last(x):
    """Not the targets, which as one series a point would be accepted, and mean nothing."""
    (code,) = remedies(gp().condition, x, Z[0])
    turned = eval(code, {"x": x})
    np.testing.assert_array_equal(turned, X if len(x) == 1 else x.T)
    gp().condition(turned, Z[0])


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize(
    "take", [lambda x, z: gp().condition(x, z), lambda x, z: tracker().process(x, z)]
)
def test_have_inputs_of_each_series_an_axis_of_dimensions(take, turn):
    x = np.tile(X, (B, 1)) + 0.1 * np.arange(B)[:, None]
    given = {"x": x.T, "z": Z.T} if turn else {"x": x, "z": Z}
    (code,) = remedies(take, *given.values())
    assert code == "each with inputs of its own, " + (
        "x.T[..., None] and z.T" if turn else "x[..., None]"
    )
    first, *second = code.split("own, ")[1].split(" and ")
    result = eval(first, given), eval(second[0], given) if second else given["z"]
    np.testing.assert_array_equal(result[0], x[..., None])
    np.testing.assert_array_equal(result[1], Z)
    take(*result)


def test_are_as_many_series_as_samples_with_inputs_of_their_own_no_points_of_many_dimensions():
    x, z = np.tile(X[:4], (4, 1)), Z[:, :4][:1].repeat(4, axis=0)
    (code,) = remedies(gp().condition, x, z)
    assert code == "each with inputs of its own, x[..., None]"
    gp().condition(x[..., None], z)
    gp().condition(x[:3, :3] * np.eye(3), z[:3, :3])  # three points of three dimensions


def test_is_a_column_of_samples_of_a_stream_one_stream():
    assert remedies(tracker().process, X[:, None], Z[0][:, None]) == ["z[:, 0]"]
    assert remedies(tracker().step, 0.0, Z[:, :1]) == ["z[:, 0]"]
    tracker().step(0.0, Z[:, :1][:, 0])


def test_is_a_column_of_samples_of_keys_flat():
    keys, z = list("abc"), Z[:, :1]
    assert remedies(lambda z: cgp.Bank(tracker()).update(keys, z, X[:3]), z) == ["z[:, 0]"]
    cgp.Bank(tracker()).update(keys, z[:, 0], X[:3])
    bank = cgp.Bank(cgp.KalmanFilter(model(2)))
    assert remedies(lambda z: bank.update(keys, z), np.ones((2, 3), complex)) == ["z.T"]


def test_has_an_interpolator_the_remedies_of_a_process():
    with pytest.raises(ValueError, match=r"of 3 series of 20 samples, z\.T"):
        GPInterpolator(kernel(), 0.1)((X[:, None], Z.T, X[:, None]))


# --- short series --------------------------------------------------------------------------------


def optimizer():
    return keras.optimizers.Adam(0.01)


def fit_filter(z):
    kf = cgp.KalmanFilter(model(), "Q")
    kf.compile(optimizer(), run_eagerly=True)
    return kf.fit(z[..., None], verbose=0)


def fit_process(kind):
    def fit(z):
        made = kind()
        made.compile(optimizer(), run_eagerly=True)
        return made.fit(X[: z.shape[1]], z, epochs=1, verbose=0)

    return fit


FITS = {
    "KalmanFilter": fit_filter,
    "ExactGP": fit_process(gp),
    "StateSpaceGP": fit_process(lambda: cgp.StateSpaceGP(kernel(), 0.1)),
    "RecursiveGP": fit_process(tracker),
}


@pytest.mark.parametrize("estimator", long_except(FITS, "ExactGP", "StateSpaceGP"))
def test_does_a_fit_of_more_series_than_samples_warn_once(estimator):
    words = r"a fit of 20 series of 3 samples each.*if they should be 3 series of 20, their axes"
    with pytest.warns(RuntimeWarning, match=words) as caught:
        FITS[estimator](Z.T)
    # An import of a library at the first fit may warn as well.
    [warning] = [w for w in caught if w.category is RuntimeWarning]
    assert warning.filename == __file__


def test_has_a_fit_of_as_many_samples_as_series_no_warning():
    warn_of_short_series(3, 20)  # warnings are errors
    FITS["ExactGP"](Z[:, :3])


def test_does_a_fit_of_series_of_one_sample_name_what_was_meant():
    made = gp()
    made.compile(optimizer(), run_eagerly=True)
    words = r"20 series of one sample each.*one series of 20, give x as \[N\] or \[N, D\] and z as"
    with pytest.warns(RuntimeWarning, match=words):
        made.fit(X[:, None, None], Z[0][:, None], verbose=0)


@pytest.mark.long
def test_has_a_dataset_of_short_series_no_warning():
    made = gp()
    made.compile(optimizer())
    pairs = tf.data.Dataset.from_tensors((X[:3], Z.T))
    made.fit(pairs, verbose=0)
