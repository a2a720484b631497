"""Filters of observations that are not the signal plus normal noise."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.likelihoods import Magnitude, OneBit, StudentT, VonMises
from tests.long_cases import long_except

ROOT = 0.95 * np.exp(0.3j)
Q, R = 1 - 0.95**2, 0.1


def model(q=Q, r=R):
    return statespace.LinearGaussian([[ROOT]], [[q]], [[1.0]], [[r]], [1.0 + 0j], [[0.2]])


def series(likelihood, n=25, seed=0, size=1):
    rng = np.random.default_rng(seed)
    samples = [statespace.sample(model(), n, seed=seed + i)[1].numpy() for i in range(size)]
    z = np.stack(samples) if size > 1 else samples[0]
    if isinstance(likelihood, StudentT):
        z[..., ::9, :] += 3.0 * rng.normal() + 2j
    if isinstance(likelihood, OneBit):
        z = np.sign(z.real) + 1j * np.sign(z.imag)
    return z


KINDS = [StudentT(3.0), OneBit(), VonMises()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("likelihood", "steps"),
    [(kind, 12) for kind in KINDS[:2]],
    ids=lambda k: type(k).__name__,
)
def test_is_the_smoother_that_of_the_process(likelihood, steps):
    """A Matérn-½ process is the same first-order model, its sites found by other code."""
    x = 0.5 * np.arange(steps)
    kernel = cgp.kernels.Matern12(1.0, 3.0) * cgp.kernels.Rotation(0.1)
    z = series(likelihood, steps)[:, 0]
    gp = cgp.StateSpaceGP(kernel, R, likelihood=likelihood)
    gp.condition(x, z)
    root = np.exp(-0.5 / 3.0 + 2j * np.pi * 0.1 * 0.5)
    same = statespace.LinearGaussian([[root]], [[1 - abs(root) ** 2]], [[1.0]], [[R]])
    found = statespace.smooth(same, z, likelihood=likelihood)
    np.testing.assert_allclose(found.smoothed_means[:, 0], gp.predict(x)["mean"], atol=1e-6)


def still(variance, noise):
    """One state that stays, of mean zero."""
    return statespace.LinearGaussian([[1.0 + 0j]], [[0.0]], [[1.0]], [[noise]], [0j], [[variance]])


@pytest.mark.parametrize("dtype", long_except(["complex128", "complex64"], "complex128"))
@pytest.mark.parametrize("noise", [0.5, 1e-4])
def test_is_the_first_sign_exact(noise, dtype):
    """The moments of a normal given its sign, in noise: those of a skew normal distribution."""
    given = (np.array(a, dtype) for a in ([[1]], [[0]], [[1]], [[noise]], [0], [[1]]))
    model = statespace.LinearGaussian(*given)
    z = np.array([1.0 - 1j], dtype)
    found = statespace.filter(model, z, likelihood=OneBit())
    part = np.sqrt(2 / np.pi) * 0.5 / np.sqrt(0.5 + noise / 2)
    accuracy = 1e-7 if dtype == "complex128" else 1e-4
    np.testing.assert_allclose(found.filtered_means[0, 0], part * (1 - 1j), rtol=accuracy)
    root = found.filtered_chols.numpy()[0]
    np.testing.assert_allclose(root @ root.T, (0.5 - part**2) * np.eye(2), atol=accuracy)
    assert float(found.log_likelihood) == pytest.approx(-2 * np.log(2), abs=accuracy)


@pytest.mark.parametrize(("variance", "z"), [(100.0, 30.0), (10.0, 9.5), (10.0, 25.3)])
def test_is_students_t_that_of_the_weights_of_its_definition(variance, z):
    """From the posterior of normal noise on; at 9.5 hundreds of turns are needed."""
    nu, weight = 4.0, 1.0
    for _ in range(5000):
        v = 1.0 / (1.0 / variance + weight)
        square = abs(v * weight * z - z) ** 2 + v
        weight = (nu / 2 + 1) / (nu / 2 + square)
    found = statespace.filter(still(variance, 1.0), [z + 0j], likelihood=StudentT(nu))
    assert found.filtered_means.numpy()[0, 0] == pytest.approx(v * weight * z, rel=1e-7)
    expected = np.log(nu / 2) - np.log(np.pi * nu / 2) - (nu / 2 + 1) * np.log1p(square * 2 / nu)
    mean = v * weight * z
    expected -= np.log(variance / v) + v / variance - 1 + mean**2 / variance
    assert float(found.log_likelihood) == pytest.approx(expected, abs=1e-8)


@pytest.mark.long
def test_agree_sites_of_phases_in_little_noise_too():
    """The log likelihood by another way: its derivative by the noise is that of differences."""
    likelihood, noise = VonMises(), 1e-3
    z = series(likelihood, 12)
    value, h = tf.Variable(noise, dtype=tf.float64), 1e-7

    def log_likelihood():
        R = tf.cast(value, tf.complex128)[None, None]
        return statespace.log_likelihood(model().replace(R=R), z, likelihood=likelihood)

    sides = []
    for sign in (1, -1, 0):
        value.assign(noise + sign * h)
        with tf.GradientTape() as tape:  # for the sides too: one program to compile
            found = log_likelihood()
        sides.append(float(found))
    gradient = tape.gradient(found, value)
    assert gradient.numpy() == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "steps", "process_noise"),
    [
        # Of one observation, by default, in test_likelihoods_in_use.py.
        pytest.param(StudentT(3.0), 1, Q, marks=pytest.mark.long),
        pytest.param(StudentT(3.0), 12, Q, marks=pytest.mark.long),
        pytest.param(OneBit(), 12, Q, marks=pytest.mark.long),
        pytest.param(Magnitude(), 4, 0.01, marks=pytest.mark.long),
    ],
    ids=lambda value: type(value).__name__,
)
def test_is_the_gradient_of_the_bound_that_of_differences(likelihood, steps, process_noise):
    z = tf.constant(series(likelihood, steps))
    given = ((ROOT, tf.complex128), (process_noise, tf.float64), (R, tf.float64))
    root, q, r = (tf.Variable(a, dtype=dtype) for a, dtype in given)

    def value():
        changes = {"F": root[None, None]}
        for name, a in (("Q", q), ("R", r)):
            changes[name] = tf.cast(a, tf.complex128)[None, None]
        return statespace.log_likelihood(model().replace(**changes), z, likelihood=likelihood)

    with tf.GradientTape() as tape:
        bound = value()
    gradients = tape.gradient(bound, [root, q, r])
    for variable, gradient in zip((root, q, r), gradients, strict=True):
        value_there = variable.numpy()
        for part in (1.0, 1.0j) if variable.dtype.is_complex else (1.0,):
            slopes = []
            for h in (1e-4, 5e-5):  # Richardson
                values = []
                for sign in (1.0, -1.0):
                    variable.assign(value_there + sign * h * part)
                    values.append(float(value()))
                slopes.append((values[0] - values[1]) / (2 * h))
                variable.assign(value_there)
            slope = (4 * slopes[1] - slopes[0]) / 3
            found = np.real(np.conj(part) * gradient.numpy())
            assert found == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.long
def test_are_components_of_independent_states_filters_of_their_own():
    z = np.concatenate([series(OneBit(), 8, seed=s) for s in (1, 2)], axis=-1)
    eye = np.eye(2)
    both = statespace.LinearGaussian(ROOT * eye, Q * eye, eye, R * eye, np.ones(2) + 0j, 0.2 * eye)
    together = statespace.filter(both, z, likelihood=OneBit())
    parts = [statespace.filter(model(), z[:, i : i + 1], likelihood=OneBit()) for i in range(2)]
    for i, part in enumerate(parts):
        np.testing.assert_allclose(
            together.filtered_means[:, i], part.filtered_means[:, 0], atol=1e-8
        )
    total = sum(float(part.log_likelihood) for part in parts)
    assert float(together.log_likelihood) == pytest.approx(total, abs=1e-8)


@pytest.mark.long
def test_is_a_real_series_robust_too():
    walk = statespace.LinearGaussian([[1.0]], [[0.01]], [[1.0]], [[0.1]], [0.0], [[1.0]])
    z = np.array([0.1, -0.2, 5.0, 0.1, -0.05, np.nan, 0.2])
    robust = statespace.smooth(walk, z, likelihood=StudentT(3.0)).smoothed_means.numpy()
    known = statespace.smooth(walk, z, missing=np.abs(z) > 1).smoothed_means.numpy()
    assert np.abs(robust - known).max() < 0.03
    signs = statespace.filter(walk, np.sign(z), likelihood=OneBit())
    one = statespace.filter(walk, [1.0], likelihood=OneBit())
    # The evidence of one sign of a signal of mean zero is one half.
    assert float(one.log_likelihood) == pytest.approx(-np.log(2), abs=1e-9)
    assert np.isfinite(signs.filtered_means.numpy()).all()


def squared(observation, size=1, noise=0.1):
    """A normal state seen through a polynomial, whose moments a rule of order 5 has exactly."""
    return statespace.NonlinearGaussian(
        lambda x: x, observation, [[0.01]], noise * np.eye(size), [0.0], [[1.0]]
    )


@pytest.mark.parametrize("likelihood", [OneBit(), StudentT(4.0)], ids=lambda k: type(k).__name__)
def test_tells_an_observation_of_what_linearisation_leaves(likelihood):
    """Of x + x² with x standard normal: the joint normal of both has moments 0, 1, 1, 3 and 1."""
    rule, R = statespace.SigmaPoints("gauss-hermite", order=5), 0.1
    z = 1.0 if isinstance(likelihood, OneBit) else 3.0
    found = statespace.filter(squared(lambda x: x + x**2), [z], rule=rule, likelihood=likelihood)
    if isinstance(likelihood, OneBit):
        u = 1.0 / np.sqrt(3.0 + R)
        ratio = np.exp(scipy.stats.norm.logpdf(u) - scipy.stats.norm.logcdf(u))
        mean, variance = 1.0 + 3.0 * ratio * u, 3.0 - 9.0 * ratio * (u + ratio) * u**2
        evidence = scipy.stats.norm.logcdf(u)
    else:
        weight = 1.0
        for _ in range(3000):
            variance = 1.0 / (1.0 / 3.0 + weight / R)
            mean = variance * (1.0 / 3.0 + z * weight / R)
            square = (z - mean) ** 2 + variance
            weight = 5.0 / (4.0 + square / R)
        evidence = scipy.stats.t.logpdf(np.sqrt(square), 4.0, scale=np.sqrt(R))
        divergence = variance / 3.0 + (mean - 1.0) ** 2 / 3.0 - 1.0 - np.log(variance / 3.0)
        evidence -= 0.5 * divergence
    assert found.filtered_means.numpy()[0, 0] == pytest.approx((mean - 1.0) / 3.0, abs=1e-8)
    variance = 1.0 + (variance - 3.0) / 9.0
    assert found.filtered_variances.numpy()[0, 0] == pytest.approx(variance, abs=1e-8)
    assert float(found.log_likelihood) == pytest.approx(evidence, abs=1e-8)


@pytest.mark.long
def test_tells_a_missing_component_nothing_of_the_others():
    rule = statespace.SigmaPoints("gauss-hermite", order=5)
    both = squared(lambda x: tf.concat([x + x**2, x - x**2], axis=-1), size=2)
    z = np.array([[2.0, np.nan], [np.nan, 0.5]])
    found = statespace.filter(both, z, rule=rule, likelihood=StudentT(4.0))
    for t, function in enumerate((lambda x: x + x**2, lambda x: x - x**2)):
        one = squared(function)
        start = found.predicted_means[t], found.predicted_chols[t] @ found.predicted_chols[t]
        one = one.replace(initial_mean=start[0], initial_covariance=start[1])
        alone = statespace.filter(one, [z[t, t]], rule=rule, likelihood=StudentT(4.0))
        np.testing.assert_allclose(alone.filtered_means[0], found.filtered_means[t], atol=1e-8)
        np.testing.assert_allclose(alone.log_likelihood, found.log_likelihoods[t], atol=1e-8)


@pytest.mark.long
def test_ends_a_smoother_where_each_state_agrees_whatever_its_size():
    """Beside a state that is certain and large, and beside a series that agrees sooner."""
    slow = np.array([[9.5 + 0j], [9.5]])
    alone = statespace.smooth(still(10.0, 1.0), slow, likelihood=StudentT(4.0))
    large = statespace.LinearGaussian(
        np.eye(2), np.zeros((2, 2)), [[1.0, 1.0]], [[1.0]], [0j, 1e9], np.diag([10.0, 0.0])
    )
    found = statespace.smooth(large, slow + 1e9, likelihood=StudentT(4.0))
    expected = alone.smoothed_means.numpy()[:, 0]
    np.testing.assert_allclose(found.smoothed_means[:, 0], expected, rtol=1e-6)
    small = 1e-7 * slow
    tiny = still(10.0, 1.0).replace(
        R=np.array([1.0, 1e-14])[:, None, None, None],
        initial_covariance=np.array([10.0, 10e-14])[:, None, None],
    )
    both = statespace.smooth(tiny, np.stack([0.1 * slow, small]), likelihood=StudentT(4.0))
    np.testing.assert_allclose(1e7 * both.smoothed_means[1, :, 0], expected, rtol=1e-6)


def test_may_a_smoothed_state_be_zero():
    found = statespace.smooth(still(1.0, 0.5), [0j, 0j], likelihood=StudentT(3.0))
    np.testing.assert_array_equal(found.smoothed_means, 0.0)


def test_is_a_smoother_of_students_t_that_of_the_weights_of_its_definition():
    """Of a state that stays: both observations bear on it as on one."""
    nu, variance, noise, z = 3.0, 1.0, 0.5, np.array([1.5 - 0.5j, 0.2j])
    weights = np.ones(2)
    for _ in range(2000):
        v = 1.0 / (1.0 / variance + weights.sum() / noise)
        mean = v * np.sum(weights * z) / noise
        weights = (nu / 2 + 1) / (nu / 2 + (np.abs(z - mean) ** 2 + v) / noise)
    found = statespace.smooth(still(variance, noise), z, likelihood=StudentT(nu))
    np.testing.assert_allclose(found.smoothed_means[:, 0], [mean, mean], rtol=1e-6)
    root = found.smoothed_chols.numpy()[..., 0, 0]
    np.testing.assert_allclose(np.abs(root) ** 2, [v, v], rtol=1e-6)


@pytest.mark.long
def test_is_students_t_in_a_filter_near_knowing_the_outliers():
    rng = np.random.default_rng(3)
    x, z = (a.numpy() for a in statespace.sample(model(), 400, seed=7))
    bad = rng.random((400, 1)) < 0.05
    noise = np.sqrt(R / 2) * (rng.normal(size=(400, 1)) + 1j * rng.normal(size=(400, 1)))
    z = np.where(bad, x + 10.0 * noise, z)

    def error(**arguments):
        means = statespace.filter(model(), z, **arguments).filtered_means.numpy()
        return np.sqrt(np.mean(np.abs(means - x) ** 2))

    assert error(likelihood=StudentT(4.0)) < 1.1 * error(missing=bad) < 0.7 * error()


def test_is_the_evidence_of_a_phase_that_knows_nothing_uniform():
    far = statespace.LinearGaussian([[1.0 + 0j]], [[0.0]], [[1.0]], [[5.0]], [0j], [[1e-6]])
    value = float(statespace.log_likelihood(far, [np.exp(0.3j)], likelihood=VonMises()))
    assert value == pytest.approx(scipy.stats.uniform.logpdf(0.3, 0, 2 * np.pi), abs=1e-5)


def test_is_a_modulus_told_apart_from_a_phase():
    """The modulus follows the moduli, the phase stays where it was, with an honest error."""
    still = statespace.LinearGaussian([[1.0 + 0j]], [[1e-4]], [[1.0]], [[0.01]], [1j], [[0.04]])
    found = statespace.filter(still, 1.3 + np.zeros(30, complex), likelihood=Magnitude())
    mean, root = found.filtered_means.numpy()[-1, 0], found.filtered_chols.numpy()[-1]
    assert abs(mean) == pytest.approx(1.3, abs=0.02)
    assert abs(mean.real) < 1e-6
    covariance = root @ root.T
    assert covariance[0, 0] > 0.9 * (0.02 + 29e-4 / 2)  # across
    assert covariance[1, 1] < 0.002  # along


@pytest.mark.parametrize("steps", long_except([30, 12], 30))  # as many as above, compiled once
def test_is_a_lost_phase_of_moduli_refused(steps):
    """Within a few steps nothing is left of that of the initial state."""
    z = np.abs(series(None, steps)) + 0j
    with pytest.raises(
        ValueError, match=r"Magnitude\(\) at step \d+ .* or the phase of moduli lost"
    ):
        statespace.filter(model(), z, likelihood=Magnitude())


@pytest.mark.parametrize("kind", long_except(["inputs", "batch", "diffuse", "pair"], "pair"))
def test_is_a_filter_among_outliers_of_few_that_of_normal_noise_for_any_model(kind):
    """With many degrees of freedom, of inputs, matrices that vary, batches, missing components."""
    rng = np.random.default_rng(0)
    normal = StudentT(1e8)
    varying = np.array([[[ROOT * (1 - 0.01 * t)]] for t in range(6)])
    z, u = series(normal, 6), rng.normal(size=(6, 1)) + 0j
    start = {"initial_mean": [1.0 + 0j], "initial_covariance": [[0.2]]}
    eye = np.eye(2)
    pair = statespace.LinearGaussian(
        ROOT * eye, Q * eye, [[1, 0.5], [0.2j, 1]], R * eye, np.zeros(2) + 0j, eye
    )
    both = statespace.sample(pair, 6, seed=2)[1].numpy()
    both[2, 1] = complex(np.nan, np.nan)
    cases = {
        "inputs": (
            statespace.LinearGaussian(varying, [[Q]], [[1.0]], [[R]], B=[[2.0]], **start),
            z,
            u,
        ),
        "batch": (
            model().replace(F=np.array([ROOT, 0.5])[:, None, None, None]),
            np.stack([z, 2 * z]),
            None,
        ),
        "diffuse": (model().replace(initial_covariance="diffuse"), z, None),
        "pair": (pair, both, None),
    }
    case, observations, inputs = cases[kind]
    found, wanted = (
        statespace.filter(case, observations, inputs=inputs, likelihood=likelihood)
        for likelihood in (normal, None)
    )
    np.testing.assert_allclose(found.filtered_means, wanted.filtered_means, atol=1e-6)
    np.testing.assert_allclose(found.log_likelihoods, wanted.log_likelihoods, atol=1e-5)
