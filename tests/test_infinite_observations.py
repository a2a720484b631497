"""An infinite observation is refused at every door, and not taken for a missing one.

NumPy makes `complex(nan, inf)` of `np.inf * 1j`: NaN in one part says that it is missing only where
the other part is finite.
"""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import cgp
from cgp import metrics, plotting, statespace
from cgp.kernels import Autoregressive, Matern32, Rotation
from cgp.layers import GPInterpolator
from cgp.observations import as_observations

X = np.arange(6.0)
Z = np.exp(0.4j * X)
ENDLESS = [complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.inf, 0.0)]


def with_one(value):
    return np.where(X == 3.0, value, Z)


def kernel():
    return Matern32(variance=1.0, lengthscale=2.0)


def exact():
    return cgp.ExactGP(kernel(), 0.1)


def state_space():
    return cgp.StateSpaceGP(kernel(), 0.1)


def tracker():
    return cgp.RecursiveGP(kernel(), 0.1, capacity=8)


def learning_tracker():
    gp = tracker()
    gp.compile()
    return gp


def model():
    return statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.1]])


def driven():
    return statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.1]], B=[[1.0]])


def fitted(estimator):
    estimator.compile(cgp.optimizers.LBFGS())
    return estimator


def prediction():
    return {"mean": 0 * Z, "variance": np.ones(6), "pseudo_variance": 0 * Z}


FORMS = {
    "an array": lambda z: z,
    "of single precision": lambda z: z.astype(np.complex64),
    "a tensor": tf.constant,
    "a list": list,
    "a masked array": lambda z: np.ma.array(z, mask=X == 1.0),
    "a column of pandas": pd.Series,
    "a column of objects": lambda z: pd.Series(list(z), dtype=object),
    "a column with NA": lambda z: pd.Series([pd.NA, *z[1:]], dtype=object),
    "a table": lambda z: pd.DataFrame({"a": z, "b": Z}),
}


@pytest.mark.parametrize("value", ENDLESS)
@pytest.mark.parametrize("form", FORMS)
def test_is_an_infinite_element_refused_in_every_form(form, value):
    z = FORMS[form](with_one(value))
    dtype = "complex64" if "single" in form else "complex128"
    with pytest.raises(ValueError, match="z has infinite elements"):
        as_observations(z, None, dtype)


@pytest.mark.parametrize("value", ENDLESS)
@pytest.mark.parametrize("form", ["an array", "a tensor", "a column of objects"])
def test_has_what_is_missing_no_meaning(form, value):
    z = FORMS[form](with_one(value))
    result = np.asarray(as_observations(z, X == 3.0, "complex128"))
    np.testing.assert_array_equal(np.isnan(result), X == 3.0)


@pytest.mark.parametrize("value", ENDLESS)
def test_does_a_graph_keep_an_infinite_element_from_passing_for_a_missing_one(value):
    run = tf.function(lambda z: as_observations(z, None, "complex128"))
    result = run(tf.constant(with_one(value))).numpy()
    assert np.isinf(result[3])
    assert not np.isnan(result.view(float)).any()


DOORS = {
    "ExactGP.condition": lambda z: exact().condition(X, z),
    "ExactGP.fit": lambda z: fitted(exact()).fit(X, z, verbose=0),
    "ExactGP.evaluate": lambda z: fitted(exact()).evaluate(X, z, verbose=0),
    "ExactGP.log_marginal_likelihood": lambda z: exact().log_marginal_likelihood(X, z),
    "StateSpaceGP.condition": lambda z: state_space().condition(X, z),
    "StateSpaceGP.step": lambda z: state_space().step(0.0, z[3]),
    "StateSpaceGP.process": lambda z: state_space().process(X, z),
    "RecursiveGP.step": lambda z: tracker().step(0.0, z[3]),
    "RecursiveGP.process": lambda z: tracker().process(X, z),
    "RecursiveGP.fit": lambda z: learning_tracker().fit(X, z, verbose=0),
    "KalmanFilter.fit": lambda z: fitted(cgp.KalmanFilter(model(), "Q")).fit(z, verbose=0),
    "KalmanFilter.fit with inputs": lambda z: fitted(cgp.KalmanFilter(driven(), "Q")).fit(
        (z[None, :, None], np.ones((1, 6, 1))), verbose=0
    ),
    "KalmanFilter.step": lambda z: cgp.KalmanFilter(model()).step(z[3:4]),
    "KalmanFilter.process": lambda z: cgp.KalmanFilter(model()).process(z),
    "statespace.filter": lambda z: statespace.filter(model(), z),
    "statespace.step": lambda z: statespace.step(model(), None, z[3:4]),
    "statespace.particle_filter": lambda z: statespace.particle_filter(model(), z, 8, seed=0),
    "Bank.update": lambda z: cgp.Bank(tracker()).update(list("abcdef"), z, X),
    "Bank.update of a filter": lambda z: cgp.Bank(cgp.KalmanFilter(model())).update(
        list("abcdef"), z
    ),
    "compare": lambda z: cgp.compare({"smooth": exact()}, X, z, folds=2, verbose=0),
    "GPInterpolator": lambda z: GPInterpolator(kernel(), 0.1, X, X)(z[None]),
    "Rotation.from_periodogram": lambda z: Rotation.from_periodogram(X, z),
    "Autoregressive.from_data": lambda z: Autoregressive.from_data(X, z, 1),
    "mean_squared_modulus": lambda z: metrics.mean_squared_modulus(z, 0 * Z),
    "normalized_error_db": lambda z: metrics.normalized_error_db(z, 0 * Z),
    "coverage": lambda z: metrics.coverage(z, prediction()),
    "log_predictive_densities": lambda z: metrics.log_predictive_densities(z, prediction()),
    "plotting.series": lambda z: plotting.series(X, z),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", ENDLESS[:2])
def test_is_an_infinite_observation_refused_at(door, value):
    with pytest.raises(ValueError, match="infinite elements"):
        DOORS[door](with_one(value))


@pytest.mark.parametrize("value", ENDLESS)
def test_has_a_metric_of_an_epoch_an_infinite_target_in_its_sum(value):
    metric = metrics.MeanSquaredModulus()
    run = tf.function(lambda z: metric.update_state(z, tf.zeros_like(z)))
    run(tf.constant(with_one(value)))
    assert not np.isfinite(metric.result())
