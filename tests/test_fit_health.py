"""The plot of how well a fit describes its data, read back from what is drawn."""

import keras
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from scipy import stats

import cgp
from cgp import metrics, plotting
from tests.test_plotting import band

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    pyplot.close("all")


RNG = np.random.default_rng(3)
X = RNG.permutation(np.linspace(0.0, 4.0, 25))
Z = np.exp(1j * X) + RNG.normal(size=(25, 2)) @ [0.5, 0.1j]
Z[[3, 11]] = np.nan
PRESENT = ~np.isnan(Z)


def kernel():
    return cgp.kernels.Matern12(1.0, 1.0)


def improper():
    """A process whose noise has a direction, given the data."""
    gp = cgp.ExactGP(kernel(), noise_variance=0.2, noise_pseudo_variance=0.1 + 0.05j)
    gp.condition(X, Z)
    return gp


def drawn_residuals(ax):
    """Those inside of the circle of 95 % and those outside of it."""
    inside, outside = (p.get_xdata() + 1j * p.get_ydata() for p in ax.lines)
    return inside, outside


def assert_same_points(found, expected):
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(expected), rtol=1e-8)


def history_of(*losses):
    history = keras.callbacks.History()
    history.optima = [{"loss": loss, "parameters": {}} for loss in losses]
    return history


def test_residuals_are_whitened_by_the_covariance_of_their_parts():
    gp = improper()
    left_out = {name: moment[PRESENT] for name, moment in gp.loo().items()}
    assert np.all(np.abs(left_out["pseudo_variance"]) > 0.01)
    expected = []
    for z, mean, v, w in zip(Z[PRESENT], *left_out.values(), strict=True):
        parts = 0.5 * np.array([[v + w.real, w.imag], [w.imag, v - w.real]])
        variances, axes = np.linalg.eigh(parts)
        root = axes / np.sqrt(variances) @ np.conj(axes.T)
        expected.append([1.0, 1j] @ root @ [(z - mean).real, (z - mean).imag] / np.sqrt(2.0))

    plane = plotting.fit_health(gp)[0]
    inside, outside = drawn_residuals(plane)
    assert_same_points(np.concatenate([inside, outside]), np.array(expected))
    limit = np.sqrt(-np.log(0.05))
    assert np.all(np.abs(inside) <= limit)
    assert np.all(np.abs(outside) > limit)
    assert plane.get_title() == f"{len(inside) / 23:.1%} in the circle of 95 %"
    radii = [np.abs(circle.get_xy() @ [1, 1j]) for circle in plane.patches]
    np.testing.assert_allclose([np.ptp(radius) for radius in radii], 0.0, atol=1e-12)
    shares = [1 - np.exp(-(radius[0] ** 2)) for radius in radii]
    np.testing.assert_allclose(sorted(shares), [0.5, 0.95])
    assert plane.get_aspect() == 1.0


def test_residuals_of_a_state_space_process_are_those_of_one_step_predictions():
    def made():
        return cgp.StateSpaceGP(
            kernel(), noise_variance=0.2, mean=cgp.means.Constant(0.5 - 1j), name="gp"
        )

    gp, stream, order = made(), made(), np.argsort(X)
    gp.condition(X, Z)
    steps = stream.process(X[order], Z[order])
    expected = steps.innovation / np.sqrt(steps.predicted.variance)
    result = np.concatenate(drawn_residuals(plotting.fit_health(gp)[0]))
    assert_same_points(result, expected[PRESENT[order]])


@pytest.mark.parametrize("model", [cgp.ExactGP, cgp.StateSpaceGP])
def test_residuals_of_several_series_are_shown_together(model):
    gp = model(kernel(), noise_variance=0.2)
    both = np.stack([Z, 2j * Z])
    both[1, 5] = np.nan
    result = []
    for z in (*both, both):
        gp.condition(X, z)
        plane, *_ = plotting.fit_health(gp)
        result.append(np.concatenate(drawn_residuals(plane)))
    assert_same_points(result[2], np.concatenate(result[:2]))


def test_coverage_is_that_of_the_metric_beside_its_binomial_band():
    gp = improper()
    coverage = plotting.fit_health(gp)[1]
    _, curve = coverage.lines
    for p in (0.1, 0.37, 0.5, 0.8, 0.95):
        last = np.searchsorted(curve.get_xdata(), p, side="right") - 1
        expected = metrics.coverage(Z, gp.loo(), p)
        assert curve.get_ydata()[last] == pytest.approx(expected)
        if p == 0.5:
            assert coverage.get_title() == f"{expected:.1%} in regions of 50 %"
    assert curve.get_drawstyle() == "steps-post"
    for edge, tail in zip(band(coverage), (0.025, 0.975), strict=True):
        p, share = edge[1:-1].T
        np.testing.assert_allclose(share, stats.binom.ppf(tail, 23, p) / 23)


def test_optima_are_shown_in_nats_of_all_data_above_the_best():
    axes = plotting.fit_health(improper(), history_of(1.25, 1.252, 1.5))
    agree, others = axes[2].lines
    np.testing.assert_allclose(agree.get_data(), [[1, 2], [0.0, 23 * 0.002]], atol=1e-12)
    np.testing.assert_allclose(others.get_data(), [[3], [23 * 0.25]])
    assert axes[2].get_title() == "2 of 3 starts agree"
    assert axes[2].get_yscale() == "symlog"
    axes[2].figure.canvas.draw()  # without a warning


def test_power_is_the_mean_of_squares_in_windows_along_x_beside_its_band():
    gp, stream = (cgp.StateSpaceGP(kernel(), noise_variance=0.2) for _ in range(2))
    gp.condition(X, Z)
    order = np.argsort(X)[PRESENT[np.argsort(X)]]
    power = stream.process(X[order], Z[order]).nis / 2.0
    panel = plotting.fit_health(gp)[3]
    _, curve, outside = panel.lines
    windows = len(order) - 10 + 1
    expected = [power[i : i + 10].mean() for i in range(windows)]
    np.testing.assert_allclose(curve.get_ydata(), expected)
    middles = [X[order][[i, i + 9]].mean() for i in range(windows)]
    np.testing.assert_allclose(curve.get_xdata(), middles)
    assert not outside.get_xdata().size
    low, high = (edge[1:-1, 1] for edge in band(panel))
    tail = 0.025 / windows
    assert np.all(low <= stats.chi2.ppf(tail, 20) / 20 * (1 + 1e-9))  # wider, if correlated
    assert np.all(high >= stats.chi2.ppf(1 - tail, 20) / 20 * (1 - 1e-9))
    assert panel.get_title() == "power as predicted all along x"
    panel.figure.canvas.draw()  # without a warning


@pytest.mark.parametrize("model", [cgp.ExactGP, cgp.StateSpaceGP])
def test_the_stretch_where_predictions_are_too_sure_is_named(model):
    x = np.arange(240.0)
    [z] = cgp.StateSpaceGP(kernel(), 0.5).sample(x, 1, seed=0, observed=True)
    z[80:160] *= 3.0
    z[160:] *= 0.3
    gp = model(kernel(), 0.5)
    gp.condition(x, z)
    panel = plotting.fit_health(gp)[3]
    _, curve, outside = panel.lines
    assert set(outside.get_xdata()) < set(curve.get_xdata())
    too_sure, times, too_cautious, _ = panel.get_title().split("\n")
    assert too_sure.startswith("too sure from x = ")
    begin, end = (float(word.rstrip(":")) for word in too_sure.split()[5::2])
    np.testing.assert_allclose([begin, end], [80, 159], atol=10)
    assert 4.0 < float(times.split()[0]) < 14.0
    assert times.endswith("times the predicted power")
    assert too_cautious.startswith("too cautious from x = 1")


def test_power_along_x_has_a_note_where_there_is_no_line():
    outputs = cgp.ExactGP(cgp.kernels.Outputs([kernel(), kernel()]), noise_variance=0.2)
    outputs.condition(X, np.stack([Z, Z], axis=-1))
    plane = cgp.ExactGP(cgp.kernels.RBF(1.0, [1.0, 1.0]), noise_variance=0.2)
    plane.condition(np.stack([X, X**2], axis=-1), Z)
    exposed = cgp.StateSpaceGP(kernel(), noise_variance=0.2)
    exposed.condition(X, Z, widths=0.1)
    for gp in (outputs, plane, exposed):
        panel = plotting.fit_health(gp)[3]
        assert "of one output over a line" in panel.texts[0].get_text()
        assert not panel.lines
        pyplot.close("all")


@pytest.mark.parametrize("history", [None, keras.callbacks.History(), history_of()])
def test_without_optima_the_panel_says_so(history):
    given = pyplot.subplots(4)[1]
    axes = plotting.fit_health(improper(), history, ax=given)
    assert list(axes) == list(given)
    (text,) = axes[2].texts
    assert "no optima" in text.get_text()
    assert "restarts" in text.get_text()
    assert not axes[2].lines


def test_a_prediction_without_variance_is_an_error(monkeypatch):
    gp = improper()
    flat = gp.loo()
    flat["pseudo_variance"][0] = flat["variance"][0]
    monkeypatch.setattr(cgp.ExactGP, "loo", lambda self: flat)
    with pytest.raises(ValueError, match="1 of 23 predictions have variance zero"):
        plotting.fit_health(gp)


def followed():
    """A process that has dropped the older samples of a stream."""
    gp = cgp.StateSpaceGP(kernel(), noise_variance=0.2)
    x = np.arange(1500.0)
    gp.process(x, np.exp(0.3j * x))
    return gp


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (
            lambda: plotting.fit_health(cgp.RecursiveGP(kernel(), 0.1, capacity=4)),
            TypeError,
            "an ExactGP or a StateSpaceGP, got RecursiveGP",
        ),
        (lambda: plotting.fit_health(improper(), [0.5]), TypeError, "gp.fit returned.* got list"),
        (lambda: plotting.fit_health(cgp.ExactGP(kernel(), 0.1)), ValueError, "there are no data"),
        (
            lambda: plotting.fit_health(cgp.StateSpaceGP(kernel(), 0.1)),
            ValueError,
            "there are no data",
        ),
        (lambda: plotting.fit_health(followed()), ValueError, "holds its latest samples alone"),
        (
            lambda: plotting.fit_health(improper(), ax=pyplot.subplots(2)[1]),
            ValueError,
            "4 axes, .* got 2",
        ),
    ],
)
def test_what_cannot_be_shown_is_named(draw, error, message):
    with pytest.raises(error, match=message):
        draw()
