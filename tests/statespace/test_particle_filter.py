"""The particle filter: in the limit of many particles that of Kalman, or the integrals of Bayes.

A batch of copies of one series makes independent runs, whose spread tells the error of their mean.
"""

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from cgp.statespace import NonlinearGaussian
from cgp.statespace.particles import systematic_ancestors
from tests.long_cases import long_except
from tests.reference import grid, kalman
from tests.statespace.nonlinear_problems import PROBLEMS, power
from tests.statespace.problems import improper_parts, problem, reference_augmented

COPIES = 40
SIZE = 1500


def copies(a, count=COPIES):
    return np.broadcast_to(a, (count, *np.shape(a)))


def assert_mean(values, expected, bias=0.0):
    """The mean of runs, along the first axis, is as expected within five standard errors."""
    values = np.asarray(values)
    if np.iscomplexobj(values):
        assert_mean(values.real, np.real(expected), bias)
        assert_mean(values.imag, np.imag(expected), bias)
        return
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # What is certain, as the imaginary part of a variance, has no spread but rounding.
    np.testing.assert_array_less(np.abs(values.mean(axis=0) - expected), 5.0 * error + bias + 1e-9)


def assert_covariances(values, expected):
    """That of a finite sample is smaller by about the inverse of its effective size."""
    assert_mean(values, expected, bias=0.02 * np.abs(expected).max())


def assert_unbiased(log_likelihood, expected):
    """Likelihoods, not their logarithms, have the likelihood as their mean."""
    assert_mean(np.exp(log_likelihood - expected), 1.0)


def wide(given):
    """The problem with less precise observations: else a few particles bear all weight."""
    R, H = given.matrices["R"], given.matrices["H"]
    return given.changed(R=R + np.eye(R.shape[-1], dtype=R.dtype), H=0.5 * H)


def sampled(given, model, seed=1):
    """The problem with a series of its model, which has the holes and inputs of that given."""
    steps = given.z.shape[-2]
    z = statespace.sample(model, steps, seed=seed, inputs=given.inputs).observations
    return given._replace(z=np.where(np.isnan(given.z), np.nan, z))


# --- linear models --------------------------------------------------------------------------------

LINEAR = {
    "holes": {"n": 2, "m": 2, "holes": "shared"},
    "real, inputs": {"n": 2, "m": 1, "dtype": "float64", "inputs": 1},
    "varying": {"n": 2, "m": 2, "varying": "FQHRB", "inputs": 2, "holes": "shared"},
}


@pytest.mark.parametrize("kind", long_except(LINEAR, "varying"))
def test_do_particles_of_a_linear_model_tend_to_the_kalman_filter(kind):
    given = wide(problem(**LINEAR[kind]))
    model = given.model()
    given = sampled(given, model)
    found = statespace.particle_filter(model, copies(given.z), SIZE, seed=3, inputs=given.inputs)
    expected = given.expected(kalman.filter)
    assert_mean(found.filtered_means, expected.filtered_means)
    assert_covariances(found.filtered_covariances, expected.filtered_covariances)
    assert_unbiased(found.log_likelihood, np.sum(expected.log_likelihoods))
    assert found.filtered_means.dtype == model.dtype
    if model.dtype.is_complex:
        assert_mean(found.filtered_pseudo_covariances, 0.0)
    else:
        assert found.filtered_pseudo_covariances is None


def test_have_particles_of_an_improper_model_its_pseudo_covariances():
    given = problem(2, 2, holes="shared")
    matrices, parts = improper_parts(2, 2)
    given = wide(given.changed(**matrices))
    model = statespace.widely_linear(given.model(), **parts)
    given = sampled(given, model)
    found = statespace.particle_filter(model, copies(given.z), SIZE, seed=4)
    augmented = reference_augmented(given, parts)
    expected = kalman.filter(augmented, np.concatenate([given.z, given.z.conj()], axis=-1))
    assert_mean(found.filtered_means, expected.filtered_means[:, :2])
    covariances = expected.filtered_covariances
    for name, values in (
        ("filtered_covariances", covariances[:, :2, :2]),
        ("filtered_pseudo_covariances", covariances[:, :2, 2:]),
    ):
        assert_covariances(getattr(found, name), values)
    assert np.abs(covariances[:, :2, 2:]).max() > 0.1
    likelihood = statespace.log_likelihood(model, given.z)  # tested against references elsewhere
    assert_unbiased(found.log_likelihood, float(likelihood))


@pytest.mark.long
def test_is_each_series_of_a_batch_filtered_by_its_own_model():
    given = wide(problem(2, 2, holes="own", batch=2, models=True))
    model = given.model()
    given = sampled(given, model)
    z = np.stack([given.z] * COPIES)
    found = statespace.particle_filter(model, z, SIZE, seed=5)
    expected = given.expected(kalman.filter)
    assert found.filtered_means.shape == (COPIES, 2, *given.z.shape[1:])
    assert found.particles.shape == (COPIES, 2, SIZE, 2)
    assert_mean(found.filtered_means, expected.filtered_means)
    for b in range(2):
        assert_unbiased(found.log_likelihood[:, b], np.sum(expected.log_likelihoods[b]))


@pytest.mark.parametrize("holomorphic", long_except([True, False], False))
def test_are_particles_of_linear_functions_those_of_the_linear_model(holomorphic):
    """The same numbers are drawn for both."""
    given = problem(2, 2, holes="own", inputs=2, batch=2)
    own, linear = given.matrices, given.model()
    given = sampled(given, linear)
    F, H, B = (tf.constant(own[name]) for name in "FHB")
    model = NonlinearGaussian(
        lambda x, u: tf.linalg.matvec(F, x) + tf.linalg.matvec(B, u),
        lambda x, u: tf.linalg.matvec(H, x),
        **{name: own[name] for name in ("Q", "R", "initial_mean", "initial_covariance")},
        holomorphic=holomorphic,
        input_size=2,
    )
    if not holomorphic:
        linear = statespace.widely_linear(linear)
    found, expected = (
        statespace.particle_filter(
            m, given.z, 400, seed=6, inputs=given.inputs, expectation=lambda x: x[..., :1]
        )
        for m in (model, linear)
    )
    np.testing.assert_allclose(found.expectations, found.filtered_means[..., :1], atol=1e-12)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


# --- functions that are not linear ----------------------------------------------------------------


@pytest.mark.parametrize("places", long_except([33, 57], 33))
def test_do_particles_tend_to_the_integrals_of_bayes(places):
    """A complex state of which a real power is observed: its phase is told by its history alone."""
    given = power()
    z = given.z.copy()
    z[3] = np.nan
    model = given.model()
    found = statespace.particle_filter(model, copies(z), SIZE, seed=7)
    Q, R, mean, covariance, _ = given.composite()
    axes = [np.linspace(-3.5, 3.5, places)] * 2
    expected = grid.filtered(*given.of_composite, Q, R, mean, covariance, z, axes)
    assert_mean(found.filtered_means[..., 0], expected.means @ [1.0, 1j])
    K, C = kalman.pair(expected.covariances)
    assert_covariances(found.filtered_covariances, K)
    assert_covariances(found.filtered_pseudo_covariances, C)
    assert np.abs(C).max() > 0.1
    assert_unbiased(found.log_likelihood, expected.log_likelihood)


def test_are_the_last_particles_those_of_the_last_moments():
    given = PROBLEMS["carrier"]()
    found = statespace.particle_filter(given.model(), given.z, 300, seed=0)
    weights = np.exp(found.log_weights)
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights @ found.particles.numpy(), found.filtered_means[-1])
    np.testing.assert_allclose(1.0 / np.sum(weights**2), found.effective_sizes[-1])
    covariance = np.cov(found.particles.numpy().T, aweights=weights, ddof=0)
    np.testing.assert_allclose(covariance, found.filtered_covariances[-1])
    np.testing.assert_allclose(np.sum(found.log_likelihoods), found.log_likelihood)
    assert (found.effective_sizes.numpy() >= 1.0).all()
    assert found.effective_sizes.numpy().max() <= 300 * (1 + 1e-9)


def test_is_a_missing_series_its_prior():
    """Nothing is weighed or drawn again."""
    given = PROBLEMS["improper"]()
    found = statespace.particle_filter(given.model(), given.z, 200, seed=0, missing=True)
    np.testing.assert_allclose(found.effective_sizes, 200.0)
    np.testing.assert_allclose(found.log_likelihoods, 0.0, atol=1e-12)


# --- systematic resampling ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_systematic_resampling_unbiased(dtype):
    rng = np.random.default_rng(0)
    size, offsets = 50, 2000
    weights = rng.exponential(size=size).astype(dtype)
    weights[[0, 7, -1]] = 0.0
    expected = size * weights.astype(float) / np.sum(weights, dtype=float)
    offset = (np.arange(offsets) + 0.5) / offsets
    ancestors = systematic_ancestors(
        tf.constant(copies(weights, offsets)), tf.constant(offset[:, None])
    ).numpy()
    counts = np.stack([np.bincount(row, minlength=size) for row in ancestors])
    assert (counts.sum(axis=1) == size).all()
    assert (counts >= np.floor(expected)).all()
    assert (counts <= np.ceil(expected)).all()
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=2.0 / offsets)
    assert (np.diff(ancestors, axis=1) >= 0).all()


@pytest.mark.parametrize("offset", [1.0, 1e-300])
def test_is_a_particle_without_weight_never_drawn(offset):
    weights = np.array([0.0, 0.3, 0.0, 1e-9, 0.1, 0.0])
    found = systematic_ancestors(tf.constant(weights), tf.constant([offset], tf.float64))
    assert (weights[found.numpy()] > 0).all()


# --- graphs, seeds, precision ---------------------------------------------------------------------


@pytest.mark.long
def test_is_a_graph_the_same_as_eager_and_traced_once():
    given = PROBLEMS["carrier"]()
    calls = []

    def observation(x):
        calls.append(x)
        return given.observation(x)

    model = NonlinearGaussian(given.transition, observation, **given.noise)
    found = statespace.particle_filter(model, given.z, 200, seed=1)
    count = len(calls)
    again = statespace.particle_filter(model, given.z, 200, seed=1)
    for a, b in zip(found, again, strict=True):
        np.testing.assert_array_equal(a, b)
    other = statespace.particle_filter(model.replace(R=[[0.4]]), given.z, 200, seed=2)
    assert len(calls) == count + 1  # the check of the new model
    assert other.log_likelihood != found.log_likelihood
    in_graph = tf.function(lambda z: statespace.particle_filter(model, z, 200, seed=1))(given.z)
    np.testing.assert_allclose(in_graph.filtered_means, found.filtered_means, rtol=1e-9)
    loose = statespace.particle_filter(model, given.z, 200)
    assert loose.log_likelihood != statespace.particle_filter(model, given.z, 200).log_likelihood


@pytest.mark.long
def test_may_matrices_begin_to_vary_after_the_graph_was_made():
    """The graph of all linear models must not take an axis of one step for one of many."""
    for varying in ("", "F", "Q", "HR", ""):
        given = wide(problem(2, 2, varying=varying))
        model = given.model()
        given = sampled(given, model)
        found = statespace.particle_filter(model, copies(given.z), SIZE, seed=8)
        assert_mean(found.filtered_means, given.expected(kalman.filter).filtered_means)


@pytest.mark.long
def test_is_single_precision_kept():
    given = PROBLEMS["improper"]()
    single = {k: np.asarray(v, "complex64") for k, v in given.noise.items()}
    model = NonlinearGaussian(given.transition, given.observation, **single)
    z = statespace.sample(model, 10, seed=2).observations
    found = statespace.particle_filter(model, copies(z), SIZE, seed=1)
    assert found.filtered_means.dtype == tf.complex64
    assert found.log_weights.dtype == tf.float32
    double = statespace.particle_filter(given.model(), copies(z), SIZE, seed=2)
    np.testing.assert_allclose(
        np.mean(found.filtered_means, axis=0), np.mean(double.filtered_means, axis=0), atol=0.05
    )


def test_is_one_particle_a_simulation():
    given = PROBLEMS["power"]()
    found = statespace.particle_filter(given.model(), given.z, 1, seed=1)
    assert np.isfinite(found.log_likelihood)
    np.testing.assert_array_equal(found.filtered_covariances, 0.0)


# --- what is refused ------------------------------------------------------------------------------

ONE = {"Q": [[1.0]], "R": [[1.0]], "initial_mean": [1.0], "initial_covariance": [[1.0]]}


@pytest.mark.parametrize("particles", [0, -3, 2.5, True, "many"])
def test_an_impossible_number_of_particles_is_refused(particles):
    model = NonlinearGaussian(tf.sin, tf.exp, **ONE)
    with pytest.raises(ValueError, match="particles must be a whole number, at least 1, got"):
        statespace.particle_filter(model, [1.0], particles)


@pytest.mark.parametrize("R", [np.zeros((2, 2)), np.ones((2, 2)), np.diag([1.0, 0.0])])
def test_a_singular_noise_is_refused(R):
    model = statespace.LinearGaussian(np.eye(2), np.eye(2), np.eye(2), R, np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="R must not be singular: particles are weighed"):
        statespace.particle_filter(model, np.ones((3, 2)))


def test_a_diffuse_start_is_refused():
    walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], None, "diffuse")
    with pytest.raises(ValueError, match="no particles can be drawn of a diffuse initial state"):
        statespace.particle_filter(walk, [1.0], 10)


def test_an_observation_that_no_particle_can_explain_is_named_with_its_step():
    model = NonlinearGaussian(tf.sin, lambda x: x, **{**ONE, "R": [[1e-6]]})
    z = [0.5, 0.5, 1e160, 0.5]
    with pytest.raises(ValueError, match="no particle has any weight at step 2"):
        statespace.particle_filter(model, z, seed=1)


def test_a_function_that_is_not_finite_is_named_with_its_step():
    model = NonlinearGaussian(lambda x: x - 100.0, tf.math.log, [[1e-6]], [[1.0]], [1.0], [[1e-6]])
    with pytest.raises(ValueError, match="transition is not finite at step 1, for a particle"):
        statespace.particle_filter(model, [0.0, 0.0, 0.0], seed=1)


def test_another_series_or_model_is_refused():
    model = NonlinearGaussian(tf.sin, tf.exp, **ONE)
    with pytest.raises(TypeError, match="must be real, got complex"):
        statespace.particle_filter(model, [1j])
    with pytest.raises(TypeError, match="model must be a LinearGaussian"):
        statespace.particle_filter(3, [1.0])
    with pytest.raises(ValueError, match="seed must be one integer or two"):
        statespace.particle_filter(model, [1.0], seed=0.5)
