"""Results as tables and datasets: each number where it belongs, under the time it is of."""

import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cgp
from cgp.distributions import Step
from cgp.gp.sampling.nuts import Chains
from cgp.gp.sampling.parameter_draws import ParameterDraws
from cgp.kernels import Matern32, WidelyLinear
from tests.long_cases import long_except

DAYS = pd.date_range("2026-01-01", periods=6, freq="D", name="day")
X = np.arange(6.0)
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(3, 6)) + 1j * RNG.normal(size=(3, 6))
MOMENTS = ["mean", "variance", "pseudo_variance", "std_real", "std_imag"]


def gp(z=Z[0], kernel=None):
    made = cgp.ExactGP(kernel or WidelyLinear(Matern32(1.0, 2.0), 0.4 + 0.2j), 0.1)
    made.condition(X, z)
    return made


def model():
    """Widely linear, of two states and one observation."""
    proper = cgp.statespace.LinearGaussian(
        [[0.9j, 0.1], [0.0, 0.8]], np.diag([1.0, 0.5]), [[1.0, 0.5]], [[0.3]]
    )
    return cgp.statespace.widely_linear(proper, pseudo_R=[[0.1 + 0.2j]])


def test_has_a_posterior_a_row_for_each_time_and_a_column_for_each_moment():
    posterior = gp().posterior(X + 0.5)
    frame = cgp.to_frame(posterior, DAYS)
    assert frame.columns.tolist() == MOMENTS
    pd.testing.assert_index_equal(frame.index, DAYS)
    for name in MOMENTS[:3]:
        np.testing.assert_array_equal(frame[name], getattr(posterior, name)())
    composite = cgp.linalg.to_composite(posterior.covariance(), posterior.pseudo_covariance())
    deviations = np.sqrt(np.diag(composite))
    np.testing.assert_allclose(frame["std_real"], deviations[:6], rtol=1e-9)
    np.testing.assert_allclose(frame["std_imag"], deviations[6:], rtol=1e-9)
    assert abs(frame["std_real"] / frame["std_imag"] - 1).min() > 0.1  # they are not alike
    for same in (gp().predict(X + 0.5), cgp.distributions.marginals(posterior)):
        pd.testing.assert_frame_equal(cgp.to_frame(same, DAYS), frame)


def test_are_rows_numbered_where_no_index_is_given():
    posterior = gp().posterior(X)
    assert cgp.to_frame(posterior).index.equals(pd.RangeIndex(6))
    assert cgp.to_xarray(posterior).sizes == {"time": 6}
    assert not cgp.to_xarray(posterior).coords
    frame = cgp.to_frame(posterior, X / 2)
    assert frame.index.tolist() == (X / 2).tolist()
    assert frame.index.name is None


def test_are_series_of_a_batch_told_apart():
    posterior = gp(Z).posterior(X)
    frame, dataset = cgp.to_frame(posterior, DAYS), cgp.to_xarray(posterior, DAYS)
    assert frame.index.names == ["batch", "day"]
    assert dict(dataset.sizes) == {"batch": 3, "day": 6}
    mean = posterior.mean().numpy()
    for series in range(3):
        np.testing.assert_array_equal(frame["mean"].loc[series], mean[series])
        for day, value in zip(DAYS, mean[series], strict=True):
            assert dataset["mean"].sel(batch=series, day=day) == value
    deep = cgp.ComplexNormal(np.zeros((2, 3, 4), complex), np.eye(4) + 0j)
    assert cgp.to_xarray(deep).sizes == {"batch_0": 2, "batch_1": 3, "time": 4}
    assert cgp.to_frame(deep).index.names == ["batch_0", "batch_1", "time"]


@pytest.mark.parametrize(
    "index",
    [
        DAYS,
        pd.Series(DAYS),
        xr.DataArray(np.zeros(6), {"day": DAYS.to_numpy()}, "day").day,
        DAYS.tz_localize("Europe/Berlin"),
        pd.Index(X, name="day"),
    ],
)
def test_gives_an_index_its_name_and_its_values(index):
    frame, dataset = cgp.to_frame(gp().predict(X), index), cgp.to_xarray(gp().predict(X), index)
    assert frame.index.name == "day"
    assert frame.index.tolist() == pd.Index(index).tolist()
    assert dataset.sizes == {"day": 6}
    assert pd.Index(dataset.day.to_numpy()).tolist() == pd.Index(index).tolist()


def test_has_a_block_of_a_stream_its_three_parts():
    block = cgp.RecursiveGP(Matern32(1.0, 2.0), 0.1, capacity=4).process(X, Z[0])
    frame = cgp.to_frame(block, DAYS)
    names = [f"{part}_{moment}" for part in ("predicted", "filtered") for moment in MOMENTS]
    assert frame.columns.tolist() == [*names[:5], "innovation", *names[5:]]
    np.testing.assert_array_equal(frame["innovation"], block.innovation)
    np.testing.assert_array_equal(frame["filtered_mean"], block.filtered.mean)
    np.testing.assert_array_equal(frame["predicted_variance"], block.predicted.variance)


def test_has_a_block_of_a_kalman_filter_components_after_time():
    kf = cgp.KalmanFilter(model())
    steps = Step.stack([kf.step(value) for value in Z[0]], axis=-2)
    frame = cgp.to_frame(steps, DAYS, dims=("time", "component"))
    np.testing.assert_array_equal(frame["innovation"], steps.innovation[:, 0])
    for state in (0, 1):
        np.testing.assert_array_equal(
            frame[f"filtered_mean_{state}"], steps.filtered.mean[:, state]
        )
    dataset = cgp.to_xarray(steps, DAYS, dims=("time", "component"))
    assert dict(dataset.sizes) == {"day": 6, "component": 1, "state": 2}
    for index in (DAYS, None):
        with pytest.raises(ValueError, match=r'of a KalmanFilter.*dims=\("time", "component"\)'):
            cgp.to_frame(steps, index)


def test_is_a_last_axis_of_one_element_named_or_refused():
    walk = cgp.statespace.LinearGaussian([[0.9j]], [[1.0]], [[1.0]], [[2.0]])
    kf = cgp.KalmanFilter(walk)
    block = kf.process(Z[0][:, None])
    frame = cgp.to_frame(block, DAYS, dims=["time", "component"])
    np.testing.assert_array_equal(frame["filtered_mean"], block.filtered.mean[:, 0])
    assert cgp.to_frame(block, dims=("time",)).index.names == ["batch", "time"]
    for result in (block, block.predicted):
        with pytest.raises(ValueError, match=r'shape \(6, 1\) may be.*dims=\("time",\)'):
            cgp.to_frame(result)


def covariances(chols):
    """Covariance and pseudo-covariance of states, from the factors of a widely linear model."""
    return cgp.linalg.from_composite(chols @ np.swapaxes(chols, -1, -2))


def test_is_said_whether_a_square_prediction_is_of_outputs_or_of_series():
    kernel = cgp.kernels.Coregionalized(Matern32(1.0, 1.0), outputs=2, mixing=[1.0, 1j])
    predicted = cgp.ExactGP(kernel, 0.1).predict([0.0, 1.0])
    with pytest.raises(ValueError, match="may be of 2 outputs or of 2 series: say which"):
        cgp.to_frame(predicted)
    frame = cgp.to_frame(predicted, dims=("time", "component"))
    assert len(frame) == 2
    assert "mean_1" in frame


@pytest.mark.parametrize("z", [Z[0], Z[0][:, None], Z[..., None]], ids=["T", "T1", "BT1"])
def test_are_moments_of_filter_and_smoother_those_of_their_factors(z):
    filtered, smoothed = (f(model(), z) for f in (cgp.statespace.filter, cgp.statespace.smooth))
    frame = cgp.to_frame(filtered, DAYS)
    assert frame.index.names == (["batch", "day"] if z.ndim == 3 else ["day"])
    for prefix, result in (("predicted", filtered), ("filtered", filtered), ("smoothed", smoothed)):
        frame, dataset = cgp.to_frame(result, DAYS), cgp.to_xarray(result, DAYS)
        means = getattr(result, f"{prefix}_means").numpy()
        k, c = (np.asarray(a) for a in covariances(getattr(result, f"{prefix}_chols").numpy()))
        np.testing.assert_array_equal(dataset[f"{prefix}_mean"], means)
        for state in (0, 1):
            variance, pseudo = k[..., state, state].real, c[..., state, state]
            expected = {
                "mean": means[..., state],
                "variance": variance,
                "pseudo_variance": pseudo,
                "std_real": np.sqrt((variance + pseudo.real) / 2),
                "std_imag": np.sqrt((variance - pseudo.real) / 2),
            }
            for name, value in expected.items():
                found = frame[f"{prefix}_{name}_{state}"]
                np.testing.assert_allclose(found, value.ravel(), rtol=1e-9, atol=1e-12)
    frame, dataset = cgp.to_frame(filtered, DAYS), cgp.to_xarray(filtered, DAYS)
    np.testing.assert_array_equal(frame["innovation"], filtered.innovations.numpy().ravel())
    variances = filtered.innovation_variances.numpy().ravel()
    np.testing.assert_array_equal(frame["innovation_variance"], variances)
    np.testing.assert_array_equal(frame["log_likelihood"], filtered.log_likelihoods.numpy().ravel())
    sizes = {"batch": 3, "day": 6, "state": 2, "component": 1}
    if z.ndim < 3:
        del sizes["batch"]
    if z.ndim == 1:
        del sizes["component"]
    assert dict(dataset.sizes) == sizes


def test_are_moments_of_a_forecast_those_of_observations_too():
    result = cgp.statespace.forecast(model(), cgp.statespace.filter(model(), Z[0]), steps=6)
    frame = cgp.to_frame(result, DAYS)
    k = result.observation_covariances.numpy()[:, 0, 0].real
    c = result.observation_pseudo_covariances.numpy()[:, 0, 0]
    np.testing.assert_array_equal(frame["observation_mean"], result.observation_means.numpy()[:, 0])
    np.testing.assert_array_equal(frame["observation_pseudo_variance"], c)
    np.testing.assert_allclose(frame["observation_std_imag"], np.sqrt((k - c.real) / 2))
    k, c = (np.asarray(a) for a in covariances(result.state_chols.numpy()))
    np.testing.assert_allclose(frame["state_variance_1"], k[:, 1, 1].real)
    np.testing.assert_allclose(frame["state_pseudo_variance_1"], c[:, 1, 1])


def test_have_real_models_mean_and_variance_alone():
    walk = cgp.statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
    result = cgp.statespace.smooth(walk, X)
    assert cgp.to_frame(result).columns.tolist() == ["smoothed_mean", "smoothed_variance"]
    ahead = cgp.statespace.forecast(walk, cgp.statespace.filter(walk, X), 2)
    assert [*cgp.to_xarray(ahead)] == [
        "state_mean", "state_variance", "observation_mean", "observation_variance",
    ]  # fmt: skip


def made_up(process):
    """Draws that no sampler has made."""
    rng, shape = np.random.default_rng(1), (2, 4)
    points = rng.normal(size=(*shape, len(process.trainable_variables) + 1))  # two noise variances
    zeros = np.zeros(shape)
    return ParameterDraws(process, {}, Chains(points, zeros, zeros > 0.0, zeros, zeros[0]))


def sampled(process):
    return process.sample_parameters(draws=4, warmup=4, chains=2, seed=0, verbose=0)


@pytest.mark.parametrize("way", long_except([made_up, sampled], made_up))
@pytest.mark.filterwarnings("ignore:of these draws")  # they are few
def test_have_draws_of_hyperparameters_rows_by_chain_and_draw(way):
    made = cgp.ExactGP(Matern32(1.0, [2.0]) * cgp.kernels.Rotation(0.1), [0.1, 0.2])
    made.condition(X, Z[0], noise_groups=[0, 0, 0, 1, 1, 1])
    draws = way(made)
    frame, dataset = cgp.to_frame(draws), cgp.to_xarray(draws)
    assert frame.index.names == ["chain", "draw"]
    assert len(frame) == 8
    for group in (0, 1):
        expected = draws["noise_variance"][..., group].ravel()
        np.testing.assert_array_equal(frame[f"noise_variance_{group}"], expected)
    for name, values in draws.items():
        np.testing.assert_array_equal(dataset[name], values)
    assert dataset["noise_variance"].dims == ("chain", "draw", "noise_variance_dim_0")
    with pytest.raises(ValueError, match="index must be None for draws"):
        cgp.to_frame(draws, DAYS)


I62 = np.ones((6, 2)) + 0j
COMPONENTS = {"mean": I62, "variance": I62.real, "pseudo_variance": 0 * I62}
LABELLED = {"mean": pd.Series(0j * X, DAYS), "variance": X + 1.0, "pseudo_variance": 0j * X}

REFUSED = {
    "a number": (lambda: cgp.to_frame(3.0), TypeError, "result must be .* got float"),
    "a model": (lambda: cgp.to_xarray(gp()), TypeError, "got ExactGP"),
    "a short index": (
        lambda: cgp.to_frame(gp().predict(X), DAYS[1:]), ValueError,
        r"index must be \[6\], .* got shape \(5,\)$"),
    "an index of times of what has components": (
        lambda: cgp.to_frame(COMPONENTS, DAYS), ValueError, r'dims=\("time", "component"\)'),
    "an index of two axes": (
        lambda: cgp.to_frame(gp().predict(X), X[:, None]), ValueError, r"got shape \(6, 1\)"),
    "an index of the same labels in another order": (
        lambda: cgp.to_frame(LABELLED, DAYS[::-1]), ValueError, "index and pred.*by position"),
    "a series of the same labels in another order": (
        lambda: cgp.to_xarray(LABELLED, pd.Series(X, DAYS)[::-1]), ValueError, "labels differ"),
    "an index that misses a day": (
        lambda: cgp.to_frame(gp().predict(X), DAYS.insert(2, pd.NaT)[:-1]), ValueError,
        "index must be known everywhere, but misses the element at 2"),
    "an index of which one is hidden": (
        lambda: cgp.to_xarray(gp().predict(X), np.ma.masked_equal(X, X[3])), ValueError,
        "misses the element at 3"),
    "a single step": (
        lambda: cgp.to_frame(cgp.RecursiveGP(Matern32(1.0, 1.0), 0.1).step(0.0, 1j)), ValueError,
        "no axis of times.*Step.stack"),
    "other dims": (
        lambda: cgp.to_frame(gp().predict(X), dims=("day",)), ValueError, "dims must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_is_what_is_no_table_refused(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(("package", "call"), [("pandas", "to_frame"), ("xarray", "to_xarray")])
def test_says_where_a_package_is_missing_how_to_install_it(package, call, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ImportError, match=rf'{call} needs {package}: pip install "cgp\[{package}\]'
    ):
        getattr(cgp, call)(gp().predict(X))


def test_are_datasets_written_to_files_and_read_again(tmp_path):
    pytest.importorskip("h5netcdf")
    dataset = cgp.to_xarray(gp(Z).posterior(X), DAYS)
    dataset.to_netcdf(tmp_path / "found.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "found.nc", engine="h5netcdf") as read:
        assert read.load().equals(dataset)


def test_goes_polar_motion_from_a_frame_with_dates_to_a_frame_of_predictions_with_dates(tmp_path):
    mjd, position = cgp.datasets.polar_motion(58800.0, 59000.0)
    frame = pd.DataFrame(
        {"pole": position}, index=pd.Timestamp("1858-11-17") + pd.to_timedelta(mjd, "D")
    )
    frame.loc["2020-01-10":"2020-01-20", "pole"] = np.nan
    clock = cgp.Clock("day", origin="2020-01-01")
    slow = cgp.kernels.Matern52() + cgp.kernels.Constant(1e5, fixed="variance")
    made = cgp.StateSpaceGP(slow, noise_variance=0.01, fixed="noise_variance")
    made.compile(cgp.optimizers.LBFGS())
    made.fit(clock(frame.index), frame["pole"], epochs=20, verbose=0)
    made.save(tmp_path / "pole.keras")

    dates = pd.date_range("2020-01-05", "2020-01-25", freq="12h", name="date")
    again, same_clock = cgp.load_model(tmp_path / "pole.keras"), cgp.Clock("day", clock.origin)
    result = cgp.to_frame(again.posterior(same_clock(dates), observed=True), dates)
    truth = pd.Series(position, frame.index)
    gap = slice("2020-01-10", "2020-01-20")
    at = result.index.intersection(truth.index)
    missed = abs(result.loc[at, "mean"] - truth[at])
    assert len(missed) == 21
    assert (missed < 4 * np.sqrt(result.loc[at, "variance"])).all()
    assert missed[gap].max() > 3 * missed.drop(missed[gap].index).max()  # these days were missing
    deviation = result["std_real"]
    assert deviation["2020-01-15"].min() > 2 * deviation["2020-01-06"].max()
