import builtins
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import dates, pyplot

import cgp
from cgp import plotting, statespace
from cgp.distributions import ComplexNormal

matplotlib.use("Agg")

QUANTILE = 1.959963984540054  # of the unit normal at 0.975


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    pyplot.close("all")


def example():
    """Unsorted inputs, a missing target, an improper prediction."""
    rng = np.random.default_rng(1)
    x = rng.permutation(np.linspace(0.0, 3.0, 30))
    mean = 2 * np.exp(2j * np.pi * x) + 0.3
    v = rng.uniform(0.01, 0.02, 30)
    w = 0.8 * v * np.exp(2j * np.pi * rng.uniform(size=30))
    z = mean + 0.05 * (rng.normal(size=30) + 1j * rng.normal(size=30))
    z[4] = np.nan
    return x, z, {"mean": mean, "variance": v, "pseudo_variance": w}


def band(ax):
    """The lower and upper edge, over sorted x."""
    (polygon,) = ax.collections
    vertices = polygon.get_paths()[0].vertices
    n = (len(vertices) - 3) // 2
    return vertices[1 : n + 1], vertices[n + 2 : -1][::-1]


def line(ax, label):
    (result,) = [artist for artist in ax.lines if artist.get_label() == label]
    return result.get_xdata(), result.get_ydata()


def test_a_series_shows_each_part_with_its_own_band():
    x, z, posterior = example()
    mean, v, w = posterior.values()
    axes = plotting.series(x, z, posterior)
    order = np.argsort(x)
    variances = (v + w.real) / 2, (v - w.real) / 2
    for ax, part, variance in zip(axes, (np.real, np.imag), variances, strict=True):
        for drawn, sign in zip(band(ax), (-1, 1), strict=True):
            edge = part(mean) + sign * QUANTILE * np.sqrt(variance)
            np.testing.assert_allclose(drawn[:, 0], x[order])
            np.testing.assert_allclose(drawn[:, 1], edge[order])
        np.testing.assert_allclose(line(ax, "mean"), [x[order], part(mean)[order]])
        there = np.where(np.isnan(z), np.nan, part(z))  # of a missing target neither part is drawn
        np.testing.assert_allclose(line(ax, "data"), [x, there])
    assert [ax.get_ylabel() for ax in axes] == ["Re z", "Im z"]
    assert axes[1].get_xlabel() == "x"
    labels = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert labels == ["95 % interval", "mean", "data"]


@pytest.mark.parametrize("parts", ["real-imaginary", "modulus-phase"])
def test_is_a_series_of_dates_drawn_over_them_as_over_their_numbers(parts):
    x, z, posterior = example()
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(x, unit="D")
    given = {
        "a DatetimeIndex": (days, days.to_numpy()),
        "other resolutions": (days.astype("datetime64[ns]"), days.astype("datetime64[us]")),
        "a time zone": (days.tz_localize("UTC").tz_convert("Asia/Tokyo"), list(days)),
    }
    over_numbers = plotting.series(x, z, posterior, parts=parts)
    for x_data, x_new in given.values():
        axes = plotting.series(x_data, pd.Series(z), posterior, x_new, parts=parts)
        for ax, expected in zip(axes, over_numbers, strict=True):
            for label in ("mean", "data"):
                (result, values), (at, wanted) = line(ax, label), line(expected, label)
                start = dates.date2num(np.datetime64("2026-01-01"))
                np.testing.assert_allclose(dates.date2num(result) - start, at, atol=1e-9)
                np.testing.assert_allclose(values, wanted)
            assert isinstance(ax.xaxis.get_major_locator(), dates.AutoDateLocator)
        assert isinstance(axes[1].xaxis.get_major_formatter(), dates.ConciseDateFormatter)


def test_are_dates_beside_numbers_and_durations_refused():
    x, z, posterior = example()
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(x, unit="D")
    with pytest.raises(TypeError, match="x and x_new must both be numbers or both be dates"):
        plotting.series(days, z, posterior, x)
    with pytest.raises(TypeError, match=r"numbers or dates, got durations: .*cgp\.Clock"):
        plotting.series(days - days[0], z)
    with pytest.raises(ValueError, match=r"x must be known everywhere.*NaT"):
        plotting.series(days.insert(0, pd.NaT)[:30], z)


def test_masked_data_are_missing():
    x, z, posterior = example()
    hidden = np.isnan(z)
    hidden[[2, 7]] = True
    masked = np.ma.array(np.where(hidden, 99 + 99j, z), mask=hidden)
    for data in (masked, list(masked)):
        axes = plotting.series(x, data, posterior)
        plane = plotting.plane(data, posterior)
        for drawn in (line(axes[0], "data")[1], *line(plane, "data")):
            np.testing.assert_array_equal(np.isnan(drawn), hidden)
        np.testing.assert_array_equal(line(axes[1], "data")[1][~hidden], z.imag[~hidden])


def test_bands_of_modulus_and_phase_hold_their_share_of_draws():
    x, _, posterior = example()
    mean, v, w = posterior.values()
    order = np.argsort(x)
    axes = plotting.series(x, None, posterior, parts="modulus-phase", probability=0.9)
    composite = 0.5 * np.array([[v + w.real, w.imag], [w.imag, v - w.real]])
    root = np.linalg.cholesky(np.moveaxis(composite, -1, 0))
    noise = np.random.default_rng(2).normal(size=(20_000, 2))
    for i, point in enumerate(order):
        re, im = root[point] @ noise.T
        draws = mean[point] + re + 1j * im
        phase = np.angle(draws / mean[point]) + line(axes[1], "mean")[1][i]
        for ax, values in zip(axes, (np.abs(draws), phase), strict=True):
            low, high = (edge[i, 1] for edge in band(ax))
            assert np.mean((low < values) & (values < high)) == pytest.approx(0.9, abs=0.015)
    np.testing.assert_allclose(line(axes[0], "mean")[1], np.abs(mean)[order])


def test_phase_has_no_jumps_and_data_lie_on_the_branch_of_the_mean():
    x, z, posterior = example()
    axes = plotting.series(x, z, posterior, parts="modulus-phase")
    where, phase = line(axes[1], "mean")
    assert np.ptp(phase) > 2.5 * 2 * np.pi  # three turns, less a step
    assert np.max(np.abs(np.diff(phase))) < np.pi
    np.testing.assert_allclose(
        np.exp(1j * phase), np.exp(1j * np.angle(posterior["mean"]))[np.argsort(x)]
    )
    x_data, data = line(axes[1], "data")
    np.testing.assert_array_less(np.abs(data - np.interp(x_data, where, phase))[~np.isnan(z)], 0.2)
    assert [ax.get_ylabel() for ax in axes] == ["|z|", "arg z (rad)"]


def test_a_band_where_the_mean_vanishes_is_all_phases_and_no_negative_modulus():
    zero = np.zeros(3, complex)
    posterior = {"mean": zero, "variance": np.ones(3), "pseudo_variance": zero}
    modulus, phase = plotting.series(np.arange(3), None, posterior, parts="modulus-phase")
    np.testing.assert_array_equal(band(modulus)[0][:, 1], np.zeros(3))
    np.testing.assert_allclose([edge[:, 1] for edge in band(phase)], [[-np.pi] * 3, [np.pi] * 3])


@pytest.mark.parametrize("column", [False, True])
def test_a_posterior_may_lie_elsewhere_than_the_data(column):
    x, z, posterior = example()
    fewer = {name: moment[:10] for name, moment in posterior.items()}
    x_new = x[:10]
    if column:
        x, x_new = x[:, None], x_new[:, None]
    axes = plotting.series(x, z, fewer, x_new)
    assert len(line(axes[0], "mean")[0]) == 10
    assert len(line(axes[0], "data")[0]) == 30


def test_a_distribution_is_drawn_like_its_moments():
    k = np.array([[1.0, 0.2j], [-0.2j, 0.5]])
    c = np.array([[0.3j, 0.1], [0.1, -0.2]])
    mean = np.array([1.0, 2j])
    p = ComplexNormal.from_covariance(mean, k, c)
    moments = {"mean": mean, "variance": np.diag(k).real, "pseudo_variance": np.diag(c)}
    pictures = [plotting.series([0.0, 1.0], None, q) for q in (p, moments)]
    for one, other in zip(*pictures, strict=True):
        np.testing.assert_allclose(band(one), band(other), rtol=1e-12)


def test_the_plane_shows_the_path_the_data_and_the_ellipses():
    _, z, posterior = example()
    ax = plotting.plane(z, posterior, probability=0.8)
    np.testing.assert_array_equal(
        line(ax, "mean"), [posterior["mean"].real, posterior["mean"].imag]
    )
    there = np.where(np.isnan(z), np.nan, [z.real, z.imag])
    np.testing.assert_array_equal(line(ax, "data"), there)
    (ellipses,) = ax.collections
    k, c = (np.diag(posterior[name] + 0j) for name in ("variance", "pseudo_variance"))
    e = ComplexNormal.from_covariance(posterior["mean"], k, c).ellipses(0.8)
    np.testing.assert_allclose(ellipses.get_widths(), 2 * e.semi_major.numpy())
    np.testing.assert_allclose(ellipses.get_heights(), 2 * e.semi_minor.numpy())
    angles = np.exp(2j * np.radians(ellipses.get_angles()))
    np.testing.assert_allclose(angles, np.exp(2j * e.angle.numpy()))
    assert ax.get_aspect() == 1.0
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["80 % ellipses", "mean", "data"]


def test_the_limits_of_the_plane_hold_the_ellipses():
    one = np.ones(1)
    ax = plotting.plane(None, {"mean": 0j * one, "variance": 2 * one, "pseudo_variance": 2j * one})
    # A segment along the diagonal, of half-length sqrt(5.99 · 2) = 3.46.
    low, high = ax.get_xlim()
    assert low < -2.44
    assert high > 2.44
    assert min(np.abs(ax.get_ylim())) > 2.44


def test_the_limits_of_the_plane_are_those_that_are_set():
    _, z, posterior = example()
    ax = plotting.plane(z, posterior)
    ax.set_xlim(-1.0, 0.5)
    ax.set_ylim(-2.0, 1.0)
    ax.figure.canvas.draw()
    assert (ax.get_xlim(), ax.get_ylim()) == ((-1.0, 0.5), (-2.0, 1.0))
    corners = ax.transData.transform([[-1.0, -2.0], [0.5, 1.0]])
    width, height = np.diff(corners, axis=0)[0]
    assert height == pytest.approx(2 * width, rel=1e-6)


@pytest.mark.parametrize("draw", [plotting.series, plotting.plane])
def test_the_legend_hides_nothing(draw):
    x, z, posterior = example()
    ax = draw(x, z, posterior)[0] if draw is plotting.series else draw(z, posterior)
    ax.figure.canvas.draw()
    legend, frame = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.y0 >= frame.y1 - 1
    assert legend.y1 <= ax.figure.bbox.y1 + 1


def test_pictures_are_drawn_on_the_axes_given_and_nothing_else_changes():
    x, z, posterior = example()
    settings = dict(matplotlib.rcParams)
    figure, given = pyplot.subplots(3)
    series = plotting.series(x, z, posterior, ax=given[:2])
    assert list(series) == list(given[:2])
    assert plotting.plane(z, posterior, ax=given[2]) is given[2]
    assert pyplot.get_fignums() == [figure.number]
    assert dict(matplotlib.rcParams) == settings
    figure.canvas.draw()  # without a warning


@pytest.mark.parametrize("parts", ["real-imaginary", "modulus-phase"])
def test_data_alone_are_drawn_alone(parts):
    x, z, _ = example()
    axes = plotting.series(x, z, parts=parts)
    assert all(len(ax.lines) == 1 and not ax.collections for ax in axes)
    assert axes[0].get_legend() is None
    assert plotting.plane(z).get_legend() is None


def test_labels_units_and_legends_are_those_given():
    x, z, posterior = example()
    settings = {"z_label": "i", "z_unit": "mA"}
    for parts, labels in {
        "real-imaginary": ["Re i (mA)", "Im i (mA)"],
        "modulus-phase": ["|i| (mA)", "arg i (rad)"],  # a phase has a unit of its own
    }.items():
        axes = plotting.series(x, z, parts=parts, x_label="time (s)", legend=True, **settings)
        assert [ax.get_ylabel() for ax in axes] == labels
        assert axes[1].get_xlabel() == "time (s)"
        assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["data"]
    ax = plotting.plane(z, legend=True, **settings)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Re i (mA)", "Im i (mA)")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["data"]
    assert plotting.series(x, z, posterior, legend=False)[0].get_legend() is None
    assert plotting.plane(z, posterior, legend=False).get_legend() is None


def two_elements():
    """Times, a series of two elements, and the results of a model of it."""
    proper = statespace.LinearGaussian(
        [[0.9j, 0.1], [0.0, 0.8]], np.eye(2), [[1.0, 1.0], [0.0, 1.0]], 0.1 * np.eye(2)
    )
    model = statespace.widely_linear(proper, pseudo_Q=[[0.9j, 0.0], [0.0, 0.5]])
    _, z = statespace.sample(model, 12, seed=1)
    result = statespace.filter(model, z)
    return np.arange(12.0), z.numpy(), model, result


def test_one_component_of_each_result_of_a_model_is_drawn():
    x, z, model, result = two_elements()
    kf = cgp.KalmanFilter(model)
    smoothed = statespace.smooth(model, z)
    deviation = (
        result.innovation_variances.numpy()
        + result.innovation_pseudo_covariances.numpy().real[:, [0, 1], [0, 1]]
    )
    for found in (result, kf.predict(z), kf.process(z)):
        upper, _ = plotting.series(x, z, found, component=1)
        np.testing.assert_array_equal(line(upper, "data")[1], z[:, 1].real)
        mean = z[:, 1].real - result.innovations.numpy()[:, 1].real
        np.testing.assert_allclose(line(upper, "mean")[1], mean, atol=1e-12)
        edge = mean + QUANTILE * np.sqrt(deviation[:, 1] / 2)
        np.testing.assert_allclose(band(upper)[1][:, 1], edge)
    ax = plotting.plane(z[:, 0], smoothed, component=1)  # data without components beside a state
    np.testing.assert_array_equal(line(ax, "data")[0], z[:, 0].real)
    np.testing.assert_array_equal(line(ax, "mean")[0], smoothed.smoothed_means.numpy()[:, 1].real)
    ahead = statespace.forecast(model, result, 3)
    upper, _ = plotting.series(x, z, ahead, x[-1] + [1.0, 2.0, 3.0], component=0)
    means = ahead.observation_means.numpy()[:, 0].real
    np.testing.assert_array_equal(line(upper, "mean"), [[12.0, 13.0, 14.0], means])


def test_results_of_processes_are_drawn():
    x, z = np.arange(6.0), np.exp(1j * np.arange(6.0))
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0), noise_variance=0.5)
    window = cgp.RecursiveGP(cgp.kernels.Matern12(1.0, 1.0), noise_variance=0.5, capacity=6)
    gp.condition(x, z)
    forecasts = gp.forecasts([1.0, 2.0])
    upper, _ = plotting.series(x, z, forecasts, x + 2.0, component=1)
    np.testing.assert_array_equal(line(upper, "mean"), [x + 2.0, forecasts["mean"][:, 1].real])
    step = window.process(x, z)
    upper, _ = plotting.series(x, z, step)
    np.testing.assert_array_equal(line(upper, "mean")[1], step.predicted.mean.real)


def innovations(m=1, real=False, batch=()):
    """Diagnostics of innovations with some missing, of which the variance is 2."""
    rng = np.random.default_rng(5)
    v = rng.normal(size=(*batch, 300, m, 2)) @ ([2**0.5, 0.0] if real else [1.0, 1j])
    v[..., 10:20, :] = np.nan
    s = np.broadcast_to(2 * np.eye(m, dtype=v.dtype), (*v.shape, m))
    result = SimpleNamespace(
        innovations=v, innovation_covariances=s, innovation_pseudo_covariances=None
    )
    return statespace.diagnostics(result, lags=8, level=0.9)


@pytest.mark.parametrize("real", [False, True])
def test_innovations_are_shown_over_time_over_lags_and_by_their_distribution(real):
    of = innovations(real=real)
    nis, correlation, plane = plotting.innovations(of)

    inside, outside = nis.lines
    drawn = np.full(300, np.nan)
    for points in (inside, outside):
        drawn[points.get_xdata()] = points.get_ydata()
    np.testing.assert_array_equal(drawn, of.nis)
    low, high = of.nis_bounds[0]
    within, beyond = inside.get_ydata(), outside.get_ydata()
    assert np.all((low <= within) & (within <= high))
    assert np.all((beyond < low) | (beyond > high))
    assert f"{of.fraction_inside:.1%}" in nis.get_title()

    _, stems = correlation.collections
    rho, bound = of.autocorrelations[:, 0], of.autocorrelation_bounds[:, 0]
    expected = rho if real else np.abs(rho)
    tops = [segment[1] for segment in stems.get_segments()]
    np.testing.assert_allclose(tops, np.stack([np.arange(1, 9), expected], axis=-1))
    vertices = correlation.collections[0].get_paths()[0].vertices
    assert vertices[:, 1].max() == bound.max()
    assert vertices[:, 1].min() == (-bound.max() if real else 0.0)

    if real:
        assert sum(p.get_height() * p.get_width() for p in plane.patches) == pytest.approx(1.0)
    else:
        (circle,) = plane.patches
        radius = np.abs(circle.get_xy() @ [1, 1j])
        np.testing.assert_allclose(radius, np.sqrt(-np.log(0.1)))
        result = np.concatenate([p.get_xdata() + 1j * p.get_ydata() for p in plane.lines])
        e = of.normalized_innovations[~np.isnan(of.normalized_innovations)]
        np.testing.assert_array_equal(np.sort_complex(result), np.sort_complex(e))
        assert "the circle of 90 %" in plane.get_title()
        assert plane.get_aspect() == 1.0


def test_innovations_of_more_elements_stand_side_by_side():
    of = innovations(m=3)
    axes = plotting.innovations(of, ax=pyplot.subplots(3)[1])
    stems = axes[1].collections[1::2]
    at = np.array([[segment[0, 0] for segment in group.get_segments()] for group in stems])
    assert np.all(np.diff(at.ravel(order="F")) > 0)
    np.testing.assert_allclose(at.mean(axis=0), np.arange(1, 9))
    axes[0].figure.canvas.draw()  # without a warning


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    for draw in (
        lambda: plotting.series([0.0], [1j]),
        lambda: plotting.plane([1j]),
        lambda: plotting.innovations(innovations()),
    ):
        with pytest.raises(ImportError, match=r'pip install "cgp\[plot\]"'):
            draw()


X, Z, ONE = np.arange(3.0), np.ones(3, complex), np.ones(3)
MASKED = np.ma.array(X, mask=[False, True, False])
GOOD = {"mean": Z, "variance": ONE, "pseudo_variance": 0 * Z}
BATCH = {name: np.stack([moment, moment]) for name, moment in GOOD.items()}
COLUMNS = {name: np.stack([moment, moment], axis=-1) for name, moment in GOOD.items()}


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: plotting.series(X), ValueError, "nothing to draw"),
        (lambda: plotting.plane(), ValueError, "nothing to draw"),
        (lambda: plotting.series(X, X), TypeError, "z must be complex, got float64"),
        (lambda: plotting.series(1j * X, Z), TypeError, "x must be real numbers, got complex128"),
        (lambda: plotting.series(MASKED, Z), ValueError, "x has masked elements"),
        (lambda: plotting.series(X, Z, GOOD, MASKED), ValueError, "x_new has masked elements"),
        (
            lambda: plotting.plane(Z, GOOD | {"mean": MASKED + 0j}),
            ValueError,
            "the mean of a prediction has masked elements",
        ),
        (lambda: plotting.plane([1j, np.inf]), ValueError, "z has infinite elements"),
        (lambda: plotting.series(X * np.nan, Z), ValueError, "x has elements that are NaN"),
        (lambda: plotting.series(X, Z[:2]), ValueError, "the 3 points of x, got 2"),
        (lambda: plotting.series(X[None], Z), ValueError, r"x must be .* got shape \(1, 3\)"),
        (lambda: plotting.series(X, Z[None]), ValueError, "one series at a time: z"),
        (
            lambda: plotting.series(X, np.stack([Z, Z])),
            ValueError,
            "each row is a series, give one",
        ),
        (lambda: plotting.series(X, Z, BATCH), ValueError, "one series at a time: the posterior"),
        (lambda: plotting.plane(None, BATCH), ValueError, "one series at a time: the posterior"),
        (
            lambda: plotting.series(X, Z, GOOD, X[:2]),
            ValueError,
            "3 points .* 2 inputs: give x_new",
        ),
        (
            lambda: plotting.series(X, None, COLUMNS),
            ValueError,
            r"the posterior must be \[N\], or \[N, M\] with component=.*one of 0 to 1",
        ),
        (
            lambda: plotting.plane(None, COLUMNS, component=2),
            ValueError,
            "the component of the posterior must be one of 0 to 1, got 2",
        ),
        (lambda: plotting.plane(Z, GOOD, component=1), ValueError, "must be 0, as there is one"),
        (lambda: plotting.plane(np.ones((3, 2), complex)), ValueError, "z must be .* one of 0 to"),
        (lambda: plotting.series(X, Z, Z), TypeError, "must be a ComplexNormal, or a dict"),
        (lambda: plotting.series(X, Z, parts="polar"), ValueError, "got 'polar'"),
        (lambda: plotting.series(X, Z, GOOD, probability=95), ValueError, "between 0 and 1"),
        (lambda: plotting.plane(Z, GOOD, probability=0), ValueError, "between 0 and 1"),
        (lambda: plotting.series(X, Z, ax=pyplot.subplots()[1]), ValueError, "2 axes, .* got 1"),
        (
            lambda: plotting.innovations(Z),
            TypeError,
            "must be a result of statespace.diagnostics, got ndarray",
        ),
        (lambda: plotting.innovations(innovations(batch=(4,))), ValueError, "one series at a time"),
        (
            lambda: plotting.innovations(innovations(), ax=pyplot.subplots(2)[1]),
            ValueError,
            "3 axes, .* got 2",
        ),
    ],
)
def test_bad_input_is_named(draw, error, message):
    with pytest.raises(error, match=message):
        draw()


def test_does_a_waterfall_show_data_mean_and_deviation():
    t, f = np.arange(4.0), np.array([1.0, 1.5, 2.0])
    z = np.exp(1j * t)[:, None] * np.array([1.0, 2.0, 3.0])
    z[1, 2] = np.nan
    moments = {"mean": 0.5 * np.nan_to_num(z), "variance": np.full(z.shape, 0.04)}
    panels = cgp.plotting.waterfall(
        (t, f), z, moments | {"pseudo_variance": 0.0 * moments["mean"]}, x_labels=("s", "MHz")
    )
    images = [panel.collections[0].get_array() for panel in panels]
    np.testing.assert_array_equal(images[0].mask, np.isnan(z))
    np.testing.assert_allclose(images[0].compressed(), np.abs(z[~np.isnan(z)]))
    np.testing.assert_allclose(images[1], 0.5 * np.abs(np.nan_to_num(z)))
    np.testing.assert_allclose(images[2], 0.2)
    assert panels[0].collections[0].get_clim() == panels[1].collections[0].get_clim()
    assert (panels[0].get_ylabel(), panels[1].get_xlabel()) == ("s", "MHz")
    low, high = panels[0].get_ylim()
    assert low > high  # time runs downwards
    of_user = pyplot.subplots(1, 3)[1]  # without a common axis
    cgp.plotting.waterfall((t, f), z, moments | {"pseudo_variance": 0.0 * z}, ax=of_user)
    assert all(panel.yaxis_inverted() for panel in of_user)


def test_does_a_waterfall_take_the_coordinates_of_a_posterior():
    kernel = cgp.kernels.Along(cgp.kernels.RBF(1.0, 1.0), 0)
    gp = cgp.GridGP(kernel * cgp.kernels.Along(cgp.kernels.RBF(1.0, 1.0), 1), 0.1)
    gp.condition(([0.0, 1.0], [0.0, 1.0]), np.ones((2, 2), complex))
    panels = cgp.plotting.waterfall(
        ([0.0, 1.0], [0.0, 1.0]), None, gp.posterior((np.arange(3.0), np.arange(5.0)))
    )
    assert panels[0].collections[0].get_array().shape == (3, 5)
