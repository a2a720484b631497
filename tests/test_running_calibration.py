"""Whether the power of innovations and residuals is as predicted: over steps, and after a fit."""

import warnings

import numpy as np
import pytest
from scipy import stats

import cgp
from cgp.distributions import calibration
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.fit_checks import left_out_residuals, suspicions_of_stretches
from cgp.kernels import RBF, Matern12, Matern32, Rotation, WidelyLinear
from cgp.metrics import RunningCalibration

RNG = np.random.default_rng(7)


def normals(*shape):
    """Proper, of variance 1."""
    return RNG.normal(size=(*shape, 2)) @ [1.0, 1j] / np.sqrt(2.0)


def steps_of(innovations, variance=1.0):
    """Stacked steps of numbers whose predicted variance is known."""
    moments = Marginals(0 * innovations, np.full(innovations.shape, variance), 0 * innovations)
    return Step(moments, innovations, moments)


def step_at(steps, t):
    return steps.map(lambda a: a[..., t])


# --- steps ----------------------------------------------------------------------------------------


def test_the_ratio_is_that_of_the_last_samples_and_the_band_their_chi_squared():
    e = normals(60)
    e[[3, 4, 40]] = np.nan
    steps, health = steps_of(e, 0.9), RunningCalibration(window=20)
    tail = 0.025 / (100 * 20)
    for t in range(60):
        result = health.update(step_at(steps, t))
        last = steps.nis[max(t - 19, 0) : t + 1]
        degrees = 2 * np.sum(~np.isnan(last))
        assert result.ratio == pytest.approx(np.nansum(last) / degrees)
        np.testing.assert_allclose(
            [result.low, result.high], stats.chi2.ppf([tail, 1 - tail], degrees) / degrees
        )
        assert result.is_inside


def test_a_block_is_taken_as_its_steps_also_of_several_series():
    steps = steps_of(normals(3, 50))
    alone, blocks = RunningCalibration(15), RunningCalibration(15)
    by_step = [alone.update(step_at(steps, t)) for t in range(50)]
    by_block = [
        blocks.update_block(steps.map(lambda a, s=s: a[..., s]))
        for s in (slice(0, 0), slice(0, 7), slice(7, 8), slice(8, 50))
    ]
    for name in ("ratio", "low", "high", "is_inside"):
        expected = np.stack([getattr(result, name) for result in by_step], axis=-1)
        found = np.concatenate([getattr(result, name) for result in by_block], axis=-1)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_right_model_stays_inside_in_many_long_series():
    innovations = normals(40, 10_000)  # each of a hundred windows; a warning is an error
    assert RunningCalibration(100).update_block(steps_of(innovations)).is_inside.all()
    for series in innovations[:20]:
        assert RunningCalibration(100).update_block(steps_of(series)).is_inside.all()


def test_leaving_the_band_is_said_once_and_again_after_coming_back():
    power = np.repeat([1.0, 8.0, 1.0, 0.05], [200, 150, 300, 100])
    steps, health = steps_of(np.sqrt(power) * normals(len(power))), RunningCalibration(50)
    said, outside = [], np.zeros(len(power), bool)
    for t in range(len(power)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outside[t] = not health.update(step_at(steps, t)).is_inside
        said += [(t, str(w.message), w.filename) for w in caught]
    (first, too_sure, file), (second, too_cautious, _) = said
    assert 200 <= first < 220
    assert 650 < second < 700
    assert outside[[first, second]].all()
    assert file == __file__
    assert "too sure, their regions too narrow" in too_sure
    assert f"up to sample {first} the innovations of the last 50" in too_sure
    assert "too cautious, their regions too wide" in too_cautious


def test_the_series_that_leaves_its_band_is_named():
    innovations = normals(4, 300)
    innovations[2, 150:] *= 4.0
    with pytest.warns(RuntimeWarning, match="predictions of series 2 are too sure") as caught:
        result = RunningCalibration().update_block(steps_of(innovations))
    assert len(caught) == 1
    np.testing.assert_array_equal(result.is_inside.all(axis=-1), [True, True, False, True])


def test_what_is_not_observed_says_nothing_and_what_is_impossible_is_outside():
    e = normals(30)
    e[5:] = np.nan
    result = RunningCalibration(10).update_block(steps_of(e))
    assert np.isnan(result.ratio[-1])
    assert np.isfinite(result.ratio[:14]).all()
    assert (result.low[-1], result.high[-1]) == (0.0, np.inf)
    assert result.is_inside.all()

    health = RunningCalibration(10)
    with pytest.warns(RuntimeWarning, match="inf times the power"):
        health.update(steps_of(np.array(1.0 + 0j), 0.0))
    result = health.update_block(steps_of(normals(10)))
    assert result.ratio[8] == np.inf
    assert np.isfinite(result.ratio[9])


@pytest.mark.parametrize("is_real", [False, True])
def test_components_of_a_kalman_filter_count_where_they_are_observed(is_real):
    number = 1.0 if is_real else 1.0 + 0j
    model = cgp.statespace.LinearGaussian(
        0.5 * number * np.eye(2), np.eye(2), number * np.array([[1.0, 0.3], [0.0, 1.0]]), np.eye(2)
    )
    _, z = cgp.statespace.sample(model, steps=40, seed=1)
    z = np.array(z)
    z[5:20, 1] = np.nan
    z[9] = np.nan
    block = cgp.KalmanFilter(model).process(z)
    result = RunningCalibration(40).update_block(block)
    degrees = (1 if is_real else 2) * np.cumsum(np.sum(~np.isnan(z), axis=-1))
    np.testing.assert_allclose(result.ratio, np.nancumsum(block.nis) / degrees)
    live, health = cgp.KalmanFilter(model), RunningCalibration(40)
    steps = [health.update(live.step(z_t)) for z_t in z]
    np.testing.assert_allclose([step.ratio for step in steps], result.ratio)


@pytest.mark.parametrize("kind", [cgp.StateSpaceGP, cgp.RecursiveGP])
def test_a_loud_stretch_of_a_stream_is_told(kind):
    kernel, x = Matern12(1.0, 5.0), np.arange(220.0)
    noise = {"capacity": 8} if kind is cgp.RecursiveGP else {}
    gp = kind(kernel, noise_variance=0.5, **noise)
    z = cgp.StateSpaceGP(kernel, noise_variance=0.5).sample(x, 2, seed=3, observed=True)
    z[1, 160:] *= 3.0
    health = RunningCalibration(window=60)
    result = health.update_block(gp.process(x[:150], z[:, :150]))  # a warning is an error
    assert result.is_inside.all()
    steps = [gp.step(x_t, z_t) for x_t, z_t in zip(x[150:], z.T[150:], strict=True)]
    with pytest.warns(RuntimeWarning, match="of series 1 are too sure"):
        result = [health.update(step) for step in steps][-1]
    np.testing.assert_array_equal(result.is_inside, [True, False])


def test_what_is_no_step_and_another_number_of_series_are_refused():
    health, steps = RunningCalibration(), steps_of(normals(3, 5))
    with pytest.raises(TypeError, match="Step of a filter, got ndarray"):
        health.update(normals(3))
    with pytest.raises(ValueError, match=r"result of process, .* update takes"):
        health.update_block(steps_of(np.array(1j)))
    health.update(step_at(steps, 0))
    with pytest.raises(ValueError, match=r"series \(3,\), as before, got \(\).*update_block"):
        health.update_block(steps.map(lambda a: a[0]))
    with pytest.raises(ValueError, match="window must be a whole number"):
        RunningCalibration(2.5)


# --- residuals along a series ---------------------------------------------------------------------


def running(e, level=0.05):
    return calibration.running_calibration(np.abs(e) ** 2, np.ones(len(e)), e[None], level)


@pytest.mark.parametrize("smoothing", [1, 4])
@pytest.mark.parametrize("n", [25, 200])
def test_residuals_of_a_right_model_are_seldom_outside_also_correlated_ones(n, smoothing):
    outside = 0
    for _ in range(300):
        e = np.convolve(normals(n + smoothing - 1), np.full(smoothing, smoothing**-0.5), "valid")
        result = running(e)
        outside += bool(result.too_sure or result.too_cautious)
    assert outside <= 15


def test_improper_residuals_have_a_wider_band():
    e = normals(300)
    improper = np.sqrt(2.0) * e.real + 0j
    assert calibration.inflation(e[None], 30) == pytest.approx(1.0, abs=0.1)
    assert calibration.inflation(improper[None], 30) == pytest.approx(2.0, abs=0.2)
    assert np.all(running(improper).high > running(e).high)


def test_stretches_begin_and_end_where_the_power_changes():
    power = np.repeat([1.0, 6.0, 1.0, 0.1], [200, 100, 200, 100])
    result = running(np.sqrt(power) * normals(600))
    [sure], [cautious] = result.too_sure, result.too_cautious
    np.testing.assert_allclose([sure.first, sure.last], [200, 299], atol=8)
    np.testing.assert_allclose([cautious.first, cautious.last], [500, 599], atol=8)
    assert sure.ratio == pytest.approx(6.0, rel=0.3)
    assert cautious.ratio == pytest.approx(0.1, rel=0.3)
    words = calibration.in_words([sure], np.arange(600) / 2)
    assert words == f"from x = {sure.first / 2:g} to {sure.last / 2:g}"


# --- after a fit ----------------------------------------------------------------------------------

X = np.cumsum(RNG.uniform(0.5, 1.5, 150))
TRUTH = cgp.ExactGP(Matern32(1.0, 8.0), noise_variance=0.3)
LOUD = np.repeat([1.0, np.sqrt(10.0), 1.0], 50)
QUIET = np.repeat([1.0, np.sqrt(0.1), 1.0], 50)
[Z] = TRUTH.sample(X, 1, seed=5, observed=True)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
@pytest.mark.parametrize("is_improper", [False, True])
def test_left_out_residuals_are_those_of_loo(kind, is_improper):
    kernel, z = Matern32(1.0, 3.0), np.stack([Z, 2j * Z])
    if is_improper:
        kernel = WidelyLinear(kernel, coefficient=0.4 + 0.2j)
    z[:, [3, 11]] = np.nan
    noise = RNG.uniform(0.1, 1.0, len(X))
    for z_of_series in (z, np.where(np.arange(len(X)) == [[20], [30]], np.nan, z)):
        exact = cgp.ExactGP(kernel, 0.1, noise_scale=2.0)
        exact.condition(X, z_of_series, noise_variance=noise)
        gp = kind(kernel, 0.1, noise_scale=2.0)
        gp.condition(X, z_of_series, noise_variance=noise)
        found, loo = left_out_residuals(gp, gp.stored_data()), exact.loo()
        present = ~np.isnan(z_of_series)
        np.testing.assert_array_equal(np.isnan(found), ~present)
        deviation = (z_of_series - loo["mean"])[present]
        v, w = loo["variance"][present], loo["pseudo_variance"][present]
        # The block of the precision: its inverse has the moments v and w.
        determinant = v**2 - np.abs(w) ** 2
        dual = (v * deviation - w * np.conj(deviation)) / determinant
        expected = dual / np.sqrt(v / determinant)
        np.testing.assert_allclose(found[present], expected, rtol=1e-6, atol=1e-9)


def test_left_out_residuals_of_a_trend_are_those_of_loo():
    gp = cgp.ExactGP(Matern32(1.0, 3.0), 0.1, mean=cgp.means.Polynomial(1, marginalized=True))
    gp.condition(X, Z + 3.0 + X)
    loo = gp.loo()
    expected = (Z + 3.0 + X - loo["mean"]) / np.sqrt(loo["variance"])
    np.testing.assert_allclose(left_out_residuals(gp, gp.stored_data())[0], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_a_fit_names_the_stretch_that_is_louder(kind):
    gp = kind(Matern32())
    with pytest.warns(
        RuntimeWarning,
        match=r"have [23]\.?\d? times the power .* from x = \d+\.?\d* to \d+\.?\d*, and 0\.\d+ "
        r"times elsewhere: its regions are too narrow there and too wide elsewhere, so fit",
    ) as caught:
        gp.fit(X, LOUD * Z, verbose=0)
    words = str(caught[0].message).split("from x = ")[1].replace(",", "").split()
    np.testing.assert_allclose([float(words[0]), float(words[2])], X[[50, 100]], atol=8.0)


def test_a_fit_says_nothing_of_data_of_its_model():
    for seed in range(2):
        z = TRUTH.sample(X, 1, seed=seed, observed=True)[0]
        cgp.StateSpaceGP(Matern32()).fit(X, z, verbose=0)  # a warning is an error


def test_remedies_of_a_loud_stretch_work():
    groups = (LOUD > 1.0).astype(int)
    noise = normals(len(X))
    z = TRUTH.sample(X, 1, seed=2)[0] + np.sqrt(np.where(groups, 10.0, 0.5)) * noise
    with pytest.warns(RuntimeWarning, match="too narrow there"):
        cgp.StateSpaceGP(Matern32()).fit(X, z, verbose=0)
    gp = cgp.StateSpaceGP(Matern32(), noise_variance=[None, None])
    gp.fit(X, z, noise_groups=groups, verbose=0)  # a warning is an error


def suspicion(gp, x, z):
    """What the check alone says of data at the present hyperparameters."""
    gp.condition(x, z)
    return " ".join(suspicions_of_stretches(gp, gp.stored_data()))


def test_series_are_examined_each_or_together_if_they_are_short():
    gp = cgp.StateSpaceGP(Matern32(1.0, 8.0), noise_variance=0.3)
    z = TRUTH.sample(X, 3, seed=1, observed=True)
    assert not suspicion(gp, X, z)
    assert not suspicion(gp, X[:60], z[:, :60])
    z[1] *= LOUD
    assert "the residuals of series 1 have" in suspicion(gp, X, z)
    short = TRUTH.sample(X[:60], 8, seed=1, observed=True)
    short[:, 20:40] *= 3.0
    assert "the residuals have" in suspicion(gp, X[:60], short)
    assert not suspicion(gp, X[:60], short[0])


def test_a_quiet_stretch_is_named_where_the_others_are_as_predicted():
    gp = cgp.StateSpaceGP(Matern32(1.0, 8.0), noise_variance=0.3)
    words = suspicion(gp, X, QUIET * Z)
    assert "its regions are too wide there, so" in words


def test_outliers_data_of_several_dimensions_and_outputs_are_no_stretches():
    gp = cgp.StateSpaceGP(Matern32(1.0, 8.0), noise_variance=0.3)
    outliers = Z.copy()
    outliers[[60, 64, 70]] += 20.0
    assert not suspicion(gp, X, outliers)
    plane = cgp.ExactGP(RBF(1.0, [8.0, 1.0]), noise_variance=0.3)
    assert not suspicion(plane, np.stack([X, 0 * X], axis=-1), LOUD * Z)
    both = cgp.kernels.Outputs([Matern32(1.0, 8.0), Matern32(1.0, 8.0) * Rotation(0.1)])
    of_outputs = cgp.StateSpaceGP(both, noise_variance=0.3)
    assert not suspicion(of_outputs, X, np.stack([LOUD * Z, Z], axis=-1))
    heavy = cgp.StateSpaceGP(Matern32(1.0, 8.0), 0.3, likelihood=cgp.likelihoods.StudentT(4.0))
    assert not suspicion(heavy, X, LOUD * Z)
