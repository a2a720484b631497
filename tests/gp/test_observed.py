"""Observations of the derivative of a signal, and of its mean over an exposure."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    IntegratedRandomWalk,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    RationalQuadratic,
    Rotation,
    TwoScale,
    White,
    WidelyLinear,
)
from tests.gp.differences import assert_are_differences
from tests.reference import functionals as reference
from tests.reference import gaussian_process as dense

X = np.array([0.3, 1.9, 1.0, 2.0, 3.1, 3.1, 4.4, 1.9, 6.0])
WORDS = np.array(["value", "derivative", "value"] * 3)
IS_DERIVATIVE = WORDS == "derivative"
# Long, short and overlapping exposures, two that begin together, one inside another; instants, of
# values too.
WIDTHS = np.array([0.5, 0.0, 1.9, 0.0, 0.0, 2.0, 1e-5, 0.0, 2.5])
NEW = np.array([2.0, 0.31, 7.0, 4.4])
COEFFICIENT = 0.4 + 0.3j
NOISE = 0.1
BOTH = [cgp.ExactGP, cgp.StateSpaceGP]

KERNELS = {
    "Matern32": (Matern32(2.0, 1.3), reference.matern32(2.0, 1.3)),
    "Matern52": (Matern52(2.0, 0.7), reference.matern52(2.0, 0.7)),
    "RBF": (RBF(2.0, 1.3), reference.rbf(2.0, 1.3)),
    "RationalQuadratic": (
        RationalQuadratic(variance=2.0, lengthscale=1.3, alpha=0.7),
        reference.rational_quadratic(2.0, 1.3, 0.7),
    ),
}


def long(*cases):
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]


def observations(*axes, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(*axes, len(X))) + 1j * rng.normal(size=(*axes, len(X)))
    z[..., 4] = np.nan
    return z


def arguments(with_derivatives, with_widths):
    return ({"observed": WORDS} if with_derivatives else {}) | (
        {"widths": WIDTHS} if with_widths else {}
    )


def model(kind, name, improper, **settings):
    envelope, _ = KERNELS[name]
    kernel = envelope * Rotation(0.3)
    return kind(WidelyLinear(kernel, COEFFICIENT) if improper else kernel, NOISE, **settings)


def moments(name, improper, first, second):
    """Covariance and pseudo-covariance between samples `(x, is_derivative, width)`."""
    kernel = reference.turning(KERNELS[name][1], 0.3)
    k = reference.covariance(kernel, *first, *second)
    return reference.widely_linear(k, COEFFICIENT) if improper else (k, 0.0 * k)


def close(actual, expected, tolerance=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


CASES = [
    ("Matern52", True, True, True),
    *long(("Matern32", False, True, True), ("Matern32", True, True, False)),
    *long(("Matern52", False, False, True)),
    ("RBF", True, True, False),
    *long(("RationalQuadratic", False, True, False)),
]


@pytest.mark.parametrize(("name", "improper", "with_derivatives", "with_widths"), CASES)
def test_both_processes_are_the_dense_one(name, improper, with_derivatives, with_widths):
    nothing = np.zeros(len(X))
    samples = (X, IS_DERIVATIVE & with_derivatives, WIDTHS if with_widths else nothing)
    new = (NEW, np.zeros(len(NEW), bool), np.zeros(len(NEW)))
    k, c = moments(name, improper, samples, samples)
    of_data = k + NOISE * np.eye(len(X)), c
    z = observations()
    likelihood = dense.log_marginal_likelihood(z, *of_data)
    between = [moments(name, improper, *pair) for pair in ((new, samples), (new, new))]
    mean, covariance, pseudo = dense.posterior(z, *of_data, *between[0], *between[1])

    for kind in BOTH if name.startswith("Matern") else BOTH[:1]:
        gp = model(kind, name, improper)
        gp.condition(X, z, **arguments(with_derivatives, with_widths))
        close(gp.log_marginal_likelihood(), likelihood)
        posterior = gp.posterior(NEW)
        close(posterior.mean(), mean)
        close(posterior.variance(), np.diag(covariance).real)
        close(posterior.pseudo_variance(), np.diag(pseudo))
        close(posterior.covariance(), covariance)
        noisy = gp.predict(NEW, observed=True)["variance"]
        close(noisy, np.diag(covariance).real + NOISE)


@pytest.mark.long
def test_without_the_core_nothing_changes(without_core):
    gp = model(cgp.StateSpaceGP, "Matern52", True)
    z, of_samples = observations(), arguments(True, True)
    gp.condition(X, z, **of_samples)
    value, mean = gp.log_marginal_likelihood().numpy(), gp.predict(NEW)["mean"]
    gp.condition(X, z, **of_samples)
    close(without_core(gp.log_marginal_likelihood), value, 1e-12)
    close(without_core(gp.predict, NEW)["mean"], mean, 1e-12)


COMBINED = {
    "sum": TwoScale(2.0, lengthscale=3.0, ratio=0.2, share=0.25) + Constant(0.5),
    "improper sum": (
        Conjugate(WidelyLinear(Matern52(1.0, 2.0) * Rotation(0.2), 0.5j)) + Matern32(1.0, 1.0)
    ),
    "product": Matern32(1.0, 2.0) * Matern52(1.0, 3.0),
    "walk": IntegratedRandomWalk(1.0, 0.5, start=-4.0),
    "line": Constant(1.0) * Rotation(0.2),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "with_widths"),
    [*((name, True) for name in COMBINED), ("improper sum", False), ("walk", False)],
)
def test_state_space_is_exact_for_combined_kernels(name, with_widths):
    """Derivatives beside values, and in most cases exposures too."""
    z = observations()
    processes = [kind(COMBINED[name], NOISE) for kind in BOTH]
    for gp in processes:
        gp.condition(X, z, **arguments(True, with_widths))
    exact, state_space = processes
    close(state_space.log_marginal_likelihood(), exact.log_marginal_likelihood())
    for name, moment in exact.predict(NEW).items():
        close(state_space.predict(NEW)[name], moment)


@pytest.mark.long
def test_means_of_rough_signals_are_exact():
    z = observations()
    exact, gp = (kind(Matern12(2.0, 1.5) + RandomWalk(0.3, start=-4.0), NOISE) for kind in BOTH)
    for process in (gp, exact):
        process.condition(X, z, widths=WIDTHS)
    close(gp.log_marginal_likelihood(), exact.log_marginal_likelihood())
    close(gp.predict(NEW)["mean"], exact.predict(NEW)["mean"])


@pytest.mark.long
@pytest.mark.parametrize("width", [1e-6, 1e-2, 30.0])
def test_exposures_of_all_lengths_keep_their_digits(width):
    """A short exposure is all but determined by the state at its end."""
    exact, gp = (model(kind, "Matern52", False) for kind in BOTH)
    for process in (gp, exact):
        process.condition(X, observations(), widths=width)
    close(gp.log_marginal_likelihood(), exact.log_marginal_likelihood(), 1e-12)
    for name, moment in exact.predict(NEW).items():
        close(gp.predict(NEW)[name], moment, 1e-12)


def test_products_of_smooth_kernels_are_differentiated_by_the_product_rule():
    """By a second route: the mean of a short difference of values."""
    kernel = RBF(1.0, 2.0) * Periodic(1.0, lengthscale=1.0, frequency=0.3) * Rotation(0.2)
    kernel = WidelyLinear(kernel, 0.3j) + Matern52(1.0, 1.0)
    x1, x2 = tf.constant([[0.3], [1.1]], tf.float64), tf.constant([[0.7], [1.1]], tf.float64)
    partials = kernel.partials(x1, x2)
    h = 1e-4
    for moment in (0, 1):
        shifted = {
            (i, j): kernel.moments(x1 + i * h, x2 + j * h)[moment].numpy()
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
        }
        close(partials.value[moment], shifted[0, 0], 1e-14)
        first = (shifted[1, 0] - shifted[-1, 0]) / (2 * h)
        both = (shifted[1, 1] - shifted[1, -1] - shifted[-1, 1] + shifted[-1, -1]) / (4 * h * h)
        close(partials.by_first[moment], first, 1e-6)
        close(partials.by_second[moment], (shifted[0, 1] - shifted[0, -1]) / (2 * h), 1e-6)
        close(partials.by_both[moment], both, 1e-5)


# --- batches, means, noise ---------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("own", ["nothing", "measurements", "inputs"])
def test_a_batch_is_its_series(kind, own):
    z, of_samples = observations(2), arguments(True, True)
    x = np.stack([X, X + 0.1])[..., None] if own == "inputs" else X
    if own == "measurements":
        of_samples = {"observed": np.stack([WORDS, WORDS]), "widths": np.stack([WIDTHS, 0 * X])}
    gp, alone = model(kind, "Matern32", True), model(kind, "Matern32", True)
    gp.condition(x, z, **of_samples)
    values, mean = gp.log_marginal_likelihood().numpy(), gp.predict(NEW)["mean"]
    for i in range(2):
        x_i = x[i] if own == "inputs" else X
        alone.condition(
            x_i, z[i], **{n: a[i] if np.ndim(a) == 2 else a for n, a in of_samples.items()}
        )
        close(values[i], alone.log_marginal_likelihood(), 1e-12)
        close(mean[i], alone.predict(NEW)["mean"], 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("kind", BOTH)
def test_the_mean_is_differentiated_and_averaged(kind):
    coefficients = np.array([1.0 + 1j, 0.5j, -0.3, 0.1])
    trend = cgp.means.Polynomial(3, coefficients, center=2.0, scale=1.5)
    plain, with_trend = model(kind, "Matern32", False), model(kind, "Matern32", False, mean=trend)
    measured = reference.polynomial(coefficients, (X - 2) / 1.5, IS_DERIVATIVE, WIDTHS / 1.5)
    measured = np.where(IS_DERIVATIVE, measured / 1.5, measured)
    z = observations()
    plain.condition(X, z, **arguments(True, True))
    with_trend.condition(X, z + measured, **arguments(True, True))
    close(with_trend.log_marginal_likelihood(), plain.log_marginal_likelihood())
    at_new = np.polynomial.Polynomial(coefficients)((NEW - 2) / 1.5)
    close(with_trend.predict(NEW)["mean"], plain.predict(NEW)["mean"] + at_new)

    constant = model(kind, "Matern32", False, mean=cgp.means.Constant(2j))
    constant.condition(X, z + np.where(IS_DERIVATIVE, 0.0, 2j), **arguments(True, True))
    close(constant.log_marginal_likelihood(), plain.log_marginal_likelihood())


def test_a_marginalised_trend_has_rows_of_what_is_measured():
    samples = (X, IS_DERIVATIVE, WIDTHS)
    k, _ = moments("Matern52", False, samples, samples)
    powers = [reference.polynomial(row, X, IS_DERIVATIVE, WIDTHS) for row in np.eye(3)]
    trend = np.stack(powers, axis=-1).astype(complex)
    expected = dense.trend_log_likelihood(observations(), k + NOISE * np.eye(len(X)), trend)
    mean = cgp.means.Polynomial(2, marginalized=True)
    gp = model(cgp.ExactGP, "Matern52", False, mean=mean)
    gp.condition(X, observations(), **arguments(True, True))
    close(gp.log_marginal_likelihood(), expected, 1e-9)


def test_each_instrument_has_its_noise():
    kernel, groups = Matern52(2.0, 0.7) * Rotation(0.3), IS_DERIVATIVE.astype(int)
    samples = (X, IS_DERIVATIVE, 0.0 * X)
    k, c = moments("Matern52", False, samples, samples)
    noise = np.where(IS_DERIVATIVE, 3.0, 0.1) + 0.2
    expected = dense.log_marginal_likelihood(observations(), k + np.diag(noise), c)
    for kind in BOTH:
        gp = kind(kernel, noise_variance=[0.1, 3.0])
        gp.condition(
            X, observations(), observed=WORDS, noise_groups=groups, noise_variance=np.full(9, 0.2)
        )
        close(gp.log_marginal_likelihood(), expected)


# --- learning ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "with_widths"),
    [
        (cgp.StateSpaceGP, True),
        *long((cgp.StateSpaceGP, False), (cgp.ExactGP, True)),
        (cgp.ExactGP, False),
    ],
)
def test_gradients_are_differences(kind, with_widths):
    gp = model(kind, "Matern52", True)
    gp.condition(X, observations(), **arguments(True, with_widths))

    def objective():
        return gp.log_marginal_likelihood() + tf.math.real(tf.reduce_sum(gp.posterior(NEW).mean()))

    with tf.GradientTape() as tape:
        value = objective()
    variables = gp.trainable_variables
    gradients = tape.gradient(value, variables)
    assert_are_differences(objective, variables, gradients, 1e-5, rtol=2e-6, atol=1e-7)


def test_inputs_of_an_exact_process_have_gradients():
    gp = model(cgp.ExactGP, "Matern52", False)
    x = tf.Variable(X)
    of_samples = {"observed": WORDS}

    def objective():
        return gp.log_marginal_likelihood(x, observations(), **of_samples)

    with tf.GradientTape() as tape:
        value = objective()
    assert_are_differences(objective, [x], [tape.gradient(value, x)], 1e-5, rtol=1e-6)


@pytest.mark.long
def test_a_fit_learns_from_rates_beside_values():
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0.0, 30.0, 60))
    is_rate = np.arange(60) % 2 == 1
    w = 2 * np.pi * 0.2
    z = np.exp(1j * w * x) * np.where(is_rate, 1j * w, 1.0)
    z += np.where(is_rate, 0.02, 0.05) * (rng.normal(size=60) + 1j * rng.normal(size=60))
    learned = []
    for kind in BOTH:
        kernel = Matern32(lengthscale=30.0, fixed="lengthscale") * Rotation()
        gp = kind(kernel, noise_variance=[1e-3, 1e-3])
        words = np.where(is_rate, "derivative", "value")
        gp.fit(x, z, observed=words, noise_groups=is_rate.astype(int), verbose=0)
        learned.append(gp.parameters())
        assert learned[-1]["rotation.frequency"] == pytest.approx(0.2, abs=2e-3)
    for name, value in learned[0].items():
        close(learned[1][name], value, 1e-3)


@pytest.mark.long
def test_a_fit_of_averages_knows_that_they_are_averages():
    x = np.arange(40.0) + 0.5
    gp = cgp.StateSpaceGP(
        Matern32(1.0, 2.0) + Constant(0.1), noise_variance=1e-3, fixed="noise_variance"
    )
    z = gp.sample(np.linspace(0.0, 40.0, 40 * 32 + 1), seed=1)[0]
    fine = 0.5 * (z[:-1] + z[1:]).reshape(40, 32)
    averages = fine.mean(axis=-1)
    gp.fit(x, averages, widths=1.0, verbose=0)
    exact = cgp.ExactGP(gp.kernel, float(gp.noise_variance))
    close(
        gp.log_marginal_likelihood(),
        exact.log_marginal_likelihood(x, averages, widths=np.ones(40)),
        1e-8,
    )
    assert gp.evaluate(x, averages, widths=1.0, verbose=0) < gp.evaluate(x, averages, verbose=0)


# --- state, streams, files ---------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", BOTH)
def test_files_keep_what_was_measured(kind, tmp_path):
    gp = model(kind, "Matern32", True)
    gp.condition(X, observations(), **arguments(True, True))
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    close(loaded.log_marginal_likelihood(), gp.log_marginal_likelihood(), 1e-13)
    close(loaded.predict(NEW)["mean"], gp.predict(NEW)["mean"], 1e-13)
    gp.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    close(served.predict(NEW[:, None])["mean"], gp.predict(NEW)["mean"], 1e-13)


@pytest.mark.long
@pytest.mark.parametrize("kind", BOTH)
def test_graphs_read_the_data_and_refuse_data_of_another_kind(kind):
    gp = model(kind, "Matern32", False)
    gp.condition(X, observations(), **arguments(True, True))
    compiled = tf.function(gp.log_marginal_likelihood, autograph=False)
    close(compiled(), gp.log_marginal_likelihood(), 1e-13)
    gp.condition(X, observations(seed=1), **arguments(True, True))
    close(compiled(), gp.log_marginal_likelihood(), 1e-13)
    gp.condition(X, observations())
    with pytest.raises(tf.errors.InvalidArgumentError, match="measure something else"):
        compiled()


def test_other_data_replace_what_was_measured():
    gp, fresh = (model(cgp.ExactGP, "Matern32", False) for _ in range(2))
    gp.condition(X, observations(), **arguments(True, True))
    gp.condition(X, observations())
    fresh.condition(X, observations())
    close(gp.predict(NEW)["mean"], fresh.predict(NEW)["mean"], 1e-14)
    close(gp.log_marginal_likelihood(), fresh.log_marginal_likelihood(), 1e-14)


@pytest.mark.long
@pytest.mark.parametrize("improper", [True, False])
def test_a_stream_goes_on_from_the_data(improper):
    exact, gp = (model(kind, "Matern52", improper) for kind in BOTH)
    gp.condition(X, observations(), **arguments(True, True))
    later, z = np.array([7.5, 8.0]), np.array([0.3 - 1j, 0.2])
    with pytest.raises(ValueError, match="must not go back"):
        gp.step(7.2, 1j)  # inside the last exposure
    gp.step(later[0], z[0])
    step = gp.step(later[1], z[1])
    x, z_all = np.append(X, later), np.append(observations(), z)
    of_samples = {"observed": np.append(WORDS, ["value"] * 2), "widths": np.append(WIDTHS, [0, 0])}
    without_last = {name: a[:-1] for name, a in of_samples.items()}
    exact.condition(x[:-1], z_all[:-1], **without_last)
    close(step.predicted.mean, exact.predict([8.0])["mean"][0])
    exact.condition(x, z_all, **of_samples)
    close(step.filtered.mean, exact.predict([8.0])["mean"][0])
    close(gp.predict(NEW)["mean"], exact.predict(NEW)["mean"])
    close(gp.log_marginal_likelihood(), exact.log_marginal_likelihood())


@pytest.mark.long
def test_samples_are_left_out_and_drawn_as_they_were_measured():
    samples = (X, IS_DERIVATIVE, WIDTHS)
    k, c = moments("Matern52", True, samples, samples)
    gp = model(cgp.ExactGP, "Matern52", True)
    z = observations()
    gp.condition(X, z, **arguments(True, True))
    expected = dense.leave_one_out(z, k + NOISE * np.eye(len(X)), c)
    present = ~np.isnan(z)
    for moment, value in zip(gp.loo().values(), expected, strict=True):
        close(moment[present], value[present])
    state_space = model(cgp.StateSpaceGP, "Matern52", True)
    state_space.condition(X, z, **arguments(True, True))
    draws = state_space.sample(NEW, 4000, seed=0)
    posterior = gp.predict(NEW)
    spread = np.sqrt(posterior["variance"] / 4000)
    assert np.all(np.abs(draws.mean(axis=0) - posterior["mean"]) < 5 * spread)
    np.testing.assert_allclose(np.var(draws, axis=0), posterior["variance"], rtol=0.12)


@pytest.mark.long
def test_all_points_at_once_are_point_after_point():
    z, of_samples = observations(), arguments(True, True)
    gp, parallel = (model(cgp.StateSpaceGP, "Matern32", False, parallel=p) for p in (False, True))
    for process in (gp, parallel):
        process.condition(X, z, **of_samples)
    close(parallel.log_marginal_likelihood(), gp.log_marginal_likelihood())
    close(parallel.predict(NEW)["mean"], gp.predict(NEW)["mean"])


def test_forecasts_are_from_rates_too():
    exact, gp = (model(kind, "Matern52", False) for kind in BOTH)
    x, z = np.sort(X), observations()
    gp.condition(x, z, observed=WORDS)
    forecasts = gp.forecasts([0.5])
    exact.condition(x[:3], z[:3], observed=WORDS[:3])
    close(forecasts["mean"][2, 0], exact.predict([x[2] + 0.5])["mean"][0])


# --- refusals ----------------------------------------------------------------------------------

SMOOTH = Matern52(1.0, 1.0)


@pytest.mark.parametrize(
    ("kernel", "of_samples", "words"),
    [
        (Matern12(1.0, 1.0), {"observed": "derivative"}, "Matern12.*noise enters its value"),
        (SMOOTH + White(0.1), {"observed": "derivative"}, "White.*no differential equation"),
        (SMOOTH * Matern12(1.0, 1.0), {"observed": WORDS}, "Matern12.*no derivative"),
        (RandomWalk(1.0, start=-9.0), {"observed": WORDS}, "RandomWalk.*no derivative"),
        (Matern(1.0, 1.0, smoothness=2.5), {"observed": WORDS}, "Matern.*no derivative"),
        (RBF(1.0, 1.0), {"widths": 1.0}, "RBF.*MarkovApproximation"),
        (SMOOTH + White(0.1), {"widths": 1.0}, "White.*not one"),
        (SMOOTH, {"observed": "rate"}, '"value" or "derivative", got \'rate\''),
        (SMOOTH, {"observed": WORDS[:4]}, r"observed must be \[N\].*got shape \(4,\)"),
        (SMOOTH, {"widths": -WIDTHS}, "widths must be finite and not negative.*got -0.5"),
        (SMOOTH, {"widths": np.full(9, np.nan)}, "widths must be finite"),
        (SMOOTH, {"widths": 1e-17}, "lost to rounding"),
        (SMOOTH, {"observed": "derivative", "widths": 1.0}, "widths must be 0 where observed"),
    ],
)
def test_what_a_process_cannot_measure_is_refused(kernel, of_samples, words):
    gp = cgp.ExactGP(kernel, NOISE)
    with pytest.raises(ValueError, match=words):
        gp.condition(X, observations(), **of_samples)
    assert "none" in gp._repr_html_()  # nothing has been taken in


def test_arguments_of_another_type_are_refused():
    gp = cgp.ExactGP(SMOOTH, NOISE)
    with pytest.raises(TypeError, match='"value" or "derivative"'):
        gp.condition(X, observations(), observed=IS_DERIVATIVE)
    with pytest.raises(TypeError, match="widths must be real"):
        gp.condition(X, observations(), widths=WIDTHS + 0j)
    with pytest.raises(ValueError, match="one dimension, got 2"):
        gp.condition(np.stack([X, X], -1), observations(), observed=WORDS)
    with pytest.raises(ValueError, match="belong together"):
        gp.log_marginal_likelihood(observed=WORDS)


def test_what_has_no_derivative_or_average_is_refused():
    one_bit = cgp.ExactGP(SMOOTH, NOISE, likelihood=cgp.likelihoods.OneBit())
    with pytest.raises(ValueError, match="not under OneBit"):
        one_bit.condition(X, np.sign(observations().real) + 1j, observed=WORDS)
    whittle = cgp.StateSpaceGP(SMOOTH, NOISE, likelihood="whittle")
    with pytest.raises(ValueError, match="whittle"):
        whittle.condition(np.arange(9.0), observations(), widths=1.0)

    class Parabola(cgp.means.Mean):
        def evaluate(self, x):
            return tf.cast(x[..., 0] ** 2, tf.complex128)

    curved = cgp.ExactGP(SMOOTH, NOISE, mean=Parabola())
    with pytest.raises(ValueError, match=re.escape("no derivative or average of Parabola()")):
        curved.condition(X, observations(), observed=WORDS)
    turning = cgp.StateSpaceGP(IntegratedRandomWalk(1.0, 1.0, start=-9.0) * Rotation(0.1), NOISE)
    with pytest.raises(ValueError, match="no differential equation"):
        turning.condition(X, observations(), observed=WORDS)
    exposed = cgp.StateSpaceGP(SMOOTH, NOISE)
    exposed.condition(X, observations(), widths=1.0)
    with pytest.raises(ValueError, match="forecasts are from samples at instants"):
        exposed.forecasts([1.0])


def test_a_fit_needs_the_unit_of_what_it_starts():
    with pytest.raises(ValueError, match=r"noise_variance was left out.*another unit"):
        cgp.ExactGP(Matern32()).fit(X, observations(), observed=WORDS)
    with pytest.raises(ValueError, match=r"matern32.variance.*all samples are derivatives"):
        cgp.ExactGP(Matern32(), NOISE).fit(X, observations(), observed="derivative")


@pytest.mark.parametrize("kind", BOTH)
def test_a_mean_that_is_not_finite_does_not_hide_an_observation(kind):
    class Broken(cgp.means.Mean):
        def evaluate(self, x):
            return tf.cast(tf.where(x[..., 0] > 4.0, np.nan, 0.0), tf.complex128)

    gp = kind(SMOOTH, NOISE, mean=Broken())
    with pytest.raises(ValueError, match=r"mean function .* is NaN at some of the samples"):
        gp.log_marginal_likelihood(X, observations())
    in_graph = tf.function(lambda: gp.log_marginal_likelihood(X, observations()))
    assert not np.isfinite(in_graph())


def test_a_dataset_has_no_observed_values_beside_it():
    gp = cgp.StateSpaceGP(SMOOTH, NOISE)
    pairs = tf.data.Dataset.from_tensors((X, observations()))
    for argument in ({"observed": WORDS}, {"widths": WIDTHS}):
        with pytest.raises(ValueError, match="observed, widths and restarts are for one x and z"):
            gp.evaluate(pairs, **argument)


def test_a_fit_of_values_and_derivatives_with_one_noise_is_suspicious():
    gp = cgp.ExactGP(SMOOTH, NOISE)
    with pytest.warns(RuntimeWarning, match="values and derivatives share one noise variance"):
        gp.fit(X, observations(), observed=WORDS, epochs=1, verbose=0)
