"""The debiased Whittle likelihood against the moments of the transform from dense covariances."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import EllipticalOU, Matern12, Matern32, RandomWalk, Rotation, WidelyLinear

PROPER = lambda: Matern32(1.3, 4.0) * Rotation(0.15)  # noqa: E731
IMPROPER = lambda: WidelyLinear(PROPER(), 0.4 - 0.3j)  # noqa: E731


def dense(gp, x, z, band=None):
    """By the matrix of the transform, an explicit density for each pair of frequencies."""
    present = ~np.isnan(z)
    count, n = z.size, present.sum()
    step, numbers = x[1] - x[0], np.arange(count)
    frequencies = np.fft.fftfreq(count, step)
    noise = float(gp.noise_variance) * np.eye(count)
    pseudo = noise * complex(getattr(gp, "noise_circularity", None) or 0.0)
    K = gp.kernel.covariance(x, x).numpy() + noise
    C = gp.kernel.pseudo_covariance(x, x).numpy() + pseudo
    F = np.exp(-2j * np.pi * np.outer(numbers, numbers) / count) * present / np.sqrt(n)
    J, S, P = F @ np.nan_to_num(z), F @ K @ F.conj().T, F @ C @ F.T
    total = 0.0
    for k in numbers:
        if band is not None and not band[0] <= frequencies[k] <= band[1]:
            continue
        opposite = -k % count
        if gp.observation_model.is_proper:
            total += density(J[[k]], S[[k]][:, [k]])
        elif k == opposite:  # of [re, im]
            s, p = S[k, k].real, P[k, k]
            R = 0.5 * np.array([[s + p.real, p.imag], [p.imag, s - p.real]])
            v = np.array([J[k].real, J[k].imag])
            total -= 0.5 * (v @ np.linalg.solve(R, v) + np.log(np.linalg.det(2 * np.pi * R)))
        elif k < opposite:
            v = np.array([J[k], np.conj(J[opposite])])
            R = [[S[k, k], P[k, opposite]], [np.conj(P[k, opposite]), S[opposite, opposite]]]
            total += density(v, np.array(R))
    return total * n / count


def density(v, R):
    square = np.vdot(v, np.linalg.solve(R, v)).real
    return -square - np.log(np.linalg.det(np.pi * R).real)


def a_series(count, gaps=False, seed=0):
    rng = np.random.default_rng(seed)
    z = np.cumsum(rng.normal(size=(2, count, 2)) @ [1.0, 0.5j], axis=-1)
    if gaps:
        z[:, [2, count // 2]] = np.nan
        z[1, 4:7] = np.nan
    return 10.0 + 0.7 * np.arange(count), z


def model(kernel, **kwargs):
    return cgp.StateSpaceGP(kernel, 0.2, likelihood="whittle", **kwargs)


CASES = {
    "proper": (PROPER, {}),
    "improper": (IMPROPER, {}),
    "improper noise": (PROPER, {"noise_pseudo_variance": 0.1 - 0.05j}),
    "band": (PROPER, {"band": (-0.1, 0.5)}),
    "symmetric band": (IMPROPER, {"band": (-0.4, 0.4)}),
}


@pytest.mark.parametrize("count", [17, pytest.param(16, marks=pytest.mark.long)])
@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "gaps"])
@pytest.mark.parametrize("case", CASES)
def test_is_it_the_density_of_the_transform_from_dense_covariances(case, gaps, count):
    kernel, settings = CASES[case]
    gp = model(kernel(), **settings)
    x, z = a_series(count, gaps)
    expected = [dense(gp, x, one, settings.get("band")) for one in z]
    np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, rtol=1e-11)
    np.testing.assert_allclose(gp.log_marginal_likelihood(x, z[1]), expected[1], rtol=1e-11)


def test_may_each_series_have_a_grid_of_its_own():
    gp, (x, z) = model(IMPROPER()), a_series(16, gaps=True)
    grids = np.stack([x, 1.5 * x])
    expected = [dense(gp, *series) for series in zip(grids, z, strict=True)]
    np.testing.assert_allclose(gp.log_marginal_likelihood(grids[..., None], z), expected)


def test_is_it_nearly_the_same_in_single_precision():
    x, z = a_series(64, gaps=True)
    kernel = WidelyLinear(Matern32(1.3, 4.0, dtype="float32"), 0.4 - 0.3j, dtype="float32")
    expected = dense(model(WidelyLinear(Matern32(1.3, 4.0), 0.4 - 0.3j)), x, z[1])
    gp = model(kernel)
    found = gp.log_marginal_likelihood(x.astype("float32"), z[1].astype("complex64"))
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_are_its_gradients_those_of_differences():
    gp, (x, z) = model(EllipticalOU(3.0, 0.3, 0.2, 0.3 - 0.2j)), a_series(16, gaps=True)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(gp.log_marginal_likelihood(x, z))
    for v, gradient in zip(
        gp.trainable_variables, tape.gradient(value, gp.trainable_variables), strict=True
    ):
        start, found = v.numpy(), []
        for element in np.ndindex(start.shape):
            change = np.zeros(start.shape)
            change[element] = 1e-6
            ends = []
            for sign in (1.0, -1.0):
                v.assign(start + sign * change)
                ends.append(float(tf.reduce_sum(gp.log_marginal_likelihood(x, z))))
            found.append((ends[0] - ends[1]) / 2e-6)
        v.assign(start)
        np.testing.assert_allclose(np.ravel(gradient), found, rtol=1e-6, atol=1e-7)


def test_does_a_process_without_noise_or_power_have_a_finite_likelihood():
    """Its spectrum spans more than double precision resolves, and its pairs are dependent."""
    x, z = a_series(64)
    gp = cgp.StateSpaceGP(WidelyLinear(Matern12(1.0, 1e6), 1.0), 1e-300, likelihood="whittle")
    assert np.all(np.isfinite(gp.log_marginal_likelihood(x, z)))


def test_are_predictions_and_steps_those_of_the_exact_process():
    x, z = a_series(32, gaps=True)
    exact, other = cgp.StateSpaceGP(PROPER(), 0.2), model(PROPER())
    for gp in (exact, other):
        gp.condition(x, z[1])
    new = [0.0, 15.3, 40.0]
    assert np.array_equal(exact.predict(new)["mean"], other.predict(new)["mean"])
    steps = [gp.step(x[-1] + 0.7, 1.0 + 1j) for gp in (exact, other)]
    assert steps[0].predicted.mean == steps[1].predicted.mean
    other.step(x[-1] + 0.9, 1j)  # the process goes on at irregular places, its likelihood does not
    with pytest.raises(ValueError, match=r"needs equal steps of x, got steps from 0\.2 to 0\.7"):
        other.log_marginal_likelihood()


def simulated(kernel, noise, count, series, seed):
    """Series of a process on a unit grid: one draw of each."""
    gp = cgp.StateSpaceGP(kernel, noise)
    return np.arange(float(count)), gp.sample(
        np.arange(float(count)), series, seed=seed, observed=True
    )


def estimates(gp, x, z):
    """What fits come to, from the same start, in the model's own unconstrained variables."""
    gp.compile(cgp.optimizers.LBFGS())
    start, found = [v.numpy() for v in gp.trainable_variables], []
    for one in z:
        for v, value in zip(gp.trainable_variables, start, strict=True):
            v.assign(value)
        gp.fit(x, one, verbose=0)
        found.append(np.concatenate([v.numpy().ravel() for v in gp.trainable_variables]))
    return np.array(found)


@pytest.mark.parametrize("kernel", [PROPER, lambda: EllipticalOU(2.0, 0.1, 0.15, 0.3)])
@pytest.mark.long
def test_are_estimates_near_those_of_the_exact_likelihood(kernel):
    x, z = simulated(kernel(), 0.5, 512, 6, seed=0)
    exact = estimates(cgp.StateSpaceGP(kernel(), 0.5), x, z)
    found = estimates(model(kernel()), x, z)
    # A tenth of the standard error, to within what the mean of so few series tells.
    spread, difference = np.std(exact, axis=0, ddof=1), found - exact
    resolution = np.std(difference, axis=0, ddof=1) / np.sqrt(len(z))
    assert np.all(np.abs(np.mean(difference, axis=0)) < 0.1 * spread + 3.0 * resolution)
    assert np.all(resolution < 0.25 * spread)


@pytest.mark.long
def test_does_it_fit_with_restarts_and_a_band_and_tell_errors():
    """A trend, that another process adds, is no matter to a band without low frequencies."""
    kernel = Matern12(1.0, 20.0) * Rotation(0.2)
    x, z = simulated(kernel, 0.1, 256, 1, seed=1)
    z = z[0] + 5.0 * np.exp(2j * np.pi * 0.002 * x)
    gp = cgp.StateSpaceGP(Matern12() * Rotation(), likelihood="whittle", band=(0.1, 0.5))
    gp.compile(cgp.optimizers.LBFGS())
    history = gp.fit(x, z, restarts=8, verbose=0)
    assert len(history.optima) == 8
    error = gp.parameter_errors(verbose=0)["rotation.frequency"]
    assert 0.0005 < error < 0.01
    assert abs(gp.parameters()["rotation.frequency"] - 0.2) < 3 * error


def test_is_it_saved_with_its_band(tmp_path):
    x, z = a_series(16)
    gp = model(PROPER(), band=(-0.1, 0.4))
    gp.condition(x, z[0])
    gp.save(tmp_path / "whittle.keras")
    again = keras.saving.load_model(tmp_path / "whittle.keras")
    assert (again.likelihood, again.band) == ("whittle", (-0.1, 0.4))
    assert again.log_marginal_likelihood() == gp.log_marginal_likelihood()
    with pytest.raises(AttributeError, match="band of StateSpaceGP cannot be changed"):
        again.band = None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"likelihood": "Whittle"},
            "must be 'exact', 'whittle' or one of cgp.likelihoods, got 'Whittle'",
        ),
        ({"band": (0.0, 0.1)}, "is of likelihood='whittle'"),
        ({"likelihood": "whittle", "band": (0.1, 0.1)}, "low < high"),
        ({"likelihood": "whittle", "band": 0.1}, "two frequencies, got 0.1"),
        ({"likelihood": "whittle", "band": (0.0, float("nan"))}, "low < high"),
        ({"likelihood": "whittle", "kernel": RandomWalk(1.0)}, "needs a stationary kernel"),
        (
            {"likelihood": "whittle", "kernel": IMPROPER(), "band": (0.0, 0.1)},
            r"must be symmetric, \(-high, high\)",
        ),
    ],
    ids=str,
)
def test_settings_that_make_no_likelihood_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        cgp.StateSpaceGP(**{"kernel": PROPER(), **settings})


GRID = np.arange(8.0)


@pytest.mark.parametrize(
    ("x", "settings", "message"),
    [
        (GRID[::-1], {}, "needs x in order"),
        (np.r_[GRID[:-1], 6.0], {}, "needs each x once"),
        (np.r_[GRID[:-1], 8.0], {}, "equal steps of x, got steps from 1 to 2: give NaN at"),
        (GRID, {"band": (0.1, 0.2)}, "holds 1 of the 8 frequencies of the data, 0.125 apart"),
    ],
)
def test_series_that_are_not_regular_are_refused(x, settings, message):
    gp, z = model(PROPER(), **settings), np.ones(len(x), complex)
    gp.compile(cgp.optimizers.LBFGS())
    for take in (gp.log_marginal_likelihood, gp.fit):
        with pytest.raises(ValueError, match=message):
            take(x, z)


def test_one_point_is_refused():
    gp = model(PROPER())
    with pytest.raises(ValueError, match="at least two points"):
        gp.log_marginal_likelihood(GRID[:1], [1j])
    with pytest.raises(ValueError, match="nothing can be learned from one"):
        gp.fit(GRID[:1], [1j])


def test_noise_that_differs_is_refused():
    gp, z = model(PROPER()), np.ones(8, complex)
    with pytest.raises(ValueError, match="is of stationary noise, not of one of each sample"):
        gp.log_marginal_likelihood(GRID, z, noise_variance=np.arange(8.0))
    with pytest.raises(ValueError, match="takes one noise_variance, not of groups"):
        cgp.StateSpaceGP(PROPER(), [0.1, 0.2], likelihood="whittle")


def test_an_irregular_series_is_refused_in_a_graph():
    gp = model(PROPER())
    likelihood = tf.function(gp.log_marginal_likelihood)
    x = tf.constant(GRID)
    assert np.isfinite(likelihood(x, tf.ones(8, tf.complex128)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at equal steps"):
        likelihood(x**2, tf.ones(8, tf.complex128))
