"""Labelled arrays are paired by position where their labels agree, and refused where they do not.

Every door that pairs two arrays is in the table of doors: what is labelled at it is shuffled, or
labelled otherwise, one argument at a time.
"""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cgp
from cgp import callbacks, metrics, plotting, statespace
from cgp.distributions import marginals
from cgp.kernels import Autoregressive, Matern32, Rotation
from cgp.layers import GPInterpolator
from cgp.metrics import MeanSquaredModulus
from cgp.observations import check_same_labels

N = 12
X = np.arange(float(N))
Z = np.exp(0.4j * X)
LABELS = np.array(["b", "a", *map(str, range(N - 2))])
ORDER = np.roll(np.arange(N), 5)


def of_pandas(a, labels=LABELS):
    return pd.Series(a, labels) if np.ndim(a) == 1 else pd.DataFrame(a, labels)


def of_xarray(a, labels=LABELS):
    dimensions = ["sample", "component"][: np.ndim(a)]
    return xr.DataArray(a, dims=dimensions, coords={"sample": labels})


def kernel():
    return Matern32(variance=1.0, lengthscale=2.0)


def exact(groups=None):
    return compiled(cgp.ExactGP(kernel(), 0.1 if groups is None else [0.1] * groups))


def state_space():
    return compiled(cgp.StateSpaceGP(kernel(), 0.1))


def tracker():
    return compiled(cgp.RecursiveGP(kernel(), 0.1, capacity=N))


def compiled(gp):
    gp.compile()
    return gp


def driven():
    return statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.1]], B=[[1.0]])


def learning():
    return cgp.KalmanFilter(driven(), "Q")


def held(gp):
    gp.condition(X, Z)
    return gp


SAMPLES = {"x": X, "z": Z, "missing": X == 3.0, "noise_variance": 0.1 + X}
COLUMN = Z[:, None]
SERIES = {"z": COLUMN, "missing": X[:, None] == 3.0, "inputs": np.ones((N, 1))}
STREAMS = {"x": X[:, None], "z": Z, "missing": X == 3.0, "noise_variance": 0.1 + X}
MOMENTS = {"mean": 0 * Z, "variance": np.ones(N), "pseudo_variance": 0 * Z}
PAIR = {"z": SAMPLES["z"], "predicted": 0 * Z}
QUIET = {"verbose": 0}


def of_prediction(metric):
    return lambda z, **moments: metric(z, moments)


DOORS = {
    "ExactGP.condition": (SAMPLES, lambda **a: exact().condition(**a)),
    "ExactGP.fit": (SAMPLES, lambda **a: exact().fit(**a, **QUIET)),
    "ExactGP.fit with validation data": (
        {"x": X, "z": Z},
        lambda **a: exact().fit(X, Z, validation_data=tuple(a.values()), **QUIET),
    ),
    "ExactGP.evaluate": (SAMPLES, lambda **a: exact().evaluate(**a, **QUIET)),
    "ExactGP.log_marginal_likelihood": (
        SAMPLES,
        lambda **a: exact().log_marginal_likelihood(**a),
    ),
    "ExactGP.condition with groups": (
        {"x": X, "z": Z, "noise_groups": np.zeros(N, int)},
        lambda **a: exact(groups=2).condition(**a),
    ),
    "ExactGP.predict": (
        {"x": X, "noise_variance": 0.1 + X},
        lambda **a: held(exact()).predict(**a, observed=True),
    ),
    "ExactGP.sample": (
        {"x": X, "noise_variance": 0.1 + X},
        lambda **a: held(exact()).sample(**a, observed=True),
    ),
    "ExactGP in a call": ({"x": X, "z": Z}, lambda x, z: exact()((x, z))),
    "ExactGP.train_on_batch": ({"x": X, "y": Z}, lambda **a: exact().train_on_batch(**a)),
    "StateSpaceGP.condition": (SAMPLES, lambda **a: state_space().condition(**a)),
    "StateSpaceGP.step of streams": (
        {"z": Z, "missing": X == 3.0, "noise_variance": 0.1 + X},
        lambda **a: state_space().step(0.0, **a),
    ),
    "StateSpaceGP.process": (SAMPLES, lambda **a: state_space().process(**a)),
    "StateSpaceGP.posterior": (
        {"x": X, "noise_variance": 0.1 + X},
        lambda **a: held(state_space()).posterior(**a, observed=True),
    ),
    "StateSpaceGP.sample": (
        {"x": X, "noise_variance": 0.1 + X},
        lambda **a: held(state_space()).sample(**a, observed=True),
    ),
    "RecursiveGP.step of streams": (STREAMS, lambda **a: tracker().step(**a)),
    "RecursiveGP.process": (SAMPLES, lambda **a: tracker().process(**a)),
    "RecursiveGP.fit": (SAMPLES, lambda **a: tracker().fit(**a, **QUIET)),
    "RecursiveGP.evaluate": (SAMPLES, lambda **a: tracker().evaluate(**a, **QUIET)),
    "RecursiveGP.posterior": (
        {"x": X, "noise_variance": 0.1 + X},
        lambda **a: tracker().posterior(**a, observed=True),
    ),
    "KalmanFilter.fit": (
        {"x": COLUMN, "missing": X[:, None] == 3.0},
        lambda **a: cgp.KalmanFilter(undriven(), "Q").fit(**a, **QUIET),
    ),
    "KalmanFilter.step of streams": (
        SERIES,
        lambda **a: learning().step(**a),
    ),
    "KalmanFilter.process": (SERIES, lambda **a: learning().process(**a)),
    "statespace.filter": (SERIES, lambda **a: statespace.filter(driven(), **a)),
    "statespace.log_likelihood": (SERIES, lambda **a: statespace.log_likelihood(driven(), **a)),
    "statespace.smooth": (SERIES, lambda **a: statespace.smooth(driven(), **a)),
    "statespace.posterior_sample": (
        SERIES,
        lambda **a: statespace.posterior_sample(driven(), seed=0, **a),
    ),
    "statespace.particle_filter": (
        SERIES,
        lambda **a: statespace.particle_filter(driven(), particles=8, seed=0, **a),
    ),
    "statespace.step": (
        {**SERIES, "arrived": X < 3.0},
        lambda **a: statespace.step(driven(), None, **a),
    ),
    "InteractingModels.filter": (
        {"z": COLUMN, "missing": X[:, None] == 3.0},
        lambda **a: statespace.InteractingModels(
            [undriven(), undriven()], [[0.9, 0.1], [0.1, 0.9]]
        ).filter(**a),
    ),
    "GPInterpolator": (
        {"x": X[:, None], "z": Z},
        lambda x, z: GPInterpolator(kernel(), 0.1)((x, z, X[:, None])),
    ),
    "GPInterpolator with noise": (
        {"z": Z, "missing": X == 3.0, "noise_variance": 0.1 + X},
        lambda z, **a: GPInterpolator(kernel(), 0.1)((X[:, None], z, X[:, None]), **a),
    ),
    "Bank.update": (
        {"keys": np.array(list("abcdefghijkl")), "x": X, "z": Z},
        lambda **a: cgp.Bank(tracker()).update(**a),
    ),
    "Bank.update of a filter": (
        {"keys": np.array(list("abcdefghijkl")), "z": COLUMN},
        lambda **a: cgp.Bank(cgp.KalmanFilter(undriven())).update(**a),
    ),
    "compare": (
        SAMPLES,
        lambda **a: cgp.compare({"smooth": exact()}, **a, folds=2, restarts=1, **QUIET),
    ),
    "Rotation.from_periodogram": ({"x": X, "z": Z}, Rotation.from_periodogram),
    "Autoregressive.from_data": (
        {"x": X, "z": Z},
        lambda **a: Autoregressive.from_data(**a, order=1),
    ),
    "mean_squared_modulus": (PAIR, metrics.mean_squared_modulus),
    "normalized_error_db": (PAIR, metrics.normalized_error_db),
    "MeanSquaredModulus": (
        {"y_true": Z, "y_pred": 0 * Z, "sample_weight": 1.0 + X},
        lambda **a: MeanSquaredModulus().update_state(**a),
    ),
    "coverage": ({"z": Z, **MOMENTS}, of_prediction(metrics.coverage)),
    "negative_log_predictive_density": (
        {"z": Z, **MOMENTS},
        of_prediction(metrics.negative_log_predictive_density),
    ),
    "marginals": (MOMENTS, lambda **moments: marginals(moments)),
    "plotting.series": (
        {"x": X, "z": Z, **MOMENTS},
        lambda x, z, **moments: plotting.series(x, z, moments),
    ),
    "callbacks.Parameters": (
        {"x": X, "z": Z},
        lambda **a: callbacks.Parameters("unused", **a),
    ),
}


def undriven():
    return statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.1]])


CASES = [(door, name) for door, (arguments, _) in DOORS.items() for name in list(arguments)[1:]]
# Of the other doors what follows the check is slow, and the same.
SLOW = ("fit", "evaluate", "batch", "compare", "RecursiveGP.step", "InteractingModels", "particle")
ACCEPTED = [door for door in DOORS if not any(word in door for word in SLOW)]


@pytest.mark.parametrize(("door", "name"), CASES)
@pytest.mark.parametrize("labelled", [of_pandas, of_xarray])
def test_is_an_argument_with_other_labels_refused(labelled, door, name):
    arguments, call = DOORS[door]
    first = next(iter(arguments))
    shuffled = labelled(arguments[name][ORDER], LABELS[ORDER])
    pair = {first: labelled(arguments[first]), name: shuffled}
    with pytest.raises(ValueError, match="paired by position, but their labels differ, such as b"):
        call(**{**arguments, **pair})


@pytest.mark.parametrize("door", ACCEPTED)
def test_are_equal_labels_accepted(door):
    arguments, call = DOORS[door]
    labelled = [of_pandas, of_xarray][ACCEPTED.index(door) % 2]
    call(**{name: labelled(a) for name, a in arguments.items()})


@pytest.mark.parametrize(
    "call",
    [
        lambda z, inputs: learning()((z, inputs)),
        lambda z, inputs: learning()(z, None, inputs),
        lambda z, inputs: learning()(z, missing=inputs == 2.0, inputs=np.ones((1, N, 1))),
        lambda z, inputs: learning().predict((z, inputs)),
        lambda z, inputs: compiled(learning()).fit((z, inputs), verbose=0),
        lambda z, inputs: compiled(learning()).evaluate((z, inputs), verbose=0),
    ],
)
def test_are_series_of_a_filter_labelled_as_what_belongs_to_them(call):
    dimensions, z = ["stream", "sample", "component"], COLUMN[None]
    z = xr.DataArray(z, dims=dimensions, coords={"sample": LABELS})
    inputs = xr.DataArray(np.ones((1, N, 1)), dims=dimensions, coords={"sample": LABELS[ORDER]})
    with pytest.raises(ValueError, match="paired by position, but their labels differ"):
        call(z, inputs)
    call(z, inputs.sel({"sample": LABELS}))


@pytest.mark.parametrize("labelled", [of_pandas, of_xarray])
def test_does_the_remedy_align(labelled):
    x, z = labelled(X), labelled(Z[ORDER], LABELS[ORDER])
    with pytest.raises(ValueError, match="align them") as caught:
        check_same_labels(x=(x, 0), z=(z, 0))
    remedy = str(caught.value).split("align them, ")[1].split(", or give")[0]
    np.testing.assert_array_equal(eval(remedy, {"x": x, "z": z}), Z)
    check_same_labels(x=(x, 0), z=(eval(remedy, {"x": x, "z": z}), 0))
    check_same_labels(x=(x.to_numpy(), 0), z=(z.to_numpy(), 0))


def test_are_labels_that_are_others_to_be_paired_first():
    x, z = pd.Series(X, pd.date_range("2026-01-01", periods=N)), pd.Series(Z)
    with pytest.raises(ValueError, match=r"such as 2026-01-01 00:00:00 and 0: pair them by their"):
        check_same_labels(x=(x, 0), z=(z, 0))


def test_are_columns_of_series_compared_with_the_rows_of_inputs():
    z = pd.DataFrame([Z, 2 * Z], columns=LABELS)
    exact().condition(pd.Series(X, LABELS), z)
    with pytest.raises(ValueError, match=r"align them, z.loc\[:, x.index\]"):
        exact().condition(pd.Series(X[ORDER], LABELS[ORDER]), z)


def test_has_an_array_of_xarray_without_coordinates_no_labels():
    z = xr.DataArray(Z, dims="sample")
    check_same_labels(x=(of_xarray(X), 0), z=(z, 0))
    check_same_labels(x=(of_pandas(X), 0), z=(z, 0))


def test_are_an_index_of_pandas_and_coordinates_of_xarray_compared():
    check_same_labels(x=(of_pandas(X), 0), z=(of_xarray(Z), 0))
    with pytest.raises(ValueError, match=r"align them, z.sel\({'sample': x.index}\)"):
        check_same_labels(x=(of_pandas(X), 0), z=(of_xarray(Z[ORDER], LABELS[ORDER]), 0))


def test_have_nan_and_repeated_labels_to_agree_too():
    labels = [np.nan, 1.0, 1.0]
    check_same_labels(x=(pd.Series(X[:3], labels), 0), z=(pd.Series(Z[:3], labels), 0))
    z = pd.Series(Z[:3], [np.nan, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"such as 1\.0 and 2\.0: pair them by their labels first"):
        check_same_labels(x=(pd.Series(X[:3], labels), 0), z=(z, 0))


def test_is_an_index_paired_with_its_own_labels_in_their_order_alone():
    z = pd.Series(Z, X)
    with pytest.raises(ValueError, match=r"x and z are paired by position.*align them, z.loc\[x\]"):
        exact().condition(z.index, z[::-1])
    held = [exact() for _ in range(2)]
    held[0].condition(z.index, z[::-1].loc[z.index])
    held[1].condition(X, Z)
    np.testing.assert_array_equal(*(gp.predict(X)["mean"] for gp in held))
    for index in (z.index, 2.0 * z.index):
        exact().condition(index, z)
    exact().condition(pd.Index(np.arange(N)[::-1]), pd.Series(Z))  # labels that pandas has counted
