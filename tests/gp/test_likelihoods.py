"""Processes of data that are not the signal plus normal noise."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import cgp
from cgp.kernels import Matern32, Rotation
from cgp.likelihoods import Magnitude, OneBit, StudentT, VonMises
from tests.gp.differences import assert_are_differences
from tests.long_cases import eagerly_or_in_a_graph, long_except
from tests.reference import kernels as reference

NOISE = 0.09
KINDS = {"t": StudentT(4.0), "signs": OneBit(), "phases": VonMises()}
NEARLY_NORMAL = StudentT(50.0)  # whose sites settle in few turns, where there are no outliers


def kernel():
    return Matern32(2.0, 4.0) * Rotation(0.2)


def data(name, n=30, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 8.0, n))
    noise = np.sqrt(NOISE / 2) * (rng.normal(size=n) + 1j * rng.normal(size=n))
    y = 1.5 * np.exp(0.4j * np.pi * x) + noise
    if name == "t":
        y[::7] += 3.0 * (rng.normal(size=y[::7].size) + 1j)
    if name == "signs":
        y = np.sign(y.real) + 1j * np.sign(y.imag)
    return x, y


def bound_and_gradient(gp):
    """Of the data that it holds, by each of its variables."""
    with tf.GradientTape() as tape:
        bound = gp.log_marginal_likelihood()
    return float(bound), [float(g) for g in tape.gradient(bound, gp.trainable_variables)]


@pytest.mark.parametrize(
    ("name", "count"),
    long_except([("nearly normal", 6), *((name, 12) for name in KINDS)], ("nearly normal", 6)),
)
def test_are_the_exact_and_the_state_space_process_one(name, count):
    x, z = data(name, count)
    z[3] = complex(np.nan, np.nan)
    processes = [
        kind(kernel(), NOISE, likelihood=KINDS.get(name, NEARLY_NORMAL))
        for kind in (cgp.ExactGP, cgp.StateSpaceGP)
    ]
    new = np.array([-1.0, 2.3, 9.0])
    for gp in processes:
        gp.condition(x, z)
    one, other = (gp.predict(new) for gp in processes)
    for key in one:
        np.testing.assert_allclose(one[key], other[key], rtol=1e-7, atol=1e-9)
    (one, by_one), (other, by_other) = (bound_and_gradient(gp) for gp in processes)
    assert one == pytest.approx(other, abs=1e-7)
    np.testing.assert_allclose(by_one, by_other, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        *(gp.posterior(new).covariance() for gp in processes), rtol=1e-6, atol=1e-9
    )


def reference_of_weights(x, z, nu, noise):
    """Student's t by its weights: posterior and bound, from the definition, in loops."""
    points = x[:, None]
    k = reference.matern32(points, points, 2.0, 4.0) * reference.rotation(points, points, 0.2)
    n, weights = len(x), np.ones(len(x))
    for _ in range(500):
        inverse = np.linalg.inv(k + np.diag(noise / weights))
        mean = k @ inverse @ z
        covariance = k - k @ inverse @ k
        square = np.abs(z - mean) ** 2 + np.diag(covariance).real
        weights = (nu / 2 + 1) / (nu / 2 + square / noise)
    # E log p(z, w | f) + H(w) with gamma q(w), less the divergence of q(f) from the prior
    expected = [
        np.log(nu / 2 / (np.pi * noise)) + np.log1p(0) - (nu / 2 + 1) * np.log1p(2 * s / noise / nu)
        for s in square
    ]
    # the mixture at a known square: Γ(ν/2 + 1) / Γ(ν/2) (ν/2)^{ν/2} / (πσ² (ν/2 + s)^{ν/2 + 1})
    expected = np.array(expected) - np.log(nu / 2)
    inside = np.linalg.inv(k)
    divergence = (
        np.trace(inside @ covariance).real + (mean.conj() @ inside @ mean).real - n
        + np.linalg.slogdet(k)[1] - np.linalg.slogdet(covariance)[1]
    )  # fmt: skip
    return mean, np.diag(covariance).real, expected.sum() - divergence


def test_is_students_t_the_one_of_the_definition():
    x, z = data("t", n=14)
    gp = cgp.ExactGP(kernel(), NOISE, likelihood=StudentT(4.0))
    gp.condition(x, z)
    mean, variance, bound = reference_of_weights(x, z, 4.0, NOISE)
    found = gp.predict(x)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(found["variance"], variance, rtol=1e-6)
    assert float(gp.log_marginal_likelihood()) == pytest.approx(bound, abs=1e-6)


def reference_of_signs(x, z, noise):
    """Expectation propagation, site by site, of real and imaginary parts: mean and log evidence.

    Rasmussen & Williams (2006), §3.6, with the parts of a proper signal as 2n real signals.
    """
    points = x[:, None]
    k = reference.matern32(points, points, 2.0, 4.0) * reference.rotation(points, points, 0.2)
    k = 0.5 * np.block([[k.real, -k.imag], [k.imag, k.real]])
    signs, n = np.concatenate([z.real, z.imag]), 2 * len(x)
    precision, linear = np.zeros(n), np.zeros(n)
    for _ in range(200):
        evidence = 0.0
        for i in range(n):
            inverse = np.linalg.inv(np.eye(n) + k * precision)
            covariance = inverse @ k
            mean = covariance @ linear
            left = 1 / covariance[i, i] - precision[i]
            m, v = (mean[i] / covariance[i, i] - linear[i]) / left, 1 / left
            u = signs[i] * m / np.sqrt(v + noise / 2)
            ratio = np.exp(scipy.stats.norm.logpdf(u) - scipy.stats.norm.logcdf(u))
            alpha = signs[i] * ratio / np.sqrt(v + noise / 2)
            beta = ratio * (u + ratio) / (v + noise / 2)
            if precision[i] > 0:
                of_site = (linear[i] / precision[i], np.sqrt(v + 1 / precision[i]))
                evidence += scipy.stats.norm.logcdf(u) - scipy.stats.norm.logpdf(m, *of_site)
            after = v - v**2 * beta
            precision[i], linear[i] = 1 / after - 1 / v, (m + v * alpha) / after - m / v
    target, total = linear / precision, k + np.diag(1 / precision)
    evidence += scipy.stats.multivariate_normal.logpdf(target, cov=total)
    mean = np.linalg.inv(np.eye(n) + k * precision) @ k @ linear
    return mean[: len(x)] + 1j * mean[len(x) :], evidence


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_the_process_of_signs_the_one_of_the_definition(kind):
    x, z = data("signs", n=4)
    gp = kind(kernel(), NOISE, likelihood=OneBit())
    gp.condition(x, z)
    mean, evidence = reference_of_signs(x, z, NOISE)
    np.testing.assert_allclose(gp.predict(x)["mean"], mean, atol=1e-6)
    assert float(gp.log_marginal_likelihood()) == pytest.approx(evidence, abs=1e-6)


def log_density(likelihood, zs, g, noise):
    if isinstance(likelihood, OneBit):
        return scipy.stats.norm.logcdf(zs * g / np.sqrt(noise / 2)).sum(axis=0)
    nothing = np.zeros((2, 2, g.shape[1])) + 1e-14 * np.eye(2)[..., None]
    given = map(tf.constant, (zs, g, nothing, np.float64(noise)))
    return likelihood.expected_log_density(*given).numpy()


def one_sample(likelihood, z, points, variance=1.0, noise=0.5):
    """The exact posterior of one signal, on a grid: mean, and log evidence."""
    a = np.linspace(-6.0, 6.0, points)
    re, im = np.meshgrid(a, a, indexing="ij")
    g = np.stack([re.ravel(), im.ravel()])
    zs = np.array([z.real, z.imag])[:, None] + 0 * g
    values = log_density(likelihood, zs, g, noise)
    log_prior = -np.sum(g**2, axis=0) / variance - np.log(np.pi * variance)
    joint = np.exp(values + log_prior) * (a[1] - a[0]) ** 2
    evidence = joint.sum()
    return complex(*(joint * g).sum(axis=1) / evidence), np.log(evidence)


@pytest.mark.parametrize(
    ("name", "by_mean", "by_evidence", "points"),
    long_except(
        [
            ("t", 0.1, 0.25, 161),
            ("signs", 1e-6, 1e-6, 161),
            ("phases", 0.03, 0.03, 61),
        ],
        ("phases", 0.03, 0.03, 61),
    ),
)
def test_is_the_posterior_of_one_sample_near_the_exact_one(name, by_mean, by_evidence, points):
    z = np.array([np.exp(0.7j)]) if name == "phases" else np.array([1.0 - 1.0j])
    gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.5, likelihood=KINDS[name])
    gp.condition([0.0], z)
    mean, evidence = one_sample(KINDS[name], z[0], points)
    assert abs(gp.predict([0.0])["mean"][0] - mean) < by_mean
    bound = float(gp.log_marginal_likelihood())
    assert evidence - by_evidence < bound < evidence + 1e-4


@pytest.mark.parametrize(
    ("name", "kind", "each"),
    [
        ("signs", cgp.ExactGP, False),
        pytest.param("t", cgp.StateSpaceGP, True, marks=pytest.mark.long),
        *(pytest.param(name, cgp.ExactGP, True, marks=pytest.mark.long) for name in KINDS),
    ],
)
def test_is_the_gradient_of_the_bound_that_of_differences(name, kind, each):
    x, z = data(name, n=12 if each else 6)
    gp = kind(kernel(), NOISE, mean=cgp.means.Constant(0.3 - 0.1j), likelihood=KINDS[name])
    with tf.GradientTape() as tape:
        value = gp.log_marginal_likelihood(x, z)
    gradients = tape.gradient(value, gp.trainable_variables)
    assert_are_differences(
        lambda: gp.log_marginal_likelihood(x, z),
        gp.trainable_variables,
        gradients,
        h=1e-4,
        each=each,
        rtol=1e-6,
        atol=1e-6,
    )


def test_is_the_gradient_by_the_observations_that_of_differences():
    x, z = data("t", n=8)
    gp = cgp.ExactGP(kernel(), NOISE, likelihood=StudentT(4.0))
    given = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(given)
        value = gp.log_marginal_likelihood(x, given)
    gradient, h = tape.gradient(value, given).numpy(), 1e-5
    for part in (1.0, 1.0j):
        step = h * part * np.eye(8)[7]
        up, down = (float(gp.log_marginal_likelihood(x, z + s * step)) for s in (1, -1))
        found = (np.conj(part) * gradient[7]).real
        assert found == pytest.approx((up - down) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "optimizer", "count"),
    [
        (cgp.ExactGP, lambda: keras.optimizers.SGD(1e-3), 8),
        pytest.param(cgp.ExactGP, cgp.optimizers.LBFGS, 20, marks=pytest.mark.long),
        pytest.param(cgp.StateSpaceGP, cgp.optimizers.LBFGS, 20, marks=pytest.mark.long),
    ],
)
def test_climbs_fit_the_bound_and_keeps_predictions_current(kind, optimizer, count):
    x, z = data("t", count)
    gp = kind(kernel(), NOISE, likelihood=StudentT(4.0))
    gp.condition(x, z)
    before = float(gp.log_marginal_likelihood())
    gp.compile(optimizer(), run_eagerly=count < 10)
    gp.fit(x, z, epochs=1 if count < 10 else 4, verbose=0)
    assert float(gp.log_marginal_likelihood()) > before
    other = kind(kernel(), 1.0, likelihood=StudentT(4.0))
    for own, theirs in zip(gp.trainable_variables, other.trainable_variables, strict=True):
        theirs.assign(own)
    other.condition(x, z)
    np.testing.assert_allclose(gp.predict(x)["mean"], other.predict(x)["mean"], atol=1e-6)
    gp.kernel.parts[0].variance.assign(0.7)
    other.kernel.parts[0].variance.assign(0.7)
    other.condition(x, z)
    np.testing.assert_allclose(gp.predict(x)["variance"], other.predict(x)["variance"], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    long_except(
        [("signs", cgp.ExactGP, 5), ("t", cgp.StateSpaceGP, 10)], ("signs", cgp.ExactGP, 5)
    ),
)
def test_is_a_saved_process_the_same(kind, name, count, tmp_path):
    x, z = data(name, count)
    gp = kind(kernel(), NOISE, likelihood=KINDS[name])
    gp.condition(x, z)
    gp.save(tmp_path / "model.keras")
    loaded = cgp.load_model(tmp_path / "model.keras")
    assert loaded.get_config()["likelihood"] == gp.get_config()["likelihood"]
    for one, other in zip(gp.predict(x).values(), loaded.predict(x).values(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "name"),
    long_except(
        [(cgp.ExactGP, "nearly normal"), (cgp.ExactGP, "t"), (cgp.StateSpaceGP, "t")],
        (cgp.ExactGP, "nearly normal"),
    ),
)
def test_has_each_series_sites_of_its_own(kind, name):
    x, z = data(name, n=6)
    several = np.stack([z, np.roll(z, 2)])
    gp = kind(kernel(), NOISE, likelihood=KINDS.get(name, NEARLY_NORMAL))
    gp.condition(x, several)
    together, bound = gp.predict([2.0])["mean"], gp.log_marginal_likelihood().numpy()
    for i, one in enumerate(several):
        gp.condition(x, one)
        np.testing.assert_allclose(gp.predict([2.0])["mean"], together[i], atol=1e-7)
        assert float(gp.log_marginal_likelihood()) == pytest.approx(bound[i], abs=1e-7)


@eagerly_or_in_a_graph
def test_are_the_values_of_a_call_those_of_the_process(eagerly):
    x, z = data("t", n=8)
    gp = cgp.ExactGP(kernel(), NOISE, likelihood=StudentT(4.0))
    gp.condition(x, z)
    bound, mean = gp.log_marginal_likelihood(), gp.predict(x)["mean"]
    if not eagerly:
        graph = tf.function(lambda: (gp.log_marginal_likelihood(x, z), gp.posterior(x).mean()))
        bound, mean = graph()
        np.testing.assert_allclose(mean, gp.predict(x)["mean"], atol=1e-8)
    assert float(bound) == pytest.approx(float(gp.log_marginal_likelihood(x, z)), abs=1e-8)
    found = gp((x, z))
    np.testing.assert_allclose(found["mean"], mean, atol=1e-8)
    assert float(gp.losses[0]) == pytest.approx(-float(bound) / 8, abs=1e-8)


def test_have_groups_and_known_noise_their_part_in_a_likelihood():
    x, z = data("nearly normal", n=6)
    likelihood = NEARLY_NORMAL
    groups, known = np.arange(6) % 2, 0.1 * np.arange(6)
    gp = cgp.ExactGP(kernel(), [0.1, 0.3], likelihood=likelihood)
    gp.condition(x, z, noise_groups=groups, noise_variance=known)
    other = cgp.ExactGP(kernel(), 1e-12, likelihood=likelihood)
    other.condition(x, z, noise_variance=np.array([0.1, 0.3])[groups] + known)
    np.testing.assert_allclose(gp.predict(x)["mean"], other.predict(x)["mean"], atol=1e-7)


@pytest.mark.long
def test_is_the_error_beside_outliers_near_that_of_knowing_them():
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0.0, 60.0, 300))
    truth = cgp.StateSpaceGP(kernel(), NOISE).sample(x, 1, seed=1)[0]
    noise = np.sqrt(NOISE / 2) * (rng.normal(size=300) + 1j * rng.normal(size=300))
    bad = rng.random(300) < 0.05
    z = truth + np.where(bad, 10.0, 1.0) * noise
    error = {}
    for name, likelihood, missing in (
        ("normal", "exact", None), ("t", StudentT(4.0), None), ("known", "exact", bad)
    ):  # fmt: skip
        gp = cgp.StateSpaceGP(kernel(), NOISE, likelihood=likelihood)
        gp.condition(x, z, missing=missing)
        error[name] = np.sqrt(np.mean(np.abs(gp.predict(x)["mean"] - truth) ** 2))
    assert error["t"] < 1.1 * error["known"]
    assert error["normal"] > 1.5 * error["known"]


@pytest.mark.long
def test_is_a_robust_step_near_one_that_knows_the_outliers():
    rng = np.random.default_rng(2)
    x = 0.4 * np.arange(80)
    truth = cgp.StateSpaceGP(kernel(), NOISE).sample(x, 1, seed=4)[0]
    noise = np.sqrt(NOISE / 2) * (rng.normal(size=80) + 1j * rng.normal(size=80))
    bad = rng.random(80) < 0.08
    z = truth + np.where(bad, 12.0, 1.0) * noise

    def errors(likelihood, missing):
        gp = cgp.RecursiveGP(kernel(), NOISE, capacity=40)
        steps = [gp.step(*a, likelihood=likelihood) for a in zip(x, z, missing, strict=True)]
        return np.sqrt(np.mean(np.abs([s.filtered.mean for s in steps] - truth) ** 2)), steps

    robust, steps = errors(StudentT(4.0), 0 * bad == 1)
    normal, usual = errors(None, 0 * bad == 1)
    known, _ = errors(None, bad)
    assert robust < 1.15 * known < 0.8 * normal
    # The first prediction knows nothing of the sample to come.
    assert steps[0].predicted == usual[0].predicted


def test_is_a_robust_step_that_of_the_weight_of_its_definition():
    gp, nu = cgp.RecursiveGP(kernel(), NOISE, capacity=5), 3.0
    z, v = 5.0 + 1j, 2.0
    step = gp.step(0.0, z, likelihood=StudentT(nu))
    w = 1.0
    for _ in range(2000):
        gain = v / (v + NOISE / w)
        square = abs((1 - gain) * z) ** 2 + (1 - gain) * v
        w = (nu / 2 + 1) / (nu / 2 + square / NOISE)
    gain = v / (v + NOISE / min(w, 1.0))
    assert step.filtered.mean == pytest.approx(gain * z, abs=1e-6)
    assert step.predicted.variance == pytest.approx(v + NOISE, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_has_the_prediction_before_an_outlier_all_its_digits(dtype):
    gp = cgp.RecursiveGP(Matern32(1.0, 2.0, dtype=dtype), 0.1, capacity=5, dtype=dtype)
    one = np.dtype("complex64" if dtype == "float32" else "complex128").type(1.0)
    for t in range(3):
        gp.step(float(t), one)
    expected = gp.posterior([3.0], observed=True).variance().numpy()[0]
    step = gp.step(3.0, 1e9 * one, likelihood=StudentT(4.0))
    assert step.predicted.variance == pytest.approx(expected, rel=1e-6)
    assert abs(step.filtered.mean) < 2.0


def test_is_a_robust_step_of_an_improper_process_that_of_its_definition():
    """The sample and its conjugate have a covariance of two rows, and one weight."""
    improper = cgp.kernels.WidelyLinear(Matern32(1.3, 0.8), coefficient=0.6 + 0.3j)
    gp, z, nu, noise = cgp.RecursiveGP(improper, 0.2, capacity=5), 2.5 - 1.2j, 3.0, 0.2
    step = gp.step(0.0, z, likelihood=StudentT(nu))
    k, c = reference.widely_linear(np.array([[1.3]]), np.zeros((1, 1)), 0.6 + 0.3j)
    prior = np.block([[k, c], [c.conj(), k.conj()]])
    both, w = np.array([z, np.conj(z)]), 1.0
    for _ in range(2000):
        gain = prior @ np.linalg.inv(prior + noise / w * np.eye(2))
        mean, covariance = gain @ both, prior - gain @ prior
        w = (nu / 2 + 1) / (nu / 2 + (abs(z - mean[0]) ** 2 + covariance[0, 0].real) / noise)
    assert w < 0.9  # an outlier
    assert step.filtered.mean == pytest.approx(mean[0], abs=1e-6)
    assert step.filtered.variance == pytest.approx(covariance[0, 0].real, abs=1e-6)
    assert step.filtered.pseudo_variance == pytest.approx(covariance[0, 1], abs=1e-6)


@pytest.mark.long
def test_is_a_robust_step_of_an_improper_process_that_of_all_data_in_one():
    """One sample that may be an outlier, whose posterior the exact process finds by its own way."""

    def process(kind, **arguments):
        improper = cgp.kernels.WidelyLinear(Matern32(1.3, 0.8), coefficient=0.6 + 0.3j)
        return kind(improper, 0.2, **arguments)

    z = 2.5 - 1.2j
    recursive = process(cgp.RecursiveGP, capacity=5)
    step = recursive.step(0.0, z, likelihood=StudentT(3.0))
    exact = process(cgp.ExactGP, likelihood=StudentT(3.0))
    exact.condition([0.0], [z])
    expected = exact.predict([0.0])
    assert step.filtered.mean == pytest.approx(expected["mean"][0], abs=1e-6)
    assert step.filtered.variance == pytest.approx(expected["variance"][0], abs=1e-6)
    pseudo = expected["pseudo_variance"][0]
    assert step.filtered.pseudo_variance == pytest.approx(pseudo, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cgp.ExactGP(kernel(), 0.1, likelihood=Magnitude()), ValueError, "for filters"),
        (lambda: cgp.ExactGP(kernel(), 0.1, 0.05, likelihood=OneBit()), ValueError, "circular"),
        (lambda: cgp.ExactGP(kernel(), 0.1, likelihood="t"), TypeError, "one of cgp.likelihoods"),
        (lambda: cgp.StateSpaceGP(kernel(), 0.1, likelihood="t"), ValueError, "'exact', 'whittle'"),
        (
            lambda: cgp.RecursiveGP(kernel(), 0.1).step(0.0, 1j, likelihood=OneBit()),
            TypeError,
            "must be a cgp.likelihoods.StudentT",
        ),
        (
            lambda: cgp.RecursiveGP(kernel(), 0.1, 0.05).step(0.0, 1j, likelihood=StudentT()),
            ValueError,
            "noise_pseudo_variance must be 0",
        ),
    ],
)  # fmt: skip
def test_is_what_cannot_be_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.long
def test_is_what_wants_normal_noise_refused():
    x, z = data("signs", n=6)
    gp = cgp.StateSpaceGP(kernel(), 0.1, likelihood=OneBit())
    gp.condition(x, z)
    before = gp.predict(x)["mean"]
    for call in (
        lambda: gp.step(9.0, 1j),
        lambda: gp.process([9.0], [1j]),
        lambda: gp.forecasts(1.0),
    ):
        with pytest.raises(ValueError, match="of data in normal noise"):
            call()
    for call in (gp.condition, gp.evaluate, gp.log_marginal_likelihood):
        with pytest.raises(ValueError, match="must have signs"):
            call(x, z.real + 0j)
    np.testing.assert_array_equal(gp.predict(x)["mean"], before)
    exact = cgp.ExactGP(kernel(), 0.1, likelihood=OneBit())
    exact.condition(x, z)
    with pytest.raises(ValueError, match="of data in normal noise"):
        exact.loo()
    with pytest.raises(AttributeError, match="make a new ExactGP"):
        exact.likelihood = None


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_is_a_process_without_data_the_same_in_a_file(kind, tmp_path):
    gp = kind(kernel(), NOISE, likelihood=StudentT(3.0))
    gp.save(tmp_path / "model.keras")
    loaded = cgp.load_model(tmp_path / "model.keras")
    assert loaded.get_config()["likelihood"] == gp.get_config()["likelihood"]
    assert loaded.likelihood == gp.likelihood


def test_is_what_wants_normal_noise_refused_of_signs():
    x, z = data("signs", n=3)
    gp = cgp.StateSpaceGP(kernel(), 0.1, likelihood=OneBit())
    for call in (lambda: gp.step(9.0, 1j), lambda: gp.process([9.0], [1j])):
        with pytest.raises(ValueError, match="of data in normal noise"):
            call()
    exact = cgp.ExactGP(kernel(), 0.1, likelihood=OneBit())
    for one in (gp, exact):
        for call in (one.condition, one.log_marginal_likelihood):
            with pytest.raises(ValueError, match="must have signs"):
                call(x, z.real + 0j)
    with pytest.raises(AttributeError, match="make a new ExactGP"):
        exact.likelihood = None


def test_is_a_bound_below_the_log_likelihood_of_normal_noise_where_it_is_that():
    """With many degrees of freedom Student's t is the normal distribution."""
    x, z = data("phases", n=4)
    gp = cgp.ExactGP(kernel(), NOISE, likelihood=StudentT(1e7))
    normal = cgp.ExactGP(kernel(), NOISE)
    for process in (gp, normal):
        process.condition(x, z)
    assert float(gp.log_marginal_likelihood()) == pytest.approx(
        float(normal.log_marginal_likelihood()), abs=1e-4
    )
    np.testing.assert_allclose(gp.predict(x)["mean"], normal.predict(x)["mean"], atol=1e-6)
    assert scipy.stats.t.pdf(0.0, 1e7) == pytest.approx(scipy.stats.norm.pdf(0.0), rel=1e-6)


def test_are_angles_refused_where_phases_are_points_of_the_circle():
    degrees = np.array([10.0, 20.0, 30.0]) + 0j
    gp = cgp.ExactGP(Matern32(1.0, 2.0), 0.1, likelihood=VonMises())
    with pytest.raises(ValueError, match=r"np\.exp\(1j \* angles\)"):
        gp.condition([0.0, 1.0, 2.0], degrees)


@pytest.mark.long
def test_are_phases_that_are_points_of_the_circle_taken():
    degrees = np.array([10.0, 20.0, 30.0])
    gp = cgp.ExactGP(Matern32(1.0, 2.0), 0.1, likelihood=VonMises())
    gp.condition([0.0, 1.0, 2.0], np.exp(1j * np.deg2rad(degrees)))
