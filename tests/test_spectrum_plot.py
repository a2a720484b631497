"""The spectral density of a fit beside the periodogram of its data."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import cgp
from cgp import plotting
from cgp.kernels import RBF, Constant, Matern32, RandomWalk, Rotation, White, Zero

matplotlib.use("Agg")
RNG = np.random.default_rng(5)
CARRIER = Matern32(1.0, 6.0) * Rotation(0.12)


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    pyplot.close("all")


def drawn(ax, number):
    """Frequencies and heights: of the periodogram, of the curve, of what is smeared."""
    return ax.lines[number].get_xdata(), ax.lines[number].get_ydata()


def conditioned(kernel, x, series, noise=0.05, seed=1):
    gp = cgp.ExactGP(kernel, noise_variance=noise)
    gp.condition(x, gp.sample(x, series, seed=seed, observed=True))
    return gp


@pytest.mark.parametrize("irregular", [False, True])
def test_has_white_noise_the_height_of_its_variance_times_the_step(irregular):
    x = np.sort(RNG.uniform(0, 50, 101)) if irregular else 0.5 * np.arange(101)
    ax = plotting.spectrum(conditioned(Zero(), x, 400, noise=0.3))
    step = np.ptp(x) / 100
    f, powers = drawn(ax, 0)
    assert len(f) > 100
    assert np.mean(powers) == pytest.approx(0.3 * step, rel=0.02)
    smeared = ["model, smeared by gaps"] * irregular
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["periodogram", "model", *smeared]
    for number in range(1, len(ax.lines)):
        np.testing.assert_allclose(drawn(ax, number)[1], 0.3 * step)


def test_is_the_curve_the_spectrum_of_the_samples():
    """Folded into the band of the grid, with noise and white noise at their level."""
    x, kernel = 2.0 * np.arange(60), Matern32(1.0, 6.0) * Rotation(0.52) + White(0.2)
    f, height = drawn(plotting.spectrum(conditioned(kernel, x, 1)), 1)
    lags = 2.0 * np.arange(1, 400)
    k = (Matern32(1.0, 6.0) * Rotation(0.52)).covariance(lags, [0.0]).numpy()[:, 0]
    expected = 2.0 + 4.0 * np.real(np.exp(-2j * np.pi * np.outer(f, lags)) @ k) + 2.0 * 0.25
    np.testing.assert_allclose(height, expected, rtol=1e-3)
    assert f[np.argmax(height)] == pytest.approx(0.02, abs=1e-3)  # an alias of 0.52


def test_does_a_periodogram_scatter_about_the_curve():
    ax = plotting.spectrum(conditioned(CARRIER, np.arange(300.0), 300))
    f, powers = drawn(ax, 0)
    curve = np.interp(f, *drawn(ax, 1))
    np.testing.assert_allclose(np.log(powers / curve), 0.0, atol=0.35)


@pytest.mark.parametrize("how", ["irregular", "gaps", "series of unlike gaps"])
def test_does_a_periodogram_of_scattered_points_scatter_about_the_dashed_curve(how):
    x = np.sort(RNG.uniform(0, 300, 300)) if how == "irregular" else np.arange(300.0)
    kernel = CARRIER + Constant(0.5) * Rotation(-0.21)
    gp = conditioned(kernel, x, 300)
    z = gp.stored_data().z.numpy().copy()
    if how == "gaps":
        z[:, 100:180] = np.nan
    elif how != "irregular":
        z[RNG.random(z.shape) < 0.3] = np.nan
    ax = plotting.spectrum(gp, z)
    f, powers = drawn(ax, 0)
    smeared_at, smeared = drawn(ax, 2)
    np.testing.assert_array_equal(smeared_at, f)
    within = np.abs(f) < 0.45
    ratio = np.log(powers / smeared)[within]
    assert np.abs(np.mean(ratio)) < 0.05
    assert np.max(np.abs(ratio)) < 1.0
    curve = np.interp(f, *drawn(ax, 1))
    assert np.mean(powers[within] / curve[within]) > 1.3  # what the dashed curve is for


def test_has_a_line_the_height_that_its_power_has_in_the_data():
    x = np.arange(200.0)
    gp = cgp.ExactGP(Constant(2.0) * Rotation(0.2), noise_variance=0.01)
    gp.condition(x, np.sqrt(2.0) * np.exp(2j * np.pi * 0.2 * x))
    ax = plotting.spectrum(gp)
    (line,) = ax.collections[0].get_segments()
    assert line[:, 0] == pytest.approx(0.2)
    assert line[1, 1] == pytest.approx(np.max(drawn(ax, 0)[1]), rel=0.1)


def test_is_a_narrow_peak_drawn_to_its_top():
    gp = conditioned(Matern32(1.0, 1e5) * Rotation(0.2), np.arange(50.0), 1)
    _, height = drawn(plotting.spectrum(gp), 1)
    top = (Matern32(1.0, 1e5)).spectral_density(0.0)
    assert np.max(height) == pytest.approx(top, rel=0.1)


def test_are_several_processes_beside_one_periodogram():
    x = np.arange(80.0)
    gp = conditioned(CARRIER, x, 1)
    other = cgp.StateSpaceGP(Matern32(1.0, 3.0), noise_variance=0.1)
    _, given = pyplot.subplots()
    ax = plotting.spectrum({"carrier": gp, "none": other}, ax=given)
    assert ax is given
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "periodogram",
        "carrier",
        "none",
    ]
    f, height = drawn(ax, 2)
    np.testing.assert_allclose(height[f == 0.0], Matern32(1.0, 3.0).spectral_density(0) + 0.1, 1e-3)


def test_is_the_mean_function_no_part_of_the_spectrum():
    x, offset = np.arange(80.0), 1e3 * (1 + 1j)
    gp = conditioned(CARRIER, x, 1)
    z = gp.stored_data().z.numpy()[0]
    with_mean = cgp.ExactGP(CARRIER, noise_variance=0.05, mean=cgp.means.Constant(offset))
    with_mean.condition(x, z + offset)
    axes = [plotting.spectrum(process) for process in (gp, with_mean)]
    np.testing.assert_allclose(drawn(axes[0], 0)[1], drawn(axes[1], 0)[1], rtol=1e-6)


@pytest.mark.parametrize("given", [lambda x, z: (z,), lambda x, z: (2.0 * z, 2.0 * x)])
def test_are_data_taken_that_the_process_does_not_hold(given):
    x = np.arange(80.0)
    gp = conditioned(CARRIER, x, 1)
    z = gp.stored_data().z.numpy()[0]
    held, other = (drawn(plotting.spectrum(gp, *args), 0) for args in ((), given(x, z)))
    scale = 2.0 if len(given(x, z)) == 2 else 1.0
    np.testing.assert_allclose(other[0], held[0] / scale)
    np.testing.assert_allclose(other[1], scale**3 * held[1], rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plotting.spectrum(RBF()), TypeError, "gp must be an ExactGP or a StateSpaceGP"),
        (lambda: plotting.spectrum({}), ValueError, "got none"),
        (lambda: plotting.spectrum(cgp.ExactGP(RBF(), 0.1)), ValueError, "there are no data"),
        (
            lambda: plotting.spectrum(cgp.ExactGP(RBF(), 0.1), x=[0.0, 1.0]),
            ValueError,
            "give z too",
        ),
        (
            lambda: plotting.spectrum(cgp.ExactGP(RBF(), 0.1), [1j, 2j], [0.0, 1.0]),
            ValueError,
            "three points at different x, got 2",
        ),
        (
            lambda: plotting.spectrum(cgp.ExactGP(RBF(), 0.1), [1j, 2j], np.eye(2)),
            ValueError,
            "x has 2",
        ),
        (
            lambda: plotting.spectrum(
                cgp.StateSpaceGP(RandomWalk(1.0, -1.0), 0.1), np.ones(5) * 1j, np.arange(5.0)
            ),
            ValueError,
            "no spectral density of RandomWalk",
        ),
        (
            lambda: plotting.spectrum(
                cgp.StateSpaceGP(Matern32(), 0.1), np.arange(5.0) * 1j, np.arange(5.0)
            ),
            ValueError,
            "left out, and not learned yet: matern32.variance, matern32.lengthscale",
        ),
    ],
)
def test_what_has_no_spectrum_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
